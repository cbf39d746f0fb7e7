"""Converting a published set: from its files or the hub to a folder of biorag's own formats, with a manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biorag.conversion.hub import HubDataset
from biorag.conversion.items import Request
from biorag.conversion.writing import WRITTEN, DataFolder
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import STDIN, Source, find_sources
from biorag.errors import BadInputError, UsageError
from biorag.registries import FORMATS, FormatKind
from biorag.types import OnProgress
from biorag.utils.files import sha256_of, timestamp
from biorag.utils.outputs import DATA_SET
from biorag.utils.progress import reported
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

OPTIONS = ("test_ids", "last", "each_context", "id_prefix")  # fields of a request that only some formats take


class DataRun(RunDirectory):
    """A folder of converted or sampled data and its manifest, which says what it was made of, and how."""

    kind = "data set"
    manifest_name = "manifest.json"

    def finished(self) -> dict[str, Any] | None:
        """Return the manifest of a complete set; see `RunDirectory.finished`.

        An incomplete one holds nothing to resume from, so it may be made anew with other options.
        """
        self.check_nothing_else()
        if (values := self._read_manifest()) is not None and not values["complete"]:
            return None
        return super().finished()

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest of a set that is being made, and delete what a killed run left."""
        super().begin(facts)
        for path in [*self.path.rglob(".*.*"), *(file for name in WRITTEN for file in self.path.glob(name))]:
            is_temporary = path.name.startswith(".") and path.suffix[1:].isdecimal()
            if path.is_file() and (is_temporary or not path.name.startswith(".")):
                path.unlink()

    def end(self, counts: Mapping[str, Any], files: Iterable[str]) -> dict[str, Any]:
        """Write the manifest of a set that is complete, and return it."""
        hashes = {name: sha256_of(self.path / name) for name in files}
        versions = installed_versions(("biorag", "datasets"))
        return self.finish({"counts": dict(counts), "files": hashes, "versions": versions, "made": timestamp()})


@dataclass(frozen=True, slots=True)
class Conversion:
    """What `biorag data convert` was asked for."""

    format: str
    request: Request
    out: Path
    rejects: RejectsFile | None = None

    def identity(self) -> dict[str, Any]:
        """Return everything that determines the result."""
        request = self.request
        files = [*(request.sources or _files(request.paths))]
        options = {name: getattr(request, name) for name in OPTIONS if getattr(request, name)}
        if request.test_ids:
            options["test_ids"] = sha256_of(request.test_ids)
        return {
            DATA_SET: self.format,
            "inputs": hashes_of(map(_path, files)),
            "hub": request.hub.identity() if request.hub else None,
            "split": request.split,
            "options": options,
            "on_bad_line": "skip" if self.rejects else "stop",
        }


def hashes_of(paths: Iterable[Path]) -> list[dict[str, str]]:
    """Return the name and the SHA-256 of each file, as manifests have them."""
    return [{"name": path.name, "sha256": sha256_of(path)} for path in paths]


def request_of(kind: FormatKind, names: Sequence[str], hub: HubDataset | None, home: Path, **options: Any) -> Request:
    """Return what is to be converted, checked against what a format takes.

    Raises
    ------
    UsageError
        If an option is not the format's, its split is unknown, or there are neither files nor a data set of the hub.
    MissingError
        If a file is not there.
    """
    for option, value in options.items():
        if option in OPTIONS and option not in kind.options and value:
            raise UsageError(f"--{option.replace('_', '-')} is not for format {kind.name}: leave it out")
    if hub and not kind.hub:
        raise UsageError(f"format {kind.name} is not read from the hub: name its files")
    if bool(hub) == bool(names):
        raise UsageError(f"name the files of format {kind.name} ({kind.files})" + (" or --hub NAME" * bool(kind.hub)))
    if STDIN in names:
        raise UsageError("standard input is not read here: name files")
    split = options.get("split")
    if split and kind.splits is None:
        raise UsageError(f"format {kind.name} has no parts: leave out --split")
    if split and kind.splits and split not in kind.splits:
        raise UsageError(f"--split {split} is not of format {kind.name}: use one of {', '.join(kind.splits)}")
    sources = () if kind.folder else tuple(find_sources(names, Path(), home))
    return Request(tuple(map(Path, names)), sources, hub, **options)


def convert(conversion: Conversion, on_progress: OnProgress) -> dict[str, Any]:
    """Convert a set and return its manifest; a complete one of the same inputs and options is left as it is.

    Raises
    ------
    BadInputError
        At a bad record if there are no rejects, or if nothing is left.
    MismatchError
        If the folder holds something else.
    ServiceError
        If another process writes into it.
    """
    run = DataRun(conversion.out, conversion.identity())
    if (manifest := run.finished()) is not None:
        return manifest
    with run.locked():
        run.begin({})
        read = [_path(file) for file in conversion.request.sources or _files(conversion.request.paths)]
        if conversion.rejects is None:
            return _written(conversion, run, on_progress)
        with conversion.rejects.written(read):
            return _written(conversion, run, on_progress)


def _written(conversion: Conversion, run: DataRun, on_progress: OnProgress) -> dict[str, Any]:
    items = FORMATS[conversion.format].load()(conversion.request, conversion.rejects)
    split = conversion.request.split
    with DataFolder(conversion.out, split) as folder:
        for item in reported(items, on_progress):
            folder.add(item)
        if not folder.counts["questions"] and split and folder.parts:
            raise BadInputError(f"no question is in --split {split}: there is {', '.join(sorted(folder.parts))}")
        if not any(folder.counts[name] for name in ("snippets", "questions", "rows")):
            raise BadInputError(
                f"nothing to convert in {_shown(conversion.request)}: check that it is format {conversion.format}"
            )
    rejected = conversion.rejects.count if conversion.rejects else 0
    return run.end({**folder.counts, "rejected": rejected}, sorted(folder.streams))


def _shown(request: Request) -> str:
    return request.hub.shown if request.hub else ", ".join(map(str, request.paths))


def _path(file: Source | Path) -> Path:
    return file if isinstance(file, Path) else file.path


def _files(paths: tuple[Path, ...]) -> list[Path]:
    """Return the files of folders that a format reads as they are."""
    return sorted(file for path in paths if path.is_dir() for file in path.rglob("*") if file.is_file())
