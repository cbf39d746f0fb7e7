"""What may go from the disk: what `LEFTOVERS` finds under the home, and what the steps of a run made."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from biorag.errors import MissingError
from biorag.indexes.catalogue import remove_index
from biorag.indexes.store import index_names, manifests
from biorag.lab.recipes.steps import HOME, WORK, StepsRun
from biorag.models.exported import Role, export_folder, is_settled
from biorag.models.finding import ModelFiles, find_encoder
from biorag.registries import LEFTOVERS
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.utils.files import TEMPORARY, disk_bytes, is_old, left_behind, remove_path
from biorag.utils.locks import DirectoryLock, is_written

logger = logging.getLogger(__name__)
EXPORT, INDEX, MODEL, LEFT = "export", "index", "model", "temporary"
MADE = {INDEX: "indexes of the run", MODEL: "models of the run"}  # and what `LEFTOVERS` says


@dataclass(frozen=True, slots=True)
class Leftover:
    """What may go: a folder, or these of its files; and the bytes on disk that this frees."""

    kind: str
    path: Path
    bytes: int
    files: Sequence[Path] = ()

    @property
    def what(self) -> str:
        """What it is, in words."""
        return MADE.get(self.kind) or LEFTOVERS[self.kind].summary


def leftovers(settings: Settings, run: Path | None = None) -> list[Leftover]:
    """Return what the registered kinds find under the home, and of a `run` the indexes, exports and models.

    Raises `MissingError` if `run` is not a run's folder, or the model of an index is not there.
    """
    listed = [(name, *entry) for name, kind in LEFTOVERS.items() for entry in kind.load()(settings)]
    return [
        Leftover(kind, path, sum(map(disk_bytes, files or [path])), tuple(files))
        for kind, path, files in [*listed, *(_made(run) if run else ())]
    ]


def remove(settings: Settings, found: Iterable[Leftover], run: Path | None = None) -> None:
    """Remove what `leftovers` returned; of a run also the records of the steps that made it, so that they run again.

    Raises `ServiceError` if another process writes into the run, or uses what is to go.
    """
    with StepsRun(run, {}).locked() if run else nullcontext():
        for leftover in found:
            path = leftover.path
            for file in leftover.files:
                remove_path(file)
            if run and leftover.kind in MADE:
                _forget(run, path.name)
            if run and leftover.kind == INDEX:
                remove_index(settings.replace(home=run / HOME, name=path.name))
            elif not leftover.files:
                with DirectoryLock(path, exclusive=True, what=leftover.kind):
                    shutil.rmtree(path)


def _forget(run: Path, name: str) -> None:
    """Remove the record of the step whose key a folder is named by, or, if an index, ends with the beginning of."""
    for record in (run / StepsRun.manifest_name).glob("*.json"):
        if name == record.stem or name.endswith(f"-{record.stem[:8]}"):
            record.unlink()


def _made(run: Path) -> Iterator[tuple[str, Path, Sequence[Path]]]:
    """Yield the indexes, exports and temporary files of a run, and the folders of its steps that hold weights."""
    if not (run / StepsRun.manifest_name).is_dir():
        raise MissingError(f"{run} is not the folder of a sweep or recipe: name the --out of 'biorag ablate' or 'run'")
    inner = Settings(home=run / HOME)
    yield from ((INDEX, inner.indexes / name, ()) for name in index_names(inner))
    yield from ((EXPORT, path, ()) for path in sorted(inner.exports.glob("*/")))
    yield from ((MODEL, path, ()) for path in sorted((run / WORK).glob("*/")) if any(path.rglob("*.safetensors")))
    if left := left_behind(run):
        yield LEFT, run, left


def unused_exports(settings: Settings) -> Iterator[tuple[Path, Sequence[Path]]]:
    """Yield the exports under the home that no index uses, or that are torn, and no process is writing."""
    if folders := [path for path in sorted(settings.exports.glob("*/")) if not TEMPORARY.fullmatch(path.name)]:
        used = {export_folder(settings.exports, files, role) for files, role in _models(settings)}
        yield from ((path, ()) for path in folders if not (path in used and is_settled(path)) and not is_written(path))


def old_stages(settings: Settings) -> Iterator[tuple[Path, Sequence[Path]]]:
    """Yield the folders between the stages that no run has written to for `OLD_DAYS`, each to go as a whole."""
    folders = sorted(settings.stages.glob("*/"))
    yield from ((path, ()) for path in folders if all(is_old(file) for file in path.rglob("*") if file.is_file()))


def _models(settings: Settings) -> Iterator[tuple[ModelFiles, Role]]:
    """Yield the models that questions to the indexes are encoded with: the packaged one, and each index's own."""
    yield find_encoder(STARTER), "bi-encoder"
    for name, manifest in manifests(settings):
        if manifest is None:
            logger.warning("index %r is damaged: it is left as it is, and exports of its models may go", name)
            continue
        yield _model(name, manifest.encoder.id, manifest.encoder.revision), "bi-encoder"
        if manifest.tokens and manifest.tokens.reranker != "encoder":
            yield _model(name, manifest.tokens.reranker, manifest.tokens.revision), "colbert"


def _model(index: str, id: str, revision: str) -> ModelFiles:
    try:
        return find_encoder(id, revision or None, fetch=False)
    except MissingError:
        advice = f"put it back, or run 'biorag indexes delete {index}'"
        raise MissingError(f"index {index!r} needs {id}, which is not there to tell its export by: {advice}") from None
