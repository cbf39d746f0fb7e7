"""What an extra of biorag still lacks."""

from __future__ import annotations

import pytest

from biorag.utils import versions


def test_lacking_names_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        "numpy>=1",
        "pytest>=1; extra == 'train'",
        "no-such-package>=2; extra == 'train'",
        "other; extra == 'hub'",
    ]
    monkeypatch.setattr(versions, "requires", lambda name: wanted)
    assert versions.lacking("train") == ["no-such-package"]
    assert versions.lacking("bench") == []


def test_extras_of_this_environment_are_whole() -> None:
    assert versions.lacking("dev") == []
