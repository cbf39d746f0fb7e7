"""Published encoders by name, on stand-ins of their architectures, against transformers' own vectors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModel, AutoTokenizer

from biorag.errors import MissingError
from biorag.lab.recipes.recipe import packaged
from biorag.models.bi_encoder import BiEncoder
from biorag.models.colbert import ColBERT
from biorag.models.published import find_published, published
from tests.cli import done, invoke
from tests.conftest import write_judged
from tests.lab.recipes.rehearsal.inputs import texts
from tests.lab.recipes.rehearsal.models import write_model

pytestmark = pytest.mark.models

TEXTS = ["Metformin lowers glucose.", "statins and muscle pain", "a gene"]
MANY = {"gtr-xxl", "gtr-xl", "gtr-large", "gte-large", "bmretriever-1b", "sgpt-1.3b", "sgpt-2.7b"}  # like another one


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A cache of the hub with a tiny random model under the id of each."""
    folder = tmp_path_factory.mktemp("hub")
    words = [text.content for text in texts()]
    for name, encoder in published().items():
        for id in encoder.models if name not in MANY else ():
            write_model(id, packaged()[id], folder, words)
    return folder


@pytest.fixture(autouse=True)
def offline(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def snapshot(hub, id):
    (folder,) = (hub / f"models--{id.replace('/', '--')}" / "snapshots").iterdir()
    return folder


def vectors(folder, asked, pooling, weights=None):
    """Return the vectors of texts, each encoded alone by transformers; of `last` with an end of text appended."""
    model, tokenizer = AutoModel.from_pretrained(weights or folder).eval(), AutoTokenizer.from_pretrained(folder)
    found = []
    for text in asked:
        ids = tokenizer(text).input_ids + ([tokenizer.eos_token_id] if pooling == "last" else [])
        with torch.inference_mode():
            tokens = model(torch.tensor([ids])).last_hidden_state[0].float()
        found.append({"cls": tokens[0], "mean": tokens.mean(0), "last": tokens[-1]}[pooling].numpy())
    return np.array(found)


@pytest.mark.parametrize("name", ["contriever", "coco-dr", "bmretriever-410m", "bmretriever-7b", "specter2"])
def test_a_model_that_keeps_no_pooling_has_that_of_the_table(name, hub, tmp_path):
    described = published()[name]
    files = find_published(name, tmp_path)
    encoder = BiEncoder(files, "dot", "fp32")
    before = described.prompts or ("", "")
    source = snapshot(hub, described.model)
    converted = tmp_path / described.model.replace("/", "--")
    weights = converted if converted.is_dir() else None
    for texts_of, prompt in ((encoder.encode_queries, before[0]), (encoder.encode_snippets, before[1])):
        expected = vectors(source, [prompt + text for text in TEXTS], described.pooling, weights)
        np.testing.assert_allclose(texts_of(TEXTS), expected, atol=1e-4)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert find_published(name, tmp_path).sha256 == files.sha256
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == stamps, "written once"


def test_instructor_leaves_its_prompt_out_of_the_mean(hub, tmp_path):
    encoder = BiEncoder(find_published("instructor-large", tmp_path), "dot", "fp32")
    prompt = published()["instructor-large"].prompts[0]
    converted = tmp_path / "hkunlp--instructor-large"
    model, tokenizer = AutoModel.from_pretrained(converted).encoder.eval(), AutoTokenizer.from_pretrained(converted)
    for text, found in zip(TEXTS, encoder.encode_queries(TEXTS), strict=True):
        ids = tokenizer(prompt + text).input_ids
        with torch.inference_mode():
            tokens = model(torch.tensor([ids])).last_hidden_state[0]
        kept = tokens[len(tokenizer(prompt).input_ids) - 1 :].mean(0)
        np.testing.assert_allclose(found, torch.nn.functional.normalize(kept, dim=0).numpy(), atol=1e-4)


def test_every_name_is_measured_and_indexed(hub, tmp_path, monkeypatch):
    """Also those of two models, of pickles, and ColBERTv2, whose passages are compared token by token."""
    pytest.importorskip("mteb", reason="mteb is not installed: pip install 'biorag[mteb]'")
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BIORAG_PRECISION", "fp32")
    task = tmp_path / "task"
    known = texts()[:6]
    write_judged(task, {"q1": known[0].question, "q2": known[1].question}, [("q1", "s0", 1), ("q2", "s1", 1)])
    lines = [{"_id": f"s{place}", "text": text.content} for place, text in enumerate(known)]
    (task / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = [name for name in published() if name not in MANY]
    baselines = [word for name in ("bm25", *names) for word in ("--baseline", name)]
    document = done(invoke("bench", "mteb", "--local", task, *baselines, "--out", tmp_path / "out", "--json"))
    models = {model["baseline"]: model for model in (document, *document["beside"])}
    assert set(models) == {"bm25", *names}
    assert all(0 < model["average"] <= 1 for model in models.values())
    assert models["medcpt"]["model"]["similarity"] == "dot"

    colbert = ColBERT(find_published("colbertv2", tmp_path), "fp32")
    reciprocal = []
    for number in (0, 1):
        query = colbert.query_tokens([known[number].question])[0]
        scores = [(query @ colbert.snippet_tokens([text.content])[0].T).max(axis=1).mean() for text in known]
        reciprocal.append(1 / (1 + sum(score > scores[number] for score in scores)))
    (row,) = models["colbertv2"]["tasks"]
    assert row["measures"]["mrr_at_10"] == pytest.approx(sum(reciprocal) / 2)

    corpus = ("index", task / "corpus.jsonl", "--store-tokens", "none", "--json")
    assert done(invoke(*corpus, "--name", "dragon", "--encoder", "dragon"))["added"] == len(known)
    assert done(invoke(*corpus, "--name", "dragon", "--encoder", "dragon"))["unchanged"] == len(known)


def test_a_model_that_is_nowhere_is_told(tmp_path):
    with pytest.raises(MissingError, match="gtr-t5-xl"):
        find_published("gtr-xl", tmp_path)
