"""The seeded attacks, in small: each ends with an exit code of ours, one sentence, soon and in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
ATTACKS = sorted(
    path.stem
    for path in (ROOT / "scripts/attacks").glob("*.py")
    if 'if __name__ == "__main__":\n    main("' in path.read_text(encoding="utf-8")
)
CASES = 3  # of each attack; docs/reliability.md has the run of 300


def attacked(name: str, cases: int, folder: Path) -> dict:
    """Run an attack in a process of its own, which forks; return its report."""
    out = folder / "report.json"
    command = [sys.executable, "-m", f"scripts.attacks.{name}", "--cases", str(cases), "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    assert out.exists(), done.stderr
    return json.loads(out.read_bytes())


@pytest.mark.faults
@pytest.mark.parametrize("name", ATTACKS)
def test_every_case_of_an_attack_ends_as_documented(name, tmp_path):
    report = attacked(name, CASES, tmp_path)
    assert report["cases"] == CASES
    assert [(row["name"], row["fault"], row["stderr"]) for row in report["faulty"]] == []
