"""Encoders put together and changed: vectors against transformers' own, identity, and an index made with one."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizer

from biorag.errors import MismatchError, UsageError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.models.loading import load_model
from biorag.models.pairing import POOLINGS, with_pooling, with_projection, write_pair
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import EncoderForm
from biorag.training.data import Split
from biorag.types import TrainingRow
from tests.cli import done, failed, invoke
from tests.conftest import WORDS, write_judged
from tests.training.trainers import train_retriever

pytestmark = pytest.mark.models

TEXTS = ["liver", "aspirin heals the fever, and pain.", "gene heart"]
ROWS = [TrainingRow(f"{a} {b}?", f"{a} heals {b}.") for a in WORDS for b in WORDS if a < b]
QUERY, ARTICLE = "medcpt-query", "medcpt-article"


@pytest.fixture(scope="module")
def published(tmp_path_factory, tiny_encoder):
    """MedCPT's two plain BERTs, tiny and random, and one of other dimensions."""
    folder = tmp_path_factory.mktemp("published")
    tokenizer = BertTokenizer.from_pretrained(str(tiny_encoder))
    for seed, (name, size) in enumerate({QUERY: 16, ARTICLE: 16, "small": 8}.items()):
        torch.manual_seed(seed)
        sizes = {"hidden_size": size, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        model = BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    (folder / "dpr").mkdir()
    (folder / "dpr" / "config.json").write_text(json.dumps({"model_type": "dpr"}))
    (folder / "dpr" / "model.safetensors").write_bytes((folder / QUERY / "model.safetensors").read_bytes())
    return folder


def pooled(folder, pooling, texts=TEXTS):
    """Return the vectors of the texts, each encoded alone by transformers."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    vectors = []
    for text in texts:
        with torch.inference_mode():
            tokens = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        vectors.append({"cls": tokens[0], "mean": tokens.mean(0), "last": tokens[-1]}[pooling].float().numpy())
    return np.array(vectors)


def pair(folder, home, query=QUERY, passage=ARTICLE, pooling="cls"):
    return write_pair(find_encoder(str(folder / query)), find_encoder(str(folder / passage)), pooling, home)


def test_a_pair_makes_the_vectors_of_both_models_and_is_written_once(published, tmp_path):
    files = pair(published, tmp_path)
    encoder = BiEncoder(files, "dot", "fp32")
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), pooled(published / QUERY, "cls"), atol=1e-4)
    np.testing.assert_allclose(encoder.encode_snippets(TEXTS), pooled(published / ARTICLE, "cls"), atol=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == [files.path.name], "nothing else is left"
    stamp = files.path.stat().st_mtime_ns
    again = pair(published, tmp_path)
    assert (again.sha256, again.path.stat().st_mtime_ns) == (files.sha256, stamp)


def test_a_pair_is_known_by_both_models_and_pooling(published, tmp_path):
    forms = [(QUERY, ARTICLE, "cls"), (ARTICLE, QUERY, "cls"), (QUERY, QUERY, "cls"), (QUERY, ARTICLE, "mean")]
    pairs = [pair(published, tmp_path, *form) for form in forms]
    assert len({files.path for files in pairs}) == 4
    assert len({(files.sha256, json.dumps(files.configuration(), sort_keys=True)) for files in pairs}) == 4


def test_an_index_of_two_models_is_searched_by_both(published, tmp_path, monkeypatch):
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BIORAG_PRECISION", "fp32")
    corpus = tmp_path / "corpus.jsonl"
    snippets = [{"id": f"s{n}", "title": word, "content": f"{word} and {WORDS[n - 1]}"} for n, word in enumerate(WORDS)]
    corpus.write_text("".join(json.dumps(snippet) + "\n" for snippet in snippets))
    base = ("index", corpus, "--similarity", "dot", "--pooling", "cls", "--store-tokens", "none", "--json")
    both = ("--query-encoder", published / QUERY, "--passage-encoder", published / ARTICLE)
    assert done(invoke(*base, *both))["snippets"] == len(WORDS)
    assert done(invoke(*base, *both))["unchanged"] == len(WORDS)
    hits = done(invoke("search", "liver", "--mode", "dense", "--no-rerank", "--k", len(WORDS), "--json"))["hits"]
    encoder = BiEncoder(pair(published, tmp_path / "home" / "encoders"), "dot", "fp32")
    texts = [f"{snippet['title']}. {snippet['content']}" for snippet in snippets]
    scores = encoder.encode_snippets(texts) @ encoder.encode_queries(["liver"])[0]
    np.testing.assert_allclose([hit["score"] for hit in hits], sorted(scores.tolist(), reverse=True), rtol=1e-3)
    swapped = ("--query-encoder", published / ARTICLE, "--passage-encoder", published / QUERY)
    failed(invoke(*base, *swapped), 5, "was made with encoder", f"{QUERY}+{ARTICLE}")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--query-encoder", QUERY], 2, "--passage-encoder"),
        (["--query-encoder", QUERY, "--passage-encoder", ARTICLE], 2, "--pooling cls"),
        (["--query-encoder", QUERY, "--passage-encoder", "small", "--pooling", "cls"], 4, "of 8: they cannot"),
        (["--query-encoder", QUERY, "--passage-encoder", "dpr", "--pooling", "cls"], 2, "facebook-dpr-ctx_encoder"),
    ],
)
def test_pairs_that_are_not_taken(published, tmp_path, monkeypatch, words, code, part):
    monkeypatch.chdir(published)
    failed(invoke("index", "demo", *words), code, part)


def as_published(folder, tiny_encoder):
    """Write a sentence-transformers directory in the layout of GTE and E5: mean pooling, unit length, no prompts."""
    backbone = Transformer(str(tiny_encoder), max_seq_length=64)
    model = SentenceTransformer(modules=[backbone, Pooling(32, "mean"), Normalize()], device="cpu")
    model.save(str(folder), create_model_card=False)
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"__version__": {"sentence_transformers": "2.2.2"}}))
    return folder


def unit_means(folder, texts):
    means = pooled(folder, "mean", texts)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def test_e5_has_its_prefixes_in_an_index_and_in_mteb(tiny_encoder, tmp_path, monkeypatch):
    pytest.importorskip("mteb", reason="mteb is not installed: pip install 'biorag[mteb]'")
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BIORAG_PRECISION", "fp32")
    folder = as_published(tmp_path / "e5-base-v2", tiny_encoder)
    plain = BiEncoder(find_encoder(str(folder)), "cosine", "fp32")
    np.testing.assert_allclose(plain.encode_snippets(TEXTS), unit_means(folder, TEXTS), atol=1e-5)
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
    query = unit_means(folder, ["query: liver"])[0]
    scores = unit_means(folder, [f"passage: {text}" for text in passages]) @ query
    expected = {f"s{number}": float(score) for number, score in enumerate(scores)}
    assert {hit["id"]: hit["score"] for hit in hits} == pytest.approx(expected, abs=1e-3)
    report = done(invoke("bench", "mteb", "--local", task, *base, "--out", tmp_path / "mteb", "--json"))
    assert report["model"]["query_prompt"] == "query: "
    assert [path.name for path in (tmp_path / "home" / "encoders").iterdir()] == [copy.name], "made once"
    failed(invoke(*index, "--encoder", folder), 5, "was made with encoder")
    failed(invoke(*index, "--instruct", "e5"), 2, "--encoder")
    failed(invoke("index", "demo", "--encoder", tiny_encoder / "absent", "--instruct", "e5"), 4, "absent")
    (folder / "modules.json").unlink()
    failed(invoke("index", "demo", *base), 4, "keeps no prompt")


@pytest.mark.parametrize("base", ["tiny_encoder", "tiny_modernbert"])
def test_each_pooling_is_the_one_of_a_loop_over_texts(base, request, tmp_path):
    files = find_encoder(str(request.getfixturevalue(base)))
    for pooling in POOLINGS:
        with_pooling(load_model(SentenceTransformer, files, "fp32"), pooling).save(str(tmp_path / pooling))
        encoder = BiEncoder(find_encoder(str(tmp_path / pooling)), "dot", "fp32")
        np.testing.assert_allclose(encoder.encode_snippets(TEXTS), pooled(files.path, pooling), atol=1e-4)


def test_a_projection_of_cls_is_trained_and_trained_further(tiny_modernbert, tmp_path):
    sizes = {"train_batch_size": 8, "train_max_tokens": 32, "train_max_steps": 2}
    settings, split = Settings.of(precision="fp32", similarity="dot", **sizes), Split(ROWS[:16], [])

    def train(base, out, **form):
        train_retriever(find_encoder(str(base)), split, settings, out, {}, lambda _: None, **form)
        return load_file(out / "2_Dense" / "model.safetensors")

    model = tmp_path / "m"
    dense = train(tiny_modernbert, model, form=EncoderForm(pooling="cls", projection=8))
    vectors = BiEncoder(find_encoder(str(model)), "dot", "fp32").encode_snippets(TEXTS)
    expected = pooled(model, "cls") @ dense["linear.weight"].numpy().T + dense["linear.bias"].numpy()
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
    with pytest.raises(MismatchError, match="projection"):
        train(tiny_modernbert, model, form=EncoderForm(pooling="cls", projection=9))
    again = train(model, tmp_path / "again")
    assert 0 < (again["linear.weight"] - dense["linear.weight"]).abs().max() < 1e-3


def test_a_second_projection_and_towers_are_refused(tiny_encoder):
    model = load_model(SentenceTransformer, find_encoder(str(tiny_encoder)), "fp32")
    with pytest.raises(UsageError, match="has a projection"):
        with_projection(with_projection(model, 4, 0), 4, 0)
    towers = SentenceTransformer(modules=[Router.for_query_document(list(model), list(model))])
    for change in (lambda: with_pooling(towers, "cls"), lambda: with_projection(towers, 4, 0)):
        with pytest.raises(UsageError, match="two towers"):
            change()
