"""An encoder of two models: its vectors against transformers' own, its identity, and an index made with it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel, BertTokenizer, DPRConfig, DPRContextEncoder, DPRQuestionEncoder

from biorag.models.bi_encoder import BiEncoder
from biorag.models.conversion import convert
from biorag.models.finding import find_encoder
from biorag.models.pairing import write_pair
from tests.cli import done, failed, invoke
from tests.conftest import WORDS, write_judged

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


def as_published(folder, name, tiny_encoder):
    """Write a sentence-transformers directory in the layout of GTE and E5: mean pooling, unit length, no prompts."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    backbone = Transformer(str(tiny_encoder), max_seq_length=64)
    model = SentenceTransformer(modules=[backbone, Pooling(32, "mean"), Normalize()], device="cpu")
    model.save(str(folder / name), create_model_card=False)
    settings = folder / name / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"__version__": {"sentence_transformers": "2.2.2"}}))
    return folder / name


def mean_of_tokens(folder, texts):
    """Return the unit mean of each text's last hidden states, by transformers alone."""
    model, tokenizer = BertModel.from_pretrained(folder).eval(), BertTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        means = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in texts]
    return torch.nn.functional.normalize(torch.stack(means)).numpy()


def test_gte_is_the_mean_of_its_tokens(tiny_encoder, tmp_path):
    folder = as_published(tmp_path, "gte-base", tiny_encoder)
    encoder = BiEncoder(find_encoder(str(folder)), "cosine", "fp32")
    np.testing.assert_allclose(encoder.encode_snippets(TEXTS), mean_of_tokens(folder, TEXTS), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), mean_of_tokens(folder, TEXTS), atol=1e-5)


def test_e5_has_its_prefixes_in_an_index_and_in_mteb(tiny_encoder, tmp_path, monkeypatch):
    pytest.importorskip("mteb", reason="mteb is not installed: pip install 'biorag[mteb]'")
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BIORAG_PRECISION", "fp32")
    folder = as_published(tmp_path, "e5-base-v2", tiny_encoder)
    passages = ["liver heals", "aspirin and the fever", "gene"]
    task = tmp_path / "task"
    write_judged(task, {"q": "liver"}, [("q", "s0", 1)])
    lines = [{"_id": f"s{number}", "text": text} for number, text in enumerate(passages)]
    (task / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    base = ("--encoder", folder, "--instruct", "e5")
    index = ("index", task / "corpus.jsonl", "--name", "e5", "--store-tokens", "none", "--json")
    assert done(invoke(*index, *base))["added"] == 3
    assert done(invoke(*index, *base))["unchanged"] == 3
    (copy,) = (tmp_path / "home" / "encoders").iterdir()
    hits = done(invoke("search", "liver", "--name", "e5", "--mode", "dense", "--no-rerank", "--json"))["hits"]
    query = mean_of_tokens(folder, ["query: liver"])[0]
    scores = mean_of_tokens(folder, [f"passage: {text}" for text in passages]) @ query
    assert {hit["id"]: hit["score"] for hit in hits} == pytest.approx(
        {f"s{number}": float(score) for number, score in enumerate(scores)}, abs=1e-3
    )
    report = done(invoke("bench", "mteb", "--local", task, *base, "--out", tmp_path / "mteb", "--json"))
    assert report["model"]["query_prompt"] == "query: "
    assert [path.name for path in (tmp_path / "home" / "encoders").iterdir()] == [copy.name], "made once"
    failed(invoke(*index, "--encoder", folder), 5, "was made with encoder")
    failed(invoke(*index, "--instruct", "e5"), 2, "--encoder")
    failed(invoke("index", "demo", "--encoder", tiny_encoder / "absent", "--instruct", "e5"), 4, "absent")
    (folder / "modules.json").unlink()
    failed(invoke("index", "demo", *base), 4, "keeps no prompt")


def test_a_pair_that_is_published_as_pickles_is_converted_first(published, tmp_path):
    """As facebook/dpr-*-single-nq-base: pickled, the positions that transformers once kept included."""
    for name in ("dpr-question", "dpr-context"):
        source = shutil.copytree(published / name, tmp_path / "pickled" / name)
        weights = load_file(source / "model.safetensors")
        (source / "model.safetensors").unlink()
        inner = next(key for key in weights if "position_embeddings" in key).removesuffix("position_embeddings.weight")
        torch.save({**weights, f"{inner}position_ids": torch.arange(64)[None]}, source / "pytorch_model.bin")
        convert(str(source), tmp_path / "converted" / name, lambda _: None)
    own, made = (
        BiEncoder(pair(folder, tmp_path / "home", "dpr-question", "dpr-context"), "dot", "fp32")
        for folder in (published, tmp_path / "converted")
    )
    np.testing.assert_allclose(made.encode_queries(TEXTS), own.encode_queries(TEXTS), atol=1e-6)
    np.testing.assert_allclose(made.encode_snippets(TEXTS), own.encode_snippets(TEXTS), atol=1e-6)
