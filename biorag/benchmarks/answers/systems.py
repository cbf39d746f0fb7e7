"""What is asked: the answerer as `ask` uses it, and baselines that choose sentences in simpler ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from biorag.answering.answerer import EVIDENCE, Answerer, PromptTooLongError
from biorag.answering.extract import EvidenceSentence, candidates
from biorag.answering.verification.cues import lexicon, rarity
from biorag.answering.verification.words import stems
from biorag.benchmarks.answers.measures import rouge_2, rouge_su4
from biorag.benchmarks.answers.questions import YES_NO, AnsweredQuestion
from biorag.engine import OpenIndex, require_generator
from biorag.errors import unknown_name
from biorag.retrieval.retriever import Ranking
from biorag.types import Hit, Question, Snippet

EXTRACT, GENERATE = "extract", "generate"
MOST = 3  # sentences of a baseline
BM25_K, BM25_B = 0.9, 0.4
MOST_NAMES = 10  # of a list
LONGEST_NAME = 4  # words
_BREAK = re.compile(r"[,;:()\[\]/]|\.\s|\.$|\s(?:and|or)\s")
_WORD = re.compile(r"[^\W_][\w'’+-]*")
OPTIONS = {"A": "yes", "B": "no"}


@dataclass(frozen=True, slots=True)
class SystemReply:
    """What a system answers: sentences with the numbers of the hits that they cite, and a decision on yes or no."""

    sentences: Sequence[tuple[str, tuple[int, ...]]]
    hits: Sequence[Hit] = ()
    decision: str | None = None


AnswerSystem = Callable[[AnsweredQuestion, Ranking, Sequence[Snippet]], SystemReply]  # the last are the gold snippets


def answering(answerer: Answerer, decide: str) -> AnswerSystem:
    """Return the answerer as a system; `decide` is its method for yes/no questions, asked as ones of two options."""

    def reply(question: AnsweredQuestion, ranking: Ranking, gold: Sequence[Snippet]) -> SystemReply:
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
    if method in BASELINES:
        return BASELINES[method]
    if method == GENERATE:
        return answering(opened.answerer(require_generator(opened.settings)), GENERATE)
    return answering(opened.answerer(None), EVIDENCE)


def check_method(method: str) -> None:
    """Refuse a name that is none of the systems'."""
    if method not in METHODS:
        raise unknown_name("way to answer", method, METHODS)


def first_sentence(question: AnsweredQuestion, ranking: Ranking, gold: Sequence[Snippet]) -> SystemReply:
    """Answer with the first sentence of the first hit."""
    return _chosen(ranking.hits, candidates(ranking.hits[:1])[:1])


def bm25_sentences(question: AnsweredQuestion, ranking: Ranking, gold: Sequence[Snippet]) -> SystemReply:
    """Answer with the sentences of the hits that score highest by BM25, rarity being that of PubMed's abstracts."""
    rows = candidates(ranking.hits)
    scores = bm25_scores(question.text, [row.text for row in rows])
    best = sorted(range(len(rows)), key=lambda index: -scores[index])[:MOST]
    return _chosen(ranking.hits, [rows[index] for index in best])


def bm25_scores(query: str, texts: Sequence[str]) -> list[float]:
    """Return Σ w · tf (k + 1) / (tf + k (1 − b + b · length / mean length)) of each text, w a stem's rarity."""
    asked, words = set(stems(query)), [stems(text) for text in texts]
    mean = fmean(map(len, words)) if words else 1.0
    return [
        sum(
            rarity(stem) * count * (BM25_K + 1) / (count + BM25_K * (1 - BM25_B + BM25_B * len(text) / (mean or 1.0)))
            for stem in asked
            if (count := text.count(stem))
        )
        for text in words
    ]


def oracle(question: AnsweredQuestion, ranking: Ranking, gold: Sequence[Snippet]) -> SystemReply:
    """Answer with the sentences of hits and gold snippets that come nearest to the ideal answers: the limit.

    They are added one by one while the mean of the F1 of ROUGE-2 and ROUGE-SU4 grows.
    """
    known = {hit.snippet.id for hit in ranking.hits}
    more = [snippet for snippet in gold if snippet.id not in known]
    hits = [*ranking.hits, *(Hit(len(ranking.hits) + n, snippet, 0.0) for n, snippet in enumerate(more, 1))]
    left, chosen, best = candidates(hits), list[EvidenceSentence](), 0.0
    while left and len(chosen) < MOST:
        scores = [_nearness([*chosen, row], question.expert.ideal) for row in left]
        top = max(range(len(left)), key=scores.__getitem__)
        if scores[top] <= best:
            break
        best = scores[top]
        chosen.append(left.pop(top))
    return _chosen(hits, chosen)


def _nearness(rows: Sequence[EvidenceSentence], ideal: Sequence[str]) -> float:
    text = " ".join(row.text for row in rows)
    return (rouge_2(text, ideal).f1 + rouge_su4(text, ideal).f1) / 2


def _chosen(hits: Sequence[Hit], rows: Sequence[EvidenceSentence]) -> SystemReply:
    return SystemReply([(row.text, (row.n,)) for row in rows], hits)


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


BASELINES: Mapping[str, AnswerSystem] = {
    "first-sentence": first_sentence,
    "bm25-sentences": bm25_sentences,
    "oracle": oracle,
}
METHODS = (EXTRACT, GENERATE, *BASELINES)
