"""Several processes that train one model: they share a batch, and the first one alone writes and prints."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.utils.data import DataLoader
from transformers import TrainerState
from typer.testing import CliRunner

from biorag.cli import app
from biorag.settings.training import TrainingSettings
from biorag.training.loop import _Watcher
from biorag.training.run_directory import TrainingRun
from tests.cli import start
from tests.conftest import WORDS

pytestmark = pytest.mark.models

COUPLES = [(one, other) for one in WORDS for other in WORDS if one != other][:36]
MINED = [
    {"query": f"{one} and {other}?", "positive": f"{one} heals the {other}.", "negative": f"{other} hurts {one}."}
    for one, other in COUPLES
]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
OPTIONS = ["--precision", "fp32", "--max-tokens", "32", "--validation", "0", "--evaluations", "2"]
OPTIONS += ["--learning-rate", "0.001"]


@pytest.fixture
def arguments(tmp_path, tiny_encoder):
    """Rows, and a base without dropout, which processes would draw differently."""
    from shutil import copytree

    base = copytree(tiny_encoder, tmp_path / "base")
    said = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(
        json.dumps(said | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    )
    rows = tmp_path / "rows.jsonl"
    seconds = [{"negative_2": f"{row['negative']} Not so."} if number % 3 else {} for number, row in enumerate(MINED)]
    listed = [json.dumps(row | second) + "\n" for row, second in zip(MINED[:32], seconds[:32], strict=True)]
    rows.write_text("".join(listed))
    return ["train", "retriever", str(rows), "--base", str(base), *OPTIONS]


@pytest.mark.long
def test_two_processes_train_as_one_does_with_twice_the_batch(arguments, tmp_path):
    """Rows have one or two negatives, which count for their own row alone; the first process says when to save."""
    out = tmp_path / "two"
    arguments = [*arguments, "--hard-negatives", "2", "--in-batch", "positives", "--checkpoint-minutes", "1e-6"]
    command = [*TORCHRUN, "-m", "biorag", *arguments, "--batch-size", "4", "--out", str(out), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    assert (said["processes"], said["batch_size"], said["steps"]) == (2, 8, 4)
    assert json.loads((out / TrainingRun.manifest_name).read_text()) == {
        key: value for key, value in said.items() if key != "out"
    }
    assert found.stderr.count("trained") == 1, "what it takes is told once"
    assert {path.name for path in out.iterdir()} >= {"modules.json", "curves.csv", "curves.png"}
    assert not {path.name for path in out.iterdir()} & {"checkpoints", "lock", "rows"}

    alone = ["--batch-size", "8", "--out", str(tmp_path / "one"), "--json"]
    one = json.loads(CliRunner().invoke(app, [*arguments, *alone]).stdout)
    assert (one["processes"], one["batch_size"], one["steps"]) == (1, 8, 4)
    for name, (ours, theirs) in tensors(out, tmp_path / "one").items():
        np.testing.assert_allclose(ours, theirs, atol=1e-6, err_msg=name)


def test_two_processes_train_on_a_mixture_as_one_does(arguments, tmp_path):
    """Sets with and without negatives go through the encoder different numbers of times."""
    for name, kept in (("mined", MINED[:16]), ("pairs", MINED[16:32])):
        rows = [{key: row[key] for key in ("query", "positive", "negative")[: 2 + (name == "mined")]} for row in kept]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mixture = tmp_path / "mix.toml"
    mixture.write_text('[[sets]]\nrows = "mined.jsonl"\n[[sets]]\nrows = "pairs.jsonl"\ntask = "Find pairs"\n')
    options = ["--instruct", "bmretriever", "--random-prompts", "10", "--epochs", "2", "--json"]
    arguments = [*arguments[:2], str(mixture), *arguments[3:], *options]
    two = [*arguments, "--batch-size", "2", "--out", tmp_path / "two"]
    shared = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "OMP_NUM_THREADS": 1}
    with ExitStack() as stack:  # as torchrun starts them
        ranks = [stack.enter_context(start(*two, **shared, RANK=rank, LOCAL_RANK=rank)) for rank in range(2)]
        found, _ = ended = [process.communicate() for process in ranks]
    assert [process.code for process in ended] == [0, 0], ended
    out = ["--batch-size", "4", "--out", str(tmp_path / "one")]
    one = json.loads(CliRunner().invoke(app, [*arguments, *out]).stdout)
    assert json.loads(found.stdout)["steps"] == one["steps"] == 2 * (4 + 4)
    for name, (ours, theirs) in tensors(tmp_path / "two", tmp_path / "one").items():
        # Weights move by 0.005; AdamW makes rounding large where a token's gradient is next to nothing.
        assert np.abs(ours - theirs).mean() < 1e-4, name


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


def tensors(folder, other):
    """Return the weights beside another folder's."""
    ours, theirs = (load_file(path / "model.safetensors") for path in (folder, other))
    return {name: (value, theirs[name]) for name, value in ours.items()}


def test_several_processes_go_on_within_an_epoch_with_its_own_batches():
    """What accelerate makes of a sampler on going on is neither the sampler nor its share."""
    from accelerate.data_loader import prepare_data_loader, skip_first_batches
    from datasets import Dataset
    from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

    rows = Dataset.from_dict({"query": [row["query"] for row in MINED]})
    sampler = NoDuplicatesBatchSampler(rows, batch_size=4, drop_last=True, generator=torch.Generator())
    shared = {"num_processes": 2, "process_index": 1, "split_batches": True, "put_on_device": False}
    loader = prepare_data_loader(DataLoader(rows, batch_sampler=sampler, collate_fn=list), **shared)
    first = list(loader)
    sampler.set_epoch(1)
    second = list(loader)
    assert first != second

    sampler.set_epoch(0)  # as it is made
    watcher = _Watcher(Path(), None, lambda _: None, TrainingSettings())
    watcher.on_epoch_begin(None, TrainerState(epoch=1 + 2 / 9), None, train_dataloader=loader)
    rest = skip_first_batches(loader, 2)
    rest.set_epoch(1)
    assert list(rest) == second[2:]
