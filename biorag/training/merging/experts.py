"""Experts: encoders of one architecture, each with its own weights or a LoRA adapter on the base's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from biorag.errors import BadInputError, UsageError
from biorag.models.finding import ADAPTER, ModelFiles
from biorag.models.formats.safetensors import Tensor
from biorag.models.formats.tensors import FLOATS, TensorFile
from biorag.training.merging import adapters
from biorag.types import Vectors


class TensorKey(NamedTuple):
    """A tensor by its module's folder within the encoder's ("." for the first one's) and its name."""

    folder: str
    name: str

    def __str__(self) -> str:
        return self.name if self.folder == "." else f"{self.folder}/{self.name}"


class Weights(Protocol):
    """An encoder's tensors."""

    @property
    def tensors(self) -> Mapping[TensorKey, Tensor]:
        """Every tensor's shape and type."""

    def floats(self, key: TensorKey) -> Vectors:
        """Return one as float32."""


class StoredWeights:
    """The tensors that an encoder's safetensors files hold.

    Raises
    ------
    MissingError
        If one is damaged.
    BadInputError
        If two files of a folder hold the same tensor.
    """

    def __init__(self, folder: Path) -> None:
        self.files = {str(path.relative_to(folder)): TensorFile(path) for path in weight_files(folder)}
        self._files: dict[TensorKey, TensorFile] = {}
        for name, file in self.files.items():
            for tensor in file.tensors:
                if self._files.setdefault(TensorKey(str(Path(name).parent), tensor), file) is not file:
                    raise BadInputError(f"{file.path} holds {tensor}, as another file beside it does")

    @property
    def tensors(self) -> Mapping[TensorKey, Tensor]:
        """Every tensor's shape and type."""
        return {key: file.tensors[key.name] for key, file in self._files.items()}

    def floats(self, key: TensorKey) -> Vectors:
        """Return one as float32."""
        return self._files[key].floats(key.name)


class AdaptedWeights:
    """A base's tensors with the changes of the adapters that a folder holds.

    Raises
    ------
    BadInputError
        If an adapter cannot be merged, or does not fit the base.
    """

    def __init__(self, base: StoredWeights, folder: Path) -> None:
        self._base = base
        self.tensors = base.tensors
        self._adapters = {}
        for path in adapter_files(folder):
            module = str(path.parent.relative_to(folder))
            names = [key.name for key in base.tensors if key.folder == module]
            self._adapters[module] = adapters.read_adapter(path.parent, names)

    def floats(self, key: TensorKey) -> Vectors:
        """Return one as float32."""
        weight = self._base.floats(key)
        adapter = self._adapters.get(key.folder)
        change = adapter.change(key.name) if adapter else None
        if change is None:
            return weight
        if change.shape != weight.shape:
            raise BadInputError(f"an adapter changes {key} by {change.shape}, and the base has {weight.shape}")
        return weight + change


@dataclass(frozen=True, slots=True)
class Expert:
    """An encoder that is merged; `adapted` if its folder holds an adapter and no weights of its own."""

    files: ModelFiles
    weights: Weights
    adapted: bool


def open_expert(files: ModelFiles, base: StoredWeights | None) -> Expert:
    """Open an expert's weights.

    Raises
    ------
    UsageError
        If it is an adapter, and there is no base.
    """
    if not adapter_files(files.path):
        return Expert(files, StoredWeights(files.path), adapted=False)
    if weight_files(files.path):
        raise BadInputError(f"{files.path} holds an adapter and whole weights: keep only one of them in the folder")
    if base is None:
        raise UsageError(f"{files.path} is a LoRA adapter: give the encoder that it adapts with --base")
    return Expert(files, AdaptedWeights(base, files.path), adapted=True)


def check_tensors(experts: Sequence[Expert], base: Expert | None) -> None:
    """Refuse experts whose floating-point tensors are not the same by name and shape as the first one's.

    Whole numbers, such as the positions that old checkpoints store, are taken from the first.

    Raises
    ------
    BadInputError
        Naming the tensor.
    """
    first, *others = [*experts, *([base] if base else [])]
    shapes = _shapes(first)
    for other in others:
        other_shapes = _shapes(other)
        for key in sorted({*shapes, *other_shapes}):
            if shapes.get(key) != other_shapes.get(key):
                raise BadInputError(
                    f"{first.files.id} and {other.files.id} are not of one base: the tensor {key} has the shape "
                    f"{_shown(shapes.get(key))} in one and {_shown(other_shapes.get(key))} in the other"
                )


def _shapes(expert: Expert) -> dict[TensorKey, tuple[int, ...]]:
    return {key: tensor.shape for key, tensor in expert.weights.tensors.items() if tensor.dtype in FLOATS}


def _shown(shape: tuple[int, ...] | None) -> str:
    return "none, as it is not there," if shape is None else str(shape)


def weight_files(folder: Path) -> list[Path]:
    """Return the files of whole weights in an encoder's folder."""
    return sorted(path for path in folder.rglob("*.safetensors") if path.name != adapters.WEIGHTS)


def adapter_files(folder: Path) -> list[Path]:
    """Return the files of adapters in an encoder's folder, without those that its whole weights have in them."""
    found = sorted(folder.rglob(adapters.WEIGHTS))
    if not weight_files(folder):
        return found
    return [path for path in found if path.relative_to(folder).parts[0] != ADAPTER]  # as training with --lora keeps it
