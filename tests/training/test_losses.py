"""The library's losses over the passages that count, against plain loops; how a batch is tokenised."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.multi_vector_encoder.scoring import colbert_scores
from torch import nn

from biorag.models.finding import find_encoder
from biorag.models.inference import drop_padding, reads_unpadded
from biorag.settings.settings import Settings
from biorag.training.data import Split
from biorag.training.losses import SIMILARITIES, MaskedLoss, MaskedSimilarity, TokenLoss, mean_maxsim
from biorag.types import TrainingRow
from tests.training import trainers

pytestmark = pytest.mark.models


def slow_similarity(name, one, other) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(one, other, strict=True))
    if name == "dot":
        return dot
    return dot / (math.sqrt(sum(float(x) ** 2 for x in one)) * math.sqrt(sum(float(y) ** 2 for y in other)))


class Scripted(nn.Sequential):
    """A model whose token vectors are the ones that it is given; a text's vector is its first."""

    def __init__(self):
        super().__init__(nn.Identity())  # the library asks what the first module is

    def forward(self, features, **_):
        return {
            "token_embeddings": features["vectors"],
            "sentence_embedding": features["vectors"][:, 0],
            "attention_mask": features["attention_mask"],
        }


def slow_in_batch(vectors, own, similarity, scale, others, asked):
    """Return the mean loss of the rows, candidate by candidate; `vectors` are (rows, 1 + passages, tokens, dim)."""
    total = 0.0
    for row, columns in enumerate(vectors):
        sums = 0.0
        for other, passages in enumerate(vectors):
            for place in range(own[other] + 1):  # the positive is 0
                if other != row and place == 0 and asked[other] == asked[row]:
                    continue  # it answers the same question
                if other == row or others == "all" or (others == "positives" and place == 0):
                    sums += math.exp(scale * similarity(columns[0], passages[1 + place]))
        total += -math.log(math.exp(scale * similarity(columns[0], columns[1])) / sums)
    return total / len(vectors)


def slow_cosine(query, passage):
    return slow_similarity("cosine", query[0], passage[0])


def slow_sum_of_maxima(query, passage):
    return sum(max(slow_similarity("dot", one, other) for other in passage) for one in query)


def library_losses():
    """Return each kind of loss, the similarity it takes and its slow reference; cached ones take 3 rows at a time."""
    from sentence_transformers.multi_vector_encoder import losses as multi
    from sentence_transformers.sentence_transformer import losses as dense
    from sentence_transformers.util import cos_sim

    return {
        "dense": (lambda s: dense.MultipleNegativesRankingLoss(Scripted(), 5.0, s), cos_sim, slow_cosine),
        "dense cached": (
            lambda s: dense.CachedMultipleNegativesRankingLoss(Scripted(), 5.0, s, 3),
            cos_sim,
            slow_cosine,
        ),
        "maxsim": (
            lambda s: multi.MultiVectorMultipleNegativesRankingLoss(
                Scripted(), scale=0.5, similarity_fct=s, score_mini_batch_size=2
            ),
            colbert_scores,
            slow_sum_of_maxima,
        ),
        "maxsim cached": (
            lambda s: multi.CachedMultiVectorMultipleNegativesRankingLoss(
                Scripted(), scale=0.5, similarity_fct=s, mini_batch_size=3
            ),
            colbert_scores,
            slow_sum_of_maxima,
        ),
    }


def scripted_columns(vectors, asked):
    mask = torch.ones(vectors.shape[0], vectors.shape[2], dtype=torch.long)
    ids = torch.tensor([[5, question] for question in asked])
    return [
        {"vectors": torch.tensor(vectors[:, place], requires_grad=True), "input_ids": ids, "attention_mask": mask}
        for place in range(vectors.shape[1])
    ]


@pytest.mark.parametrize("asked", [range(7), (0, 1, 2, 0, 4, 1, 0)], ids=["each once", "some again"])
@pytest.mark.parametrize("others", ["all", "positives", "none"])
@pytest.mark.parametrize("name", ["dense", "dense cached", "maxsim", "maxsim cached"])
def test_who_counts_in_the_softmax(name, others, asked):
    """Seven rows with none to three negatives, whose columns are filled; a question's other positives do not count."""
    make, similarity, slow = library_losses()[name]
    own = [3, 0, 1, 2, 3, 1, 2]
    vectors = np.random.default_rng(4).normal(size=(7, 5, 2, 3)).astype(np.float32)
    candidates = MaskedSimilarity(similarity, by_row="maxsim" in name, others=others)
    loss = MaskedLoss(make(candidates), candidates)
    columns = scripted_columns(vectors, asked)
    found = loss(columns, torch.tensor(own))
    scale = 0.5 if "maxsim" in name else 5.0
    assert found.item() == pytest.approx(slow_in_batch(vectors, own, slow, scale, others, asked), abs=1e-5)
    found.backward()
    for place, column in enumerate(columns[1:]):
        moved = column["vectors"].grad.abs().amax(dim=(1, 2)) > 0
        alone = others == "none"  # then a row without negatives teaches nothing
        assert moved.tolist() == [place <= number and not (alone and number == 0) for number in own]
    full = loss(scripted_columns(vectors, asked), None).item()  # the next batch has no filling
    assert full == pytest.approx(slow_in_batch(vectors, [3] * 7, slow, scale, others, asked), abs=1e-5)


QUERIES = ["liver pain?", "fever", "heart, lung and gene, kidney."]
POSITIVES = ["the liver hurts.", "aspirin lowers a fever, and pain", "gene"]


def slow_mean_maxsim(query, passage):
    return sum(max(slow_similarity("cosine", one, other) for other in passage) for one in query) / len(query)


def test_the_token_loss_adds_the_softmax_of_mean_maxsim_with_padding_and_without(tiny_encoder):
    model = SentenceTransformer(str(tiny_encoder), device="cpu").eval()
    columns = [QUERIES, POSITIVES, ["a kidney", "heparin?", "lung"]]
    vectors = [[[vector] for vector in model.encode(texts)] for texts in columns]
    tokens = [model.encode(texts, output_value="token_embeddings") for texts in columns]
    expected = sum(
        weight * slow_in_batch(list(zip(*encoded, strict=True)), [1, 1, 1], similarity, 20.0, "all", range(3))
        for encoded, similarity, weight in ((vectors, slow_cosine, 1.0), (tokens, slow_mean_maxsim, 0.5))
    )
    parts = [MaskedSimilarity(similarity) for similarity in (SIMILARITIES["cosine"], mean_maxsim)]
    loss = TokenLoss(model, 20.0, *parts, 0.5)
    gradients = []
    for unpadded in (False, True):
        if unpadded:
            drop_padding(model)
        assert reads_unpadded(model) == unpadded
        model.zero_grad()
        found = loss([model.preprocess(texts) for texts in columns])
        found.backward()
        assert found.item() == pytest.approx(expected, abs=1e-4)
        gradients.append([weight.grad.clone() for weight in model.parameters() if weight.grad is not None])
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-3)


def tokenised(model, texts, task):
    """Return a column as searching tokenises it, with ColBERT's marker before each text."""
    return model.preprocess(list(texts), prompt=model.prompts[task], task=task)


# --- what a trainer hands to the loss -----------------------------------------------------------------------

ROWS = [
    TrainingRow(query, positive, (negative,), kind="bm25")
    for query, positive, negative in zip(QUERIES, POSITIVES, ["a kidney", "heparin?", "lung"], strict=True)
]


def first_batch(monkeypatch, stage, base, folder):
    """Return the text that each token of the first batch is, by column and row, and the trained model."""
    train = {"retriever": trainers.train_retriever, "reranker": trainers.train_reranker}[stage]
    seen = []
    forward = MaskedLoss.forward

    def watched(loss, columns, labels=None):
        seen.append((loss.model, [column["input_ids"].clone() for column in columns]))
        return forward(loss, columns, labels)

    monkeypatch.setattr(MaskedLoss, "forward", watched)
    settings = Settings.of(precision="fp32", train_max_tokens=32, train_query_tokens=12, train_batch_size=8)
    train(find_encoder(str(base)), Split(ROWS, []), settings, folder, {}, lambda _: None, "bm25")
    model, columns = seen[0]
    return [[model.tokenizer.decode(row) for row in column.tolist()] for column in columns], model


@pytest.mark.parametrize("stage", ["reranker", "retriever"])
def test_a_batch_is_tokenised_as_searching_tokenises(stage, tiny_encoder, monkeypatch, tmp_path):
    """With the markers or prompts that the saved model puts before each text: else it is trained on other inputs."""
    base = tiny_encoder
    if stage == "retriever":  # asked with one phrase before each text, as E5 and BGE are
        base, prompts = tmp_path / "prompted", {"query": "fever: ", "document": "gene: "}
        SentenceTransformer(str(tiny_encoder), device="cpu", prompts=prompts).save(str(base))
    columns, model = first_batch(monkeypatch, stage, base, tmp_path / "model")
    texts = [[row.query for row in ROWS], [row.positive for row in ROWS], [row.negatives[0] for row in ROWS]]
    assert model.prompts["query"] and model.prompts["document"]
    for column, text, task in zip(columns, texts, ("query", "document", "document"), strict=True):
        asked = tokenised(model, text, task)["input_ids"].tolist()
        assert sorted(column) == sorted(model.tokenizer.decode(row) for row in asked)
