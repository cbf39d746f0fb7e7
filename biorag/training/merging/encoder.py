"""The merged encoder: the experts' weights by a recipe, all else as the first expert has it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.models.finding import ModelFiles
from biorag.models.memory import FLOAT_BYTES, Need, admit, duration
from biorag.training.merging.adapters import SETTINGS
from biorag.training.merging.arithmetic import Recipe, seconds_a_value
from biorag.training.merging.compatibility import Folders, check_alike
from biorag.training.merging.experts import Expert, Place, StoredWeights, check_tensors, open_expert, require_weights
from biorag.types import OnProgress, Vectors
from biorag.utils.files import make_folder, replacing, require_room
from biorag.utils.runs import RunDirectory

MANIFEST = "merge.json"
COPIED = (".json", ".txt", ".model", ".metadata", ".jinja")
COPIES, TEMPORARIES = 2, 6  # of a tensor, as float32: each expert's and its share; of the merged one
LEFT_BEHIND = (MANIFEST, "training.json", SETTINGS, "points.json")  # facts of a run, not of the encoder


@dataclass(frozen=True, slots=True)
class Experts:
    """Experts that can be merged, and the base that they were trained from if it was given."""

    experts: tuple[Expert, ...]
    base: Expert | None

    @property
    def tensors(self) -> int:
        """How many tensors the merged encoder has."""
        return len(self.experts[0].weights.tensors)

    @property
    def hashes(self) -> dict[str, Any]:
        """The SHA-256 of all weights that go in."""
        experts = [expert.files.sha256 for expert in self.experts]
        return {"experts": experts, "base": self.base.files.sha256 if self.base else None}

    def check_memory(self, recipe: Recipe) -> None:
        """Hold what merging the largest tensor takes against what is free; say of a large one what all of it takes.

        Raises
        ------
        ServiceError
            If it does not fit into memory.
        """
        sizes = [math.prod(tensor.shape) for tensor in self.experts[0].weights.tensors.values()]
        sources = len(self.experts) + bool(self.base)
        copies = COPIES * sources + TEMPORARIES

        def pace() -> str:
            return f"merging takes {duration(sum(sizes) * seconds_a_value(recipe, sources))} or more"

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
        for source in self._folders(self.experts[0]):
            _copy(source, folder)
        for name, file in files.items():
            with replacing(folder / name) as stream:
                file.write_with(self._merged(recipe, str(Path(name).parent), on_progress), stream)

    def _merged(self, recipe: Recipe, module: str, on_progress: OnProgress) -> Callable[[str], Vectors]:
        def values(name: str) -> Vectors:
            place = Place(module, name)
            experts = [expert.weights.floats(place) for expert in self.experts]
            merged = recipe.merged(experts, self.base.weights.floats(place) if self.base else None)
            on_progress(1)
            return merged

        return values

    def _stored(self) -> StoredWeights:
        """Return the weights whose files, names and types the merged encoder takes over."""
        giver = self.base if self.base and self.experts[0].adapted else self.experts[0]
        assert isinstance(giver.weights, StoredWeights)
        return giver.weights

    def _folders(self, expert: Expert) -> Folders:
        base = [self.base.files.path] if self.base and expert.adapted else []
        return [*base, expert.files.path]

    def check(self) -> None:
        """Refuse experts that are not of one base.

        Raises
        ------
        BadInputError
            Naming what differs.
        """
        check_alike([self._folders(expert) for expert in self.experts], [self.base.files.path] if self.base else None)
        check_tensors(self.experts, self.base)


def open_experts(experts: Sequence[ModelFiles], base: ModelFiles | None) -> Experts:
    """Open encoders that are to be merged.

    Raises
    ------
    BadInputError
        If they are not of one base, naming what differs.
    UsageError
        If one is an adapter, and there is no base.
    """
    weights = require_weights(base) if base else None
    opened = tuple(open_expert(files, weights) for files in experts)
    found = Experts(opened, Expert(base, weights, adapted=False) if base and weights else None)
    found.check()
    return found


def _copy(source: Path, target: Path) -> None:
    """Copy an encoder's settings and vocabularies: those of its folder and of its modules'."""
    folders = [source, *(path.parent for path in sorted(source.glob("*/config.json")))]
    for folder in folders:
        for path in sorted(folder.iterdir()):
            kept = path.suffix in COPIED and path.name not in LEFT_BEHIND and not path.name.startswith(".")
            if path.is_file() and kept:
                place = target / path.relative_to(source)
                make_folder(place.parent)
                with path.open("rb") as read, replacing(place) as write:
                    shutil.copyfileobj(read, write)


class MergeRun(RunDirectory):
    """The directory of a merged encoder."""

    kind = "merge"
    manifest_name = MANIFEST
