"""Converting a published set: from its files to a folder of biorag's own formats, with a manifest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Self

from biorag.corpus.datasets import QRELS_HEADER
from biorag.corpus.readers import beir_record
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import STDIN, find_sources
from biorag.errors import BadInputError, UsageError
from biorag.lab.conversion.items import WHOLE, Item, JudgedQuestion, Request
from biorag.registries import FORMATS, FormatKind
from biorag.types import OnProgress, Snippet
from biorag.utils.files import json_line, remove_left, replacing, sha256_of, timestamp
from biorag.utils.outputs import DATA_SET
from biorag.utils.parsing import read_beginning
from biorag.utils.progress import reported
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

OPTIONS = ("test_ids", "last", "id_prefix")  # fields of a request that only some formats take
Written = tuple[Mapping[str, Any], Iterable[str]]  # counts, and the paths of the files within the folder
CORPUS, QUERIES, ANSWERS, ROWS = "corpus.jsonl", "queries.jsonl", "answers.jsonl", "rows.jsonl"
WRITTEN = (CORPUS, QUERIES, ANSWERS, ROWS, "*_golden.json", "qrels/*.tsv", "sample-*/*.jsonl", "sample-*/qrels/*.tsv")
FOLDERS = ("qrels/*", "sample-*/*", "sample-*/qrels/*")
COUNTED = ("snippets", "questions", "judgements", "answers", "rows", "dropped", "duplicates")


class DataFolder:
    """Writes items into the files of a folder, which take their places when the context ends well.

    A question that came before is a duplicate: it is written once, and once into the judgements of each part. With
    `split`, only that part's questions are written, and it is the whole set: its judgements are `qrels/test.tsv`.
    """

    def __init__(self, path: Path, split: str | None = None) -> None:
        self.path = path
        self.streams: dict[str, BinaryIO] = {}
        self.counts = Counter(dict.fromkeys(COUNTED, 0))
        self.parts: set[str] = set()
        self._split = split
        self._asked: set[str] = set()
        self._judged: set[tuple[str, str]] = set()
        self._golden: dict[str, list[Mapping[str, Any]]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def stream(self, name: str, head: bytes = b"") -> BinaryIO:
        """Return the file of a path within the folder, to write on; a new one begins with `head`."""
        if name not in self.streams:
            self.streams[name] = self._open.enter_context(replacing(self.path / name))
            self.streams[name].write(head)
        return self.streams[name]

    def add(self, item: Item) -> None:
        """Write one item."""
        if isinstance(item, Snippet):
            self._line(CORPUS, beir_record(item), "snippets")
        elif isinstance(item, JudgedQuestion):
            self._question(item)
        elif item is not None:
            self._line(ROWS, item, "rows")
        else:
            self.counts["dropped"] += 1

    def write_golden(self) -> None:
        """Write the golden files, once all questions are there."""
        for part, questions in self._golden.items():
            self.stream(f"{part}_golden.json").write(json_line({"questions": questions}))

    def _question(self, question: JudgedQuestion) -> None:
        self.parts.add(question.part)
        if self._split not in (None, question.part):
            return
        part = WHOLE if self._split else question.part
        if (part, question.id) in self._judged:
            self.counts["duplicates"] += 1
            return
        self._judged.add((part, question.id))
        qrels = self.stream(f"qrels/{part}.tsv", QRELS_HEADER.encode())
        qrels.writelines(f"{question.id}\t{id}\t{score}\n".encode() for id, score in question.relevant.items())
        self.counts["judgements"] += len(question.relevant)
        if question.golden:
            self._golden.setdefault(part, []).append(question.golden)
        if question.id in self._asked:
            return
        self._asked.add(question.id)
        self._line(QUERIES, {"_id": question.id, "text": question.text}, "questions")
        if question.answer:
            self._line(ANSWERS, {"_id": question.id, "question": question.text, **question.answer}, "answers")
        for snippet in question.snippets:
            self.add(snippet)

    def _line(self, name: str, record: Mapping[str, Any], counted: str) -> None:
        self.stream(name).write(json_line(record))
        self.counts[counted] += 1


class DataRun(RunDirectory):
    """A folder of converted or sampled data and its manifest, which names its inputs and options."""

    kind = "data set"
    manifest_name = "manifest.json"

    def changed(self, values: Mapping[str, Any]) -> list[str]:
        """Return what differs; nothing for an incomplete set, which holds nothing to resume from."""
        return super().changed(values) if values["complete"] else []

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest of a set that is being made, and delete the files that a killed run left."""
        super().begin(facts)
        for folder in {self.path, *(path.parent for name in FOLDERS for path in self.path.glob(name))}:
            remove_left(folder, re.compile(".+"))
        for path in (file for name in WRITTEN for file in self.path.glob(name)):
            if path.is_file() and read_beginning(path, len(QRELS_HEADER)).startswith((b'{"', QRELS_HEADER.encode())):
                path.unlink()

    def made(self, write: Callable[[], Written], rejects: RejectsFile | None, inputs: Sequence[Path]) -> dict[str, Any]:
        """Return the manifest of the complete set; `write` makes it unless it is there."""

        def facts() -> dict[str, Any]:
            with rejects.written(inputs) if rejects else nullcontext():
                counts, files = write()
                hashes = {name: sha256_of(self.path / name) for name in files}
            counted = {**counts, "rejected": rejects.count if rejects else 0}
            versions = installed_versions(("biorag",))
            return {"counts": counted, "files": hashes, "versions": versions, "made": timestamp()}

        return self.perform(facts)


def hashes_of(paths: Iterable[Path]) -> list[dict[str, str]]:
    """Return the name and the SHA-256 of each file, as manifests have them."""
    return [{"name": path.name, "sha256": sha256_of(path)} for path in paths]


def request_of(kind: FormatKind, names: Sequence[str], home: Path, **options: Any) -> Request:
    """Return the request to convert a set; raises `UsageError` at an option or files that its format does not take."""
    for option, value in options.items():
        if option in OPTIONS and option not in kind.options and value:
            raise UsageError(f"--{option.replace('_', '-')} is not for format {kind.name}: leave it out")
    if STDIN in names:
        raise UsageError("standard input is not read here: name files")
    if kind.folder and not Path(names[0]).is_dir():
        raise UsageError(f"format {kind.name} reads a folder: name that first")
    if (split := options.get("split")) and kind.splits is None:
        raise UsageError(f"format {kind.name} has no parts: leave out --split")
    if split and kind.splits and split not in kind.splits:
        raise UsageError(f"--split {split} is not of format {kind.name}: use one of {', '.join(kind.splits)}")
    corpora = names[1:] if kind.folder else names
    sources = tuple(find_sources(corpora, Path(), home)) if corpora else ()
    return Request(tuple(map(Path, names)), sources, **options)


def convert(
    format: str, request: Request, out: Path, rejects: RejectsFile | None, on_progress: OnProgress
) -> dict[str, Any]:
    """Convert a set and return its manifest; a complete one of the same inputs and options is left as it is.

    Raises `BadInputError` at a bad record if there are no rejects, or if nothing is left.
    """
    # Of a folder that a format reads as it is, all files count.
    inside = request.paths[0].rglob("*") if FORMATS[format].folder else ()
    inputs = [source.path for source in request.sources] + sorted(file for file in inside if file.is_file())
    options = {name: getattr(request, name) for name in OPTIONS if getattr(request, name)}
    if request.test_ids:
        options["test_ids"] = sha256_of(request.test_ids)
    identity = {
        DATA_SET: format,
        "inputs": hashes_of(inputs),
        "hub": None,  # stands in finished sets, which stay valid
        "split": request.split,
        "options": options,
        "on_bad_line": "skip" if rejects else "stop",
    }

    def write() -> Written:
        items = reported(FORMATS[format].load()(request, rejects), on_progress)
        return _written(format, request, out, items)

    return DataRun(out, identity).made(write, rejects, inputs)


def _written(format: str, request: Request, out: Path, items: Iterable[Item]) -> Written:
    with DataFolder(out, request.split) as folder:
        for item in items:
            folder.add(item)
        folder.write_golden()
        if not folder.counts["questions"] and request.split and folder.parts:
            parts = ", ".join(sorted(folder.parts))
            raise BadInputError(f"no question is in --split {request.split}: there is {parts}")
        if not any(folder.counts[name] for name in ("snippets", "questions", "rows")):
            named = ", ".join(map(str, request.paths))
            raise BadInputError(f"nothing to convert in {named}: check that it is format {format}")
    return folder.counts, sorted(folder.streams)
