"""A resumable merge: the weights are chosen if asked, then the merged encoder is written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from biorag.training.merging.arithmetic import Recipe
from biorag.training.merging.encoder import Experts, MergeRun
from biorag.types import Progress
from biorag.utils.network import command_line
from biorag.utils.versions import installed_versions


class WeightChoice(Protocol):
    """Chooses the weights of experts by the quality of the merged encoder."""

    def identity(self, method: str) -> Mapping[str, Any]:
        """Return what determines the choice besides the experts and the starting recipe."""

    def choose(
        self, out: Path, experts: Experts, recipe: Recipe, progress: Progress
    ) -> tuple[Recipe, Mapping[str, Any]]:
        """Return the recipe with the best weights, and the report of the search."""


def merge_experts(
    out: Path, experts: Experts, recipe: Recipe, choice: WeightChoice | None, progress: Progress
) -> dict[str, Any]:
    """Write the merged encoder into the folder `out`, resuming an interrupted merge; return its manifest.

    Raises
    ------
    MismatchError
        If the folder holds something else, or another merge.
    ServiceError
        If another process merges into the folder, or memory or disk have no room.
    """
    started = time.perf_counter()
    run = MergeRun(out, {**asdict(recipe), **experts.hashes, **(choice.identity(recipe.method) if choice else {})})
    report = run.finished()
    if report is None:
        experts.check_memory(recipe)
        with run.locked():
            run.begin({})
            best, search = choice.choose(out, experts, recipe, progress) if choice else (recipe, None)
            with progress("Merging", experts.tensors) as advance:
                experts.write(out, best, advance)
            seconds = round(time.perf_counter() - started, 3)
            report = run.finish({**_facts(experts, best, search), "seconds": seconds})
    return report


def _facts(experts: Experts, recipe: Recipe, search: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the facts of a merge for its manifest."""
    return {
        **asdict(recipe),
        "experts": [
            {"id": expert.files.id, "sha256": expert.files.sha256, "adapter": expert.adapted, "weight": weight}
            for expert, weight in zip(experts.experts, recipe.weights, strict=True)
        ],
        "base": {"id": experts.base.files.id, "sha256": experts.base.files.sha256} if experts.base else None,
        "search": search,
        "command": command_line(),
        "versions": installed_versions(),
    }
