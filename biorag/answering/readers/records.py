"""The packaged Llama as a second reader: which sentences of a record answer, each read after those before it.

What it reads is the question, the record's title, and sentences of it, a line each. Whether a sentence answers is a
linear function of the last hidden state at the end of its line, so one pass over a record tells of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from threading import Lock

import numpy as np

from biorag.answering.sentence_matching import EvidenceSentence
from biorag.errors import MismatchError
from biorag.generators.source import on_starter
from biorag.models.finding import GGUF_ADAPTER, hash_of_file
from biorag.types import Vectors

PACKAGED = Path(__file__).parents[2] / "models/second_reader"
HEAD = "head.json"
QUESTION, TITLE, SENTENCE, RECORD = 128, 64, 160, 480  # tokens that are read of each, at most
Tokens = Callable[[str], list[int]]


def opening(tokens: Tokens, question: str, title: str) -> list[int]:
    """Return the tokens before the sentences of a record."""
    titled = tokens(f"Title: {title.strip('[] ')}")[:TITLE] + tokens("\n") if title else []
    return [*tokens(f"Question: {question}")[:QUESTION], *tokens("\n"), *titled, *tokens("Evidence:\n")]


def line(tokens: Tokens, text: str) -> list[int]:
    """Return the tokens of a sentence and the end of its line."""
    return tokens(text)[:SENTENCE] + tokens("\n")


class SecondReader:
    """Reads the sentences of records by matrices on a Llama and a head, those of `scripts/fit_second_reader.py`.

    Raises `MissingError` if llama.cpp or a file is not there, `MismatchError` if one is not what it was trained with.
    """

    def __init__(self, model: Path, folder: Path = PACKAGED, threads: int | None = None) -> None:
        from biorag.generators.llama import TokenStates

        head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
        if hash_of_file(folder / GGUF_ADAPTER) != head["adapter"]:
            raise MismatchError(f"{folder} is not the published second reader: install biorag again")
        self._weights, self._bias = np.array(head["weights"], np.float32), float(head["bias"])
        self._states = TokenStates(model, RECORD + QUESTION + TITLE + SENTENCE, threads, folder / GGUF_ADAPTER)
        self._lock = Lock()

    def log_odds(self, question: str, rows: Sequence[EvidenceSentence]) -> Vectors:
        """Return the log-odds (rows,) that each sentence answers a question; those of a hit are read in their order."""
        said = np.zeros(len(rows), np.float32)
        order = sorted(range(len(rows)), key=lambda index: (rows[index].n, rows[index].start))
        with self._lock:
            for _, of_hit in groupby(order, key=lambda index: rows[index].n):
                for indices, tokens, ends in self._sequences(question, rows, list(of_hit)):
                    said[indices] = self._states.at(tokens, ends) @ self._weights + self._bias
        return said

    def _sequences(
        self, question: str, rows: Sequence[EvidenceSentence], indices: Sequence[int]
    ) -> Iterator[tuple[list[int], list[int], list[int]]]:
        """Yield the sentences of a hit in parts, each with its tokens and the places where its lines end."""
        first = opening(self._states.tokens, question, rows[indices[0]].title)
        part: list[int] = []
        tokens, ends = list(first), list[int]()
        for index in indices:
            read = line(self._states.tokens, rows[index].text)
            if part and len(tokens) - len(first) + len(read) > RECORD:
                yield part, tokens, ends
                part, tokens, ends = [], list(first), []
            tokens += read
            part.append(index)
            ends.append(len(tokens) - 1)
        yield part, tokens, ends


@cache
def open_second_reader(threads: int | None, cache: Path) -> SecondReader | None:
    """Open the packaged second reader; None where llama.cpp, the starter's Llama or its matrices are not there."""
    return on_starter(partial(SecondReader, threads=threads), cache) if PACKAGED.is_dir() else None
