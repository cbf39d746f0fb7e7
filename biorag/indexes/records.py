"""The records beside an index's manifest: how far a run has come, and which documents came from which file.

By the second an index loses what a file, or a folder that is named again, no longer holds. Files whose later ones
change earlier ones (PubMed's) are not in it: they say themselves what goes.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import Literal

from biorag.corpus.joining import faults_beside
from biorag.corpus.sources import STDIN_FILE, FoundFiles, Source, reader_of
from biorag.errors import BadInputError, MismatchError
from biorag.models.finding import hash_of_file
from biorag.settings.section import ONCE
from biorag.types import Count, Sha256
from biorag.utils.files import sha256_of_json, write_json
from biorag.utils.parsing import parsed_file

logger = logging.getLogger(__name__)

PROGRESS = "progress.json"
SHOWN = 3  # names in a message
HOLDINGS = "holdings.json"  # beside the manifest
MOST = 200_000  # documents; of a larger corpus nothing is held
READING = 2  # another number where readers give other documents of the same file
LARGEST = 256 << 20  # bytes of the record


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """`done` of the corpus's snippets, in its order, are durable; `batch` are the ids being encoded or written.

    A run that resumes writes all of `batch` again, so that they are encoded together as they would have been: a
    text's vector differs in its last bits with the texts beside it.

    `torn` are the documents that an interrupted run may have left half written, each with the file it came from: some
    blocks missing, old ones beside new ones, or an old text with a new vector. They stay in the record until they are
    written again.
    """

    done: Count
    batch: tuple[str, ...]
    torn: Mapping[str, str]


def write_progress(folder: Path, progress: IndexingProgress) -> None:
    """Record progress, durably."""
    write_json(folder / PROGRESS, asdict(progress))


def read_progress(folder: Path) -> IndexingProgress:
    """Return what an interrupted run recorded; nothing done where there is no record.

    Raises `MismatchError` if the record is damaged.
    """
    advice = "delete it, then run the same command again"
    progress: IndexingProgress | None = parsed_file(IndexingProgress, folder / PROGRESS, MismatchError, advice)
    return progress or IndexingProgress(0, (), {})


def clear_progress(folder: Path) -> None:
    """Remove the record of a run that has ended."""
    (folder / PROGRESS).unlink(missing_ok=True)


def shortfall(folder: Path) -> str:
    """Return what an incomplete index in a folder lacks, as far as is recorded, and the next step."""
    try:
        torn = read_progress(folder).torn
    except MismatchError as error:
        return str(error)
    run = "last indexing run" if (folder / PROGRESS).exists() else "copying or indexing"
    return torn_note(torn) if torn else f"its {run} was interrupted: run the same command again"


def torn_note(torn: Mapping[str, str]) -> str:
    """Return how many documents are torn, the first of them, and what makes them whole."""
    files = _few(filter(None, torn.values())) or "the interrupted corpus"
    return f"{len(torn):,} document{' is' if len(torn) == 1 else 's are'} torn ({_few(torn)}): index {files} again"


def _few(names: Iterable[str]) -> str:
    """Return the first few names in order, and how many more there are."""
    first = sorted(set(names))
    more = f" and {len(first) - SHOWN:,} more" if len(first) > SHOWN else ""
    return ", ".join(first[:SHOWN]) + more


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file as it was last taken in; its hash is None where its documents may not be all in the index.

    `beside` is the hash of the references beside it, "" where there are none. `faults` are how many records of it could
    not be read, and of these references; None where an earlier version did not count. `libraries` are the references of
    those that it is attached to, where nothing else brought it.
    """

    sha256: Sha256 | None
    documents: tuple[str, ...]
    beside: Sha256 | Literal[""] = ""
    faults: tuple[Count, Count] | None = None
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceLedger:
    """The documents of each file, by its absolute path."""

    files: Mapping[str, HeldFile]
    reading: int = READING

    def is_unchanged(self, source: Source, sha256: str, untold: bool = False) -> bool:
        """Return whether a file is as it was when its documents went in, under the label that it has now.

        If references beside it cannot be read, or fewer of them than then, what they said stays; `untold`: only then.
        """
        held = self.files.get(key_of(source))
        if held is None or held.sha256 != sha256 or self.reading != READING:
            return False
        labels = _labels(held.documents)
        if source.label not in labels and not labels.isdisjoint(_names(source)):
            return False
        if held.beside == (beside := beside_hash(source)):
            return not untold
        faults = faults_beside(source)
        is_lost = beside is None or (held.faults is not None and len(faults) > held.faults[1])
        if is_lost and faults:
            keeps = "papers keep what the index has of them, since a record beside them cannot be read"
            logger.warning("%s: %s", keeps, faults[-1], extra=ONCE)
        return is_lost

    def told_apart(self, found: FoundFiles) -> list[Source]:
        """Return the files with labels, with which ids begin, that no file elsewhere has: a file is its path.

        A file keeps the label that its documents have. A new one whose label another has gets so much of its path as
        nobody has, unless the other was moved here, or is left out.
        """
        owners, taken = defaultdict[str, set[str]](set), dict[str, str]()
        for key, held in self.files.items():
            for label in _labels(held.documents):
                owners[label].add(key)
        gone = set(self.left_out(found))

        def is_free(label: str, source: Source) -> bool:
            others = owners[label] - gone - {key_of(source)}
            moved = {key for key in others if _is_gone(key) and self.files[key].sha256 == _content(source)}
            return taken.get(label, key_of(source)) == key_of(source) and others == moved

        sources = []
        for source in found.sources:
            names = (source.label, *_names(source))
            kept = next((label for label in names if key_of(source) in owners[label]), source.label)
            label = next((label for label in (kept, *names) if is_free(label, source)), names[-1])
            taken[label] = key_of(source)
            sources.append(source if label == source.label else replace(source, label=label))
        return sources

    def left_out(self, found: FoundFiles) -> list[str]:
        """Return the files that are no longer in folders or libraries which are named again, and can be read."""
        present = set(map(key_of, found.sources))
        there = present | set(self.inside(found.unread))
        gone = [key for key in self.inside(found.folders) if key not in there]
        read = present.union(gone)  # also a collection that was emptied
        attached = (key for key, held in self.files.items() if held.libraries and read.issuperset(held.libraries))
        return list(dict.fromkeys([*gone, *(key for key in attached if key not in there)]))

    def _libraries(self, found: FoundFiles, left_out: AbstractSet[str]) -> dict[str, set[str]]:
        """Return the libraries that files are attached to which nothing else brought, once those found are read."""
        present, missing = {*map(key_of, found.sources), *left_out}, set(self.inside(found.unread))
        others = {key for key, held in self.files.items() if not held.libraries}
        others |= {key_of(source) for source in found.sources if not source.library}
        held_by = {key: {*held.libraries} - (set() if key in missing else present) for key, held in self.files.items()}
        libraries = defaultdict[str, set[str]](set, held_by)
        for source in found.sources:
            libraries[key_of(source)].update([os.path.realpath(source.library)] if source.library else [])
        return {key: names for key, names in libraries.items() if key not in others}

    def inside(self, places: Iterable[Path]) -> list[str]:
        """Return the files of these names, or in these folders."""
        parents = ((place, os.path.realpath(place.parent)) for place in places)
        roots = [root for place, parent in parents for root in (os.path.realpath(place), f"{parent}/{place.name}")]
        return [key for key in self.files if any(PurePath(key).is_relative_to(root) for root in roots)]

    def unknown(self, unread: Iterable[Path]) -> list[str]:
        """Return what is there, cannot be read, and was never taken in."""
        return [str(path) for path in unread if not _is_gone(os.path.realpath(path)) and not self.inside([path])]

    def moved(self, found: FoundFiles, hashes: Iterable[str]) -> list[str]:
        """Return the files that are no longer where they were, and whose content these files have."""
        present, contents = set(map(key_of, found.sources)) | set(self.inside(found.unread)), set(hashes)
        alike = (key for key, file in self.files.items() if file.sha256 in contents and key not in present)
        return list(filter(_is_gone, alike))

    def documents_of(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the documents of these files, each with a file that held it."""
        return {document: key for key in keys if key in self.files for document in self.files[key].documents}

    def taken(self, read: dict[str, HeldFile], left_out: Iterable[str], found: FoundFiles) -> SourceLedger:
        """Return the ledger after a run that found files and read some of them."""
        is_read_alike, gone = self.reading == READING, set(left_out)
        libraries = self._libraries(found, gone)
        files = {
            key: held if is_read_alike else replace(held, sha256=None)
            for key, held in self.files.items()
            if key not in gone
        } | read
        of_libraries = {key: tuple(sorted(libraries.get(key, ()))) for key in files}
        return SourceLedger({key: replace(held, libraries=of_libraries[key]) for key, held in files.items()})

    def without(self, documents: AbstractSet[str]) -> SourceLedger:
        """Return the ledger after these documents were removed by hand: their files are read again."""
        files = {
            key: replace(held, sha256=None) if not documents.isdisjoint(held.documents) else held
            for key, held in self.files.items()
        }
        return replace(self, files=files)

    def named(self, name: str) -> list[str]:
        """Return the files of a name: a path, or the end of one."""
        path = os.path.realpath(name)
        if path in self.files:
            return [path]
        parts = PurePath(name).parts
        inside = [key for key in self.files if PurePath(key).is_relative_to(path)]
        return inside or [key for key in self.files if parts and PurePath(key).parts[-len(parts) :] == parts]


def _labels(documents: Iterable[str]) -> set[str]:
    """Return what may be the labels of files of these documents, in whose ids a `#` follows them."""
    return {id[: mark.start()] for id in documents for mark in re.finditer("#", id)}


def _names(source: Source) -> list[str]:
    """Return the ends of a file's path, from its name to all of it."""
    *folders, name = PurePath(key_of(source)).parts
    return ["/".join([*folders[len(folders) - count :], name]) for count in range(len(folders))] + [key_of(source)]


def key_of(source: Source) -> str:
    """Return the name that a file is held by."""
    return str(source.path.resolve())


def _is_gone(key: str) -> bool:
    """Return whether no file, and no link to one, has this name; not where that may not be asked."""
    try:
        return not os.lstat(key)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def _content(source: Source) -> str:
    """Return the hash of a file; "" of one that cannot be read."""
    with suppress(OSError):
        return source.sha256()
    return ""


def beside_hash(source: Source) -> str | None:
    """Return the hash of the references of which a file's documents may have facts; "" for none, None if unreadable."""
    files = [*source.beside, *([source.record] if source.record else [])]
    with suppress(OSError):
        hashes = [hash_of_file(path) for path in files]
        return sha256_of_json(hashes) if hashes else ""
    return None


def is_held(source: Source) -> bool:
    """Return whether a source is a file that may be read again, and that no later file changes."""
    return source.path.name != STDIN_FILE and not _is_incremental(source)


def _is_incremental(source: Source) -> bool:
    try:
        return reader_of(source).incremental
    except BadInputError:  # its reading names the fault
        return False


def read_ledger(folder: Path) -> SourceLedger:
    """Return the ledger of an index; none where there is no record. Raises `MismatchError` if it is damaged."""
    advice = "delete it, then run the same command again"
    ledger: SourceLedger | None = parsed_file(SourceLedger, folder / HOLDINGS, MismatchError, advice, LARGEST)
    return ledger or SourceLedger({})


def write_ledger(folder: Path, ledger: SourceLedger) -> None:
    """Record a ledger, durably; of too many documents none."""
    if sum(len(held.documents) for held in ledger.files.values()) > MOST:
        logger.debug("%s: more than %d documents, so what files no longer hold stays", folder, MOST)
        (folder / HOLDINGS).unlink(missing_ok=True)
    elif ledger.files or (folder / HOLDINGS).exists():
        write_json(folder / HOLDINGS, asdict(ledger))
