"""What a training says that it starts from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from biorag.models.finding import STARTER_ENCODER, TRAINED_STARTER, ModelFiles
from biorag.training.bases import described

RUN = {"complete": True, "base": "minilm", "identity": {"kind": "reranker"}}
FORMS = [
    ({}, "a transformer that was not trained as a retriever or reranker"),
    ({"modules.json": []}, "a retriever already (bi-encoder)"),
    ({"config.json": {"architectures": ["BertForSequenceClassification"]}}, "a classifier, such as a cross-encoder"),
    ({"config.json": {"architectures": ["HF_ColBERT"]}, "modules.json": []}, "a reranker already (ColBERT)"),
    ({"modules.json": [], "training.json": RUN}, "a reranker that biorag trained from minilm"),
    ({"modules.json": [], "training.json": {**RUN, "complete": False}}, "a retriever already (bi-encoder)"),
    ({"modules.json": [], "training.json": {"complete": True, "identity": 7}}, "a retriever already (bi-encoder)"),
]


@pytest.mark.parametrize(("files", "form"), FORMS)
def test_a_base_is_named_with_what_it_is(files, form, tmp_path):
    for name, values in files.items():
        (tmp_path / name).write_text(json.dumps(values))
    assert described(ModelFiles("hub/base", "", tmp_path, "0" * 64)) == f"hub/base, {form}"


def test_the_packaged_bases_and_a_language_model(tmp_path):
    (tmp_path / "a.gguf").touch()
    files = ModelFiles("a.gguf", "", tmp_path / "a.gguf", "0" * 64)
    assert described(files) == "a.gguf, a language model"
    assert "the packaged default, a retriever trained on biomedical" in described(
        replace(files, id=TRAINED_STARTER.title)
    )
    assert "packaged, a retriever trained on general texts" in described(replace(files, id=STARTER_ENCODER.title))
