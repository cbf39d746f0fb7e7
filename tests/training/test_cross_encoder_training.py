"""Training a cross-encoder on tiny random models: pairs, what is saved, exact resume, refusals."""

import math

import numpy as np
import pytest

from biorag.models.cross_encoder import CrossEncoderReranker
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training.data import Split, labelled_pairs
from tests.fakes import scores_of
from tests.training.trainers import ROWS, train_cross_encoder

pytestmark = pytest.mark.models

SPLIT = Split(ROWS[:40], ROWS[80:])


SETTINGS = Settings.of(
    precision="fp32",
    train_batch_size=16,
    train_max_tokens=48,
    train_learning_rate=1e-3,
    train_hard_negatives=2,
    train_evaluations=4,
)


@pytest.fixture(scope="module")
def trained(tiny_encoder, tmp_path_factory):
    """One whole run of 8 steps, with its manifest and the progress it told."""
    out, steps = tmp_path_factory.mktemp("trained") / "m", []
    manifest = train_cross_encoder(find_encoder(str(tiny_encoder)), SPLIT, SETTINGS, out, {}, steps.append, "bm25")
    return out, manifest, sum(steps)


def test_what_is_saved_gives_the_same_scores_in_the_library_and_here(trained, tiny_encoder):
    """The passage is longer than training was told to keep, so a cut at 48 tokens would show."""
    from sentence_transformers import CrossEncoder

    query, texts = ROWS[0].query, [ROWS[0].positive, "liver pain " * 30 + "gene", "heart " * 100]
    model = CrossEncoder(str(trained[0]), device="cpu")
    probabilities = model.predict([(query, text) for text in texts])
    log_odds = scores_of(CrossEncoderReranker(find_encoder(str(trained[0])), "fp32"), query, texts)
    np.testing.assert_allclose(1 / (1 + np.exp(-log_odds)), probabilities, atol=1e-5)
    assert model.max_seq_length == 128


def test_the_loss_is_the_logistic_one_with_positives_weighted(trained, tiny_cross_encoder):
    """On the first batch of an untrained model, against the formula in loops."""
    import torch
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    from biorag.training.cross_encoder import logistic_loss

    model = CrossEncoder(str(tiny_cross_encoder), device="cpu")
    model.eval()
    pairs = labelled_pairs(ROWS[:3], 2)
    loss = logistic_loss(model, pairs["label"])
    assert isinstance(loss, BinaryCrossEntropyLoss)
    found = loss([pairs["query"], pairs["passage"]], torch.tensor(pairs["label"])).item()
    total = 0.0
    for query, passage, label in zip(pairs["query"], pairs["passage"], pairs["label"], strict=True):
        p = float(model.predict([(query, passage)])[0])
        total -= 2.0 * math.log(p) if label else math.log(1 - p)
    assert found == pytest.approx(total / 9, rel=1e-4)
