"""`train cross-encoder`, and chains of rerankers wherever one is named."""

import hashlib
import json

import pytest

from biorag.types import Snippet
from tests.cli import done, failed, invoke
from tests.conftest import WORDS, write_medrag
from tests.fakes import ScriptedGenerator

pytestmark = pytest.mark.models

COUPLES = [(one, other) for one in WORDS for other in WORDS if one != other][::3]
MINED = [
    {"query": f"{one} and {other}?", "positive": f"{one} heals the {other}.", "negative_1": f"{other} hurts."}
    for one, other in COUPLES
]
QUERY = MINED[3]["query"]
FAST = ["--precision", "fp32", "--batch-size", 16, "--max-tokens", 32, "--evaluations", 1, "--validation", 0.2]


@pytest.fixture(scope="module")
def home(tiny_encoder, tmp_path_factory):
    """A home with the rows' positives as index `small`, and the rows as `mined.jsonl`."""
    home = tmp_path_factory.mktemp("home")
    (home / "mined.jsonl").write_text("".join(json.dumps({**row, "kind": "bm25"}) + "\n" for row in MINED))
    corpus = write_medrag(home / "corpus.jsonl", [Snippet(f"d{n}", "", row["positive"]) for n, row in enumerate(MINED)])
    done(invoke("index", corpus, "--name", "small", "--encoder", tiny_encoder, "--json", home=home))
    return home


def hits(found):
    return [(hit["id"], hit["score"]) for hit in found["hits"]]


def test_one_is_trained_and_reranks(home, tiny_encoder, tmp_path):
    out = tmp_path / "model"
    command = ["train", "cross-encoder", home / "mined.jsonl", "--base", tiny_encoder]
    found = done(invoke(*command, *FAST, "--out", out, "--json", home=home))
    assert found["pairs"] == 2 * found["rows"] and found["identity"]["negatives"] == "bm25"
    assert found["steps"] == -(-found["pairs"] // 16)
    searching = ["search", QUERY, "--name", "small", "-k", 12, "--k-init", 12, "--json"]
    plain = done(invoke(*searching, home=home))
    chained = done(invoke(*searching, "--reranker", f"encoder,cross:{out}@4", home=home))
    assert {id for id, _ in hits(chained)[:4]} == {id for id, _ in hits(plain)[:4]}
    assert hits(chained)[4:] == hits(plain)[4:], "below its depth the stage before goes on"
    assert [score for _, score in hits(chained)[:4]] != [score for _, score in hits(plain)[:4]]


def test_the_two_weights_add_up(home, tiny_cross_encoder):
    """score = log-odds + w₂·(MaxSim + w₁·first): two values of each weight give the parts of a third."""
    chain = ["--reranker", f"encoder,cross:{tiny_cross_encoder}", "--name", "small", "-k", 10, "--k-init", 10]

    def scores(first, second):
        weights = ["--interpolation", first, "--cross-interpolation", second]
        return dict(hits(done(invoke("search", QUERY, *chain, *weights, "--json", home=home))))

    alone, once, with_first, at_last = scores(0, 0), scores(0, 1), scores(1, 1), scores(0.5, 3)
    assert len(alone) == 10
    for id, log_odds in alone.items():
        maxsim, first = once[id] - log_odds, with_first[id] - once[id]
        assert at_last[id] == pytest.approx(log_odds + 3 * (maxsim + 0.5 * first), abs=1e-4)


def test_mirage_files_belong_to_the_weights_of_every_stage(home, tiny_cross_encoder, tmp_path, monkeypatch):
    generator = ScriptedGenerator()
    monkeypatch.setattr("biorag.commands.bench_mirage.require_generator", lambda settings, at_a_time: generator)
    monkeypatch.setattr("biorag.generators.gguf.GgufSource.sha256", lambda source: "0" * 64)
    asked = ["bench", "mirage", "--benchmark", "demo", "--name", "small", "--limit", 1, "--task", "mmlu", "--json"]
    chain = f"cross:{tiny_cross_encoder},encoder,cross:{tiny_cross_encoder}"
    found = done(invoke(*asked, "--reranker", chain, "--out", tmp_path / "chain", home=home))["manifest"]
    sha256 = hashlib.sha256((tiny_cross_encoder / "model.safetensors").read_bytes()).hexdigest()
    assert found["reranker"] == f"{sha256},{sha256}"
    assert found["settings"]["cross_interpolation"] == 10.0
    plain = done(invoke(*asked, "--out", tmp_path / "plain", home=home))["manifest"]
    assert plain["reranker"] is None and "cross_interpolation" not in plain["settings"]
    failed(invoke(*asked, "--reranker", chain, "--out", tmp_path / "plain", home=home), 5, "plain")


@pytest.mark.parametrize(
    ("chain", "code", "said"),
    [
        ("encoder,cross:/no/such/model", 4, "/no/such/model"),
        ("cross:starter", 4, "no trained head"),
        ("encoder,", 2, "STAGE[,STAGE...]"),
        ("encoder@5,cross:x@6", 2, "where stage 1 leaves it 5"),
    ],
)
def test_a_chain_that_cannot_be_is_one_sentence(home, chain, code, said):
    failed(invoke("search", QUERY, "--name", "small", "--reranker", chain, home=home), code, said)
