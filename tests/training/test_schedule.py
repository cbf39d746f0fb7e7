"""How long a run trains: steps, warmup, evaluations, patience and accumulated gradients, against their definitions."""

from __future__ import annotations

import csv
import json
import math
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from biorag.errors import UsageError
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training import loop
from biorag.training.data import Split
from biorag.types import TrainingRow
from tests.conftest import WORDS
from tests.training.trainers import QUIET, train_reranker, train_retriever

pytestmark = pytest.mark.models

COUPLES = [(one, other) for one in WORDS for other in WORDS if one < other]
ROWS = [TrainingRow(f"{a} {b}?", f"{a} heals {b}.", (f"{b} hurts {a}.",), kind="bm25") for a, b in COUPLES]
SPLIT = Split(ROWS[:40], ROWS[40:48])
STILL = {"train_learning_rate": 1e-12}  # the weights stay, so that values can be compared


def settings_of(**values) -> Settings:
    common = {"precision": "fp32", "train_batch_size": 8, "train_max_tokens": 32, "train_query_tokens": 16}
    return Settings.of(**{**common, "train_learning_rate": 1e-3, **values})


@pytest.fixture(scope="module")
def base(tiny_encoder, tmp_path_factory):
    """An encoder without dropout."""
    folder = shutil.copytree(tiny_encoder, tmp_path_factory.mktemp("steady") / "base")
    config = json.loads((folder / "config.json").read_text())
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config | rates))
    return find_encoder(str(folder))


def logged(folder, name) -> dict[int, float]:
    """Return the values of a column of the curves by step."""
    rows = csv.DictReader((folder / "curves.csv").open())
    return {int(row["step"]): float(row[name]) for row in rows if row[name]}


def test_the_learning_rate_rises_in_the_warmup_and_falls_to_the_last_step(base, tmp_path):
    """Twelve steps are more than two epochs of five; evaluations every fifth step, and at the end."""
    settings = settings_of(train_max_steps=12, train_warmup_steps=4, train_eval_steps=5)
    manifest = train_retriever(base, SPLIT, settings, tmp_path / "m", {}, QUIET)
    rates = [1e-3 * (step / 4 if step < 4 else (12 - step) / 8) for step in range(12)]
    np.testing.assert_allclose(list(logged(tmp_path / "m", "learning_rate").values()), rates, atol=1e-12)
    assert list(logged(tmp_path / "m", "eval_ndcg@10")) == [0, 5, 10, 12]
    assert (manifest["steps"], manifest["stopped_by"], manifest["batch_size"]) == (12, "max_steps", 8)


def test_temperature_divides_maxsim(base, tmp_path):
    from sentence_transformers import MultiVectorEncoder

    settings = settings_of(train_temperature=4, train_batch_size=16, **STILL)
    manifest = train_reranker(base, Split(ROWS[:16], []), settings, tmp_path / "m", {}, QUIET, "bm25")
    model = MultiVectorEncoder(str(tmp_path / "m"), device="cpu", local_files_only=True)
    losses = []
    for row in ROWS[:16]:
        passages = model.encode_document([row.positive, *row.negatives])
        positive, negative = (model.similarity(model.encode_query([row.query]), passages)[0] / 4).tolist()
        losses.append(-math.log(math.exp(positive) / (math.exp(positive) + math.exp(negative))))
    assert manifest["final_loss"] == pytest.approx(np.mean(losses), abs=1e-4)


def test_accumulated_batches_move_the_weights_as_one_large_batch_does(base, tmp_path):
    """The loss of mined negatives alone is a mean over rows, so two halves average to the whole."""
    weights = {}
    for batch, accumulation in ((16, 1), (8, 2)):
        out = tmp_path / str(batch)
        settings = settings_of(train_batch_size=batch, train_gradient_accumulation=accumulation)
        manifest = train_retriever(base, Split(ROWS[:32], []), settings, out, {}, QUIET, "bm25")
        assert (manifest["steps"], manifest["batch_size"]) == (2, 16)
        weights[batch] = load_file(out / "model.safetensors")
    for name, value in weights[16].items():
        np.testing.assert_allclose(weights[8][name], value, atol=2e-5, err_msg=name)


def test_patience_ends_a_run_that_gets_no_better(base, tmp_path, monkeypatch):
    """Weights that stay give equal evaluations: the first is the best, the next two are no better.

    A run killed once its last checkpoint is written ends where it did; one killed before it, too.
    """
    settings = settings_of(train_eval_steps=2, train_patience=2, train_epochs=3, **STILL)
    whole = train_retriever(base, SPLIT, settings, tmp_path / "whole", {}, QUIET)
    assert (whole["steps"], whole["stopped_by"], whole["best"]["step"]) == (6, "patience", 2)
    assert list(logged(tmp_path / "whole", "eval_ndcg@10")) == [0, 2, 4, 6]

    class Killed(BaseException):
        pass

    def killed(*arguments, **_):
        if arguments[1][-1]["step"] == 6:
            raise Killed

    monkeypatch.setattr(loop, "write_curves", killed)
    with pytest.raises(Killed):
        train_retriever(base, SPLIT, settings, tmp_path / "cut", {}, QUIET)
    monkeypatch.undo()
    steps: list[int] = []
    resumed = train_retriever(base, SPLIT, settings, tmp_path / "cut", {}, steps.append)
    assert steps == [6]
    different = {"command", "seconds", "resumed_from_step"}
    assert {key for key in whole if whole[key] != resumed[key]} <= different
    for name, value in load_file(tmp_path / "whole" / "model.safetensors").items():
        np.testing.assert_array_equal(load_file(tmp_path / "cut" / "model.safetensors")[name], value)


def test_triplets_choose_the_checkpoint_and_stop(base, tmp_path):
    settings = settings_of(train_eval_steps=2, train_patience=2, train_epochs=3, train_stop_by="triplets", **STILL)
    manifest = train_retriever(base, SPLIT, settings, tmp_path / "m", {}, QUIET, "bm25")
    shares = logged(tmp_path / "m", "eval_accuracy")
    assert (manifest["steps"], manifest["stopped_by"]) == (6, "patience")
    assert manifest["best"] == {"metric": "accuracy", "value": pytest.approx(shares[2]), "step": 2}
    assert list(logged(tmp_path / "m", "eval_ndcg@10")) == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train_warmup_steps": 5}, "--warmup-steps 5 is not less than the 5 steps"),
        ({"train_patience": 1}, "--patience stops by the metric on held-out questions"),
    ],
)
def test_a_schedule_without_effect_is_refused(base, tmp_path, values, message):
    with pytest.raises(UsageError, match=message):
        train_retriever(base, Split(ROWS[:40], []), settings_of(**values), tmp_path / "m", {}, QUIET)
