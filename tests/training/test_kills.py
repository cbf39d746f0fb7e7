"""Checkpoints by time: what kills at any moment cost, and that they change no weight; a step takes a minute here."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from biorag.models.finding import ModelFiles, find_encoder
from biorag.settings.settings import Settings
from biorag.training import loop
from biorag.training.data import Split
from tests.cli import SECONDS, forked
from tests.tiny_t5 import write_tiny_t5
from tests.training.trainers import (
    QUIET,
    READING_ROWS,
    ROWS,
    train_cross_encoder,
    train_question_generator,
    train_reader,
    train_reranker,
    train_retriever,
)

pytestmark = pytest.mark.models

INTERVAL, STEPS = 3, 90
SPLIT = Split(ROWS[:40], ROWS[80:84])
SETTINGS = Settings.of(
    precision="fp32",
    train_batch_size=4,
    train_max_tokens=16,
    train_query_tokens=8,
    train_learning_rate=1e-3,
    train_max_steps=STEPS,
    train_eval_steps=45,
    train_checkpoint_minutes=INTERVAL,
)


def clocked(seconds) -> SimpleNamespace:
    """Return the module `time` with another clock."""
    return SimpleNamespace(monotonic=seconds, perf_counter=time.perf_counter)


def steps_in(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def train_and_tell(files: ModelFiles, out: Path, told: Path, last: int | None) -> None:
    """Train in a process of its own; the file has a byte for each step since the start, which its name has.

    After the step `last` it waits to be killed.
    """
    steps = 0

    def on_progress(count: int) -> None:
        nonlocal steps, told
        if not steps:
            told = told.with_name(f"{told.name}-{count}")
        steps += 1
        with told.open("ab") as stream:
            stream.write(b"." if steps > 1 else b"")
        if steps - 1 == last:
            time.sleep(SECONDS)

    loop.time = clocked(lambda: 60.0 * steps)
    train_retriever(files, SPLIT, SETTINGS, out, {}, on_progress)


def wait_until(process, happened) -> None:
    end = time.monotonic() + SECONDS
    while not happened():
        assert process.is_alive() and time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_kills_at_random_moments_cost_at_most_the_interval_and_change_nothing(kills, tiny_encoder, tmp_path):
    """By SIGKILL, a random number of steps and milliseconds after each start: also while a checkpoint is written.

    The first kill comes two steps after a checkpoint, however fast the machine is.
    """
    files, draw, out = find_encoder(str(tiny_encoder)), Random(7), tmp_path / "cut"
    reached, lost = 0, []
    for number in range(kills):
        last = None if number else 4
        process = forked(train_and_tell, files, out, tmp_path / f"{number}", last)
        wait_until(process, lambda number=number: list(tmp_path.glob(f"{number}-*")))
        (told,) = tmp_path.glob(f"{number}-*")
        started = int(told.name.partition("-")[2])
        lost.append(reached - started)
        wanted = last or draw.randint(1, 6)
        wait_until(process, lambda told=told, wanted=wanted: steps_in(told) >= wanted)
        time.sleep(draw.random() * 0.05)
        process.kill()
        process.join()
        reached = started + steps_in(told)
        assert len(list((out / "checkpoints").glob("checkpoint-*"))) <= 4, "best, newest, one unfinished, one to go"
    assert lost[1] == 2
    assert min(lost) >= 0 and 0 < max(lost) <= INTERVAL
    assert reached < STEPS
    resumed = train_retriever(files, SPLIT, SETTINGS, out, {}, QUIET)
    whole = train_retriever(files, SPLIT, SETTINGS, tmp_path / "whole", {}, QUIET)
    assert resumed["best"] == pytest.approx(whole["best"], abs=1e-3)
    assert 0 <= reached - resumed["resumed_from_step"] <= INTERVAL
    same_weights(tmp_path)


def same_weights(folder: Path) -> None:
    """Up to the order in which a processor's kernels add; a step that is lost or repeated moves a weight by 1e-3."""
    whole, cut = (load_file(folder / name / "model.safetensors") for name in ("whole", "cut"))
    for name, value in whole.items():
        np.testing.assert_allclose(cut[name], value, rtol=0, atol=1e-5, err_msg=name)


class Killed(BaseException):
    pass


KINDS = {  # beside those with LoRA, of test_decoder and test_generator_training
    "reranker": train_reranker,
    "cross-encoder": lambda *given: train_cross_encoder(*given, "bm25"),
    "question generator": train_question_generator,
    "reader": lambda files, split, *given: train_reader(files, READING, *given),
}
READING = Split(READING_ROWS[:60], READING_ROWS[60:80])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_resumes_from_the_last_checkpoint(kind, tiny_encoder, tmp_path, monkeypatch):
    base = write_tiny_t5(tmp_path / "t5") if kind == "question generator" else tiny_encoder
    files, settings, done = find_encoder(str(base)), SETTINGS.replace(train_max_steps=9, train_eval_steps=9), []
    monkeypatch.setattr(loop, "time", clocked(lambda: 60.0 * len(done)))

    def die(count: int) -> None:
        done.append(count)
        if len(done) == 9:  # the start is told first
            raise Killed

    train = KINDS[kind]
    with pytest.raises(Killed):
        train(files, SPLIT, settings, tmp_path / "cut", {}, die)
    assert train(files, SPLIT, settings, tmp_path / "cut", {}, QUIET)["resumed_from_step"] == 5, "of 2, 5, 8"
    train(files, SPLIT, settings, tmp_path / "whole", {}, QUIET)
    same_weights(tmp_path)
