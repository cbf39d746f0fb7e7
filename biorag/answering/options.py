"""Multiple choice by the evidence alone: each option held against the sentences of the hits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from biorag.answering.extract import Extractor, ScoredSentences
from biorag.answering.guards.checker import Checker, citation_of
from biorag.answering.polar import POLAR, polar_evidence
from biorag.answering.sentence_matching import EvidenceSentence
from biorag.corpus.sentences import sentences, terms
from biorag.types import EXTRACT, Answer, CheckedSentence, EvidenceSpan, Hit, Vectors, Verdict

COVERAGE = 0.5  # weight of an option's words beside its MaxSim
RELEVANCE = 0.3  # weight of a sentence's score for the question alone
BIAS = np.array([1.0, 1.0, 0.1])  # of "yes", "no" and "maybe": sentences that say neither do not make it a maybe
UNCONFIRMED = "chosen, not confirmed: the evidence comes nearest to this option, and does not state it"
BONUS = {Verdict.SUPPORTED: 0.3, Verdict.CONTRADICTED: -0.3}  # of the check's verdict; of others none
ChosenOption = tuple[str, EvidenceSentence, CheckedSentence]  # its letter, its evidence, and what the check says
_ASKED = re.compile(
    r"^.*?\b(?:which|what|who|whom|whose|where|when|how)\b(?:\s+(?:one\s+)?of\s+the\s+following)?", re.IGNORECASE
)


def statements(question: str, option: str) -> list[str]:
    """Return the statements that an option asserts, in several wordings.

    "Which vitamin prevents neuropathy?" with "Pyridoxine" gives "Pyridoxine prevents neuropathy."
    """
    last = (sentences(question) or [""])[-1].rstrip("?:. ")
    rest = _ASKED.sub("", last).strip()
    without_noun = rest.partition(" ")[2]
    variants = [f"{option} {rest}.", f"{option} {without_noun}."]
    return list(dict.fromkeys(" ".join(variant.split()) for variant in variants))


def held(question: str, option: str, hits: Sequence[Hit], checker: Checker) -> CheckedSentence:
    """Return the verdict on an option: the best of its statements', with the option as its text."""
    snippets = [hit.snippet for hit in hits]
    order = (Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNSURE, Verdict.UNSUPPORTED)
    if (answer := _plain(option)) in POLAR:
        unsaid = CheckedSentence(option, Verdict.UNSUPPORTED)
        checked = [unsaid if answer == "maybe" else checker.check_question(question, answer, snippets)]
    else:
        checked = [checker.check_claim(statement, snippets) for statement in statements(question, option)]
    best = min(checked, key=lambda sentence: order.index(sentence.verdict), default=CheckedSentence("", order[-1]))
    supporting = tuple(span.n for span in best.evidence if span.verdict is Verdict.SUPPORTED)
    return replace(best, text=option, citations=supporting)


def by_evidence(answer: Answer, extractor: Extractor, checker: Checker) -> Answer:
    """Return an answer with the option that its hits support best, and the sentence that does as the citation.

    Without a hit the answer has no choice.
    """
    question = answer.question
    scored = extractor.scored(question.text, answer.hits)
    if not scored.rows:
        return replace(answer, answerer=EXTRACT, notes=(*answer.notes, "no evidence was found to choose an option by"))
    if all(_plain(text) in POLAR for text in question.options.values()):
        choice, row, checked = _polar_choice(answer, scored, extractor, checker)
    else:
        choice, row, checked = _supported_choice(answer, scored, extractor, checker)
    hit, option = answer.hits[row.n - 1], question.options[choice]
    span = EvidenceSpan(row.n, hit.snippet.id, hit.snippet.pmid, row.text, checked.verdict)
    cited = (row.n,) if checked.verdict is Verdict.SUPPORTED else ()
    return replace(
        answer,
        answerer=EXTRACT,
        text=option,
        choice=choice,
        parsed=True,
        reply=json.dumps({"answer_choice": choice}),
        sentences=(replace(checked, text=option, citations=cited, evidence=(span,)),),
        citations=(citation_of(hit, row.n, row.text),),
        notes=(*answer.notes, *([] if checked.verdict is Verdict.SUPPORTED else [UNCONFIRMED])),
    )


def _supported_choice(answer: Answer, scored: ScoredSentences, extractor: Extractor, checker: Checker) -> ChosenOption:
    question, options, rows = answer.question, answer.question.options, scored.rows
    checked = {letter: held(question.text, text, answer.hits, checker) for letter, text in options.items()}
    table = option_scores(question.text, list(options.values()), rows, scored.scores, extractor)
    scores = dict(zip(options, table, strict=True))
    choice = max(
        options, key=lambda letter: (scores[letter].max() + BONUS.get(checked[letter].verdict, 0), -ord(letter))
    )
    return choice, rows[int(scores[choice].argmax())], checked[choice]


def _polar_choice(answer: Answer, scored: ScoredSentences, extractor: Extractor, checker: Checker) -> ChosenOption:
    """Choose the likeliest of "yes", "no" and "maybe", and the sentence that speaks most for it; "yes" unread."""
    question = answer.question
    said = polar_evidence(question.text, scored, checker.reader, extractor.reader)
    chances = dict(zip(POLAR, BIAS if said is None else BIAS * said.probability, strict=True))
    choice = max(question.options, key=lambda letter: chances[_plain(question.options[letter])])
    row = scored.rows[said.deciding if said else int(scored.scores.argmax())]
    return choice, row, held(question.text, question.options[choice], answer.hits, checker)


def option_scores(
    question: str, options: Sequence[str], rows: Sequence[EvidenceSentence], relevance: Vectors, extractor: Extractor
) -> Vectors:
    """Return how well each sentence supports each option, (options, sentences).

    The option's mean MaxSim, the share of its own words that the sentence holds, and the sentence's relevance to the
    question. Words that all options or the question have tell nothing.
    """
    words = [terms(option) - terms(question) for option in options]
    shared = set.intersection(*words) if words else set()
    own = [kept - shared or kept for kept in words]
    held = [terms(row.text) for row in rows]
    covered = np.array([[len(kept & of_row) / max(1, len(kept)) for of_row in held] for kept in own], np.float32)
    scores: Vectors = extractor.similarities(options, rows) + COVERAGE * covered + RELEVANCE * relevance
    return scores


def _plain(option: str) -> str:
    return option.strip().lower().rstrip(".")
