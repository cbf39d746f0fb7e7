"""Usable cores: affinity and CPU quotas, in made-up trees of control groups."""

import os
from pathlib import Path

import pytest

from biorag.utils.cores import usable_cores, visible_gpus

AFFINITY = 4


@pytest.fixture(autouse=True)
def affinity(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(AFFINITY)), raising=False)


def test_visible_gpus_are_those_named_or_all(tmp_path, monkeypatch):
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus(tmp_path) == ["0", "2", "10"]
    for named, gpus in {"1, GPU-8932": ["1", "GPU-8932"], "": []}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert visible_gpus(tmp_path) == gpus


def write(root: Path, version: int, path: str, quotas: dict[str, tuple[object, int]]) -> tuple[Path, Path]:
    """Write control groups, each with quota and period in microseconds, and a process in one; return proc and mount."""
    (root / "proc" / "self").mkdir(parents=True)
    line = f"0::{path}\n" if version == 2 else f"5:memory:/other\n4:cpu,cpuacct:{path}\n0::/\n"
    (root / "proc" / "self" / "cgroup").write_text(line)
    for group, (quota, period) in quotas.items():
        folder = root / "sys" / ("cpu" if version == 1 else "") / group
        folder.mkdir(parents=True, exist_ok=True)
        if version == 2:
            (folder / "cpu.max").write_text(f"{quota} {period}\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{-1 if quota == 'max' else quota}\n")
            (folder / "cpu.cfs_period_us").write_text(f"{period}\n")
    return root / "proc", root / "sys"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("path", "quotas", "cores"),
    [
        ("/", {}, AFFINITY),
        ("/", {"": (300_000, 100_000)}, 3),
        ("/", {"": (150_000, 100_000)}, 1),
        ("/job/step", {"job": (200_000, 100_000), "job/step": ("max", 100_000)}, 2),
        ("/job/step", {"job": (300_000, 100_000), "job/step": (100_000, 100_000)}, 1),
        ("/not/seen/here", {"": (200_000, 100_000)}, 2),
    ],
)
def test_cores_are_the_least_of_affinity_and_quotas(tmp_path, version, path, quotas, cores):
    assert usable_cores(*write(tmp_path, version, path, quotas)) == cores


def test_without_control_groups_the_affinity_counts(tmp_path):
    assert usable_cores(tmp_path, tmp_path) == AFFINITY
