"""Batches of texts: their make-up, and results that do not depend on it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biorag.models import inference as batching
from biorag.models.batches import MANY, SHARES, balanced, by_length
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.models.inference import prompt_of, run, token_vectors

pytestmark = pytest.mark.models

BATCHES = (st.lists(st.integers(0, 500), max_size=60), st.integers(1, 2000), st.integers(1, 8))
TEXTS = [f"{'fever ' * (number % 9)}gene {number}" for number in range(60)]


@given(*BATCHES)
def test_batches_hold_every_place_once_longest_first_within_the_budget(lengths, budget, workers):
    batches = by_length(lengths, budget, workers)
    places = [place for batch in batches for place in batch]
    assert sorted(places) == list(range(len(lengths)))
    assert [lengths[place] for place in places] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= budget or lengths[batch[0]] == 0


@given(*BATCHES)
def test_balanced_batches_hold_every_place_once_and_differ_by_one_text_at_most(lengths, budget, workers):
    batches = balanced(lengths, budget, workers)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    assert all(batches) and (len(batches) % workers == 0 or len(batches) % SHARES == 0 or len(batches) == len(lengths))
    totals = [sum(max(1, lengths[place]) for place in batch) for batch in batches]
    for batch, total in zip(batches, totals, strict=True):
        assert total - max(1, lengths[batch[-1]]) <= min(totals)
        assert len(batch) == 1 or total <= budget + 2 * max(lengths) + len(lengths)


@given(st.lists(st.integers(1, 500), min_size=20, max_size=80), st.integers(2, 8))
def test_many_batches_are_the_same_for_any_few_workers(lengths, workers):
    budget = sum(lengths) // MANY
    assert balanced(lengths, budget, workers) == balanced(lengths, budget, 1)


@pytest.fixture(scope="module")
def model(tiny_encoder):
    return BiEncoder(find_encoder(str(tiny_encoder)), "cosine", "fp32").model


def rows_of(features):
    return [
        (vector.numpy(force=True), tokens)
        for vector, tokens in zip(features["sentence_embedding"], token_vectors(features), strict=True)
    ]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_vectors_and_tokens_are_the_librarys_on_any_number_of_threads(model, monkeypatch, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(batching, "CPU_CHARACTERS", 120)
    expected = model.encode(TEXTS)
    tokens = model.encode(TEXTS, output_value="token_embeddings")
    for place, (vector, own) in enumerate(run(model, TEXTS, "document", rows_of)):
        np.testing.assert_allclose(vector, expected[place], atol=1e-5)
        np.testing.assert_allclose(own, tokens[place].numpy(force=True), atol=1e-5)


@pytest.mark.parametrize(
    ("prompts", "default", "query", "document"),
    [
        ({"query": "q: ", "document": "d: ", "passage": "p: "}, None, "q: ", "d: "),
        ({"other": "o: "}, "other", "o: ", "o: "),
        ({}, None, None, None),
    ],
)
def test_prompts_are_found_as_the_library_finds_them(model, monkeypatch, prompts, default, query, document):
    monkeypatch.setattr(model, "prompts", prompts)
    monkeypatch.setattr(model, "default_prompt_name", default)
    assert (prompt_of(model, "query"), prompt_of(model, "document")) == (query, document)
    for task, encode in (("query", model.encode_query), ("document", model.encode_document)):
        found = [vector for vector, _ in run(model, ["fever"], task, rows_of)]
        np.testing.assert_allclose(found, encode(["fever"]), atol=1e-5)
