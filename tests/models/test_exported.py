"""Exported encoders against the torch models that they were made of."""

import json
import shutil
from functools import cache

import numpy as np
import pytest

from biorag.errors import MissingError
from biorag.models import exporting
from biorag.models.bi_encoder import BiEncoder
from biorag.models.colbert import ColBERT
from biorag.models.exported import MANY, ExportedColBERT, ExportedEncoder, ExportedModel, load_bi_encoder, load_colbert
from biorag.models.exporting import LARGEST_DIFFERENCE, export_model
from biorag.models.exports import GRAPH, RECORD, export_folder, is_settled, read_record
from biorag.models.finding import find_encoder
from tests.models.test_late_interaction import stanford  # noqa: F401  a fixture

pytestmark = pytest.mark.models

TEXTS = [
    "aspirin lowers fever",
    "",
    "?",
    "gene",
    "warfarin and heparin thin the blood, " * 3,
    "gene " * 300,  # longer than the model's window
    "β-blocker 🩺 naïve T细胞 [MASK] [SEP], 5 mg?",
]


def change(path, **values):
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **values}))


def prompted(folder, **pooling):
    """Give an encoder prompts, and its pooling other settings."""
    change(folder / "config_sentence_transformers.json", prompts={"query": "gene: ", "document": "a heart, "})
    change(folder / "1_Pooling" / "config.json", **pooling)


def with_dense_head(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    model = SentenceTransformer(str(folder), device="cpu")
    SentenceTransformer(modules=[*model, Dense(32, 12), Normalize()], device="cpu").save(str(folder))


BERTS = {
    "mean": lambda folder: None,
    "prompts not pooled": lambda folder: prompted(folder, include_prompt=False),
    "dense": with_dense_head,
}


def as_decoder(base, folder, side):
    """Save a decoder that pools its last token and appends EOS, as `biorag train retriever` does."""
    from sentence_transformers import SentenceTransformer

    from biorag.training.decoder import as_bi_encoder

    model = as_bi_encoder(SentenceTransformer(str(base), device="cpu"), bare=True, attention=None)
    model.tokenizer.padding_side = side
    model.prompts = {"query": "Retrieve passages.\nQuery: ", "document": "Passage: "}
    model.save(str(folder))


@pytest.fixture(scope="module", params=[*BERTS, "modernbert", "decoder, padded left"])
def model(request, tiny_encoder, tiny_modernbert, tiny_decoder, tmp_path_factory):
    """An encoder of some kind."""
    folder = tmp_path_factory.mktemp("encoder") / "model"
    if request.param in BERTS:
        shutil.copytree(tiny_encoder, folder)
        BERTS[request.param](folder)
    elif request.param == "modernbert":
        from sentence_transformers import SentenceTransformer

        SentenceTransformer(str(tiny_modernbert), device="cpu").save(str(folder))
    else:
        as_decoder(tiny_decoder, folder, request.param.rpartition(" ")[2])
    return find_encoder(str(folder))


@pytest.fixture(scope="module")
def tiny(tiny_encoder):
    return find_encoder(str(tiny_encoder))


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    """A folder of exports with that of the tiny encoder."""
    exports = tmp_path_factory.mktemp("exports")
    export_model(tiny, "bi-encoder", exports)
    return exports


@pytest.fixture
def exports(made, tmp_path):
    """A copy of that folder, to be changed."""
    return shutil.copytree(made, tmp_path / "exports")


def loaders(files, exports):
    """Return functions from a similarity to the exported encoder and to torch's."""
    return (
        lambda similarity: load_bi_encoder(files, similarity, "fp32", exports),
        lambda similarity: BiEncoder(files, similarity, "fp32"),
    )


def near(ours, theirs):
    assert len(ours) == len(theirs)
    for left, right in zip(ours, theirs, strict=True):
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, atol=LARGEST_DIFFERENCE)


def test_vectors_and_tokens_are_those_of_torch(model, tmp_path):
    record = export_model(model, "bi-encoder", tmp_path)
    assert record.files is not None, record.reason
    assert record.files.difference <= LARGEST_DIFFERENCE
    near(*(load("dot").encode_queries(TEXTS) for load in loaders(model, tmp_path)))
    ours, theirs = (load("cosine") for load in loaders(model, tmp_path))
    assert isinstance(ours, ExportedEncoder)
    assert ours.identity == theirs.identity
    assert ours.query_prompt == theirs.query_prompt
    near(ours.encode_queries(TEXTS), theirs.encode_queries(TEXTS))
    near(ours.query_tokens(TEXTS), theirs.query_tokens(TEXTS))
    near(ours.encode_snippets(TEXTS), theirs.encode_snippets(TEXTS))
    near(ours.encode_snippets_with_tokens(TEXTS).tokens, theirs.encode_snippets_with_tokens(TEXTS).tokens)
    for left, right in zip(ours.located_tokens(TEXTS), theirs.located_tokens(TEXTS), strict=True):
        np.testing.assert_allclose(left.vectors, right.vectors, atol=LARGEST_DIFFERENCE)
        assert left.spans == right.spans
        assert len(left.spans) >= len(left.vectors)
    ours.query_prompt = theirs.query_prompt = "which gene, "
    near(ours.encode_queries(TEXTS[:3]), theirs.encode_queries(TEXTS[:3]))
    assert ours.encode_snippets([]).shape == (0, ours.identity.dimension)


@pytest.mark.parametrize("layout", ["stanford", "pylate"])
def test_a_colberts_tokens_are_those_of_torch(stanford, layout, tmp_path):  # noqa: F811
    from sentence_transformers import MultiVectorEncoder

    folder = stanford[0]
    if layout != "stanford":
        folder = tmp_path / "saved"
        MultiVectorEncoder(str(stanford[0]), device="cpu").save(str(folder))
    if layout == "pylate":
        modules = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps(modules[:2]))
        prefixes = {"query_prefix": "[unused0] ", "document_prefix": "[unused1] ", "query_length": 10}
        change(folder / "config_sentence_transformers.json", model_type="ColBERT", prompts={}, **prefixes)
    files = find_encoder(str(folder))
    record = export_model(files, "colbert", tmp_path / "exports")
    assert record.files is not None, record.reason
    ours, theirs = load_colbert(files, "auto", tmp_path / "exports"), ColBERT(files, "fp32")
    assert isinstance(ours, ExportedColBERT)
    near(ours.query_tokens(TEXTS), theirs.query_tokens(TEXTS))
    near(ours.snippet_tokens(TEXTS), theirs.snippet_tokens(TEXTS))


def test_two_towers_stay_with_torch(tiny_encoder, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    towers = (list(SentenceTransformer(str(tiny_encoder), device="cpu")) for _ in range(2))
    SentenceTransformer(modules=[Router.for_query_document(*towers)], device="cpu").save(str(tmp_path / "model"))
    files = find_encoder(str(tmp_path / "model"))
    record = export_model(files, "bi-encoder", tmp_path / "exports")
    assert record.files is None
    assert "towers of their own" in record.reason
    assert isinstance(load_bi_encoder(files, "cosine", "fp32", tmp_path / "exports"), BiEncoder)


def test_many_passages_go_to_torch_and_questions_never_do(tiny, exports, monkeypatch):
    encoder = load_bi_encoder(tiny, "cosine", "auto", exports)
    texts = [f"gene {number}" for number in range(MANY + 1)]
    few, questions = encoder.encode_snippets(texts[:MANY]), encoder.encode_queries(texts)
    assert encoder._torch.cache_info().currsize == 0
    monkeypatch.setattr(encoder, "_torch", cache(lambda: BiEncoder(tiny, "cosine", "fp32")))
    near(encoder.encode_snippets(texts)[:MANY], few)
    assert encoder._torch.cache_info().currsize == 1
    near(encoder.encode_queries(texts[:5]), questions[:5])


def damaged(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [(GRAPH, damaged), ("tokenizer.json", lambda path: path.unlink()), (RECORD, lambda path: path.write_text("{}"))],
)
def test_a_damaged_export_is_not_used(tiny, exports, name, damage):
    folder = export_folder(exports, tiny, "bi-encoder")
    damage(folder / name)
    assert isinstance(load_bi_encoder(tiny, "cosine", "fp32", exports), BiEncoder)
    assert not is_settled(folder, read_record(folder))


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": "1.0"'])
def test_a_tokenizer_that_cannot_be_read_is_one_sentence(tiny, exports, tmp_path, content):
    folder = shutil.copytree(export_folder(exports, tiny, "bi-encoder"), tmp_path / "export")
    model = ExportedModel(folder, read_record(folder).files)
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(MissingError, match="is not a tokenizer"):
        model.tokenized(["aspirin"], "query", "")


def test_a_changed_encoder_has_no_export(tiny, exports, tmp_path):
    folder = shutil.copytree(tiny.path, tmp_path / "model")
    assert isinstance(load_bi_encoder(find_encoder(str(folder)), "cosine", "fp32", exports), ExportedEncoder)
    change(folder / "1_Pooling" / "config.json", pooling_mode="cls")
    assert isinstance(load_bi_encoder(find_encoder(str(folder)), "cosine", "fp32", exports), BiEncoder)


def test_a_graph_with_other_vectors_is_refused(tiny, tmp_path, monkeypatch):
    """As where a tracer took for constant what is not."""
    unscaled = exporting.largest_difference

    def off(model, exported, columns):
        import torch

        with torch.no_grad():
            model[0].auto_model.embeddings.word_embeddings.weight.mul_(-1)
        return unscaled(model, exported, columns)

    monkeypatch.setattr(exporting, "largest_difference", off)
    record = export_model(tiny, "bi-encoder", tmp_path)
    assert record.files is None
    assert "its vectors differ from torch's by" in record.reason
    assert isinstance(load_bi_encoder(tiny, "cosine", "fp32", tmp_path), BiEncoder)


def test_a_failed_export_is_tried_again_with_other_versions(tiny, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no such operator\nin the graph")

    monkeypatch.setattr(exporting, "_trace", broken)
    record = export_model(tiny, "bi-encoder", tmp_path)
    folder = export_folder(tmp_path, tiny, "bi-encoder")
    assert (record.files, record.reason) == (None, "no such operator")
    assert read_record(folder) == record
    assert is_settled(folder, record)
    monkeypatch.setattr("biorag.models.exports.installed_versions", lambda packages: {"torch": "99"})
    assert not is_settled(folder, record)
