"""Random updates with kills, in small what `scripts/faults/update_sequences.py` measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.long]


def test_an_index_that_was_updated_and_killed_at_random_is_as_a_fresh_one(tmp_path):
    """In a process of its own, which forks: the engine's threads must not run in it."""
    arguments = ["--sequences", "4", "--seed", "100", "--out", str(tmp_path / "report.json")]
    done = subprocess.run(
        [sys.executable, "-m", "scripts.faults.update_sequences", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sequences"] == 4
