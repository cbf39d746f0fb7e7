"""The cheap checks before the first step of a run: inputs, packages, licences, servers, memory of every training."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from biorag.errors import BioragError, MissingError, ServiceError
from biorag.lab.recipes.estimates import StepEstimate
from biorag.lab.recipes.plan import RecipePlan
from biorag.models.finding import require_access
from biorag.settings.sources import load_settings
from biorag.utils.http import excerpt
from biorag.utils.network import Server, without_credentials
from biorag.utils.parsing import parse_json
from biorag.utils.versions import lacking

SECONDS = 20.0  # to wait for a server's answer


def check(plan: RecipePlan, estimates: Mapping[str, StepEstimate]) -> None:
    """Check a plan.

    Raises MissingError if inputs, packages or the licence of a model are not there; ServiceError if a server or the
    memory does not do.
    """
    if listed := ", ".join(plan.lacking()):
        raise MissingError(f"inputs are not there: {listed}: put them there, or name their folder by --data")
    extras = {extra: packages for extra in plan.extras if (packages := lacking(extra))}
    if extras:
        listed = ", ".join(sorted({package for packages in extras.values() for package in packages}))
        raise MissingError(f"these steps need {listed}: run pip install 'biorag[{','.join(extras)}]'")
    for id in (id for id, loaded in plan.gated.items() if loaded):
        require_access(id)
    too_large = [(step.name, estimates[step.key].fault) for step in plan.steps if estimates[step.key].fault]
    if too_large:
        name, fault = too_large[0]
        others = f", and so for {len(too_large) - 1} other steps" if len(too_large) > 1 else ""
        raise ServiceError(f"step {name!r}: {fault}{others}: name a profile by --hardware, or take a larger machine")
    for name in plan.servers:
        _check_server(plan, name)


def _check_server(plan: RecipePlan, name: str) -> None:
    """Ask a server which models it has."""
    described, url = plan.recipe.servers[name], plan.urls[name]
    kind = described.option.removeprefix("--")
    server = load_settings({}).services.server(url, kind)
    try:
        models = _asked(server, "models" if kind == "llm" else "einfo.fcgi?retmode=json")
    except (httpx.HTTPError, BioragError, ValueError) as error:
        raise ServiceError(
            f"server {name!r} ({described.what}) does not answer at {without_credentials(url)} ({error}): "
            f"{described.get or 'start it'}, or name another by --server {name}=URL"
        ) from None
    listed = [str(model.get("id")) for model in models.get("data", ())] if kind == "llm" else []
    if described.model and described.model not in listed:
        raise ServiceError(
            f"server {name!r} at {without_credentials(url)} does not have the model {described.model!r} but "
            f"{', '.join(listed[:9]) or 'none'}: start it with that model, or name another by --server {name}=URL"
        )


def _asked(server: Server, path: str) -> dict[str, list[dict[str, object]]]:
    root = server.url.rstrip("/")
    if path == "models" and not root.endswith("/v1"):
        root += "/v1"
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    response = httpx.get(f"{root}/{path}", headers=headers, auth=server.auth, timeout=SECONDS)
    if not response.is_success:
        raise ValueError(f"{response.status_code}: {excerpt(response)}")
    answer = parse_json(response.content)
    if not isinstance(answer, dict):
        raise ValueError("not a JSON object")
    return answer
