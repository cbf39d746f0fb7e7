"""Two experts of the tiny encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
from merging_experts import changed


@pytest.fixture
def experts(tmp_path, tiny_encoder) -> list[Path]:
    """Two encoders trained from the tiny one, as it were."""
    return [changed(tiny_encoder, tmp_path / name, seed) for seed, name in enumerate(("one", "two"))]
