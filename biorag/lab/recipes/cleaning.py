"""What indexes and runs of steps leave on the disk: exports that no index uses; indexes and models of a run's steps."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from biorag.errors import MissingError
from biorag.indexes.catalogue import remove_index
from biorag.indexes.manifest import MANIFEST, read_manifest
from biorag.indexes.store import index_names
from biorag.lab.recipes.steps import HOME, WORK, StepsRun
from biorag.models.exported import Role, export_folder
from biorag.models.finding import ModelFiles, find_encoder
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.utils.files import disk_bytes
from biorag.utils.locks import DirectoryLock, is_written

EXPORT, INDEX, MODEL = "export", "index", "model"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder that may go, and its bytes on disk."""

    kind: str
    path: Path
    bytes: int


def leftovers(settings: Settings, run: Path | None = None) -> list[Leftover]:
    """Return the exports that no index under the home uses, and of a `run` the indexes, exports and models.

    Raises `MissingError` if `run` is not a run's folder, or the model of an index is not there; `MismatchError` if the
    manifest of an index is damaged.
    """
    folders = [*_unused(settings), *(_made(run) if run else ())]
    return [Leftover(kind, path, disk_bytes(path)) for kind, path in folders]


def remove(settings: Settings, found: Iterable[Leftover], run: Path | None = None) -> None:
    """Remove what `leftovers` returned; of a run also the records of the steps that made it, so that they run again.

    Raises `ServiceError` if another process writes into the run, or uses what is to go.
    """
    with StepsRun(run, {}).locked() if run else nullcontext():
        for leftover in found:
            path = leftover.path
            if run and leftover.kind != EXPORT:
                _forget(run, path.name)
            if run and leftover.kind == INDEX:
                remove_index(settings.replace(home=run / HOME, name=path.name))
            else:
                with DirectoryLock(path, exclusive=True, what=leftover.kind):
                    shutil.rmtree(path)


def _forget(run: Path, name: str) -> None:
    """Remove the record of the step whose key a folder is named by, or, if an index, ends with the beginning of."""
    for record in (run / StepsRun.manifest_name).glob("*.json"):
        if name == record.stem or name.endswith(f"-{record.stem[:8]}"):
            record.unlink()


def _made(run: Path) -> Iterator[tuple[str, Path]]:
    """Yield the indexes and exports of a run's own home, and the folders of its steps that hold weights."""
    if not (run / StepsRun.manifest_name).is_dir():
        raise MissingError(f"{run} is not the folder of a sweep or recipe: name the --out of 'biorag ablate' or 'run'")
    inner = Settings(home=run / HOME)
    yield from ((INDEX, inner.indexes / name) for name in index_names(inner))
    yield from ((EXPORT, path) for path in sorted(inner.exports.glob("*/")))
    yield from ((MODEL, path) for path in sorted((run / WORK).glob("*/")) if any(path.rglob("*.safetensors")))


def _unused(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield the exports under the home that no index uses, and no process is writing."""
    if folders := sorted(settings.exports.glob("*/")):
        used = {export_folder(settings.exports, files, role) for files, role in _models(settings)}
        yield from ((EXPORT, path) for path in folders if path not in used and not is_written(path))


def _models(settings: Settings) -> Iterator[tuple[ModelFiles, Role]]:
    """Yield the models that questions to the indexes are encoded with: the packaged one, and each index's own."""
    yield find_encoder(STARTER), "bi-encoder"
    for name in index_names(settings):
        manifest = read_manifest(settings.indexes / name / MANIFEST)
        yield _model(name, manifest.encoder.id, manifest.encoder.revision), "bi-encoder"
        if manifest.tokens and manifest.tokens.reranker != "encoder":
            yield _model(name, manifest.tokens.reranker, manifest.tokens.revision), "colbert"


def _model(index: str, id: str, revision: str) -> ModelFiles:
    try:
        return find_encoder(id, revision or None, fetch=False)
    except MissingError:
        advice = f"put it back, or run 'biorag indexes delete {index}'"
        raise MissingError(f"index {index!r} needs {id}, which is not there to tell its export by: {advice}") from None
