"""Yes, no or maybe by what a reader says, and the extract that begins with what decides."""

import numpy as np
import pytest

from biorag.answering.answerer import Answerer
from biorag.answering.extract import Extractor, ScoredSentences
from biorag.answering.guards.checker import Checker
from biorag.answering.polar import TEMPERATURE, TOP, polar_evidence
from biorag.answering.sentence_matching import EvidenceSentence
from biorag.retrieval.retriever import Ranking
from biorag.settings.settings import Settings
from biorag.types import Hit, Question, Snippet, Trust
from tests.fakes import ScriptedReader

QUESTION = "Does aspirin lower fever in adults?"
YES, NO = "Aspirin lowers fever in adults.", "In adults aspirin does nothing to fever."
OTHER = "Aspirin is sold as tablets."


def says(query: str, window: str) -> tuple[float, float, float]:
    return (0.9, 0.05, 0.9) if YES in window else (0.05, 0.9, 0.9) if NO in window else (0.1, 0.1, 0.1)


def scored_of(stances, scores, read=None, hits=None) -> ScoredSentences:
    count = len(scores)
    rows = [EvidenceSentence(n, 0, 1, f"Sentence {n}.") for n in hits or range(1, count + 1)]
    stances = np.array([[yes, no, 1 - yes - no] for yes, no in stances], np.float32)
    return ScoredSentences(rows, np.array(scores, np.float32), read or list(range(count)), stances=stances)


def reader(**fields) -> ScriptedReader:
    return ScriptedReader(says, **fields)


def test_probabilities_are_the_mean_of_the_nearest_weighted_by_their_scores():
    stances = [(0.2, 0.1), (0.1, 0.8), (0.7, 0.2), (0.0, 0.0), (0.3, 0.3), (1.0, 0.0)]
    scores = [0.9, 0.7, 1.0, 0.2, 0.5, 0.1]  # the last is not among the nearest
    chooser = reader()
    said = polar_evidence(QUESTION, scored_of(stances, scores), chooser, chooser)
    weights = [np.exp(score / TEMPERATURE) for score in scores[:TOP]]
    for side, expected in enumerate(zip(*stances[:TOP], strict=True)):
        mean = sum(w * p for w, p in zip(weights, expected, strict=True)) / sum(weights)
        assert said.probability[side] == pytest.approx(mean, abs=1e-6)
    assert said.probability.sum() == pytest.approx(1)
    assert (said.side, said.deciding, said.other) == (0, 2, 1), "of another snippet, the surest of those above a half"
    assert chooser.read_windows == [], "it was read before"


def test_the_other_side_is_of_another_snippet_and_sure():
    stances = [(0.9, 0.0), (0.1, 0.8), (0.0, 0.5)]
    one, scored = reader(), scored_of(stances, [1, 0.9, 0.8], hits=[1, 1, 2])
    assert polar_evidence(QUESTION, scored, one, one).other is None
    assert polar_evidence(QUESTION, scored, None, one) is None, "without a reader of claims nothing is on a side"


@pytest.mark.parametrize("reads_questions", [False, True])
def test_a_configured_reader_is_asked_of_the_windows_that_another_chose(reads_questions):
    chooser, configured = reader(), reader(reads_questions=reads_questions, trust=Trust(polar=0.7))
    scored = scored_of([(0.1, 0.1)] * 2, [1.0, 0.5], read=[1, 0])
    scored.rows[0] = EvidenceSentence(1, 0, 1, NO)
    said = polar_evidence(QUESTION, scored, configured, chooser)
    asked = QUESTION if reads_questions else "aspirin lower fever in adults."
    assert configured.read_windows == [(asked, [NO, "Sentence 2."])]
    assert (said.side, said.deciding, said.trusted_from) == (1, 0, 0.7)


def test_what_was_not_read_is_read_and_no_may_weigh_more():
    texts = [EvidenceSentence(1, 0, 1, NO), EvidenceSentence(2, 0, 1, YES)]
    unread = ScoredSentences(texts, np.array([1.0, 1.0], np.float32))
    plain = polar_evidence(QUESTION, unread, reader(), None)
    assert plain.probability == pytest.approx([0.475, 0.475, 0.05])
    weighing = polar_evidence(QUESTION, unread, reader(trust=Trust(no=2.0)), None)
    assert weighing.probability == pytest.approx(np.array([0.475, 0.95, 0.05]) / 1.475)
    assert (plain.side, weighing.side) == (0, 1)


# --- the extract of a yes/no question ---


def extract(texts, trust=Trust(polar=0.6), question=QUESTION, with_reader=True):  # noqa: B008
    hits = tuple(Hit(n, Snippet(f"s{n}", "", text), 1.0 / n) for n, text in enumerate(texts, 1))
    one = reader(tells_answers=True, reads_questions=True, trust=trust) if with_reader else None
    answerer = Answerer(None, None, Settings.of(), Extractor(None, lambda: one), Checker(one))
    return answerer.answer_from(Question("q", question), Ranking(question, hits, {}))


def test_yes_or_no_comes_with_what_decides_first_and_the_other_side_second():
    answer = extract([f"{OTHER} {NO}", NO, YES])
    assert (answer.kind, answer.short_answer) == ("yesno", "no")
    assert [sentence.text for sentence in answer.sentences[:2]] == [NO, YES]
    assert extract([YES, OTHER]).short_answer == "yes"


@pytest.mark.parametrize("trust", [Trust(polar=2.0), Trust(polar=0.99)])
def test_a_reader_that_is_not_trusted_so_far_says_neither(trust):
    answer = extract([f"{OTHER} {NO}", NO, YES], trust)
    assert answer.short_answer == ""
    assert {YES, NO} <= {sentence.text for sentence in answer.sentences}, "both sides are shown"
