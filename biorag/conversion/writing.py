"""A converted set as biorag's commands read it: a BEIR folder, rows, golden files, MIRAGE's benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Self

from biorag.conversion.items import WHOLE, Choices, ConvertedRow, Dropped, Item, JudgedQuestion
from biorag.corpus.datasets import QRELS_HEADER
from biorag.corpus.readers import beir_record
from biorag.types import Snippet
from biorag.utils.files import json_line, json_text, replacing

CORPUS, QUERIES, ANSWERS, ROWS = "corpus.jsonl", "queries.jsonl", "answers.jsonl", "rows.jsonl"
BENCHMARK = "benchmark.json"
WRITTEN = (CORPUS, QUERIES, ANSWERS, ROWS, BENCHMARK, "*_golden.json", "qrels/*.tsv", "sample-*/*")  # in a folder
GOLDEN_HEAD, GOLDEN_TAIL = b'{"questions": [\n', b"\n]}\n"
COUNTED = ("snippets", "questions", "judgements", "answers", "rows", "dropped", "duplicates")


class DataFiles:
    """Files of a folder, each begun when it is first written to; they take their places when the context ends well."""

    def __init__(self, path: Path) -> None:
        self.streams: dict[str, BinaryIO] = {}
        self._path = path
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def stream(self, name: str, head: bytes = b"") -> BinaryIO:
        """Return the file of a path within the folder, to write on; a new one begins with `head`."""
        if name not in self.streams:
            self.streams[name] = self._open.enter_context(replacing(self._path / name))
            self.streams[name].write(head)
        return self.streams[name]


class DataFolder(DataFiles):
    """Writes items into a folder's files.

    A question that came before is a duplicate: it is written once, and once into the judgements of each part. With
    `split`, only that part's questions are written, and it is the whole set: its judgements are `qrels/test.tsv`.
    """

    def __init__(self, path: Path, split: str | None = None) -> None:
        super().__init__(path)
        self.counts = Counter({name: 0 for name in COUNTED})
        self.parts: set[str] = set()
        self._split = split
        self._asked: set[str] = set()
        self._judged: set[tuple[str, str]] = set()
        self._tasks: dict[str, dict[str, Any]] = {}

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            for name, stream in self.streams.items():
                if name.endswith("_golden.json"):
                    stream.write(GOLDEN_TAIL)
            if self._tasks:
                self.stream(BENCHMARK).write(json_text(self._tasks, indent=1).encode() + b"\n")
        super().__exit__(*error)

    def add(self, item: Item) -> None:
        """Write one item."""
        if isinstance(item, Snippet):
            self._line(CORPUS, beir_record(item), "snippets")
        elif isinstance(item, JudgedQuestion):
            self._question(item)
        elif isinstance(item, ConvertedRow):
            self._line(ROWS, item.fields, "rows")
        elif isinstance(item, Choices):
            self._tasks.setdefault(item.task, {})[item.id] = item.fields
        elif isinstance(item, Dropped):
            self.counts["dropped"] += 1

    def _question(self, question: JudgedQuestion) -> None:
        self.parts.add(question.part)
        if self._split is not None and question.part != self._split:
            return
        part = question.part if self._split is None else WHOLE
        if (part, question.id) in self._judged:
            self.counts["duplicates"] += 1
            return
        self._judged.add((part, question.id))
        self._judge(part, question)
        if question.id not in self._asked:
            self._asked.add(question.id)
            self._line(QUERIES, {"_id": question.id, "text": question.text}, "questions")
            if question.answer:
                answer = {"_id": question.id, "question": question.text, **question.answer}
                self._line(ANSWERS, answer, "answers")
            for snippet in question.snippets:
                self.add(snippet)

    def _judge(self, part: str, question: JudgedQuestion) -> None:
        qrels = self.stream(f"qrels/{part}.tsv", QRELS_HEADER.encode())
        for snippet, relevance in question.relevant.items():
            qrels.write(f"{question.id}\t{snippet}\t{relevance}\n".encode())
            self.counts["judgements"] += 1
        if question.golden:
            name = f"{part}_golden.json"
            first = name not in self.streams
            stream = self.stream(name, GOLDEN_HEAD)
            stream.write(b"" if first else b",\n")
            stream.write(json_text(question.golden).encode())

    def _line(self, name: str, record: Mapping[str, Any], counted: str) -> None:
        self.stream(name).write(json_line(record))
        self.counts[counted] += 1
