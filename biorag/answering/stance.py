"""The stance of a study on a claim: what the sentence that says most of it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from biorag.answering.verification.checker import Checker
from biorag.corpus.sentences import best_sentence, terms
from biorag.types import LABEL_OF, Snippet, Verdict


@dataclass(frozen=True, slots=True)
class Stance:
    """What a snippet does to a claim, with what probability, and the sentence that says so, verbatim."""

    verdict: Verdict
    probability: float
    quote: str


class StanceReader:
    """Reads the stance of snippets by the check of claims."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    def stances(self, claim: str, snippets: Sequence[Snippet]) -> list[Stance]:
        """Return the stance of each snippet, in their order."""
        return [self._stance(claim, snippet) for snippet in snippets]

    def _stance(self, claim: str, snippet: Snippet) -> Stance:
        checked = self._checker.check_claim(claim, [snippet])
        quote = checked.evidence[0].quote if checked.evidence else best_sentence(snippet.contents, terms(claim))
        return Stance(checked.verdict, checked.probability.get(LABEL_OF[checked.verdict], 1.0), quote)
