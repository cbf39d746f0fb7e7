"""`biorag merge`: methods against loops and mergekit, encoders written and refused, and the search of the weights."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load_file, save_file

from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError
from biorag.lab.merging.experts import load_experts
from biorag.lab.merging.search import (
    FULL_DENSITIES,
    DevelopmentCorpus,
    WeightSearch,
    draw_questions,
    draw_snippets,
    full_grid,
    shares,
)
from biorag.lab.merging.weights import MergeRecipe, ties
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.types import Question, Snippet
from tests import cli
from tests.cli import done, failed
from tests.conftest import write_medrag
from tests.lab.test_tune import write_questions

TEXTS = ["aspirin for fever", "heparin, warfarin", "liver"]
HALF = MergeRecipe("linear", (0.5, 0.5), 0.5, 1.0)


# --- methods ---

numbers = st.floats(-8, 8, width=16)


@st.composite
def cases(draw):
    """A base and experts of one shape, weights, and a density."""
    shape = draw(st.sampled_from([(), (1,), (5,), (3, 4), (2, 1, 3)]))
    tensors = draw(st.lists(arrays(np.float32, shape, elements=numbers), min_size=2, max_size=5))
    count = len(tensors) - 1
    weights = draw(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 2.0]), min_size=count, max_size=count))
    weights[draw(st.integers(0, count - 1))] = 1.0
    return tensors[0], tensors[1:], tuple(weights), draw(st.sampled_from([0.1, 0.3, 0.5, 1.0]))


def slow_trim(values: list[float], density: float) -> list[float]:
    kept = max(1, int(density * len(values)))
    smallest = sorted((abs(value) for value in values), reverse=True)[:kept][-1]
    return [value if abs(value) >= smallest else 0.0 for value in values]


def slow_ties(base: list[float], experts: list[list[float]], weights, density: float, scale: float) -> list[float]:
    trimmed = [slow_trim([new - old for new, old in zip(expert, base, strict=True)], density) for expert in experts]
    merged = []
    for index, old in enumerate(base):
        changes = [vector[index] for vector in trimmed]
        heavier = sum(weight * change for weight, change in zip(weights, changes, strict=True))
        chosen = [(w, c) for w, c in zip(weights, changes, strict=True) if c * heavier > 0]
        total = sum(w for w, _ in chosen)
        merged.append(old + scale * sum(w * c for w, c in chosen) / total if total else old)
    return merged


def of(tensor) -> list[float]:
    return [float(value) for value in np.ravel(tensor)]


@given(cases(), st.sampled_from([0.5, 1.0, 1.5]))
def test_ties_is_the_slow_algorithm(case, scale):
    base, experts, weights, density = case
    # In steps of 1/8, so that sums are exact and no sign hangs on their rounding.
    base, *experts = (np.round(np.asarray(tensor) * 8) / np.float32(8) for tensor in (base, *experts))
    weights = tuple(round(weight * 8) / 8 for weight in weights)
    merged = ties(MergeRecipe("ties", weights, density, scale), experts, base)
    assert (merged.dtype, merged.shape) == (np.float32, base.shape)
    np.testing.assert_allclose(
        of(merged), slow_ties(of(base), list(map(of, experts)), weights, density, scale), atol=1e-5
    )


@pytest.mark.parametrize("method", ["linear", "ties", "task_arithmetic"])
def test_mergekit_merges_the_same(method):
    merge_methods = pytest.importorskip("mergekit.merge_methods", reason="mergekit is not installed")
    import torch

    random = np.random.default_rng(7)
    base, *experts = random.normal(size=(4, 20, 10)).astype(np.float32)
    weights, with_base = (0.5, 0.3, 0.4), method != "linear"
    states = {index: {"w": torch.from_numpy(tensor)} for index, tensor in enumerate([*experts, base][: 3 + with_base])}
    parameters = {"weight": dict(enumerate(weights))} | ({"density": 0.4} if method == "ties" else {})
    found = merge_methods.merge_state_dicts(
        states, merge_methods.get(method), base=3 if with_base else None, parameters=parameters
    )["w"].numpy()
    recipe = MergeRecipe("ties" if method == "ties" else "linear", weights, 0.4, 1.0)
    np.testing.assert_allclose(recipe.merged(experts, base if with_base else None), found, atol=1e-6)


# --- candidates ---


def test_shares_sum_to_1_evenly_with_equal_weights_among_them():
    assert set(shares(2)) == {(tenth / 10, (10 - tenth) / 10) for tenth in range(11)}
    for experts, count in ((3, 28), (4, 35)):
        weights = shares(experts)
        assert len(set(weights)) == len(weights) == count
        assert all(sum(share) == pytest.approx(1, abs=1e-5) for share in weights)
        assert weights[0] == tuple([round(1 / experts, 6)] * experts), "of equals the first is taken"


def test_a_corpus_knows_documents_and_pmids_and_the_last_of_an_id():
    blocks = [Snippet(f"d#{n}", "t", f"part {n}", 7, {"document": "d", "block": n}) for n in (0, 1)]
    snippets = [Snippet("s", "", "old", 1), *blocks, Snippet("s", "", "new", 1)]
    asked = [Question("q", "?")]
    judged = [Dataset("x", asked, {"q": {"s": 1}}), Dataset("y", asked, {"q": {"7": 1}})]
    corpus = DevelopmentCorpus.of(judged, snippets, {})
    assert list(corpus.ids) == [("s", 1), *((block.document, 7) for block in blocks)]
    assert corpus.texts[0] == "new"
    for held in (snippets, []):
        with pytest.raises(BadInputError, match="no snippet that z judges"):
            DevelopmentCorpus.of([Dataset("z", asked, {"q": {"8": 1}})], held, {})


def test_the_full_grid_has_every_proportion_once_and_a_sample_is_drawn_with_the_seed():
    def proportions(weights):
        return {tuple(Fraction(tenth, sum(tenths)) for tenth in tenths) for tenths in weights}

    combinations = [tenths for tenths in itertools.product(range(10), repeat=3) if any(tenths)]
    grid = [tuple(round(10 * weight) for weight in weights) for weights in full_grid(3, free=False)]
    assert proportions(grid) == proportions(combinations)
    assert len(grid) == len(proportions(grid)) == len(set(grid))
    for method, base, count in (("ties", True, 57 * 9), ("linear", True, 99), ("linear", False, 57)):
        recipe = MergeRecipe(method, (0.5, 0.5), 0.2, 1.0)
        whole = WeightSearch([], "all", ["nDCG@10"], "fp32", full=True).candidates(recipe, base)
        densities = {candidate.density for candidate in whole}
        assert (len(whole), densities) == (count, {0.2} if method == "linear" else set(FULL_DENSITIES))
        one, same, other = (
            WeightSearch([], "all", ["nDCG@10"], "fp32", True, 20, seed).candidates(recipe, base) for seed in (1, 1, 2)
        )
        assert one == same != other
        indices = [whole.index(candidate) for candidate in one]
        assert len(indices) == 20 and indices == sorted(set(indices)), "in the order of the grid, none twice"


def test_a_sample_keeps_what_is_judged():
    ids = [f"q{n}" for n in range(30)]
    data = Dataset("d", [Question(id, "?") for id in ids], {id: {f"s{n}": 1} for n, id in enumerate(ids)})
    assert draw_questions(data, 30, seed=1) == data
    drawn = draw_questions(data, 5, seed=1)
    assert [question.id for question in drawn.questions] == list(drawn.qrels) == sorted(drawn.qrels, key=ids.index)
    snippets = [Snippet(f"s{n}", "", "x") for n in range(60)]
    one, same, other = ([s.id for s in draw_snippets(snippets, [drawn], 7, seed)] for seed in (1, 1, 2))
    judged = {id for grades in drawn.qrels.values() for id in grades}
    assert (judged < set(one), len(one), len(set(one))) == (True, 5 + 7, 5 + 7)
    assert one == same != other


# --- encoders ---


def moved(source: Path, target: Path, seed: int) -> Path:
    """Copy an encoder, its weights moved at random, as if it had been trained."""
    shutil.copytree(source, target)
    random = np.random.default_rng(seed)
    tensors = load_file(target / "model.safetensors")
    changed = {name: tensor + random.normal(scale=0.05, size=tensor.shape) for name, tensor in tensors.items()}
    typed = {name: tensor.astype(tensors[name].dtype) for name, tensor in changed.items()}
    save_file(typed, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.fixture
def experts(tmp_path, tiny_encoder):
    """Two encoders trained from the tiny one, as it were."""
    return [moved(tiny_encoder, tmp_path / name, seed) for seed, name in enumerate(("one", "two"))]


def merge(folders, base, recipe, out):
    files = [find_encoder(str(folder)) for folder in folders]
    experts = load_experts(files, find_encoder(str(base)) if base else None)
    experts.write(out, recipe, lambda _: None)
    return out


def weights(folder):
    return load_file(folder / "model.safetensors")


def edit(path, change):
    values = json.loads(path.read_bytes())
    path.write_text(json.dumps(change(values) or values))


@pytest.mark.models
@pytest.mark.parametrize("with_base", [False, True])
def test_one_expert_of_weight_1_keeps_its_weights_and_settings(tmp_path, experts, tiny_encoder, with_base):
    (experts[0] / "training.json").write_text("{}")
    edit(experts[0] / "config_sentence_transformers.json", lambda v: v.update(prompts={"query": "Q: "}))
    base = tiny_encoder if with_base else None
    merged = merge(experts[:1], base, MergeRecipe("linear", (1.0,), 0.5, 1.0), tmp_path / "o")
    for name, tensor in weights(experts[0]).items():
        assert weights(merged)[name].tobytes() == tensor.tobytes()
    assert json.loads((merged / "config_sentence_transformers.json").read_bytes())["prompts"]["query"] == "Q: "
    assert (merged / "tokenizer.json").is_file()
    assert not (merged / "training.json").exists()


@pytest.mark.models
def test_an_encoder_in_bfloat16_stays_so(tmp_path, experts):
    import torch
    from sentence_transformers import SentenceTransformer

    for folder in experts:
        SentenceTransformer(str(folder), device="cpu").to(torch.bfloat16).save(str(folder))
    merged = merge(experts, None, HALF, tmp_path / "out")
    model = SentenceTransformer(str(merged), device="cpu", model_kwargs={"dtype": "auto"})
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


@pytest.mark.models
@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("config.json", lambda v: v.update(hidden_act="relu"), "architecture hidden_act ('gelu' and 'relu')"),
        ("modules.json", lambda v: v[:1], "modules"),
        ("1_Pooling/config.json", lambda v: v.update(pooling_mode="cls"), "pooling 1 pooling_mode ('mean' and 'cls')"),
        ("tokenizer.json", lambda v: swap_words(v), "tokenizer model"),
        ("config_sentence_transformers.json", lambda v: v.update(prompts={"query": "Q: "}), "prompt query"),
        ("config_sentence_transformers.json", lambda v: v.update(similarity_fn_name="dot"), "similarity"),
    ],
)
def test_what_differs_is_named(tmp_path, experts, file, change, named):
    edit(experts[1] / file, change)
    with pytest.raises(BadInputError) as error:
        merge(experts, None, HALF, tmp_path / "out")
    assert "cannot be merged: they differ in" in str(error.value)
    assert named in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.models
def test_another_base_is_refused_by_vocabulary_or_architecture(tmp_path, tiny_encoder, tiny_modernbert, experts):
    with pytest.raises(BadInputError, match="architecture"):
        merge(experts, tiny_modernbert, HALF, tmp_path / "out")
    base = moved(tiny_encoder, tmp_path / "base", 5)
    edit(base / "tokenizer.json", swap_words)
    with pytest.raises(BadInputError, match="vocabulary"):
        merge(experts, base, HALF, tmp_path / "out")


def swap_words(tokenizer: dict) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]


# --- the command ---


@pytest.fixture(scope="module")
def place(tmp_path_factory, snippets, tiny_encoder) -> Path:
    """A folder of a data set, a corpus and two experts of the tiny encoder, which the tests only read."""
    place = tmp_path_factory.mktemp("merge")
    write_medrag(place / "corpus.jsonl", snippets)
    write_questions(place / "asked")
    for seed, name in enumerate("ab", 1):
        moved(tiny_encoder, place / name, seed)
    return place


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return partial(cli.invoke, BIORAG_PRECISION="fp32")


def hash_of(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_merge_is_the_mean_and_its_manifest_says_how_it_came_about(invoke, place, tmp_path):
    import torch
    from sentence_transformers import SentenceTransformer

    words = ("merge", place / "a", place / "b", "--method", "linear", "--weights", "1,3", "--out", "m", "--json")
    report = done(invoke(*words))
    assert report == {"out": "m", **json.loads((tmp_path / "m" / "merge.json").read_bytes())}
    assert (report["complete"], report["weights"], report["search"], report["base"]) == (True, [1, 3], None, None)
    experts = [(expert["sha256"], expert["weight"]) for expert in report["experts"]]
    assert experts == [(hash_of(place / "a"), 1), (hash_of(place / "b"), 3)]
    one, two, merged = map(weights, (place / "a", place / "b", tmp_path / "m"))
    mean = {name: one[name] / 4 + 3 * two[name] / 4 for name in one}
    for name, tensor in merged.items():
        np.testing.assert_allclose(tensor, mean[name], atol=1e-6)
    model = SentenceTransformer(str(place / "a"), device="cpu")
    model[0].model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in mean.items()}, strict=False)
    vectors = BiEncoder(find_encoder(str(tmp_path / "m")), precision="fp32").encode_snippets(TEXTS)
    np.testing.assert_allclose(vectors, model.encode(TEXTS, normalize_embeddings=True), atol=1e-5)
    written = (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns
    assert done(invoke(*words)) == report
    assert (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns == written
    failed(invoke(*words, "--weights", "2,3"), 5, "weights", "--out")
    failed(invoke("merge", place / "a", "--method", "linear", "--out", place / "b"), 5, "something other than a merge")


def searched(place, *words):
    data = ("--search", place / "asked", "--corpus", place / "corpus.jsonl")
    return ("merge", place / "a", place / "b", *data, *words, "--json")


def test_the_search_measures_what_bench_retrieval_does_and_a_killed_one_resumes(invoke, place, tmp_path, monkeypatch):
    report = done(invoke(*searched(place, "--method", "linear", "--out", "m")))
    points = {tuple(point["weights"]): point["mean"] for point in report["search"]["points"]}
    assert set(points) == set(shares(2))
    assert points[tuple(report["weights"])] == max(points.values()) > min(points.values())
    bench = ("bench", "retrieval", place / "asked", "--mode", "dense", "--no-rerank", "--json")
    for name, folder, share in (("b", place / "b", (0, 1)), ("m", "m", tuple(report["weights"]))):
        done(invoke("index", place / "corpus.jsonl", "--encoder", folder, "--name", name, "--json"))
        metrics = done(invoke(*bench, "--name", name))["metrics"]
        assert points[share] == pytest.approx(metrics["nDCG@10"], abs=1e-6)
    recall = metrics["R@10"]
    both = ("--measure", "nDCG@10", "--measure", "R@10", "--method", "linear", "--out", "both")
    report_of_both = done(invoke(*searched(place, *both)))
    for point, alone in zip(report_of_both["search"]["points"], report["search"]["points"], strict=True):
        assert point["measures"]["nDCG@10"] == alone["mean"]
        assert point["mean"] == pytest.approx(sum(point["measures"].values()) / 2)
        if point["weights"] == report["weights"]:
            assert point["measures"]["R@10"] == pytest.approx(recall, abs=1e-6)
    best = max(report_of_both["search"]["points"], key=lambda point: point["mean"])
    assert (report_of_both["weights"], report_of_both["search"]["best"]) == (best["weights"], best["measures"])
    assert {path.name for path in (tmp_path / "m").iterdir()}.isdisjoint({"candidate", "lock"})
    measures, calls = DevelopmentCorpus.measures, []

    def counted(*words):
        calls.append(words)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return measures(*words)

    monkeypatch.setattr(DevelopmentCorpus, "measures", counted)
    words = searched(place, "--method", "linear", "--out", "killed")
    assert invoke(*words).exit_code == 130
    assert len((tmp_path / "killed" / "candidates.jsonl").read_bytes().splitlines()) == 4
    failed(invoke(*words, "--density", "0.3", "--measure", "R@5"), 5, "density (0.5 → 0.3), measure", "--out")
    resumed = done(invoke(*words))
    assert len(calls) == 5 + len(shares(2)) - 4
    assert (resumed["weights"], resumed["search"]) == (report["weights"], report["search"])
    assert hash_of(tmp_path / "killed") == hash_of(tmp_path / "m")


def test_a_data_set_is_searched_in_its_own_corpus_by_its_development_split(invoke, place, tmp_path):
    copied = shutil.copytree(place / "asked", tmp_path / "asked")
    shutil.copy(place / "corpus.jsonl", copied)
    (copied / "qrels" / "test.tsv").rename(copied / "qrels" / "dev.tsv")
    words = ("merge", place / "a", place / "b", "--method", "linear", "--search", copied, "--json")
    dev = ("--split", "dev", "--out")
    sampled = done(invoke(*words, "--sample-questions", 1, "--sample-passages", 2, *dev, "sampled"))
    assert sampled["search"]["questions"] == {"asked": 1}
    assert 2 < sampled["search"]["snippets"] < 12
    failed(invoke(*words, "--out", "x"), 4, "qrels/test.tsv")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--method", "slerp"), ("unknown method 'slerp'", "linear, ties")),
        (("--method", "ties"), ("--base",)),
        (("--method", "linear", "--weights", "1"), ("1 weights for 2 experts",)),
        (("--method", "linear", "--weights", "0,0"), ("above 0",)),
        (("--method", "linear", "--held-out"), ("--held-out", "--search")),
        (("--method", "linear", "--corpus", "x"), ("--corpus", "--search")),
        (("--method", "linear", "--search", "{place}/asked", "--weights", "1,1"), ("leave --weights out",)),
        (("--method", "linear", "--out", "m\udcff"), ("m\\xff is not UTF-8", "--out")),
    ],
)
def test_what_does_not_go_together_is_said(invoke, place, tmp_path, words, parts):
    words = [word.format(place=place) for word in words]
    failed(invoke("merge", place / "a", place / "b", "--out", "out", *words), 2, *parts)
    assert list(tmp_path.iterdir()) == []
