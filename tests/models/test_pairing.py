"""An encoder of two models: its vectors against transformers' own, its identity, and an index made with it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer, DPRConfig, DPRContextEncoder, DPRQuestionEncoder

from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.models.pairing import write_pair
from tests.cli import done, failed, invoke
from tests.conftest import WORDS

pytestmark = pytest.mark.models

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TEXTS = ["liver", "aspirin heals the fever, and pain", "gene heart"]


@pytest.fixture(scope="module")
def published(tmp_path_factory, tiny_encoder):
    """Tiny random models as they are published: DPR's two, with a projection, and MedCPT's two plain BERTs."""
    folder = tmp_path_factory.mktemp("published")
    tokenizer = BertTokenizer.from_pretrained(str(tiny_encoder))
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 64, **SIZES}
    kinds = {
        "dpr-question": (DPRQuestionEncoder, DPRConfig(projection_dim=8, **sizes)),
        "dpr-context": (DPRContextEncoder, DPRConfig(projection_dim=8, **sizes)),
        "medcpt-query": (BertModel, BertConfig(**sizes)),
        "medcpt-article": (BertModel, BertConfig(**sizes)),
    }
    for seed, (name, (kind, config)) in enumerate(kinds.items()):
        torch.manual_seed(seed)
        model = kind(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def by_transformers(folder, kind):
    """Return the vector of each text by the model's own class: DPR's output, or MedCPT's [CLS]."""
    model, tokenizer = kind.from_pretrained(folder).eval(), BertTokenizer.from_pretrained(folder)
    vectors = []
    for text in TEXTS:
        with torch.inference_mode():
            output = model(**tokenizer(text, return_tensors="pt"))
        vectors.append(output.last_hidden_state[0, 0] if kind is BertModel else output.pooler_output[0])
    return torch.stack(vectors).numpy()


def pair(folder, home, query, passage, pooling=None):
    return write_pair(find_encoder(str(folder / query)), find_encoder(str(folder / passage)), pooling, home)


@pytest.mark.parametrize(
    ("names", "kinds", "pooling"),
    [
        (("dpr-question", "dpr-context"), (DPRQuestionEncoder, DPRContextEncoder), None),
        (("medcpt-query", "medcpt-article"), (BertModel, BertModel), "cls"),
    ],
)
def test_a_pair_makes_the_vectors_of_both_models(published, tmp_path, names, kinds, pooling):
    files = pair(published, tmp_path, *names, pooling)
    encoder = BiEncoder(files, "dot", "fp32")
    expected = [by_transformers(published / name, kind) for name, kind in zip(names, kinds, strict=True)]
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), expected[0], atol=1e-4)
    np.testing.assert_allclose(encoder.encode_snippets(TEXTS), expected[1], atol=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == [files.path.name], "nothing else is left"
    stamp = files.path.stat().st_mtime_ns
    again = pair(published, tmp_path, *names, pooling)
    assert (again.sha256, again.path.stat().st_mtime_ns) == (files.sha256, stamp)


def test_a_pair_is_known_by_both_models_and_pooling(published, tmp_path):
    query, passage = "medcpt-query", "medcpt-article"
    forms = [(query, passage, "cls"), (passage, query, "cls"), (query, query, "cls"), (query, passage, "mean")]
    files = [pair(published, tmp_path, *form) for form in forms]
    assert len({one.path for one in files}) == 4
    assert len({(one.sha256, json.dumps(one.configuration(), sort_keys=True)) for one in files}) == 4


def test_an_index_of_two_models_is_searched_by_both(published, tmp_path, monkeypatch):
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BIORAG_PRECISION", "fp32")
    corpus = tmp_path / "corpus.jsonl"
    snippets = [{"id": f"s{n}", "title": word, "content": f"{word} and {WORDS[n - 1]}"} for n, word in enumerate(WORDS)]
    corpus.write_text("".join(json.dumps(snippet) + "\n" for snippet in snippets))
    query, passage = ("--query-encoder", published / "dpr-question"), ("--passage-encoder", published / "dpr-context")
    base = ("index", corpus, "--similarity", "dot", "--store-tokens", "none", "--json")
    assert done(invoke(*base, *query, *passage))["snippets"] == len(WORDS)
    assert done(invoke(*base, *query, *passage))["unchanged"] == len(WORDS)
    search = ("search", "liver", "--mode", "dense", "--no-rerank", "--k", len(WORDS), "--json")
    hits = done(invoke(*search))["hits"]
    files = pair(published, tmp_path / "home" / "encoders", "dpr-question", "dpr-context")
    encoder = BiEncoder(files, "dot", "fp32")
    texts = [f"{snippet['title']}. {snippet['content']}" for snippet in snippets]
    scores = encoder.encode_snippets(texts) @ encoder.encode_queries(["liver"])[0]
    expected = sorted(scores.tolist(), reverse=True)
    np.testing.assert_allclose([hit["score"] for hit in hits], expected, rtol=1e-3)
    swapped = ("--query-encoder", published / "dpr-context"), ("--passage-encoder", published / "dpr-question")
    failed(invoke(*base, *swapped[0], *swapped[1]), 5, "was made with encoder", "dpr-question+dpr-context")


MIXED = ["--query-encoder", "dpr-question", "--passage-encoder", "medcpt-article", "--pooling", "cls"]


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--query-encoder", "dpr-question"], 2, "--passage-encoder"),
        (["--query-encoder", "medcpt-query", "--passage-encoder", "medcpt-article"], 2, "--pooling cls"),
        (MIXED, 4, "8 numbers"),
    ],
)
def test_pairs_that_are_not_taken(published, tmp_path, monkeypatch, words, code, part):
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(published)
    failed(invoke("index", "demo", *words), code, part)
