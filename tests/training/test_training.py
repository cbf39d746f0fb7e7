"""Training on tiny random models: what is saved, exact resume, curves, refusals."""

from __future__ import annotations

import csv
import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import AutoTokenizer

from biorag.errors import BadInputError, MismatchError, MissingError, ServiceError, UsageError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.colbert import ColBERT
from biorag.models.finding import find_encoder
from biorag.models.late_interaction import LateInteraction
from biorag.settings.settings import Settings
from biorag.training import loop
from biorag.training.colbert import DOCUMENT_MARKER, QUERY_MARKER, Lengths, write_base
from biorag.training.data import Split
from biorag.training.parity import ColbertAI
from biorag.training.reranker import train_reranker
from biorag.training.retriever import train_retriever
from biorag.training.run_directory import TrainingRun
from biorag.types import TrainingRow
from tests.conftest import WORDS
from tests.fakes import scores_of

pytestmark = pytest.mark.models

ROWS = [
    TrainingRow(f"{one} {other}?", f"{one} heals the {other}.", (f"{other} hurts.", f"{one} kills."), kind="bm25")
    for one in WORDS
    for other in WORDS
    if one != other
]
SPLIT = Split(ROWS[:80], ROWS[80:])
QUIET = lambda _: None  # noqa: E731


@pytest.fixture
def settings() -> Settings:
    return Settings.of(
        precision="fp32",
        train_batch_size=8,
        train_max_tokens=32,
        train_query_tokens=16,
        train_learning_rate=1e-3,
        train_evaluations=5,
    )


TRAINERS = {"retriever": train_retriever, "reranker": train_reranker}


@pytest.fixture(params=TRAINERS)
def train(request):
    return TRAINERS[request.param]


def weights(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def test_training_lowers_the_loss_and_raises_the_metric(train, tiny_encoder, settings, tmp_path):
    steps = []
    files = find_encoder(str(tiny_encoder))
    manifest = train(files, SPLIT, settings, tmp_path / "m", {"data": {"files": ["a"]}}, steps.append)
    rows = list(csv.DictReader((tmp_path / "m" / "curves.csv").open()))
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    metrics = [float(row["eval_ndcg@10"]) for row in rows if row["eval_ndcg@10"]]
    assert len(losses) == manifest["steps"] == sum(steps) == loop.steps_of(80, settings.training) == 10
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    assert len(metrics) == 6 and max(metrics) == pytest.approx(manifest["best"]["value"]) and metrics[0] <= max(metrics)
    assert manifest["final_loss"] == pytest.approx(losses[-1])
    assert (tmp_path / "m" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "m" / "training.json").read_text()) == json.loads(json.dumps(manifest))
    assert {"complete", "identity", "data", "seconds", "hardware", "versions", "command"} <= manifest.keys()
    assert not (tmp_path / "m" / "checkpoints").exists() and not (tmp_path / "m" / "base").exists()


def test_the_trained_retriever_is_an_encoder(tiny_encoder, settings, tmp_path):
    train_retriever(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "m", {}, QUIET)
    encoder = BiEncoder(find_encoder(str(tmp_path / "m")), "cosine", "fp32")
    queries = encoder.encode_queries([row.query for row in ROWS[:20]])
    passages = encoder.encode_snippets([row.positive for row in ROWS[:20]])
    before = BiEncoder(find_encoder(str(tiny_encoder)), "cosine", "fp32")
    untrained = (
        before.encode_queries([row.query for row in ROWS[:20]])
        @ before.encode_snippets([row.positive for row in ROWS[:20]]).T
    )
    hits = (np.argmax(queries @ passages.T, axis=1) == np.arange(20)).mean()
    assert hits > (np.argmax(untrained, axis=1) == np.arange(20)).mean()


def test_a_dot_retriever_has_vectors_of_many_lengths(tiny_encoder, settings, tmp_path):
    settings = settings.replace(similarity="dot")
    train_retriever(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "m", {}, QUIET)
    vectors = BiEncoder(find_encoder(str(tmp_path / "m")), "dot", "fp32").encode_snippets(
        [row.positive for row in ROWS]
    )
    assert np.std(np.linalg.norm(vectors, axis=1)) > 1e-3
    saved = json.loads((tmp_path / "m" / "config_sentence_transformers.json").read_text())
    assert saved["similarity_fn_name"] == "dot"


def test_the_normalising_layer_goes_for_dot_products(tiny_encoder, settings, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    model = SentenceTransformer(str(tiny_encoder), device="cpu")
    model.append(Normalize())
    model.save(str(tmp_path / "unit"))
    files = find_encoder(str(tmp_path / "unit"))
    train_retriever(files, SPLIT, settings.replace(similarity="dot"), tmp_path / "m", {}, QUIET)
    vectors = BiEncoder(find_encoder(str(tmp_path / "m")), "dot", "fp32").encode_snippets(["liver", "pain gene"])
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).min() > 1e-3


@pytest.mark.parametrize(("negatives", "stopped_after"), [("in-batch", 1), ("bm25", 7)])
def test_a_killed_run_goes_on_to_the_same_weights(
    train, negatives, stopped_after, tiny_encoder, settings, tmp_path, monkeypatch
):
    """As `kill -9` leaves it: the process ends between two steps, the last checkpoint is what there is."""
    files = find_encoder(str(tiny_encoder))
    whole = train(files, SPLIT, settings, tmp_path / "whole", {}, QUIET, negatives)

    class Killed(BaseException):
        pass

    def die(steps: int, count=[0]) -> None:  # noqa: B006
        count[0] += steps
        if count[0] > stopped_after:
            raise Killed

    with pytest.raises(Killed):
        train(files, SPLIT, settings, tmp_path / "cut", {}, die, negatives)
    assert not json.loads((tmp_path / "cut" / "training.json").read_text())["complete"]
    resumed = train(files, SPLIT, settings, tmp_path / "cut", {}, QUIET, negatives)
    assert resumed["resumed_from_step"] == stopped_after // 2 * 2  # 10 steps, 5 checkpoints
    assert resumed["final_loss"] == pytest.approx(whole["final_loss"], abs=1e-3)
    assert resumed["best"] == whole["best"]
    for name, value in weights(tmp_path / "whole").items():
        np.testing.assert_allclose(weights(tmp_path / "cut")[name], value, atol=1e-5, err_msg=name)
    shown = [(tmp_path / run / "curves.csv").read_text() for run in ("whole", "cut")]
    assert [line.split(",")[0] for line in shown[0].splitlines()] == [
        line.split(",")[0] for line in shown[1].splitlines()
    ]


def test_a_half_written_checkpoint_is_passed_over(tiny_encoder, settings, tmp_path):
    folder = TrainingRun(tmp_path, {})
    for step, state in ((2, '{"global_step": 2}'), (10, '{"global_st'), (8, None)):
        path = folder.checkpoints / f"checkpoint-{step}"
        path.mkdir(parents=True)
        if state:
            (path / "trainer_state.json").write_text(state)
    assert folder.last_checkpoint() == folder.checkpoints / "checkpoint-2"
    shutil.rmtree(folder.checkpoints)
    assert folder.last_checkpoint() is None


def test_a_finished_run_is_not_done_again(train, tiny_encoder, settings, tmp_path):
    files = find_encoder(str(tiny_encoder))
    first = train(files, SPLIT, settings, tmp_path / "m", {}, QUIET)
    stamp = (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns
    steps = []
    again = train(files, SPLIT, settings, tmp_path / "m", {}, steps.append)
    assert again == json.loads(json.dumps(first)) and steps == []
    assert (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns == stamp


def test_other_settings_or_data_do_not_overwrite_a_run(train, tiny_encoder, settings, tmp_path):
    files = find_encoder(str(tiny_encoder))
    train(files, SPLIT, settings, tmp_path / "m", {}, QUIET)
    with pytest.raises(MismatchError, match="seed, train_epochs"):
        train(files, SPLIT, settings.replace(seed=1, train_epochs=2), tmp_path / "m", {}, QUIET)
    with pytest.raises(MismatchError, match="training_sha256"):
        train(files, Split(ROWS[1:81], ROWS[81:]), settings, tmp_path / "m", {}, QUIET)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(MismatchError, match="something other"):
        train(files, SPLIT, settings, tmp_path / "other", {}, QUIET)


def test_without_held_out_questions_the_last_weights_are_kept(train, tiny_encoder, settings, tmp_path):
    manifest = train(find_encoder(str(tiny_encoder)), Split(ROWS[:40], []), settings, tmp_path / "m", {}, QUIET)
    assert manifest["best"]["value"] is None and manifest["steps"] == 5
    assert (tmp_path / "m" / "model.safetensors").is_file()


def test_cached_gradients_give_the_same_loss(train, tiny_encoder, settings, tmp_path):
    files = find_encoder(str(tiny_encoder))
    settings = settings.replace(train_learning_rate=1e-12)  # so that only the loss is compared, not the dropout's path
    plain = train(files, SPLIT, settings, tmp_path / "plain", {}, QUIET)
    cached = train(files, SPLIT, settings.replace(train_mini_batch_size=2), tmp_path / "cached", {}, QUIET)
    assert cached["final_loss"] == pytest.approx(plain["final_loss"], rel=0.2)


def test_gradient_checkpointing_trains_too(train, tiny_modernbert, settings, tmp_path):
    settings = settings.replace(train_gradient_checkpointing=True)
    manifest = train(find_encoder(str(tiny_modernbert)), SPLIT, settings, tmp_path / "m", {}, QUIET)
    assert manifest["complete"]


# --- the reranker's checkpoint ------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["tiny_encoder", "tiny_modernbert"])
def test_colbert_ai_gives_the_same_maxsim(base, request, settings, tmp_path):
    files = find_encoder(str(request.getfixturevalue(base)))
    train_reranker(files, SPLIT, settings, tmp_path / "m", {}, QUIET)
    queries = [ROWS[0].query, "a", "fever, pain and liver: gene? heart lung kidney"]
    texts = [*[row.positive for row in ROWS[:5]], "a", "A long text, with commas. " * 8]
    reference, ours = (
        ColbertAI(tmp_path / "m"),
        LateInteraction(ColBERT(find_encoder(str(tmp_path / "m")), "fp32")),
    )
    for query in queries:
        # Ours is the mean over the query's tokens, to which it is padded; the reference is the sum.
        np.testing.assert_allclose(16 * scores_of(ours, query, texts), reference.score(query, texts), atol=1e-4)


def test_sentence_transformers_alone_gives_the_same_maxsim(tiny_modernbert, settings, tmp_path):
    from sentence_transformers import MultiVectorEncoder

    train_reranker(find_encoder(str(tiny_modernbert)), SPLIT, settings, tmp_path / "m", {}, QUIET)
    model = MultiVectorEncoder(str(tmp_path / "m"), device="cpu", local_files_only=True)
    texts = [row.positive for row in ROWS[:5]]
    theirs = model.similarity(model.encode_query(["liver pain"]), model.encode_document(texts))[0]
    np.testing.assert_allclose(theirs, ColbertAI(tmp_path / "m").score("liver pain", texts), atol=1e-4)


def test_a_colbert_checkpoint_can_be_the_base(tiny_encoder, settings, tmp_path):
    train_reranker(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "first", {}, QUIET)
    settings = settings.replace(train_learning_rate=1e-12)
    train_reranker(find_encoder(str(tmp_path / "first")), SPLIT, settings, tmp_path / "second", {}, QUIET)
    first, second = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert first.keys() == second.keys() and "linear.weight" in first
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, atol=1e-6, err_msg=name)


def test_a_long_query_keeps_its_end(tiny_encoder, settings, tmp_path):
    train_reranker(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "m", {}, QUIET)
    model = LateInteraction(ColBERT(find_encoder(str(tmp_path / "m")), "fp32"))
    stem = "fever pain gene " * 10
    one, other = (scores_of(model, stem + end, ["liver"])[0] for end in ("liver", "kidney"))
    assert one != pytest.approx(other, abs=1e-6)


def test_distilling_orders_passages_as_the_teacher(tiny_encoder, settings, tmp_path):
    """The teacher prefers the second negative to the positive, so the student must learn that."""
    taught = [
        TrainingRow(row.query, row.positive, row.negatives, scores=(1.0, 0.0, 5.0)) for row in [*ROWS[:80], *ROWS[80:]]
    ]
    settings = settings.replace(train_hard_negatives=2, train_epochs=4, train_learning_rate=3e-3)
    train_reranker(
        find_encoder(str(tiny_encoder)), Split(taught[:80], []), settings, tmp_path / "m", {}, QUIET, distill=True
    )
    model = LateInteraction(ColBERT(find_encoder(str(tmp_path / "m")), "fp32"))
    scores = np.array([scores_of(model, row.query, [row.positive, *row.negatives]) for row in taught[:80]])
    assert (scores[:, 2] > scores[:, 1]).mean() > 0.9 and (scores[:, 2] > scores[:, 0]).mean() > 0.9


# --- refusals -----------------------------------------------------------------------------------------------


def test_bases_that_do_not_fit_are_refused(tiny_encoder, settings, tmp_path):
    with pytest.raises(MissingError, match="cannot be loaded"):
        (tmp_path / "odd").mkdir()
        (tmp_path / "odd" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        train_retriever(find_encoder(str(tmp_path / "odd")), SPLIT, settings, tmp_path / "a", {}, QUIET)
    train_reranker(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "colbert", {}, QUIET)
    with pytest.raises(MissingError, match="late-interaction"):
        train_retriever(find_encoder(str(tmp_path / "colbert")), SPLIT, settings, tmp_path / "b", {}, QUIET)


def test_negatives_that_are_not_there_are_said(train, tiny_encoder, settings, tmp_path):
    files = find_encoder(str(tiny_encoder))
    pairs = Split([TrainingRow(row.query, row.positive) for row in ROWS[:20]], [])
    with pytest.raises(BadInputError, match="biorag mine"):
        train(files, pairs, settings, tmp_path / "m", {}, QUIET, "bm25")
    with pytest.raises(BadInputError, match="mined as bm25"):
        train(files, SPLIT, settings, tmp_path / "m", {}, QUIET, "random")
    with pytest.raises(UsageError, match="in-batch"):
        train(files, SPLIT, settings, tmp_path / "m", {}, QUIET, "citations")
    with pytest.raises(UsageError, match="--hard-negatives"):
        train(files, SPLIT, settings.replace(train_hard_negatives=0), tmp_path / "m", {}, QUIET, "bm25")
    with pytest.raises(UsageError, match="--mini-batch-size"):
        train(files, SPLIT, settings.replace(train_mini_batch_size=4), tmp_path / "m", {}, QUIET, "bm25")
    with pytest.raises(BadInputError, match="no training row"):
        train(files, Split([], []), settings, tmp_path / "m", {}, QUIET)


def test_distilling_needs_scores(tiny_encoder, settings, tmp_path):
    with pytest.raises(BadInputError, match="'scores'"):
        train_reranker(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "m", {}, QUIET, distill=True)


@pytest.mark.parametrize(
    "fault",
    [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate")],
)
def test_a_full_memory_is_one_sentence(fault, train, tiny_encoder, settings, tmp_path, monkeypatch):
    def full(*_):
        raise fault

    with pytest.raises(ServiceError, match="--batch-size 8: lower it"):
        train(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "m", {}, full)


def test_a_loss_that_is_no_number_stops_the_run(train, tiny_encoder, settings, tmp_path, monkeypatch):
    """As a learning rate that is far too high makes it; the weights are then no numbers either."""
    from torch import nn

    from biorag.training import reranker, retriever

    class Diverged(nn.Module):
        def __init__(self, model, *_, **__):
            super().__init__()
            self.model = model

        def forward(self, features, labels=None):
            columns = list(features)
            found = self.model(dict(columns[0]), **({"task": "query"} if "task" in columns[0] else {}))
            return found["token_embeddings"].sum() * float("nan")

    for module in (retriever, reranker):
        monkeypatch.setattr(module, "OwnNegativesLoss", Diverged)
    with pytest.raises(ServiceError, match="the loss is nan at step 1: lower --learning-rate"):
        train(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "m", {}, QUIET, "bm25")
    assert not json.loads((tmp_path / "m" / "training.json").read_text())["complete"]


def test_two_runs_in_one_folder(train, tiny_encoder, settings, tmp_path):
    files = find_encoder(str(tiny_encoder))
    said = []

    def second(_: int) -> None:
        if not said:
            with pytest.raises(
                ServiceError, match=f"training run 'm' is being written by process {os.getpid()}"
            ) as caught:
                train(files, SPLIT, settings, tmp_path / "m", {}, QUIET)
            said.append(str(caught.value))

    train(files, SPLIT, settings, tmp_path / "m", {}, second)
    assert said and not (tmp_path / "m" / "lock").exists()


def test_a_run_that_moved_keeps_its_best_checkpoint(tmp_path):
    folder = TrainingRun(tmp_path, {})
    for step in (2, 4):
        (folder.checkpoints / f"checkpoint-{step}").mkdir(parents=True)
        state = {"global_step": step, "best_model_checkpoint": "/elsewhere/checkpoints/checkpoint-2"}
        (folder.checkpoints / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    state = json.loads((folder.last_checkpoint() / "trainer_state.json").read_text())
    assert state == {"global_step": 4, "best_model_checkpoint": str(folder.checkpoints / "checkpoint-2")}


def test_a_retriever_is_searched_at_the_length_of_its_base(tiny_encoder, settings, tmp_path):
    from sentence_transformers import SentenceTransformer

    longest = SentenceTransformer(str(tiny_encoder), device="cpu").max_seq_length
    train_retriever(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "m", {}, QUIET)
    assert SentenceTransformer(str(tmp_path / "m"), device="cpu").max_seq_length == longest > 32


def test_a_reranker_reads_what_its_base_has_positions_for(tiny_encoder, settings, tmp_path):
    settings = settings.replace(train_max_tokens=1024, train_query_tokens=500)
    train_reranker(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "m", {}, QUIET)
    metadata = json.loads((tmp_path / "m" / "artifact.metadata").read_text())
    assert (metadata["query_maxlen"], metadata["doc_maxlen"]) == (128, 128)


def test_a_base_keeps_its_own_markers(tiny_encoder, settings, tmp_path):
    from biorag.training.colbert import Lengths, write_base

    train_reranker(find_encoder(str(tiny_encoder)), SPLIT, settings, tmp_path / "first", {}, QUIET)
    path = tmp_path / "first" / "artifact.metadata"
    own = {"query_token_id": "a", "doc_token_id": "b", "mask_punctuation": False, "attend_to_mask_tokens": True}
    path.write_text(json.dumps({**json.loads(path.read_text()), **own}))
    write_base(find_encoder(str(tmp_path / "first")), tmp_path / "base", Lengths(16, 32), [], 0)
    metadata = json.loads((tmp_path / "base" / "artifact.metadata").read_text())
    assert {key: metadata[key] for key in own} == own


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
