"""Exported encoders against the torch models that they were made of."""

import json
import shutil
from functools import cache

import numpy as np
import pytest

from biorag.models import exported, exporting
from biorag.models.bi_encoder import BiEncoder
from biorag.models.colbert import ColBERT
from biorag.models.exported import (
    GRAPH,
    MANY,
    RECORD,
    ExportedColBERT,
    ExportedEncoder,
    export_folder,
    is_settled,
    load_bi_encoder,
    load_colbert,
)
from biorag.models.exporting import LARGEST_DIFFERENCE, export_model
from biorag.models.finding import find_encoder
from tests.models.test_late_interaction import stanford  # noqa: F401  a fixture

pytestmark = pytest.mark.models

TEXTS = [
    "aspirin lowers fever",
    "",
    "?",
    "warfarin and heparin thin the blood, " * 3,
    "gene " * 300,  # longer than the model's window
    "β-blocker 🩺 naïve T细胞 [MASK] [SEP], 5 mg?",
]
PROMPTS = {"query": "gene: ", "document": "a heart, "}


def change(path, **values):
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **values}))


def prompted(folder, include_prompt):
    change(folder / "config_sentence_transformers.json", prompts=PROMPTS)
    change(folder / "1_Pooling" / "config.json", include_prompt=include_prompt)


def with_dense_head(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    model = SentenceTransformer(str(folder), device="cpu")
    SentenceTransformer(modules=[*model, Dense(32, 12), Normalize()], device="cpu").save(str(folder))


def two_towers(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    towers = (list(SentenceTransformer(str(folder), device="cpu")) for _ in range(2))
    router = SentenceTransformer(modules=[Router.for_query_document(*towers)], device="cpu")
    shutil.rmtree(folder)
    router.save(str(folder))


def save_decoder(base, folder):
    """Save a decoder that pools its last token and appends EOS, as `biorag train retriever` does."""
    from sentence_transformers import SentenceTransformer

    from biorag.training.bi_encoder import as_bi_encoder

    model = as_bi_encoder(SentenceTransformer(str(base), device="cpu"), bare=True, attention=None)
    model.tokenizer.padding_side = "left"
    model.prompts = {"query": "Retrieve passages.\nQuery: ", "document": "Passage: "}
    model.save(str(folder))


def save_modernbert(base, folder):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(base), device="cpu").save(str(folder))


def copy_of(base, folder, alter):
    shutil.copytree(base, folder)
    alter(folder)


EXPORTABLE = {
    "prompts": ("tiny_encoder", lambda base, folder: copy_of(base, folder, lambda path: prompted(path, True))),
    "dense": ("tiny_encoder", lambda base, folder: copy_of(base, folder, with_dense_head)),
    "modernbert": ("tiny_modernbert", save_modernbert),
    "decoder, padded left": ("tiny_decoder", save_decoder),
}


@pytest.fixture(scope="module")
def tiny(tiny_encoder):
    return find_encoder(str(tiny_encoder))


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    """A folder of exports with that of the tiny encoder."""
    exports = tmp_path_factory.mktemp("exports")
    export_model(tiny, "bi-encoder", exports)
    return exports


def near(ours, theirs):
    assert len(ours) == len(theirs)
    for left, right in zip(ours, theirs, strict=True):
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, atol=LARGEST_DIFFERENCE)


@pytest.mark.parametrize("kind", EXPORTABLE)
def test_vectors_and_tokens_are_those_of_torch(kind, request, tmp_path):
    base, save = EXPORTABLE[kind]
    save(request.getfixturevalue(base), tmp_path / "model")
    files, exports = find_encoder(str(tmp_path / "model")), tmp_path / "exports"
    record = export_model(files, "bi-encoder", exports)
    assert record.files is not None, record.reason
    assert record.files.difference <= LARGEST_DIFFERENCE
    dot = load_bi_encoder(files, "dot", "fp32", exports), BiEncoder(files, "dot", "fp32")
    near(*(encoder.encode_queries(TEXTS) for encoder in dot))
    ours, theirs = load_bi_encoder(files, "cosine", "fp32", exports), BiEncoder(files, "cosine", "fp32")
    assert isinstance(ours, ExportedEncoder)
    assert (ours.identity, ours.query_prompt) == (theirs.identity, theirs.query_prompt)
    near(ours.query_tokens(TEXTS), theirs.query_tokens(TEXTS))
    near(ours.encode_snippets(TEXTS), theirs.encode_snippets(TEXTS))
    near(ours.encode_snippets_with_tokens(TEXTS).tokens, theirs.encode_snippets_with_tokens(TEXTS).tokens)
    for left, right in zip(ours.located_tokens(TEXTS), theirs.located_tokens(TEXTS), strict=True):
        np.testing.assert_allclose(left.vectors, right.vectors, atol=LARGEST_DIFFERENCE)
        assert left.spans == right.spans and len(left.spans) >= len(left.vectors)
    ours.query_prompt = theirs.query_prompt = "which gene, "
    near(ours.encode_queries(TEXTS[:3]), theirs.encode_queries(TEXTS[:3]))
    assert ours.encode_snippets([]).shape == (0, ours.identity.dimension)


@pytest.mark.parametrize("layout", ["stanford", "pylate"])
def test_a_colberts_tokens_are_those_of_torch(stanford, layout, tmp_path):  # noqa: F811
    from sentence_transformers import MultiVectorEncoder

    folder = stanford[0]
    if layout == "pylate":
        folder = tmp_path / "saved"
        MultiVectorEncoder(str(stanford[0]), device="cpu").save(str(folder))
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


@pytest.mark.parametrize(
    ("alter", "reason"),
    [(two_towers, "more than a transformer"), (lambda folder: prompted(folder, False), "leaves the prompt out")],
)
def test_other_models_stay_with_torch(tiny_encoder, tmp_path, alter, reason):
    copy_of(tiny_encoder, tmp_path / "model", alter)
    files = find_encoder(str(tmp_path / "model"))
    record = export_model(files, "bi-encoder", tmp_path / "exports")
    assert record.files is None and reason in record.reason
    assert isinstance(load_bi_encoder(files, "cosine", "fp32", tmp_path / "exports"), BiEncoder)


def test_many_passages_go_to_torch_and_questions_never_do(tiny, made, monkeypatch):
    encoder = load_bi_encoder(tiny, "cosine", "auto", made)
    texts = [f"gene {number}" for number in range(MANY + 1)]
    few, questions = encoder.encode_snippets(texts[:MANY]), encoder.encode_queries(texts)
    assert encoder._torch.cache_info().currsize == 0
    monkeypatch.setattr(encoder, "_torch", cache(lambda: BiEncoder(tiny, "cosine", "fp32")))
    near(encoder.encode_snippets(texts)[:MANY], few)
    assert encoder._torch.cache_info().currsize == 1
    near(encoder.encode_queries(texts[:5]), questions[:5])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [(GRAPH, flip_a_bit), ("tokenizer.json", lambda path: path.unlink()), (RECORD, lambda path: path.write_text("{}"))],
)
def test_a_damaged_export_is_not_used(tiny, made, tmp_path, name, damage):
    exports = shutil.copytree(made, tmp_path / "exports")
    folder = export_folder(exports, tiny, "bi-encoder")
    damage(folder / name)
    assert isinstance(load_bi_encoder(tiny, "cosine", "fp32", exports), BiEncoder)
    assert not is_settled(folder)


def test_only_the_same_model_has_the_export(tiny, made, tmp_path):
    folder = shutil.copytree(tiny.path, tmp_path / "model")
    assert isinstance(load_bi_encoder(find_encoder(str(folder)), "cosine", "fp32", made), ExportedEncoder)
    change(folder / "1_Pooling" / "config.json", pooling_mode="cls")
    assert isinstance(load_bi_encoder(find_encoder(str(folder)), "cosine", "fp32", made), BiEncoder)


def test_records_of_earlier_versions_are_read_unless_the_prompt_is_left_out(tiny, made, tmp_path):
    exports = shutil.copytree(made, tmp_path / "exports")
    path = export_folder(exports, tiny, "bi-encoder") / RECORD
    record = json.loads(path.read_bytes())
    earlier = {"query": {**record["files"]["query"], "expansion": None, "unscored": []}, "special": [0, 2]}
    for pools_prompt, kind in ((True, ExportedEncoder), (False, BiEncoder)):
        change(path, files={**record["files"], **earlier, "pools_prompt": pools_prompt})
        assert isinstance(load_bi_encoder(tiny, "cosine", "fp32", exports), kind)


def test_a_graph_with_other_vectors_is_refused(tiny, tmp_path, monkeypatch):
    """As where a tracer took for constant what is not."""
    difference = exporting.largest_difference

    def off(pipeline, model):
        pipeline.model[0].auto_model.embeddings.word_embeddings.weight.mul_(-1)
        return difference(pipeline, model)

    monkeypatch.setattr(exporting, "largest_difference", off)
    record = export_model(tiny, "bi-encoder", tmp_path)
    assert record.files is None and "its vectors differ from torch's by" in record.reason
    folder = export_folder(tmp_path, tiny, "bi-encoder")
    assert is_settled(folder), "it is not tried again"
    monkeypatch.setattr(exported, "installed_versions", lambda packages: {"torch": "99"})
    assert not is_settled(folder), "but with other versions"
