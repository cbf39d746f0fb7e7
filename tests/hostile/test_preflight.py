"""GGUF files tried out in a process of their own: once for each state of a file; a crash there is not ours."""

from __future__ import annotations

import os

import pytest

from biorag.errors import MissingError
from biorag.generators import preflight
from tests.hostile.tiny_gguf import STRING, Typed, tiny_llama

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.slow


def test_a_whole_model_is_tried_once_for_as_long_as_it_stays_as_it_is(tmp_path, monkeypatch):
    path, ran = tiny_llama().write(tmp_path / "tiny.gguf"), []
    whole = preflight._run
    monkeypatch.setattr(preflight, "_run", lambda path: ran.append(path) or whole(path))
    for _ in range(2):
        preflight.try_out(path, tmp_path / "trials")
    assert ran == [path]
    os.utime(path, ns=(0, 0))
    preflight.try_out(path, tmp_path / "trials")
    assert len(ran) == 2


def test_a_model_that_ends_its_process_is_refused_each_time_and_not_recorded(tmp_path):
    path = tiny_llama().keyed(tokenizer__ggml__tokens=Typed(STRING, ["a"] * 259)).write(tmp_path / "broken.gguf")
    for _ in range(2):
        with pytest.raises(MissingError, match=r"llama\.cpp fails at .*broken\.gguf \(SIGABRT\)"):
            preflight.try_out(path, tmp_path / "trials")
    assert not (tmp_path / "trials").exists()
