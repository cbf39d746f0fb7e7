"""When an answer is withheld: features by hand, coefficients in JSON, the packaged ones, and what ask says."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from biorag.answering.abstention import features as module
from biorag.answering.abstention.estimator import (
    FILE,
    AbstentionCoefficients,
    EvidenceEstimator,
    coefficients_of,
    packaged_coefficients,
    read_coefficients,
)
from biorag.answering.abstention.features import FEATURES, of_hits, of_sides, of_tokens
from biorag.answering.answerer import NOTHING, Answerer
from biorag.answering.subject import lacking
from biorag.answering.verification.cues import rarity
from biorag.errors import MismatchError
from biorag.models.finding import find_encoder
from biorag.retrieval.fusion import Sides
from biorag.retrieval.retriever import Ranking
from biorag.settings.settings import Settings
from biorag.types import EncoderIdentity, Hit, Question, ScoredDoc, Snippet

QUESTIONS = Path(__file__).parent / "questions"
ENCODER = EncoderIdentity("tiny", "", "a" * 64, 4)


def scored(*scores):
    return [ScoredDoc(f"s{n}", score) for n, score in enumerate(scores)]


def coefficients(**changes):
    """Coefficients whose log-odds are the score of the first hit, and whose calibration is a line from 0 to 1."""
    count = len(FEATURES)
    weights = tuple(float(name == "hit_score") for name in FEATURES)
    values = AbstentionCoefficients(
        ENCODER, "cosine", 12, ("tests",), 2, "by hand", 0.5, FEATURES, (0.0,) * count, (1.0,) * count, weights, 0.0,
        (0.0, 1.0), (0.0, 1.0),
    )  # fmt: skip
    return replace(values, **changes)


def test_sides_give_scores_margins_and_overlap():
    sides = Sides(scored(0.9, 0.8, 0.7, 0.6, 0.4), [ScoredDoc("s1", 8.0), ScoredDoc("x", 2.0)])
    values = of_sides(sides, "warfarin")
    assert values["dense_top"] == 0.9
    assert values["dense_margin_5"] == values["dense_margin_20"] == pytest.approx(0.5)
    assert values["bm25_share"] == pytest.approx(8 / rarity("warfarin"))
    assert values["bm25_ratio_5"] == values["bm25_ratio_20"] == 0.25
    assert values["overlap_10"] == pytest.approx(0.1)


def test_words_are_weighted_by_rarity():
    hits = [Hit(1, Snippet("a", "", "Warfarin thins."), 0.8), Hit(2, Snippet("b", "", "Football is played."), 0.3)]
    values = of_hits("warfarin football", hits)
    first, second = rarity("warfarin"), rarity("footbal")
    assert values["hit_margin_5"] == pytest.approx(0.5)
    assert (values["words"], values["rarity_max"]) == (2, max(first, second))
    assert values["coverage_first"] == pytest.approx(first / (first + second))
    assert values["coverage_all"] == pytest.approx(1)
    assert values["missing_first"] == pytest.approx(second**3)
    assert values["missing_best"] == pytest.approx(min(first, second) ** 3)


def test_tokens_are_weighted_by_the_rarity_of_their_words():
    # Two special tokens around "the" and "warfarin"; two hits; a sentence each.
    spans = [(0, 0), (0, 3), (4, 12), (0, 0)]
    by_hit = np.array([[0.9, 0.5], [1.0, 0.2], [0.4, 0.6], [0.7, 0.3]])
    values = of_tokens("the warfarin", spans, by_hit, by_hit, ["Warfarin.", "No."])
    assert values["maxsim_first"] == values["maxsim_best"] == pytest.approx(0.75)
    assert values["maxsim_special"] == pytest.approx(0.8)
    assert values["maxsim_lowest"] == pytest.approx(0.7)  # both ordinary tokens of the first hit
    assert (values["weighted_first"], values["weighted_best"]) == (pytest.approx(0.4), pytest.approx(0.6))
    assert values["weighted_any"] == values["weighted_sentence"] == pytest.approx(0.6)
    assert values["weighted_gap"] == pytest.approx(rarity("warfarin") * 0.6)
    assert values["sentence_margin"] == pytest.approx(0.35)
    assert values["sentence_coverage"] == 1.0


def test_best_matches_are_those_of_a_slow_loop():
    generator = np.random.default_rng(0)
    query, passages = generator.normal(size=(3, 4)), [generator.normal(size=(n, 4)) for n in (2, 5, 0)]
    expected = [[max((q @ d for d in passage), default=0.0) for passage in passages] for q in query]
    assert module.best_matches(query, passages) == pytest.approx(np.array(expected))


def test_coefficients_give_a_probability_by_hand():
    found = coefficients(mean=tuple(0.2 * (name == "hit_score") for name in FEATURES), intercept=-0.1)
    rows = np.zeros((3, len(FEATURES)))
    rows[:, FEATURES.index("hit_score")] = (0.5, 0.9, 5.0)
    assert found.scores(rows) == pytest.approx([0.2, 0.6, 4.7])
    assert found.probability_of(rows) == pytest.approx([0.2, 0.6, 1.0])  # level beyond the last knot


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"format": 2}, "format"),
        ({"features": ["dense_top"]}, "another version"),
        ({"weights": [1.0]}, "at least 27 items"),
        ({"probabilities": [0.0]}, "one probability"),
        ({"threshold": 2.0}, "threshold"),
        ({"mean": None}, "damaged|holds no coefficients"),
    ],
)
def test_damaged_coefficients_are_refused(tmp_path, change, part):
    coefficients().save(tmp_path / FILE)
    values = {**json.loads((tmp_path / FILE).read_bytes()), **change}
    (tmp_path / FILE).write_text(json.dumps(values))
    with pytest.raises(MismatchError, match=part):
        read_coefficients(tmp_path / FILE)


def test_coefficients_belong_to_an_encoder(tmp_path):
    assert coefficients_of(tmp_path, ENCODER, "cosine") is None  # the packaged ones are the starters'
    starter, plain = packaged_coefficients()
    assert coefficients_of(tmp_path, starter.encoder, "cosine") == starter
    assert coefficients_of(tmp_path, plain.encoder, "cosine") == plain
    assert coefficients_of(tmp_path, starter.encoder, "dot") is None
    coefficients().save(tmp_path / FILE)
    assert coefficients_of(tmp_path, ENCODER, "cosine") == coefficients()
    with pytest.raises(MismatchError, match="was fitted for encoder 'tiny'"):
        coefficients_of(tmp_path, starter.encoder, "cosine")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), enumerate(("starter", "minilm")))
def test_packaged_coefficients_say_where_they_come_from(number, name):
    starter = packaged_coefficients()[number]
    assert starter.encoder.sha256 == find_encoder(name).sha256
    assert starter.command.startswith("biorag tune abstention")
    assert starter.data[:2] == ("bioasq", "pubmedqa")
    assert list(starter.probabilities) == sorted(starter.probabilities)
    assert list(starter.log_odds) == sorted(starter.log_odds)


class Estimates(EvidenceEstimator):
    """The probability is the score of the first hit."""

    def __init__(self, threshold):
        self.threshold = threshold

    def probability(self, ranking):
        return ranking.hits[0].score


def ranking(score):
    hit = Hit(1, Snippet("s1", "Warfarin", "Warfarin blocks the recycling of vitamin K."), score)
    return Ranking("Q", (hit,), {"total": 1.0}, Sides(scored(score), scored(score)))


def test_an_unlikely_answer_is_withheld_with_the_nearest_hits():
    answerer = Answerer(None, None, Settings(), estimator=Estimates(0.5))
    withheld = answerer.answer_or_withhold(Question("q", "What blocks vitamin K?"), ranking(0.49))
    nearest = f"{NOTHING} Nearest: Warfarin blocks the recycling of vitamin K. [1]"
    assert (withheld.abstained, withheld.text, withheld.evidence_probability) == (True, nearest, 0.49)
    assert (withheld.sentences, withheld.citations, len(withheld.hits)) == ((), (), 1)
    assert answerer.answer_or_withhold(Question("q", "Who plays chess?"), ranking(0.05)).text == NOTHING
    given = answerer.answer_or_withhold(Question("q", "What blocks vitamin K?"), ranking(0.5))
    assert (given.abstained, given.evidence_probability) == (False, 0.5)
    assert "Warfarin blocks" in given.text


def test_answer_anyway_overrides():
    settings = Settings.of(answer_anyway=True)
    given = Answerer(None, None, settings, estimator=Estimates(0.5)).answer_or_withhold(
        Question("q", "What blocks vitamin K?"), ranking(0.1)
    )
    assert (given.abstained, given.evidence_probability) == (False, 0.1)


def test_no_hits_have_no_answer_and_one_side_no_estimate():
    estimator = EvidenceEstimator(coefficients(), encoder=None)
    assert estimator.probability(Ranking("q", (), {}, Sides([], []))) == 0.0
    assert estimator.probability(Ranking("q", (), {}, None)) is None


@pytest.mark.slow
def test_the_starter_withholds_what_the_demonstration_corpus_lacks_and_answers_what_it_covers(demo_home):
    from biorag.engine import open_index

    covered = (QUESTIONS.parent / "demo_questions.jsonl").read_text(encoding="utf-8").splitlines()
    with open_index(Settings.of(home=demo_home)) as opened:
        answerer = opened.answerer(None)

        def abstains(text):
            return answerer.answer(Question("q", text)).abstained

        assert abstains("Who won the 1998 football world cup?")
        assert not any(abstains(json.loads(line)["question"]) for line in covered[:8])
        for name in ("outside-medicine", "uncovered-medicine"):
            lines = (QUESTIONS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
            assert all(abstains(json.loads(line)["text"]) for line in lines[:3])


def test_hits_that_lack_a_telling_word_answer_only_where_that_is_sure():
    answerer = Answerer(None, None, Settings(), estimator=Estimates(0.5))
    withheld = answerer.answer_or_withhold(Question("q", "Does warfarin cause tinnitus?"), ranking(0.7))
    assert withheld.abstained
    assert withheld.notes[0] == "no snippet that was found says anything of: tinnitus"
    assert not answerer.answer_or_withhold(Question("q", "Does warfarin cause tinnitus?"), ranking(0.8)).abstained
    chosen = Answerer(None, None, Settings.of(evidence_threshold=0.5), estimator=Estimates(0.5))
    assert not chosen.answer_or_withhold(Question("q", "Does warfarin cause tinnitus?"), ranking(0.7)).abstained


def test_what_says_nothing_of_the_group_of_patients_is_withheld_however_likely():
    question = Question("q", "Does warfarin cause bleeding in renal impairment?")
    withheld = Answerer(None, None, Settings(), estimator=Estimates(0.5)).answer_or_withhold(question, ranking(0.99))
    assert withheld.abstained
    assert (
        "no snippet on this subject speaks of: renal impairment (--answer-anyway shows what it says)" in withheld.notes
    )
    for own in ({"evidence_threshold": 0.5}, {"answer_anyway": True}):
        chosen = Answerer(None, None, Settings.of(**own), estimator=Estimates(0.5))
        assert not chosen.answer_or_withhold(question, ranking(0.99)).abstained


def test_an_abbreviation_is_held_by_words_of_its_initials():
    hits = [Hit(1, Snippet("s", "", "Angiotensin-converting enzyme inhibitors; miRNA."), 1.0)]
    assert lacking("Do ACE inhibitors cause angioedema?", hits) == ["angioedema"]
