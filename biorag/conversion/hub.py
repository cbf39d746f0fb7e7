"""Data sets of the Hugging Face hub, by the package `datasets`: row by row, without running code of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biorag.conversion.entries import Entry
from biorag.errors import BioragError, MissingError, OfflineError
from biorag.utils.files import sha256_of


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A data set of the hub, or a folder in the hub's layout."""

    name: str
    config: str | None = None  # its configuration; None if it has only one
    split: str | None = None  # one of its splits; None for all, one after another
    revision: str | None = None  # branch, tag or commit
    offline: bool = False

    @property
    def shown(self) -> str:
        """How messages name it."""
        return " ".join(filter(None, (self.name, self.config)))

    def identity(self) -> dict[str, Any]:
        """Return what determines its rows: its name and options, of a folder the hashes of its files."""
        named = {key: value for key, value in asdict(self).items() if key != "offline"}
        if not self._is_local():
            return named
        files = sorted(path for path in Path(self.name).rglob("*") if path.is_file())
        return {**named, "files": {str(path.relative_to(self.name)): sha256_of(path) for path in files}}

    def rows(self) -> Iterator[Entry]:
        """Yield the rows, counted from 1 in each split, as JSON; the key is the split.

        Nothing is kept on disk: rows are read from the hub as they are asked for. Raises `MissingError` if the package
        or the data set cannot be loaded, and `OfflineError` in offline mode, but for a folder.
        """
        try:
            for split, rows in self._splits().items():
                for number, row in enumerate(rows, 1):
                    yield Entry(number, split, json.dumps(row, default=str))
        except BioragError:
            raise
        except Exception as error:  # whatever the package raises at a name, a file or the network
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise MissingError(
                f"the data set {self.shown} cannot be loaded ({reason}): check --hub, --hub-config, --hub-split and "
                "--hub-revision, or download its files"
            ) from error

    def _splits(self) -> Mapping[str, Any]:
        local = self._is_local()
        if self.offline and not local:
            raise OfflineError(
                f"the data set {self.shown} would be downloaded, and offline mode is on: "
                "download it elsewhere and name its folder with --hub"
            )
        try:
            from datasets import load_dataset
        except ModuleNotFoundError as error:
            raise MissingError("--hub needs the package 'datasets': run pip install 'biorag[hub]'") from error
        revision = None if local else self.revision
        loaded = load_dataset(self.name, self.config, split=self.split, revision=revision, streaming=True)
        return {self.split: loaded} if self.split else dict(loaded)

    def _is_local(self) -> bool:
        return Path(self.name).is_dir()
