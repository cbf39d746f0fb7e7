"""Questions generated from snippets: which snippets are drawn, and which of the model's texts are kept.

Generating queries from documents to train on is Nogueira et al.'s docTTTTTquery and Ma et al.'s zero-shot synthetic
questions (arXiv 2004.14503).
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from biorag.corpus.sentences import sentences
from biorag.prompts.template import Template
from biorag.training.rows import normalised
from biorag.training.synthesis.drafts import GeneratedRowCounts, RowFile, Tally
from biorag.training.synthesis.passages import on_one_line
from biorag.training.synthesis.writers import DraftForm, about
from biorag.types import Generation, Snippet

KIND = "generated"
LEAST_CHARACTERS = 40
LEAST_WORDS = 3


@dataclass(frozen=True, slots=True)
class QuestionCounts(GeneratedRowCounts):
    """The counts of a run: questions were written for `snippets`, and `too_short` ones were skipped.

    Dropped were texts that are `empty`, `short` of three words, `cut` by the token cap before a question mark,
    `copied` (the snippet's title or one of its sentences), or `duplicates` of an earlier question.
    """

    snippets: int
    too_short: int


def draw(snippets: Iterable[Snippet], limit: int | None, seed: int) -> tuple[list[Snippet], int]:
    """Return the snippets to write questions for, and how many were skipped as too short.

    With a limit they are those whose ids hash lowest with the seed, in that order: a larger limit adds to a
    smaller one's. Without one they are all, in their order.
    """
    too_short = 0

    def long_enough() -> Iterator[Snippet]:
        nonlocal too_short
        for snippet in snippets:
            if len(snippet.contents) >= LEAST_CHARACTERS:
                yield snippet
            else:
                too_short += 1

    def by_hash(snippet: Snippet) -> bytes:
        return hashlib.blake2b(json.dumps([seed, snippet.id]).encode(), digest_size=16).digest()

    chosen = list(long_enough()) if limit is None else heapq.nsmallest(limit, long_enough(), by_hash)
    return chosen, too_short


def draft_form(template: Template) -> DraftForm[Snippet]:
    """Return what a language model is asked for: one question that the snippet answers."""
    return DraftForm(("question",), lambda snippet, _: about(template, "", [snippet]), "question")


class QuestionFile(RowFile[Snippet, QuestionCounts]):
    """A JSONL file of training rows, each a generated question and the snippet that answers it."""

    counts = QuestionCounts

    def rows(
        self, subject: Snippet, drafts: Sequence[Generation], tally: Tally, seen: set[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield a row for each question without a fault."""
        for draft in drafts:
            question = as_question(draft.text)
            if fault := _fault(question, draft.capped, subject, seen):
                tally[fault] += 1
                continue
            seen.add(normalised(question))
            yield {"query": question, "positive": subject.contents, "kind": KIND, "positive_id": subject.document}


def as_question(text: str) -> str:
    """Return what a model wrote on one line, up to its first question mark: small models keep writing after it."""
    question, mark, _ = on_one_line(text).partition("?")
    return question + mark


def _fault(question: str, capped: bool, snippet: Snippet, seen: set[str]) -> str | None:
    """Return the name of the count of a question's fault; None if it has none."""
    words = normalised(question)
    if not words:
        return "empty"
    if len(words.split()) < LEAST_WORDS:
        return "short"
    if capped and not question.endswith("?"):
        return "cut"
    if words in map(normalised, (snippet.title, snippet.content, *sentences(snippet.content))):
        return "copied"
    return "duplicates" if words in seen else None
