"""What clients elsewhere see of the models and sources of this machine: names, without the folders they lie in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

_FOLDER = re.compile(r"((?:^|[:,])\s*)/(?!/)(?:[^,]*/)?(?=[^,/@])")  # before the name of a stage that is a path


def without_folders(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of `--json` in which a source goes by its file's name, and so does a model that is a folder."""
    shown = dict(values)
    if models := shown.get("models"):
        shown["models"] = {role: model and _named(role, model) for role, model in models.items()}
    if encoder := shown.get("encoder"):
        is_whole = isinstance(encoder, dict)  # not its id alone
        shown["encoder"] = {**encoder, "id": _named("encoder", encoder["id"])} if is_whole else _named("", encoder)
    if tokens := shown.get("tokens"):
        shown["tokens"] = {**tokens, "reranker": _named("reranker", tokens["reranker"])}
    if sources := shown.get("sources"):
        shown["sources"] = [{**source, "name": PurePath(source["name"]).name} for source in sources]
    return shown


def _named(role: str, model: str) -> str:
    if role == "reranker":  # a chain
        return _FOLDER.sub(r"\1", model)
    return PurePath(model).name if model.startswith("/") else model
