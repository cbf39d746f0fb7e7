"""Pairs that a model writes for retrieval scenarios: a query, a passage that answers it, and a hard negative.

BMRetriever's second kind of synthetic data (Xu et al. 2024, arXiv 2404.18443).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template
from biorag.training.data import SYNTHETIC
from biorag.training.rows import normalised
from biorag.training.synthesis.attributes import Attributes
from biorag.training.synthesis.drafts import GeneratedRowCounts, RowFile, Tally
from biorag.training.synthesis.passages import holds, on_one_line, passage_fault
from biorag.training.synthesis.questions import as_question
from biorag.training.synthesis.scenarios import Scenario
from biorag.training.synthesis.writers import DraftForm
from biorag.types import Generation, Prompt

TEXTS = ("query", "positive", "hard_negative")
LEAST_WORDS = 2  # of a query


@dataclass(frozen=True, slots=True)
class PairCounts(GeneratedRowCounts):
    """The counts of a run on `scenarios`.

    Dropped were pairs with a text that is `empty` or missing or `cut` by the token cap; with a passage `short` of eight
    words or a query of two; `copied`, whose query is the scenario or of whose texts one is part of another or of the
    examples, or `near_copies` of these; and `duplicates` of an earlier row's query or positive.
    """

    scenarios: int
    near_copies: int = 0


def draft_form(template: Template, attributes: Attributes | None = None) -> DraftForm[Scenario]:
    """Return what a language model is asked for: a query with its two passages, of the attributes that are drawn."""

    def prompts(scenario: Scenario, number: int) -> Iterator[Prompt]:
        drawn = attributes.draw(scenario.id, number) if attributes else {}
        yield template.fill(scenario=scenario.id, **drawn)

    return DraftForm(TEXTS, prompts)


@dataclass(frozen=True)
class PairFile(RowFile[Scenario, PairCounts]):
    """A JSONL file of training rows, each a query, its positive and its hard negative, without the `examples`.

    A row has the `attributes` that were drawn for it.
    """

    counts = PairCounts
    examples: str = ""
    attributes: Attributes | None = None

    def rows(
        self, subject: Scenario, drafts: Sequence[Generation], tally: Tally, seen: set[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield a row for each pair without a fault."""
        for number, draft in enumerate(drafts):
            reply = parse_reply(draft.text)
            query, positive, negative = (on_one_line(reply.text(key)) for key in TEXTS)
            query = as_question(query)
            if fault := self._fault((query, positive, negative), draft.capped, subject, seen):
                tally[fault] += 1
                continue
            seen.update((normalised(query), normalised(positive)))
            row = {"query": query, "positive": positive, "negative_1": negative, "kind": SYNTHETIC}
            drawn = {"attributes": self.attributes.draw(subject.id, number)} if self.attributes else {}
            yield {**row, "scenario": subject.id, **drawn}

    def _fault(self, texts: tuple[str, str, str], capped: bool, scenario: Scenario, seen: set[str]) -> str | None:
        """Return the name of the count of a pair's fault; None if it has none."""
        query, positive, negative = texts
        words = normalised(query)
        if not words:
            return "cut" if capped else "empty"
        if len(words.split()) < LEAST_WORDS:
            return "short"
        if words == normalised(scenario.id) or holds(normalised(self.examples), words):
            return "copied"
        fault = passage_fault(positive, capped, (query, self.examples)) or passage_fault(
            negative, capped, (query, positive, self.examples)
        )
        return fault or ("duplicates" if not seen.isdisjoint((words, normalised(positive))) else None)
