"""Data sets of the Hugging Face hub, by the package `datasets`: row by row, without running code of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    offline: bool = False

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return " ".join(filter(None, (self.name, self.config)))

    def identity(self) -> dict[str, Any]:
        """Return the name and configuration, and the hashes of a folder's files."""
        folder = Path(self.name)
        files = {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}
        return {"name": self.name, "config": self.config} | ({"files": files} if folder.is_dir() else {})

    def rows(self) -> Iterator[Entry]:
        """Yield the rows, counted from 1 in each split, as JSON; the key is the split.

        Nothing is kept on disk: rows are read from the hub as they are asked for. Raises `MissingError` if the package
        or the data set cannot be loaded, and `OfflineError` in offline mode, but for a folder.
        """
        try:
            for split, rows in self._splits().items():
                for number, row in enumerate(rows, 1):
                    yield Entry(number, split, json.dumps(row, default=str).encode())
        except BioragError:
            raise
        except Exception as error:  # whatever the package raises at a name, a file or the network
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise MissingError(
                f"the data set {self.shown} cannot be loaded ({reason}): check --hub NAME:CONFIG, or download its files"
            ) from error

    def _splits(self) -> Mapping[str, Any]:
        if self.offline and not Path(self.name).is_dir():
            raise OfflineError(
                f"the data set {self.shown} would be downloaded, and offline mode is on: "
                "download it elsewhere and name its folder with --hub"
            )
        try:
            from datasets import load_dataset
        except ModuleNotFoundError as error:
            raise MissingError("--hub needs the package 'datasets': run pip install 'biorag[hub]'") from error
        return dict(load_dataset(self.name, self.config, streaming=True))
