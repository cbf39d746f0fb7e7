"""Validation while training: metrics against ir_measures on the model's own vectors and scores; what is drawn."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, R, Success, nDCG

from biorag.errors import UsageError
from biorag.models.colbert import ColBERT
from biorag.models.finding import find_encoder
from biorag.models.late_interaction import LateInteraction
from biorag.training.colbert import Lengths, write_base
from biorag.training.evaluators import (
    METRIC,
    TRIPLETS,
    Validation,
    reranking_validation,
    retrieval_validation,
    triplet_validation,
)
from biorag.training.instructions import Instructions
from biorag.types import TrainingRow
from tests.conftest import WORDS
from tests.fakes import scores_of

pytestmark = pytest.mark.models

PAIRS = [(one, other) for one in WORDS for other in WORDS if one != other]
# Two or three positives of a question, two negatives of a row, one of which a question's rows share.
ROWS = [
    TrainingRow(
        f"what is {one}?",
        f"{one} heals the {other}.",
        (f"the {other} hurts, {one}.", f"{one} is not known."),
        kind="bm25",
    )
    for one, other in PAIRS[::4]
]
HELD_OUT = [row for row in ROWS if row.query.split()[2][0] in "aihf"]
TRAINING = [row for row in ROWS if row not in HELD_OUT]


@pytest.fixture(scope="module")
def encoder(tiny_encoder):
    """A tiny encoder whose vectors differ in length too, so that cosine and dot rank differently."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    torch.manual_seed(3)
    model = SentenceTransformer(str(tiny_encoder), device="cpu")
    model.append(Dense(32, 8, bias=True, activation_function=torch.nn.Identity()))
    return model.eval()


@pytest.fixture(scope="module")
def colbert(tiny_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("colbert") / "base"
    write_base(find_encoder(str(tiny_encoder)), folder, Lengths(12, 40), ["fever", "liver pain"], 0)
    return LateInteraction(ColBERT(find_encoder(str(folder)), "fp32"))


def by_ir_measures(scores: dict[str, dict[str, float]], relevant: dict[str, set[str]], measures):
    """Return the measures of texts ranked by score, by the field's own tool; texts get ids first."""
    texts = sorted({text for ranked in scores.values() for text in ranked})
    ids = {text: f"d{place:04}" for place, text in enumerate(texts)}
    names = {query: f"q{place:04}" for place, query in enumerate(scores)}
    judged = [ir_measures.Qrel(names[query], ids[text], 1) for query in scores for text in relevant[query]]
    run = [
        ir_measures.ScoredDoc(names[query], ids[text], float(score))
        for query, ranked in scores.items()
        for text, score in ranked.items()
    ]
    return ir_measures.calc_aggregate(measures, judged, run)


def positives_of(rows):
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row.query, set()).add(row.positive)
    return found


# --- retrieval ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_retrieval_is_measured_as_ir_measures_measures_it(similarity, encoder):
    found = Validation("fp32", [retrieval_validation(HELD_OUT, TRAINING, similarity, 0)])(encoder)
    relevant = positives_of(HELD_OUT)
    passages = {row.positive for row in ROWS} | {text for row in HELD_OUT for text in row.negatives}
    scores: dict[str, dict[str, float]] = {}
    vectors = {text: encoder.encode(text).astype(float) for text in passages}
    for query in relevant:
        asked = encoder.encode(query).astype(float)
        scores[query] = {text: float(np.dot(asked, vector)) for text, vector in vectors.items()}
        if similarity == "cosine":
            for text, vector in vectors.items():
                scores[query][text] /= np.linalg.norm(asked) * np.linalg.norm(vector)
    expected = by_ir_measures(scores, relevant, [nDCG @ 10, RR @ 10, Success @ 5, R @ 10])
    assert found.keys() == {"ndcg@10", "mrr@10", "map@100", "accuracy@5", "recall@10"}
    assert METRIC == "ndcg@10"
    assert 0 < found["ndcg@10"] < 1
    assert found["ndcg@10"] == pytest.approx(expected[nDCG @ 10], abs=1e-6)
    assert found["mrr@10"] == pytest.approx(expected[RR @ 10], abs=1e-6)
    assert found["accuracy@5"] == pytest.approx(expected[Success @ 5], abs=1e-6)
    assert found["recall@10"] == pytest.approx(expected[R @ 10], abs=1e-6)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("prompts", [None, ("ask ", "read ")])
def test_triplets_are_counted_one_by_one(similarity, prompts, encoder):
    """Each negative of a row is compared with the row's positive alone; in every second row they change places."""
    swapped = [TrainingRow(row.query, row.negatives[0], (row.positive, row.negatives[1])) for row in HELD_OUT[::2]]
    rows = [*swapped, *HELD_OUT[1::2]]
    instructions = prompts and Instructions(*prompts)
    shares = triplet_validation(rows, similarity, 0, instructions)(encoder)
    asked, read = prompts or ("", "")
    nearer = []
    for row in rows:
        query, *passages = (
            encoder.encode(text).astype(float)
            for text in (asked + row.query, *(read + text for text in (row.positive, *row.negatives)))
        )
        lengths = [np.linalg.norm(vector) if similarity == "cosine" else 1 for vector in passages]
        positive, *negatives = (query @ vector / length for vector, length in zip(passages, lengths, strict=True))
        nearer += [positive > negative for negative in negatives]
    assert 0 < np.mean(nearer) < 1
    assert shares == {TRIPLETS: pytest.approx(np.mean(nearer), abs=1e-9)}


# --- reranking ----------------------------------------------------------------------------------------------


def test_reranking_is_measured_as_ir_measures_measures_it(colbert):
    found = Validation("fp32", [reranking_validation(HELD_OUT, 0)])(colbert._encoder._model)
    relevant = positives_of(HELD_OUT)
    scores = {}
    for query, positives in relevant.items():
        negatives = {text for row in HELD_OUT if row.query == query for text in row.negatives}
        texts = sorted(positives | negatives)
        scores[query] = dict(zip(texts, scores_of(colbert, query, texts), strict=True))
    expected = by_ir_measures(scores, relevant, [nDCG @ 10, RR @ 10, AP])
    assert found.keys() == {"ndcg@10", "mrr@10", "map"}
    assert 0 < found["ndcg@10"] < 1
    assert found["ndcg@10"] == pytest.approx(expected[nDCG @ 10], abs=1e-6)
    assert found["mrr@10"] == pytest.approx(expected[RR @ 10], abs=1e-6)
    # 0.4033 against 0.3967 on one processor, in 0.1.0 too, with nDCG and MRR equal; why is not known yet.
    assert found["map"] == pytest.approx(expected[AP], abs=0.01)


# --- neither ------------------------------------------------------------------------------------------------


def test_without_held_out_rows_nothing_is_measured():
    assert retrieval_validation([], TRAINING, "cosine", 0) is None
    assert reranking_validation([], 0) is None
    assert reranking_validation([TrainingRow("q", "p")], 0) is None
    with pytest.raises(UsageError, match="--stop-by triplets needs mined negatives"):
        triplet_validation([TrainingRow("q", "p")], "cosine", 0)
