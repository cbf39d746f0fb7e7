"""`biorag index --vectors` of published embeddings: the same index as by encoding, and every refusal."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from biorag import engine
from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import DEMO, Source, demo_file
from biorag.errors import BadInputError
from biorag.indexes.published import PublishedVectors
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.types import Snippet
from biorag.utils.progress import silent
from tests import cli
from tests.cli import done, failed, succeeded
from tests.conftest import write_medrag

QUESTIONS = ("How does metformin lower blood glucose?", "aspirin for fever", "What causes malaria?")


@pytest.fixture
def run(tmp_path):
    return partial(cli.invoke, home=tmp_path / "home")


def encoded(snippets, encoder: Path, similarity: str = "cosine") -> np.ndarray:
    loaded = engine.load_encoder(find_encoder(str(encoder)), similarity, Settings.of().retrieval.precision)
    return loaded.encode_snippets([snippet.contents for snippet in snippets])


def publish(folder: Path, vectors: np.ndarray, ids: list, chunks: int = 1, named: str = "pmids") -> Path:
    """Write vectors as MedCPT's are published."""
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(np.array_split(np.arange(len(ids)), chunks)):
        np.save(folder / f"embeds_chunk_{number}.npy", vectors[rows])
        (folder / f"{named}_chunk_{number}.json").write_text(json.dumps([ids[row] for row in rows]))
    return folder


def hits(run, name: str, *options: str) -> list[tuple[str, float]]:
    answers = [done(run("search", question, "--name", name, "--json", "-k", 20, *options)) for question in QUESTIONS]
    return [(hit["id"], hit["score"]) for answer in answers for hit in answer["hits"]]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_an_index_of_published_vectors_is_that_of_its_encoder(run, tiny_encoder, tmp_path, similarity):
    snippets = list(read_snippets(Source(DEMO, demo_file("snippets.jsonl")), refuse))
    vectors = encoded(snippets, tiny_encoder, similarity)
    order = np.random.default_rng(0).permutation(len(snippets))
    folder = publish(tmp_path / "embeds", vectors[order], [snippets[row].id for row in order], chunks=3)
    options = ("--encoder", tiny_encoder, "--similarity", similarity)
    succeeded(run("index", "demo", "--name", "usual", "--store-tokens", "none", *options))
    report = done(run("index", "demo", "--name", "joined", "--vectors", folder, *options, "--json"))
    assert report["vectors"] == {"published": len(snippets), "encoded": 0}
    for search in (("--mode", "dense", "--no-rerank"), ("--mode", "hybrid")):
        assert hits(run, "joined", *search) == hits(run, "usual", *search)


def test_snippets_without_a_vector_are_encoded_and_counted(run, snippets, tiny_encoder, tmp_path):
    vectors = encoded(snippets, tiny_encoder)
    ids = [snippet.id for snippet in snippets]
    array = tmp_path / "vectors.npy"
    np.save(array, 3.0 * vectors[:9].astype(np.float64))  # not of unit length
    (tmp_path / "vectors.jsonl").write_text("".join(json.dumps({"_id": id}) + "\n" for id in ids[:9]))
    corpus = write_medrag(tmp_path / "corpus.jsonl", snippets)
    options = ("--encoder", tiny_encoder)
    succeeded(run("index", corpus, "--name", "usual", "--store-tokens", "none", *options))
    report = done(run("index", corpus, "--name", "joined", "--vectors", array, *options, "--json"))
    assert report["vectors"] == {"published": 9, "encoded": 3}
    usual, joined = (dict(hits(run, name, "--mode", "dense", "--no-rerank")) for name in ("usual", "joined"))
    assert joined == pytest.approx(usual, abs=1e-6)


def test_ids_come_before_pmids_and_parts_of_a_paper_have_their_own(tmp_path):
    vectors = np.eye(4, dtype=np.float16)
    folder = publish(tmp_path / "embeds", vectors, ["7", 8, "seven", "päper#1"], named="ids")
    published = PublishedVectors(folder, silent)
    snippets = [
        Snippet("seven", "", "text", 7),
        Snippet("other", "", "text", 8),
        Snippet("páper", "", "text"),
        Snippet("section", "", "text", 7, {"section": "Methods"}),
        Snippet("päper#1", "", "text", 7, {"section": "Results"}),
        Snippet("seventy", "", "text"),
    ]
    found, missing = published.of(snippets)
    assert missing == [2, 3, 5]
    assert found[[0, 1, 4]].tolist() == vectors[[2, 1, 3]].tolist()
    assert published.counts == {"published": 3, "encoded": 3}


def test_an_index_keeps_to_the_vectors_it_was_made_with(run, snippets, tiny_encoder, tmp_path):
    vectors, ids = encoded(snippets, tiny_encoder), [snippet.pmid for snippet in snippets]
    first, other = publish(tmp_path / "a", vectors, ids), publish(tmp_path / "b", vectors[::-1], ids)
    corpus = write_medrag(tmp_path / "corpus.jsonl", snippets[:6])
    index = ("index", corpus, "--name", "mine", "--encoder", tiny_encoder)
    succeeded(run(*index, "--vectors", first))
    sha256 = PublishedVectors(first, silent).sha256
    assert done(run("info", "mine", "--json"))["vectors"] == sha256
    write_medrag(corpus, snippets[:9])
    refused = ("index 'mine' has the published vectors", sha256[:12], PublishedVectors(other, silent).sha256[:12])
    failed(run(*index, "--vectors", other), 5, *refused, "leave --vectors out")
    report = done(run(*index, "--vectors", first, "--json"))
    assert (report["added"], report["unchanged"], report["vectors"]) == (3, 6, {"published": 3, "encoded": 0})
    write_medrag(corpus, snippets)
    result = run("index", corpus, "--name", "mine", "--json")
    assert "vectors" not in done(result)
    assert "index 'mine' has published vectors: what is new is encoded by" in result.stderr
    succeeded(run("index", corpus, "--name", "plain", "--encoder", tiny_encoder))
    failed(run("index", corpus, "--name", "plain", "--vectors", first), 5, "has vectors of its encoder")


def test_vectors_of_another_width_are_refused(run, snippets, tiny_encoder, tmp_path):
    corpus = write_medrag(tmp_path / "corpus.jsonl", snippets)
    folder = publish(tmp_path / "embeds", np.ones((12, 48), np.float32), [snippet.pmid for snippet in snippets])
    words = ("index", corpus, "--name", "mine", "--encoder", tiny_encoder, "--vectors", folder)
    failed(run(*words), 5, "has vectors of 32 numbers and --vectors of 48", "--encoder")
    failed(run("info", "mine"), 4, "there is none yet")


def test_a_number_that_is_not_finite_is_refused_with_its_row(tmp_path):
    folder = publish(tmp_path / "embeds", np.array([[1, 2], [3, np.inf]], np.float32), ["1", "2"])
    published = PublishedVectors(folder, silent)
    with pytest.raises(BadInputError, match=r"embeds_chunk_0\.npy, row 1 \('2'\): a number is not finite"):
        published.of([Snippet("2", "", "text")])


def with_files(folder: Path, array: object, ids: str, name: str = "v.json") -> Path:
    if isinstance(array, bytes):
        (folder / "v.npy").write_bytes(array)
    else:
        np.save(folder / "v.npy", array, allow_pickle=True)
    (folder / name).write_text(ids)
    return folder / "v.npy"


@pytest.mark.parametrize(
    ("array", "ids", "part"),
    [
        (b"no array", "[]", "is not an array of NumPy"),
        (np.array([{"a": 1}], object), "[1]", "is not an array of NumPy"),
        (np.ones(3, np.float32), "[1, 2, 3]", "of shape (3,)"),
        (np.ones((2, 2), np.int64), "[1, 2]", "int64"),
        (np.ones((0, 2), np.float32), "[]", "of shape (0, 2)"),
        (np.ones((2, 2), np.float32), "[1]", "2 rows and v.json 1 ids"),
        (np.ones((2, 2), np.float32), "[1, true]", "True is no id"),
        (np.ones((2, 2), np.float32), "[1, ", "is not a list of ids"),
        (np.ones((2, 2), np.float32), "7", "is not a list of ids"),
    ],
)
def test_files_that_are_no_vectors_are_refused(tmp_path, array, ids, part):
    with pytest.raises(BadInputError) as caught:
        PublishedVectors(with_files(tmp_path, array, ids), silent)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ((), 2, "no corpus is given"),
        (("demo", "--ray", "local"), 2, "cannot be combined"),
        (("demo", "--stages", "x"), 2, "cannot be combined"),
        (("demo", "--estimate"), 2, "--estimate"),
        (("demo", "--enrich", "crossref"), 2, "--enrich"),
        (("demo", "--block-tokens", "30"), 2, "leave --block-tokens out"),
        (("demo", "--store-tokens", "compact"), 2, "leave --store-tokens out"),
        (("demo", "--token-pooling", "2"), 2, "this index stores none"),
        (("demo",), 4, "v.npy is not there"),
    ],
)
def test_what_does_not_go_together_is_refused(run, tmp_path, words, code, part):
    failed(run("index", *words, "--vectors", tmp_path / "v.npy", "--name", "mine"), code, part)
