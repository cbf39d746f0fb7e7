"""What a model takes by its headers against real tensors and llama.cpp's own figures; limits; refusals; lines told."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

from biorag.errors import ServiceError
from biorag.generators.llama import LlamaGenerator
from biorag.models import resources
from biorag.models.finding import find_encoder, find_gguf
from biorag.models.loading import load_model
from tests.cli import invoke
from tests.hostile.tiny_gguf import tiny_llama

pytestmark = pytest.mark.models

MIB = 2**20
LIMITS_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def give(monkeypatch, size: int) -> None:
    monkeypatch.setattr("biorag.models.resources.free_bytes", lambda device="cpu": size)


def refused(result) -> str:
    assert (result.exit_code, result.stdout) == (6, ""), (result.output, result.exception)
    (sentence,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return sentence


@pytest.mark.parametrize(("precision", "width"), [("fp32", 4), ("bf16", 2)])
def test_a_checkpoint_takes_what_its_loaded_tensors_do(tiny_encoder, precision, width):
    files = find_encoder(str(tiny_encoder))
    model = load_model(SentenceTransformer, files, precision)
    assert resources.of_checkpoint(files, width) == resources.Need(
        files.id, sum(weight.numel() * weight.element_size() for weight in model.parameters())
    )


def test_of_a_folder_the_files_that_are_loaded_count(tmp_path):
    """Parts where there is no whole file; not other formats, heads of language models, adapters, runs' checkpoints."""
    kind = "sentence_transformers.models.Dense"
    modules = [{"type": kind, "path": place} for place in ("", "1_Pooling", "2_Dense", "parts")]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    for place in ("adapter", "2_Dense", "parts", "checkpoint-500"):
        (tmp_path / place).mkdir()
    ones = torch.ones(8, 4)
    whole = {"a": ones, "lm_head.weight": ones + 1, "places": torch.ones(5, dtype=torch.int64)}
    save_file(whole, tmp_path / "model.safetensors")
    for name in ("consolidated", "model-00001-of-00002", "adapter/model", "2_Dense/model", "checkpoint-500/model"):
        save_file({"b": ones.half()}, tmp_path / f"{name}.safetensors")
    for part in (1, 2):
        save_file({f"part{part}": ones}, tmp_path / "parts" / f"model-0000{part}-of-00002.safetensors")
    files = find_encoder(str(tmp_path))
    assert sorted(found.name for found in resources.parameters_of(files)) == ["a", "b", "part1", "part2", "places"]
    assert resources.of_checkpoint(files, 2).weights == 4 * 32 * 2 + 5 * 8


def test_a_gguf_takes_what_llama_cpp_says(caplog):
    path = find_gguf("starter")
    for window in (512, 2000, 100_000):
        with caplog.at_level(logging.DEBUG, "biorag.generators.llama"):
            LlamaGenerator(path, window, threads=1)
        said = caplog.text
        caplog.clear()
        cache, compute = (
            float(re.findall(rf"CPU {kind} buffer size\s*=\s*([\d.]+) MiB", said)[-1]) for kind in ("KV", "compute")
        )
        found = resources.of_gguf(path, window)
        assert found.weights == pytest.approx(path.stat().st_size, rel=0.02)
        assert (cache + compute) * MIB <= found.working <= 1.1 * (cache + compute) * MIB


def cgroups(root: Path, version: int, path: str, groups: dict[str, tuple[object, int, int, int]]) -> None:
    """Write control groups, each with limit, usage, and inactive and active cached files, and a process in one."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:  8000 kB\n")
    line = f"0::{path}\n" if version == 2 else f"5:devices:/\n4:memory:{path}\n0::/\n"
    (root / "proc" / "self" / "cgroup").write_text(line)
    names = ("memory.max", "memory.current") if version == 2 else LIMITS_V1
    prefix = "" if version == 2 else "total_"
    for group, (limit, used, inactive, active) in groups.items():
        folder = root / "sys" / ("memory" if version == 1 else "") / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, (limit, used), strict=True):
            (folder / name).write_text(f"{value}\n")
        statistics = (
            f"anon 7\n{prefix}inactive_file {inactive}\n{prefix}active_file {active}\n{prefix}inactive_anon 9\n"
        )
        (folder / "memory.stat").write_text(statistics)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("path", "groups", "free"),
    [
        ("/", {}, 8_192_000),
        ("/", {"": (2**63 - 4096, 1, 0, 0)}, 8_192_000),
        ("/", {"": (5000, 4000, 300, 20)}, 1320),
        ("/job/step", {"job": ("max", 4000, 0, 0), "job/step": (900, 400, 10, 0)}, 510),
        ("/", {"": (700, 800, 0, 0)}, 0),
    ],
)
def test_free_is_the_least_that_system_and_control_groups_leave(tmp_path, monkeypatch, version, path, groups, free):
    cgroups(tmp_path, version, path, groups)
    monkeypatch.setattr(resources, "PROC", tmp_path / "proc")
    monkeypatch.setattr(resources, "CGROUPS", tmp_path / "sys")
    assert resources.free_bytes() == free


def test_a_large_model_is_told_of(monkeypatch, caplog):
    give(monkeypatch, 10 * 2**30)
    with caplog.at_level(logging.INFO, "biorag.models.resources"):
        for need in (resources.Need("small", 2**30 - 1), resources.Need("L", 2**31, 2**29)):
            resources.admit(need, "cpu", "less")
    parts = "2.5 GiB of memory (2.0 GiB of weights, the rest to work with) of 10.0 GiB free"
    assert caplog.messages == [f"L takes {parts}"]
    with pytest.raises(ServiceError, match=r"^L takes 10\.1 GiB of memory and 10\.0 GiB are free: take less, or a "):
        resources.admit(resources.Need("L", 10 * 2**30, 2**27), "cpu", "less")


@pytest.fixture
def nothing_loads(monkeypatch):
    def load(*args, **kwargs):
        raise AssertionError("a model is loaded that does not fit")

    monkeypatch.setattr("sentence_transformers.SentenceTransformer.__init__", load)
    monkeypatch.setattr("llama_cpp.Llama.__init__", load)


def test_an_encoder_that_does_not_fit_is_refused(tmp_path, tiny_encoder, corpus_file, monkeypatch, nothing_loads):
    give(monkeypatch, 1000)
    for precision, lighter in (("fp32", "BIORAG_PRECISION=bf16"), ("bf16", "a smaller one")):
        sentence = refused(invoke("index", corpus_file, "--encoder", tiny_encoder, "--precision", precision))
        assert str(tiny_encoder) in sentence and f"of memory and 0.0 GiB are free: take {lighter}" in sentence
    assert not list((tmp_path / "home").rglob("points*"))


def test_a_generator_that_does_not_fit_is_refused_before_it_is_tried(tmp_path, monkeypatch, nothing_loads):
    path = tiny_llama().write(tmp_path / "tiny.gguf")
    give(monkeypatch, 1000)
    monkeypatch.setattr("biorag.generators.preflight.try_out", lambda *_: pytest.fail("it is tried"))
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(json.dumps({"id": "a", "title": "Fever", "content": "Aspirin lowers fever in most people."}))
    sentence = refused(invoke("generate", "queries", corpus, "--llm", path, "--out", tmp_path / "q.jsonl"))
    assert "tiny.gguf takes" in sentence and "--llm URL" in sentence
