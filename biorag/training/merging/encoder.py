"""The merged encoder: the experts' weights by a recipe, everything else from the first expert."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles
from biorag.models.resources import FLOAT_BYTES, Need, admit, duration
from biorag.training.merging.adapters import SETTINGS
from biorag.training.merging.arithmetic import Recipe, seconds_per_value
from biorag.training.merging.compatibility import Folders, check_compatible
from biorag.training.merging.experts import (
    Expert,
    StoredWeights,
    TensorKey,
    adapter_files,
    check_tensors,
    open_expert,
)
from biorag.types import OnProgress, Vectors
from biorag.utils.files import make_folder, replacing, require_room
from biorag.utils.runs import RunDirectory

MANIFEST = "merge.json"
COPIED = (".json", ".txt", ".model", ".metadata", ".jinja")
COPIES, TEMPORARIES = 2, 6  # of a tensor, as float32: for each expert, and for the merged one
LEFT_BEHIND = (MANIFEST, "training.json", SETTINGS, "points.json")  # facts of a run, not of the encoder


@dataclass(frozen=True, slots=True)
class Experts:
    """Experts that can be merged, and the base that they were trained from, if given."""

    experts: tuple[Expert, ...]
    base: Expert | None

    @property
    def tensors(self) -> int:
        """How many tensors the merged encoder has."""
        return len(self.experts[0].weights.tensors)

    @property
    def hashes(self) -> dict[str, Any]:
        """The SHA-256 of all weights that are merged."""
        experts = [expert.files.sha256 for expert in self.experts]
        return {"experts": experts, "base": self.base.files.sha256 if self.base else None}

    def check_memory(self, recipe: Recipe) -> None:
        """Check the memory that merging the largest tensor takes; tell the time of a large merge.

        Raises
        ------
        ServiceError
            If it does not fit into memory.
        """
        sizes = [math.prod(tensor.shape) for tensor in self.experts[0].weights.tensors.values()]
        sources = len(self.experts) + bool(self.base)
        copies = COPIES * sources + TEMPORARIES

        def pace() -> str:
            return f"merging takes {duration(sum(sizes) * seconds_per_value(recipe, sources))} or more"

        need = Need(f"merging {len(self.experts)} experts", 0, copies * max(sizes, default=0) * FLOAT_BYTES)
        admit(need, "cpu", "fewer experts at a time", pace)

    def write(self, folder: Path, recipe: Recipe, on_progress: OnProgress) -> None:
        """Write the merged encoder, tensor by tensor; memory: as `check_memory` says.

        Raises
        ------
        ServiceError
            If the disk has no room for it.
        """
        files = self._stored().files
        make_folder(folder)
        require_room(folder, sum(file.path.stat().st_size for file in files.values()))
        for source in self.folders(self.experts[0]):
            _copy(source, folder)
        for name, file in files.items():
            with replacing(folder / name) as stream:
                file.write_with(self._merged(recipe, str(Path(name).parent), on_progress), stream)

    def _merged(self, recipe: Recipe, module: str, on_progress: OnProgress) -> Callable[[str], Vectors]:
        def values(name: str) -> Vectors:
            key = TensorKey(module, name)
            experts = [expert.weights.floats(key) for expert in self.experts]
            merged = recipe.merged(experts, self.base.weights.floats(key) if self.base else None)
            on_progress(1)
            return merged

        return values

    def _stored(self) -> StoredWeights:
        """Return the weights whose files, names and types the merged encoder has."""
        source = self.base if self.base and self.experts[0].adapted else self.experts[0]
        assert isinstance(source.weights, StoredWeights)
        return source.weights

    def folders(self, expert: Expert) -> Folders:
        """Return the folders of an expert's files, its base's before an adapter's."""
        base = [self.base.files.path] if self.base and expert.adapted else []
        return [*base, expert.files.path]


def open_experts(experts: Sequence[ModelFiles], base: ModelFiles | None) -> Experts:
    """Open encoders that are to be merged.

    Raises
    ------
    BadInputError
        If they are not of one base, naming what differs.
    UsageError
        If one is an adapter, and there is no base.
    MissingError
        If the base is an adapter itself.
    """
    if base and adapter_files(base.path):
        raise MissingError(f"--base {base.path} is an adapter: give the encoder that it adapts")
    weights = StoredWeights(base.path) if base else None
    opened = tuple(open_expert(files, weights) for files in experts)
    merged = Experts(opened, Expert(base, weights, adapted=False) if base and weights else None)
    check_compatible([merged.folders(expert) for expert in opened], [base.path] if base else None)
    check_tensors(opened, merged.base)
    return merged


def _copy(source: Path, target: Path) -> None:
    """Copy an encoder's settings and vocabularies: those of its folder and of its modules'."""
    folders = [source, *(path.parent for path in sorted(source.glob("*/config.json")))]
    for folder in folders:
        for path in sorted(folder.iterdir()):
            kept = path.suffix in COPIED and path.name not in LEFT_BEHIND and not path.name.startswith(".")
            if path.is_file() and kept:
                copy = target / path.relative_to(source)
                make_folder(copy.parent)
                with path.open("rb") as read, replacing(copy) as write:
                    shutil.copyfileobj(read, write)


class MergeRun(RunDirectory):
    """The directory of a merged encoder."""

    kind = "merge"
    manifest_name = MANIFEST
