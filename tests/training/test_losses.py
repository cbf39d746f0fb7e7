"""The loss over a row's own passages against plain loops; who has a say in it, and who has none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.multi_vector_encoder.scoring import colbert_scores
from torch import nn

from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training import reranker, retriever
from biorag.training.colbert import Lengths, write_base
from biorag.training.data import Split
from biorag.training.losses import (
    Candidates,
    CandidatesLoss,
    OwnNegativesLoss,
    cosine_scores,
    dot_scores,
    maxsim_scores,
)
from biorag.types import TrainingRow
from tests.training import trainers

pytestmark = pytest.mark.models

DENSE = {"cosine": cosine_scores, "dot": dot_scores}


class Given(nn.Module):
    """An encoder that returns the vectors it is given."""

    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}


def columns_of(vectors: np.ndarray) -> list[dict[str, torch.Tensor]]:
    """Turn an array (rows, 1 + passages, dim), each row's query first, into a loss's columns."""
    return [{"vectors": torch.tensor(vectors[:, place])} for place in range(vectors.shape[1])]


def drawn(seed, rows=4, passages=3, dim=5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 1 + passages, dim))


def slow_similarity(name, one, other) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(one, other, strict=True))
    if name == "dot":
        return dot
    return dot / (math.sqrt(sum(float(x) ** 2 for x in one)) * math.sqrt(sum(float(y) ** 2 for y in other)))


def slow_loss(scores, scale) -> float:
    """−log( exp(s·sim(q, p⁺)) / Σ_p exp(s·sim(q, p)) ), the mean over rows; the positive is the first."""
    total = 0.0
    for row in scores:
        total += -math.log(math.exp(scale * row[0]) / sum(math.exp(scale * score) for score in row))
    return total / len(scores)


# --- one vector per text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_loss_is_the_softmax_over_a_rows_own_passages(name, scale, seed):
    vectors = drawn(seed)
    loss = OwnNegativesLoss(Given(), DENSE[name], scale)(columns_of(vectors))
    slow = [[slow_similarity(name, row[0], passage) for passage in row[1:]] for row in vectors]
    assert loss.item() == pytest.approx(slow_loss(slow, scale), abs=1e-9)


# --- batches of rows with unequal numbers of negatives -------------------------------------------------------


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


def slow_in_batch(vectors, own, similarity, scale, positives_only):
    """Return the mean loss of the rows, candidate by candidate; `vectors` are (rows, 1 + passages, tokens, dim)."""
    total = 0.0
    for row, columns in enumerate(vectors):
        sums = 0.0
        for other, passages in enumerate(vectors):
            for place in range(own[other] + 1):  # the positive is 0
                if place == 0 or other == row or not positives_only:
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


def scripted_columns(vectors):
    mask = torch.ones(vectors.shape[0], vectors.shape[2], dtype=torch.long)
    return [
        {"vectors": torch.tensor(vectors[:, place], requires_grad=True), "attention_mask": mask}
        for place in range(vectors.shape[1])
    ]


@pytest.mark.parametrize("positives_only", [False, True])
@pytest.mark.parametrize("name", ["dense", "dense cached", "maxsim", "maxsim cached"])
def test_filling_counts_in_no_softmax(name, positives_only):
    """Seven rows with none to three negatives; with positives only it is Synthesize-Train-Merge's InfoNCE."""
    make, similarity, slow = library_losses()[name]
    own = [3, 0, 1, 2, 3, 1, 2]
    vectors = np.random.default_rng(4).normal(size=(7, 5, 2, 3)).astype(np.float32)
    candidates = Candidates(similarity, by_row="maxsim" in name, positives_only=positives_only)
    loss = CandidatesLoss(make(candidates), candidates)
    columns = scripted_columns(vectors)
    found = loss(columns, torch.tensor(own))
    scale = 0.5 if "maxsim" in name else 5.0
    assert found.item() == pytest.approx(slow_in_batch(vectors, own, slow, scale, positives_only), abs=1e-5)
    found.backward()
    for place, column in enumerate(columns[1:]):
        moved = column["vectors"].grad.abs().amax(dim=(1, 2)) > 0
        assert moved.tolist() == [place <= number for number in own]
    if not positives_only:
        full = loss(scripted_columns(vectors), None).item()  # the next batch has no filling
        assert full == pytest.approx(slow_in_batch(vectors, [3] * 7, slow, scale, False), abs=1e-5)


@pytest.mark.parametrize("processes", [1, 2])
def test_passages_are_gathered_from_several_processes_only(processes, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    settings = Settings.of(train_in_batch="positives").training
    candidates = Candidates.of(settings, colbert_scores, by_row=True)
    assert candidates.gather == (processes > 1)


# --- one vector per token -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tiny_encoder, tmp_path_factory):
    from sentence_transformers import MultiVectorEncoder

    folder = tmp_path_factory.mktemp("colbert") / "base"
    write_base(find_encoder(str(tiny_encoder)), folder, Lengths(12, 40), ["fever", "liver pain"], 0)
    return MultiVectorEncoder(str(folder), device="cpu", local_files_only=True).eval()


QUERIES = ["liver pain?", "fever", "heart, lung and gene, kidney."]
POSITIVES = ["the liver hurts.", "aspirin lowers a fever, and pain", "gene"]
NEGATIVES = ["a kidney is an organ, as the heart is. so is the lung.", "gene", "warfarin, heparin?"]


def tokenised(model, texts, task):
    """Return a column as searching tokenises it, with ColBERT's marker before each text."""
    return model.preprocess(list(texts), prompt=model.prompts[task], task=task)


def features(model, queries, *passages):
    """Return the columns of a batch: queries, then passages."""
    return [tokenised(model, queries, "query"), *(tokenised(model, column, "document") for column in passages)]


def slow_maxsim(model, query, passage):
    """Σ over the query's tokens of the largest inner product with a token of the passage that counts."""
    with torch.no_grad():
        asked = model(tokenised(model, [query], "query"), task="query")
        given = model(tokenised(model, [passage], "document"), task="document")
    tokenizer, total = model.tokenizer, 0.0
    ids = tokenised(model, [passage], "document")["input_ids"][0].tolist()
    skipped = {tokenizer.pad_token_id, *map(tokenizer.convert_tokens_to_ids, ".,?")}
    counted = [place for place, token in enumerate(ids) if token not in skipped]
    for one in asked["token_embeddings"][0].numpy():  # all are counted: words, markers and the [MASK]s of its padding
        total += max(float(np.dot(one, given["token_embeddings"][0, place].numpy())) for place in counted)
    return total


def test_maxsim_is_that_of_a_loop_over_tokens(model):
    with torch.no_grad():
        found = maxsim_scores(model, features(model, QUERIES, POSITIVES, NEGATIVES))
    slow = [
        [slow_maxsim(model, query, passage) for passage in (positive, negative)]
        for query, positive, negative in zip(QUERIES, POSITIVES, NEGATIVES, strict=True)
    ]
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found, slow, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_masked_tokens_of_either_side_do_not_count(seed):
    """Columns of other lengths, tokens masked at random (at least one of each text is not), against a loop."""
    generator = np.random.default_rng(seed)

    def column(tokens):
        mask = generator.integers(0, 2, (4, tokens))
        mask[np.arange(4), generator.integers(0, tokens, 4)] = 1
        return generator.normal(size=(4, tokens, 5)).astype(np.float32), mask

    drawn_columns = [column(tokens) for tokens in (3, 6, 4)]

    def forward(features, task):
        assert task == ("query" if features["place"] == 0 else "document")
        vectors, mask = drawn_columns[features["place"]]
        return {"token_embeddings": torch.tensor(vectors), "attention_mask": torch.tensor(mask)}

    found = maxsim_scores(forward, [{"place": place} for place in range(3)])
    (queries, asked), *passages = drawn_columns
    for row, (place, (vectors, counted)) in ((row, found) for row in range(4) for found in enumerate(passages)):
        total = 0.0
        for one in queries[row][asked[row] == 1]:
            total += max(float(np.dot(one, other)) for other in vectors[row][counted[row] == 1])
        assert found[row, place].item() == pytest.approx(total, abs=1e-4)


# --- what a trainer hands to the loss -----------------------------------------------------------------------

ROWS = [
    TrainingRow(query, positive, (negative,), kind="bm25")
    for query, positive, negative in zip(QUERIES, POSITIVES, ["a kidney", "heparin?", "lung"], strict=True)
]


def first_batch(monkeypatch, stage, base, folder):
    """Return the text that each token of the first batch is, by column and row, and the trained model."""
    train = {"retriever": trainers.train_retriever, "reranker": trainers.train_reranker}[stage]
    scores = {"retriever": cosine_scores, "reranker": maxsim_scores}[stage]
    seen = []

    def watched(model, columns):
        seen.append((model, [column["input_ids"].clone() for column in columns]))
        return scores(model, columns)

    monkeypatch.setitem(retriever.OWN_SCORES, "cosine", watched)
    monkeypatch.setattr(reranker, "maxsim_scores", watched)
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
