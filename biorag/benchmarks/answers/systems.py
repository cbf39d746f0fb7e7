"""The answerer, as `ask` uses it, under measurement: its sentences, its yes or no, the names in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from biorag.answering.answerer import EVIDENCE, Answerer, PromptTooLongError
from biorag.answering.verification.cues import lexicon, rarity
from biorag.answering.verification.words import stems
from biorag.benchmarks.answers.questions import YES_NO, AnsweredQuestion
from biorag.engine import OpenIndex, require_generator
from biorag.errors import unknown_name
from biorag.retrieval.retriever import Ranking
from biorag.types import Hit, Question

EXTRACT, GENERATE = METHODS = "extract", "generate"
MOST_NAMES = 10  # of a list
LONGEST_NAME = 4  # words
_BREAK = re.compile(r"[,;:()\[\]/]|\.\s|\.$|\s(?:and|or)\s")
_WORD = re.compile(r"[^\W_][\w'’+-]*")
OPTIONS = {"A": "yes", "B": "no"}


@dataclass(frozen=True, slots=True)
class SystemReply:
    """The answerer's sentences with the numbers of the hits that they cite, and its yes or no."""

    sentences: Sequence[tuple[str, tuple[int, ...]]]
    hits: Sequence[Hit] = ()
    decision: str | None = None


AnswerSystem = Callable[[AnsweredQuestion, Ranking], SystemReply]


def answering(answerer: Answerer, decide: str) -> AnswerSystem:
    """Return the answerer as a system; `decide` is its method for yes/no questions, asked as ones of two options."""

    def reply(question: AnsweredQuestion, ranking: Ranking) -> SystemReply:
        decision = None
        try:
            answer = answerer.answer_from(Question(question.id, question.text), ranking)
            if question.expert.type == YES_NO:
                asked = Question(question.id, question.text, OPTIONS)
                decision = OPTIONS.get(answerer.answer_from(asked, ranking, decide).choice or "")
        except PromptTooLongError:
            return SystemReply(())
        return SystemReply([(item.text, item.citations) for item in answer.sentences], ranking.hits, decision)

    return reply


def answer_system(method: str, opened: OpenIndex) -> AnswerSystem:
    """Return the system of a name; `generate` needs a generator."""
    if method == GENERATE:
        return answering(opened.answerer(require_generator(opened.settings)), GENERATE)
    return answering(opened.answerer(None), EVIDENCE)


def check_method(method: str) -> None:
    """Raise `UsageError` for an unknown method."""
    if method not in METHODS:
        raise unknown_name("way to answer", method, METHODS)


def names(question: str, sentences: Sequence[str]) -> list[str]:
    """Return runs of content words that the question lacks, the rarest and most frequent first.

    A rule of thumb that finds candidates and reads nothing: a baseline for models that do.
    """
    asked = set(stems(question))
    scores: dict[str, float] = {}
    written: dict[str, str] = {}
    for sentence in sentences:
        for run in _runs(sentence, asked):
            key = run.lower()
            written.setdefault(key, run)
            weights = [rarity(stem) for stem in stems(run)]
            scores[key] = scores.get(key, 0.0) + (sum(weights) / len(weights) if weights else 0.0)
    best = sorted(scores, key=lambda key: -scores[key])
    return [written[key] for key in best[:MOST_NAMES]]


def _runs(sentence: str, asked: set[str]) -> list[str]:
    runs: list[str] = []
    for part in _BREAK.split(sentence):
        run: list[str] = []
        for match in [*_WORD.finditer(part), None]:
            word = match[0] if match else ""
            if match and word.lower() not in lexicon().function and not set(stems(word)) & asked:
                run.append(word)
                continue
            if 0 < len(run) <= LONGEST_NAME:
                runs.append(" ".join(run))
            run = []
    return runs
