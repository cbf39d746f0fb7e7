"""Runs that resume: a manifest has the identity of the results, and says whether they are complete."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar, NamedTuple, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from biorag.errors import MismatchError, ServiceError
from biorag.types import OnProgress
from biorag.utils.files import BEGINNING, check_output, json_line, json_text, replacing, sha256_of, try_lock, write_json
from biorag.utils.locks import LOCK, DirectoryLock, begun
from biorag.utils.outputs import is_lock
from biorag.utils.parsing import opened_regular, parse_json, parsed, read_beginning, read_regular, validated

NEXT_STEP = "choose another --out"
LONGEST = 64 << 20  # bytes of a line of results
NAMED = 3  # differences that an error names
SHOWN = 60  # characters of a value that it shows
Item = TypeVar("Item")
Belongs = Callable[[Any, Any], bool]  # whether an item's row is this one

Count = Annotated[int, Field(ge=0)]


class Head(TypedDict):
    """What every manifest begins with."""

    complete: bool
    identity: dict[str, Any]


class CompleteRows(TypedDict):
    """What the manifest of a complete file of rows has besides."""

    counts: dict[str, Count]
    sha256: str


@dataclass(frozen=True)
class ResumableRun:
    """Results at `path`, a directory or a file of `Rows`, that a killed run resumes; `identity` determines them.

    A subclass names its kind of run and its manifest, the type of every manifest (`head`), and of a complete one.
    """

    path: Path
    identity: Mapping[str, Any]

    kind: ClassVar[str]
    manifest_name: ClassVar[str]
    head: ClassVar[Any] = Head
    facts: ClassVar[Any] = dict[str, Any]

    @property
    def manifest(self) -> Path:
        """The file with the identity."""
        return self.path / self.manifest_name

    def changed(self, values: Mapping[str, Any]) -> list[str]:
        """Return where a manifest's identity differs from this run's, as `changed_keys` names it."""
        return changed_keys(values["identity"], self.identity)

    def finished(self) -> dict[str, Any] | None:
        """Return the manifest of the complete run; None if there is none.

        Raises MismatchError if it is damaged, or of another identity, naming the differences.
        """
        if (values := self._read_manifest()) is None:
            return None
        complete = values.get("complete", True)
        try:
            validated(self.facts if complete else Any, values, extra="ignore")
            changed = self.changed(values)
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from None
        if changed:
            more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
            made = self.path if self.path.exists() else self.manifest  # which is left where the output was deleted
            raise MismatchError(f"{made} was made with other {', '.join(changed[:NAMED])}{more}: {NEXT_STEP}")
        return values if complete else None

    def _read_manifest(self) -> dict[str, Any] | None:
        if not self.manifest.exists():
            return None
        try:
            content = read_regular(self.manifest)
            values = dict(parse_json(content))
            if values and values.keys().isdisjoint(("complete", "identity")):
                raise MismatchError(f"{self.manifest} is there, and biorag did not write it: {NEXT_STEP}")
            parsed(self.head, content, extra="ignore")
        except (ValueError, TypeError) as error:
            raise self._damaged(error) from None
        return values

    def _damaged(self, error: Exception) -> MismatchError:
        return MismatchError(f"{self.manifest} is damaged ({error}): {NEXT_STEP}")

    def check_nothing_else(self) -> None:
        """Raise MismatchError at a path with files other than the lock and a half-written manifest, but no manifest."""
        if self.manifest.exists() or not self.path.exists():
            return
        if not self.path.is_dir() or not all(map(self._may_stand, self.path.iterdir())):
            raise MismatchError(f"{self.path} holds something other than a {self.kind}: {NEXT_STEP}")

    def _may_stand(self, path: Path) -> bool:
        return path.name.startswith(f".{self.manifest_name}.") or (
            path.name == LOCK and path.is_file() and is_lock(read_beginning(path, BEGINNING))
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the directory; raises ServiceError if one writes into it."""
        check_output(self.path, is_folder=True)
        with DirectoryLock(self.path, exclusive=True, what=self.kind):
            yield
            (self.path / LOCK).unlink(missing_ok=True)

    def reading(self) -> DirectoryLock:
        """Keep writers out of the directory; raises ServiceError if one is there."""
        return DirectoryLock(self.path, exclusive=False, what=self.kind)

    def save(self, complete: bool, **facts: Any) -> dict[str, Any]:
        """Write and return the manifest."""
        values = self.values(complete, facts)
        write_json(self.manifest, values)
        return values

    def values(self, complete: bool, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return a manifest as it is read back."""
        return dict(json.loads(json_text({"complete": complete, "identity": self.identity, **facts})))


class RunDirectory(ResumableRun):
    """A directory that holds one run and nothing else."""

    def finished(self) -> dict[str, Any] | None:
        """Return the manifest of a complete run; see `ResumableRun.finished` and `check_nothing_else`."""
        self.check_nothing_else()
        return super().finished()

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest of a run under way."""
        self.save(False, **facts)

    def finish(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write and return the manifest of a run whose results are all there."""
        return self.save(True, **facts)

    def perform(self, work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the manifest of the complete run; unless there is one, `work` makes the results and returns the facts.

        Raises as `finished` and `locked` do.
        """
        if (manifest := self.finished()) is not None:
            return manifest
        with self.locked():
            self.begin({})
            return self.finish(work())

    def rows_in(self, name: str, row: Any = dict[str, Any], belongs: Belongs | None = None) -> Rows:
        """Return a file of rows under the manifest and lock of the directory."""
        return Rows(self.path / name, self.identity, row, belongs or by_id, within=True)

    def fill(
        self,
        name: str,
        row: Any,
        items: Sequence[Item],
        work: Callable[[Sequence[Item]], Iterable[Mapping[str, Any] | None]],
        on_progress: OnProgress,
    ) -> list[Any]:
        """Fill the one file of rows of the directory, and return its rows; see `Rows.fill`."""
        rows = self.rows_in(name, row)
        with self.locked():
            if self.finished() is None:
                self.begin({})
            rows.fill(items, work, on_progress)
            self.finish({"rows": len(items)})
        return list(rows.read())


def by_id(item: Any, row: Any) -> bool:
    """Return whether a row is an item's: both have an id."""
    return bool(item.id == row["id"])


class Filled(NamedTuple):
    """The counts of a complete file of rows (`items`, `rows` and its tally); `resumed` rows were there before."""

    counts: dict[str, int]
    resumed: int


@dataclass(frozen=True)
class Rows(ResumableRun):
    """A JSON Lines file of results, made item by item in their order, with a manifest beside it.

    A killed run resumes after its last whole row. The identity includes the items.
    """

    row: Any = dict[str, Any]  # the type of a row, as `parsed` takes it; other fields are ignored
    belongs: Belongs = by_id
    tally: Callable[[Iterator[Any]], Mapping[str, int]] = lambda rows: {}  # more counts for the manifest
    within: bool = False  # whether the file is part of a `RunDirectory`, which has the manifest

    facts = CompleteRows

    @property
    def manifest(self) -> Path:
        """The file with the identity."""
        return self.path.with_name(f"{self.path.name}.manifest.json")

    def counts(self) -> dict[str, int] | None:
        """Return the counts of a complete file; None if it is incomplete.

        Raises MismatchError as `finished` does, and if the file has no manifest or was changed.
        """
        manifest = self.finished()  # perhaps of another file of this name
        if not self.path.exists():
            return None
        if not self.manifest.is_file():
            raise MismatchError(f"{self.path} exists, but without the manifest of the run that made it: {NEXT_STEP}")
        if manifest is None:
            return None
        if sha256_of(self.path) != manifest["sha256"]:
            raise MismatchError(f"{self.path} was changed after it was made: {NEXT_STEP}, or delete it")
        return dict(manifest["counts"])

    @contextmanager
    def appending(self) -> Iterator[BinaryIO]:
        """Open an incomplete file as its only writer; raises ServiceError if another process writes it."""
        check_output(self.path)
        self.save(complete=False)
        with opened_regular(self.path, "ab") as stream:
            if not try_lock(stream):
                raise ServiceError(
                    f"{self.path} is being written by another biorag process: wait for that to end, or {NEXT_STEP}"
                )
            begun.add("rows")
            yield stream

    def remove(self) -> None:
        """Delete the file, then its manifest."""
        self.path.unlink(missing_ok=True)
        self.manifest.unlink(missing_ok=True)

    def read(self) -> Iterator[Any]:
        """Yield the rows that are whole; raises MismatchError naming the line that is damaged."""
        return (row for _, row in whole_rows(self.path, self.row))

    def fill(
        self,
        items: Sequence[Item],
        work: Callable[[Sequence[Item]], Iterable[Mapping[str, Any] | None]],
        on_progress: OnProgress,
        batch: int = 1,
    ) -> Filled:
        """Append the rows of the items that no earlier run has done, each flushed as it comes.

        `work` yields a row or None for each of the items left. Rows of a `batch` depend on each other: a killed run
        resumes at a multiple of it.

        Raises MismatchError as `counts` does, or at a row of none of the items; ServiceError as `appending` does.
        """
        if not self.within and (counts := self.counts()) is not None:
            on_progress(len(items))
            return Filled(counts, counts["rows"])
        with self.appending() as stream:
            done, resumed, size = self._done(items, batch)
            on_progress(done)
            stream.truncate(size)
            written = resumed
            for row in work(items[done:]) if done < len(items) else ():
                if row is not None:
                    written += 1
                    stream.write(json_line(row))
                    stream.flush()
                on_progress(1)
            counts = {"items": len(items), "rows": written, **self.tally(self.read())}
            self._complete(counts)
        return Filled(counts, resumed)

    def publish(self, lines: Iterable[bytes], counts: Mapping[str, int]) -> None:
        """Write the complete file at once; `counts` may be filled while the lines come."""
        check_output(self.path)
        self.save(complete=False)
        with replacing(self.path) as stream:
            stream.writelines(lines)
        self._complete(counts)

    def save(self, complete: bool, **facts: Any) -> dict[str, Any]:
        """Write the manifest, unless the file is part of a directory, and return its values."""
        return self.values(complete, facts) if self.within else super().save(complete, **facts)

    def _complete(self, counts: Mapping[str, int]) -> None:
        if not self.within:
            self.save(complete=True, counts=dict(counts), sha256=sha256_of(self.path))

    def _done(self, items: Sequence[Item], batch: int) -> tuple[int, int, int]:
        """Return the number of items done, in whole batches, of their rows, and of the rows' bytes."""
        done, after = 0, [(0, 0)]  # of each row the items done after it, and where it ends
        for number, (size, row) in enumerate(whole_rows(self.path, self.row), 1):
            while done < len(items) and not self.belongs(items[done], row):
                done += 1
            if done == len(items):
                raise MismatchError(
                    f"{self.path}, line {number} belongs to none of the items left: delete the file and run the "
                    f"command again, or {NEXT_STEP}"
                )
            done += 1
            after.append((done, after[-1][1] + size))
        done -= done % batch if done < len(items) else 0
        ends = [end for reached, end in after if reached <= done]
        return done, len(ends) - 1, ends[-1]


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file, if it is there; a kill tears the last. Raises MismatchError at a huge one."""
    if path.is_file():
        with path.open("rb") as stream:
            while line := stream.readline(LONGEST):
                if line.endswith(b"\n"):
                    yield line
                elif len(line) == LONGEST:
                    raise MismatchError(f"{path} has a line of more than {LONGEST:,} bytes: {NEXT_STEP}")


def whole_rows(path: Path, kind: Any) -> Iterator[tuple[int, Any]]:
    """Yield the length in bytes and the value of each complete line; raise MismatchError naming a damaged one."""
    for number, line in enumerate(whole_lines(path), 1):
        try:
            yield len(line), parsed(kind, line, extra="ignore")
        except ValueError as error:
            raise MismatchError(
                f"{path}, line {number} is damaged ({error}): delete the file and run the command again, or {NEXT_STEP}"
            ) from None


def changed_keys(stored: Mapping[str, Any], identity: Mapping[str, Any], within: str = "") -> list[str]:
    """Return where a stored identity differs from this one: `key (old → new)`, or `key` alone if a value is long.

    Keys of inner objects follow their object's and a dot, but for settings, which are known by their own names.
    """
    current = json.loads(json_text(identity))
    changed: list[str] = []
    for key in sorted({*stored, *current}):
        before, now = stored.get(key), current.get(key)
        if isinstance(before, dict) and isinstance(now, dict):
            changed += changed_keys(before, now, "" if key == "settings" else f"{within}{key}.")
        elif before != now:
            values = f" ({json.dumps(before, ensure_ascii=False)} → {json.dumps(now, ensure_ascii=False)})"
            changed.append(f"{within}{key}{values if len(values) <= SHOWN else ''}")
    return changed
