"""`biorag models`."""

from __future__ import annotations

from typing import Any

from biorag.commands import options, show
from biorag.models.finding import STARTER_ENCODER, STARTER_GENERATOR, hub_models


def models(as_json: options.Json = False) -> None:
    """List the models on this machine, and how to name others.

    Examples:

      biorag models

      biorag models --json
    """
    found = _starters() + _cached()
    if as_json:
        show.print_json(found)
        return
    show.table(
        "Models on this machine",
        ["name", "role", "where"],
        [(m["name"], m["role"], m["path"]) for m in found],
    )
    show.out.print(
        "--encoder, --reranker: 'starter', a directory, or a Hugging Face id; --reranker cross:ID for a cross-encoder\n"
        "--llm: 'starter', a .gguf path, hf:OWNER/REPO/FILE.gguf, a server's URL, or 'none'"
    )


def _starters() -> list[dict[str, Any]]:
    return [
        {
            "name": f"starter ({model.title})",
            "role": model.role,
            "path": str(model.folder() or "not installed"),
        }
        for model in (STARTER_ENCODER, STARTER_GENERATOR)
    ]


def _cached() -> list[dict[str, Any]]:
    return [{"name": name, "role": "cached", "path": str(path)} for name, path in hub_models().items()]
