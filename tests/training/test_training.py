"""Training on tiny random models: what is saved, exact resume, curves, refusals."""

from __future__ import annotations

import csv
import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from transformers import AutoTokenizer

from biorag.errors import MismatchError, MissingError, ServiceError, UsageError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.colbert import ColBERT
from biorag.models.colbert_ai import ColbertAI
from biorag.models.finding import find_encoder
from biorag.models.late_interaction import LateInteraction
from biorag.settings.settings import Settings
from biorag.training import loop
from biorag.training.colbert import DOCUMENT_MARKER, QUERY_MARKER, Lengths, write_base
from biorag.training.data import Split
from biorag.training.run_directory import TrainingRun
from tests.fakes import scores_of
from tests.tiny_colbert import write_published
from tests.training.trainers import QUIET, ROWS, train_reranker, train_retriever

pytestmark = pytest.mark.models

SPLIT = Split(ROWS[:80], ROWS[80:])


SETTINGS = Settings.of(
    precision="fp32",
    train_batch_size=8,
    train_max_tokens=32,
    train_query_tokens=16,
    train_learning_rate=1e-3,
    train_evaluations=5,
)
TRAINERS = {"retriever": train_retriever, "reranker": train_reranker}


@pytest.fixture(scope="module")
def files(tiny_encoder):
    return find_encoder(str(tiny_encoder))


@pytest.fixture(scope="module", params=TRAINERS)
def run(request, files, tmp_path_factory):
    """One whole run of a kind: how it is trained, its folder, its manifest, and the steps that it told."""
    out, steps, train = tmp_path_factory.mktemp(request.param) / "m", [], TRAINERS[request.param]
    manifest = train(files, SPLIT, SETTINGS, out, {"data": {"files": ["a"]}}, steps.append)
    return train, out, manifest, sum(steps)


@pytest.fixture(scope="module")
def reranker(run):
    train, out, *_ = run
    if train is not train_reranker:
        pytest.skip("of the reranker alone")
    return out


def test_training_lowers_the_loss_and_raises_the_metric(run):
    _, out, manifest, steps = run
    rows = list(csv.DictReader((out / "curves.csv").open()))
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    metrics = [float(row["eval_ndcg@10"]) for row in rows if row["eval_ndcg@10"]]
    assert len(losses) == manifest["steps"] == steps == loop.steps_of([80], SETTINGS.training) == 10
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    assert len(metrics) == 6 and max(metrics) == pytest.approx(manifest["best"]["value"]) and metrics[0] <= max(metrics)
    assert manifest["final_loss"] == pytest.approx(losses[-1])
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "training.json").read_text()) == json.loads(json.dumps(manifest))
    assert {"complete", "identity", "data", "seconds", "hardware", "versions", "command"} <= manifest.keys()
    assert not (out / "checkpoints").exists() and not (out / "base").exists()


def test_a_folder_keeps_its_run(run, files, tmp_path):
    train, out, manifest, _ = run
    stamp, steps = (out / "model.safetensors").stat().st_mtime_ns, []
    assert train(files, SPLIT, SETTINGS, out, {}, steps.append) == json.loads(json.dumps(manifest))
    assert (steps, (out / "model.safetensors").stat().st_mtime_ns) == ([], stamp)
    with pytest.raises(MismatchError, match=r"seed \(0 → 1\), train_epochs \(1.0 → 2.0\)"):
        train(files, SPLIT, SETTINGS.replace(seed=1, train_epochs=2), out, {}, QUIET)
    with pytest.raises(MismatchError, match="training_sha256"):
        train(files, Split(ROWS[1:81], ROWS[81:]), SETTINGS, out, {}, QUIET)
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(MismatchError, match="something other"):
        train(files, SPLIT, SETTINGS, tmp_path, {}, QUIET)


def test_a_setting_that_a_finished_run_does_not_know_has_its_default(tmp_path):
    """So that a new setting leaves the identities of finished runs as they are."""
    now = {"kind": "retriever", "settings": SETTINGS.training_identity()}
    before = {**now, "settings": {name: now["settings"][name] for name in ("precision", "seed", "train_batch_size")}}
    finished = {"rows": 1, "steps": 1, "final_loss": None, "best": {"metric": "m", "value": None, "step": None}}
    TrainingRun(tmp_path, before).finish({**finished, "seconds": 1.0})
    defaults = Settings.of(precision="fp32", train_batch_size=8)
    assert TrainingRun(tmp_path, {**now, "settings": defaults.training_identity()}).finished()["rows"] == 1
    with pytest.raises(MismatchError, match=r"train_evaluations \(4 → 5\), train_learning_rate .* and 1 more"):
        TrainingRun(tmp_path, now).finished()


def test_a_dot_retriever_has_vectors_of_many_lengths(tiny_encoder, tmp_path):
    model = SentenceTransformer(str(tiny_encoder), device="cpu")
    model.append(Normalize())
    model.save(str(tmp_path / "unit"))
    settings = SETTINGS.replace(similarity="dot", train_max_steps=2, train_gradient_checkpointing=True)
    base = find_encoder(str(tmp_path / "unit"))
    manifest = train_retriever(base, Split(ROWS[:16], []), settings, tmp_path / "m", {}, QUIET)
    assert manifest["best"]["value"] is None, "nothing is held out"
    vectors = BiEncoder(find_encoder(str(tmp_path / "m")), "dot", "fp32").encode_snippets(["liver", "pain gene"])
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).min() > 1e-3
    saved = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    assert (saved.similarity_fn_name, saved.max_seq_length) == ("dot", model.max_seq_length)


def test_two_runs_in_one_folder(files, tmp_path):
    def second(_: int) -> None:
        with pytest.raises(ServiceError, match=f"training run 'm' is being written by process {os.getpid()}"):
            train_retriever(files, SPLIT, SETTINGS, tmp_path / "m", {}, QUIET)
        raise MemoryError

    with pytest.raises(ServiceError, match="--batch-size 8: lower it"):  # and a full memory is one sentence
        train_retriever(files, SPLIT, SETTINGS, tmp_path / "m", {}, second)


def test_a_loss_that_is_not_finite_stops_the_run():
    watcher = loop._Watcher(None, None, QUIET, SETTINGS.training)
    with pytest.raises(ServiceError, match="the loss is nan at step 3: lower --learning-rate"):
        watcher.on_log(None, loop.TrainerState(global_step=3), None, {"loss": float("nan")})


def test_a_folder_from_which_no_model_could_be_loaded_is_refused_before_training(tmp_path):
    with pytest.raises(UsageError, match="not UTF-8"), TrainingRun(tmp_path / "m\udcff", {}).locked():
        pytest.fail("it trains")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_whatever_a_library_says_of_it(tmp_path, monkeypatch):
    for free, expected in ((1000, ServiceError), (10**9, RuntimeError)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: type("Usage", (), {"free": free})())
        fault = "is full: 0 MB" if free == 1000 else "unexpected pos"
        with pytest.raises(expected, match=fault), TrainingRun(tmp_path / "m", {}).locked():
            raise RuntimeError("unexpected pos 64 vs 0")


def test_the_newest_whole_checkpoint_is_resumed_also_after_a_move(tmp_path):
    folder = TrainingRun(tmp_path, {})
    state = {"global_step": 4, "best_model_checkpoint": "/elsewhere/checkpoints/checkpoint-2"}
    for step, text in ((2, '{"global_step": 2}'), (4, json.dumps(state)), (10, '{"global_st'), (8, None)):
        path = folder.path / "checkpoints" / f"checkpoint-{step}"
        path.mkdir(parents=True)
        if text:
            (path / "trainer_state.json").write_text(text)
    assert folder.last_checkpoint() == folder.path / "checkpoints" / "checkpoint-4"
    corrected = json.loads((folder.path / "checkpoints" / "checkpoint-4" / "trainer_state.json").read_text())
    assert corrected == state | {"best_model_checkpoint": str(folder.path / "checkpoints" / "checkpoint-2")}


# --- the reranker's checkpoint ------------------------------------------------------------------------------


def test_colbert_ai_gives_the_same_maxsim(reranker):
    """Also of a query that is longer than the base's own queries."""
    queries = [ROWS[0].query, "a", "fever, pain and liver: gene? heart lung kidney"]
    texts = [*[row.positive for row in ROWS[:5]], "a", "A long text, with commas. " * 8]
    files = find_encoder(str(reranker))
    reference, ours = ColbertAI(files), LateInteraction(ColBERT(files, "fp32"))
    for query in queries:
        np.testing.assert_allclose(scores_of(ours, query, texts), reference.mean_maxsim(query, texts), atol=1e-5)
    stem = "fever pain gene " * 10
    one, other = (scores_of(ours, stem + end, ["liver"])[0] for end in ("liver", "kidney"))
    assert one != pytest.approx(other, abs=1e-6), "a long query keeps its end"


def test_training_begins_with_the_projection_of_a_published_checkpoint(tiny_encoder, tmp_path):
    """Rates too small to move anything: what is saved is what colbert-ai loads of the base itself."""
    base = find_encoder(str(write_published(tmp_path / "published", tiny_encoder)))
    still = SETTINGS.replace(train_learning_rate=1e-12, train_max_steps=2, train_query_tokens=32)
    train_reranker(base, SPLIT, still, tmp_path / "m", {}, QUIET)
    before, after = (load_file(folder / "model.safetensors") for folder in (base.path, tmp_path / "m"))
    kept = before.keys() - {"bert.embeddings.position_ids"}
    assert after.keys() >= kept and after["linear.weight"].shape == (128, 32)
    for name in kept:
        np.testing.assert_allclose(after[name], before[name], atol=1e-7, err_msg=name)
    published, trained = (ColbertAI(find_encoder(str(folder))) for folder in (base.path, tmp_path / "m"))
    texts = [row.positive for row in ROWS[:5]]
    scores = published.mean_maxsim("fever and pain", texts)
    assert np.ptp(scores) > 0.01
    np.testing.assert_allclose(trained.mean_maxsim("fever and pain", texts), scores, atol=1e-5)


def test_a_colbert_checkpoint_is_a_base_with_markers_of_its_own(reranker, tmp_path):
    own = {"query_token_id": "a", "doc_token_id": "b", "mask_punctuation": False, "attend_to_mask_tokens": True}
    base = shutil.copytree(reranker, tmp_path / "own")
    metadata = json.loads((base / "artifact.metadata").read_text())
    (base / "artifact.metadata").write_text(json.dumps({**metadata, **own}))
    write_base(find_encoder(str(base)), tmp_path / "base", Lengths(500, 1024), [], 0)
    written = json.loads((tmp_path / "base" / "artifact.metadata").read_text())
    assert {key: written[key] for key in own} == own
    assert (written["query_maxlen"], written["doc_maxlen"]) == (128, 128), "the positions that there are"
    before, after = (load_file(folder / "model.safetensors") for folder in (reranker, tmp_path / "base"))
    assert before.keys() == after.keys() and "linear.weight" in before
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    with pytest.raises(MissingError, match="late-interaction"):
        train_retriever(find_encoder(str(reranker)), SPLIT, SETTINGS, tmp_path / "b", {}, QUIET)


def test_a_new_projections_extra_tokens_start_where_the_base_knows_its_way(tiny_encoder, tmp_path):
    files = find_encoder(str(tiny_encoder))
    write_base(files, tmp_path / "base", Lengths(16, 32), ["liver pain"], 0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    rows = load_file(tmp_path / "base" / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    markers = tokenizer.convert_tokens_to_ids([QUERY_MARKER, DOCUMENT_MARKER])
    np.testing.assert_array_equal(rows[markers], rows[[tokenizer.sep_token_id] * 2])
    np.testing.assert_array_equal(rows[tokenizer.mask_token_id], rows[tokenizer.cls_token_id])
    before = load_file(tiny_encoder / "model.safetensors")["embeddings.word_embeddings.weight"]
    kept = [row for row in range(len(before)) if row not in (*markers, tokenizer.mask_token_id)]
    np.testing.assert_array_equal(rows[kept], before[kept])
