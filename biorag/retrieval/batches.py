"""Searching for many questions: so many at a time that models are busy and memory stays flat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from biorag.retrieval.retriever import Ranking, Retriever
from biorag.types import OnProgress, Where
from biorag.utils.progress import batched

BATCH = 32  # questions searched at once
T = TypeVar("T")


class AskedQuestion(Protocol):
    """A question, of whatever data set."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def text(self) -> str:
        """What is searched for."""


Q = TypeVar("Q", bound=AskedQuestion)


def search_questions(
    retriever: Retriever,
    questions: Iterable[Q],
    limit: int,
    where: Where = (),
    on_progress: OnProgress | None = None,
) -> Iterator[tuple[Q, Ranking]]:
    """Yield each question with the best `limit` hits that fulfil `where`; its times are its share of its batch's."""

    def search(batch: Sequence[Q]) -> list[Ranking]:
        return retriever.search_all([question.text for question in batch], limit, [where] * len(batch))

    return in_batches(search, questions, on_progress=on_progress)


def in_batches(
    search: Callable[[Sequence[Q]], Sequence[T]],
    questions: Iterable[Q],
    wanted: Collection[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[tuple[Q, T]]:
    """Yield each question with the result of `search` for it, `BATCH` questions at a time.

    Of a resumed run `wanted` are the ids of the questions to yield; the batches are those of an uninterrupted run.
    """
    for batch in batched(questions, BATCH):
        if wanted is None or any(question.id in wanted for question in batch):
            results = zip(batch, search(batch), strict=True)
            yield from ((question, result) for question, result in results if wanted is None or question.id in wanted)
        if on_progress:
            on_progress(len(batch))
