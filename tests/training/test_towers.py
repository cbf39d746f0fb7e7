"""Asymmetric encoders: two towers that learn apart, in a directory that loads like any other."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from biorag.errors import MissingError, UsageError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.models.late_interaction import LateInteraction
from biorag.models.tokens import token_starts
from biorag.settings.settings import Settings
from biorag.training.memory import columns_of, estimate
from biorag.types import TrainingRow
from tests.cli import done, invoke
from tests.conftest import WORDS

pytestmark = pytest.mark.models

COUPLES = [(one, other) for one in WORDS for other in WORDS if one != other][::6]
MINED = [
    {"query": f"{one} and {other}?", "positive": f"{one} heals the {other}.", "negative": f"{other} hurts."}
    for one, other in COUPLES
]
FAST = ["--precision", "fp32", "--batch-size", "4", "--max-tokens", "16", "--evaluations", "2", "--validation", "0.2"]
FAST += ["--learning-rate", "0.001"]
TEXTS = ["aspirin", "fever and pain in the liver", "gene " * 99, "Warfarin thins; heparin, at once.", ""]
TOWERS = ("query", "document")


def trained(rows, base, out, *arguments) -> dict:
    return done(invoke("train", "retriever", rows, "--base", base, *FAST, "--out", out, "--json", *arguments))


def vectors(folder) -> dict[str, np.ndarray]:
    """Return the vectors of `TEXTS` as queries and as passages, by biorag."""
    encoder = BiEncoder(find_encoder(str(folder)), "cosine", "fp32")
    return {"query": encoder.encode_queries(TEXTS), "document": encoder.encode_snippets(TEXTS)}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "mined.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MINED))
    return path


@pytest.fixture(scope="module")
def towers(rows, tiny_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "towers"
    assert trained(rows, tiny_encoder, out, "--asymmetric")["identity"]["asymmetric"] is True
    return out


def test_towers_learn_apart_and_vectors_are_sentence_transformers_own(towers, tiny_encoder):
    found, base, library = vectors(towers), vectors(tiny_encoder), SentenceTransformer(str(towers), device="cpu")
    for tower, encode in zip(TOWERS, (library.encode_query, library.encode_document), strict=True):
        np.testing.assert_allclose(found[tower], encode(TEXTS, normalize_embeddings=True), atol=1e-5)
        assert np.abs(found[tower] - base[tower]).max() > 1e-3, "training moved the tower"
    assert np.abs(found["query"] - found["document"]).max() > 1e-3, "each has learnt its own"
    assert library.max_seq_length == SentenceTransformer(str(tiny_encoder), device="cpu").max_seq_length > 16


def test_before_any_step_both_towers_are_the_base(rows, tiny_encoder, tmp_path):
    trained(rows, tiny_encoder, tmp_path / "m", "--asymmetric", "--learning-rate", "1e-30")
    found, base = vectors(tmp_path / "m"), vectors(tiny_encoder)
    for tower in TOWERS:
        np.testing.assert_allclose(found[tower], base[tower], atol=1e-6)  # queries by the base's export


def test_saved_and_loaded_again_the_vectors_are_the_same(towers, tmp_path):
    SentenceTransformer(str(towers), device="cpu").save(str(tmp_path / "m"))
    found, again = vectors(towers), vectors(tmp_path / "m")
    for tower in TOWERS:
        np.testing.assert_array_equal(found[tower], again[tower])


def test_each_towers_weights_count_for_the_hash(towers, tmp_path):
    folder = shutil.copytree(towers, tmp_path / "m")
    known = find_encoder(str(towers)).sha256
    assert find_encoder(str(folder)).sha256 == known
    for tower in TOWERS:
        weights = folder / f"{tower}_0_Transformer" / "model.safetensors"
        held = weights.read_bytes()
        weights.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
        assert find_encoder(str(folder)).sha256 != known
        weights.write_bytes(held)


@pytest.mark.parametrize("options", [["--negatives", "retriever"], ["--mini-batch-size", "2"], ["--similarity", "dot"]])
def test_a_second_stage_goes_on_with_the_towers_whatever_the_loss(rows, towers, tmp_path, options):
    trained(rows, towers, tmp_path / "m", *options)
    for tower in TOWERS:
        ours, theirs = (
            load_file(path / f"{tower}_0_Transformer" / "model.safetensors") for path in (tmp_path / "m", towers)
        )
        assert ours.keys() == theirs.keys()
        assert max(np.abs(ours[name] - theirs[name]).max() for name in ours) > 1e-4
    assert not list((tmp_path / "m").glob("*_0_Transformer/*_0_Transformer")), "no towers within towers"


def test_the_training_is_the_same_after_an_interruption(rows, towers, tiny_encoder, tmp_path, monkeypatch):
    with monkeypatch.context() as cut:
        cut.setattr("biorag.training.run_directory.TrainingRun.finish", lambda *_: sys.exit(130))
        arguments = ["--base", tiny_encoder, *FAST, "--asymmetric", "--out", tmp_path / "m"]
        assert invoke("train", "retriever", rows, *arguments).exit_code == 130
    shutil.rmtree(max((tmp_path / "m").glob("checkpoints/checkpoint-*"), key=lambda path: int(path.name.split("-")[1])))
    assert trained(rows, tiny_encoder, tmp_path / "m", "--asymmetric")["resumed_from_step"] > 0
    whole, resumed = vectors(towers), vectors(tmp_path / "m")
    for tower in TOWERS:
        np.testing.assert_array_equal(whole[tower], resumed[tower])


def test_a_decoders_towers_learn_through_lora(rows, tiny_decoder, tmp_path):
    from peft import PeftModel
    from transformers import AutoModel

    options = ["--asymmetric", "--lora", "--attention", "bidirectional", "--learning-rate", "0.01"]
    trained(rows, tiny_decoder, tmp_path / "m", *options)
    found, library = vectors(tmp_path / "m"), SentenceTransformer(str(tmp_path / "m"), device="cpu")
    for tower, encode in zip(TOWERS, (library.encode_query, library.encode_document), strict=True):
        np.testing.assert_allclose(found[tower], encode(TEXTS, normalize_embeddings=True), atol=1e-5)
        base = AutoModel.from_pretrained(tiny_decoder)
        adapted = PeftModel.from_pretrained(base, str(tmp_path / "m" / "adapter" / tower)).merge_and_unload()
        merged = AutoModel.from_pretrained(tmp_path / "m" / f"{tower}_0_Transformer")
        assert merged.config.is_causal is False
        for name, weight in merged.state_dict().items():
            np.testing.assert_allclose(weight, adapted.state_dict()[name], atol=1e-5)
    known = find_encoder(str(tmp_path / "m")).sha256
    shutil.rmtree(tmp_path / "m" / "adapter")
    assert find_encoder(str(tmp_path / "m")).sha256 == known, "adapters are not loaded and not counted"


def test_the_estimate_counts_both_towers(tiny_encoder, towers):
    settings = Settings.of(train_max_tokens=8)
    asked = columns_of([TrainingRow("a" * 11, "b" * 400)] * 10, settings.training)
    one, two, held = (
        estimate(find_encoder(str(base)), asked, settings, False, asymmetric)
        for base, asymmetric in ((tiny_encoder, False), (tiny_encoder, True), (towers, True))
    )
    assert (two.parameters, two.bytes) == (2 * one.parameters, 2 * one.bytes) == (held.parameters, held.bytes)
    assert one.batch_bytes == two.batch_bytes == held.batch_bytes, "a text goes through one"


def test_index_and_search_take_each_tower_for_its_side(towers, corpus_file, tmp_path):
    home = {"BIORAG_HOME": str(tmp_path / "home"), "BIORAG_PRECISION": "fp32"}
    indexing = invoke("index", corpus_file, "--name", "i", "--encoder", towers, "--block-tokens", "20", **home)
    assert indexing.exit_code == 0, indexing.output
    search = ["search", "heart", "--name", "i", "--mode", "dense", "--json", "-k", "5"]
    found = json.loads(invoke(*search, "--no-rerank", **home).stdout)["hits"]
    library = SentenceTransformer(str(towers), device="cpu")
    texts = [f"{hit['title']}. {hit['content']}" if hit["title"] else hit["content"] for hit in found]
    texts = [text.replace("?. ", "? ") for text in texts]
    scores = library.similarity(library.encode_query(["heart"]), library.encode_document(texts))[0].numpy()
    np.testing.assert_allclose([hit["score"] for hit in found], scores, atol=1e-5)
    assert list(scores) == sorted(scores, reverse=True)
    assert json.loads(invoke(*search, **home).stdout)["hits"], "its own token vectors rerank"


def test_late_interaction_takes_a_querys_tokens_from_its_tower(towers, snippets):
    encoder, library = BiEncoder(find_encoder(str(towers)), "cosine", "fp32"), SentenceTransformer(str(towers))
    query, *passages = (
        encode([text], output_value="token_embeddings", convert_to_numpy=False)[0].cpu().numpy()
        for encode, text in [
            (library.encode_query, "heart"),
            *((library.encode_document, snippet.contents) for snippet in snippets[:3]),
        ]
    )
    unit = [tokens / np.linalg.norm(tokens, axis=1, keepdims=True) for tokens in (query, *passages)]
    slow = [np.mean([max(float(token @ other) for other in passage) for token in unit[0]]) for passage in unit[1:]]
    np.testing.assert_allclose(LateInteraction(encoder).score_all(["heart"], [snippets[:3]])[0], slow, atol=1e-5)


def test_blocks_are_counted_by_the_tokenizer_of_passages(towers, tiny_encoder):
    ours, theirs = (token_starts(find_encoder(str(folder))) for folder in (towers, tiny_encoder))
    assert ours("fever and pain") == theirs("fever and pain") != []


def test_experts_of_two_towers_merge_tensor_by_tensor(rows, towers, tmp_path):
    trained(rows, towers, tmp_path / "b", "--epochs", "2")
    result = invoke(
        "merge", towers, tmp_path / "b", "--method", "linear", "--weights", "0.3,0.7", "--out", tmp_path / "m"
    )
    assert result.exit_code == 0, result.output
    for tower in TOWERS:
        file = f"{tower}_0_Transformer/model.safetensors"
        first, second, merged = (load_file(folder / file) for folder in (towers, tmp_path / "b", tmp_path / "m"))
        for name, value in merged.items():
            np.testing.assert_allclose(value, 0.3 * first[name] + 0.7 * second[name], atol=1e-6)
    assert {tower: found.shape for tower, found in vectors(tmp_path / "m").items()} == dict.fromkeys(TOWERS, (5, 32))


def test_experts_whose_towers_read_otherwise_are_not_merged(towers, tmp_path):
    other = shutil.copytree(towers, tmp_path / "other")
    file = other / "query_0_Transformer" / "tokenizer.json"
    said = json.loads(file.read_text())
    said["model"]["vocab"]["aspirin"], said["model"]["vocab"]["fever"] = (
        said["model"]["vocab"][word] for word in ("fever", "aspirin")
    )
    file.write_text(json.dumps(said))
    result = invoke("merge", towers, other, "--method", "linear", "--out", tmp_path / "m")
    assert result.exit_code == 3
    assert "tokenizer" in result.stderr
    assert "query_0_Transformer" in result.stderr


def saved(folder, query, document):
    SentenceTransformer(modules=[Router.for_query_document(query, document)], device="cpu").save(str(folder))
    return find_encoder(str(folder))


def test_a_static_query_tower_beside_a_transformer_searches_and_has_no_tokens(tiny_encoder, tmp_path):
    model = SentenceTransformer(str(tiny_encoder), device="cpu")
    static = StaticEmbedding(model.tokenizer, embedding_dim=32)
    files = saved(tmp_path / "m", [static], list(model))
    encoder, library = BiEncoder(files, "cosine", "fp32"), SentenceTransformer(str(tmp_path / "m"), device="cpu")
    theirs = library.encode_query(TEXTS[:4], normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode_queries(TEXTS[:4]), theirs, atol=1e-5)
    np.testing.assert_allclose(
        encoder.encode_snippets(TEXTS), model.encode(TEXTS, normalize_embeddings=True), atol=1e-5
    )
    with pytest.raises(UsageError, match="no token vectors to rerank by"):
        encoder.query_tokens(["a"])


def test_towers_that_do_not_go_together_are_refused(tiny_encoder, tiny_modernbert, tmp_path):
    small, large = (SentenceTransformer(str(path), device="cpu") for path in (tiny_encoder, tiny_modernbert))
    with pytest.raises(MissingError, match="queries in 32 dimensions and passages in 48"):
        BiEncoder(saved(tmp_path / "m", list(small), list(large)))
    router = Router({"question": list(small), "answer": list(small)}, allow_empty_key=False)
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path / "n"))
    with pytest.raises(MissingError, match="does not encode both queries and passages"):
        BiEncoder(find_encoder(str(tmp_path / "n")))


@pytest.mark.parametrize("kind", ["reranker", "cross-encoder"])
def test_what_takes_one_tower_says_so(rows, towers, tmp_path, kind):
    result = invoke("train", kind, rows, "--base", towers, *FAST, "--out", tmp_path / "m")
    assert result.exit_code == 4
    assert "has two towers: name one of them, such as" in result.stderr
    assert str(towers / "document_0_Transformer") in result.stderr
