"""GGUF files tried out elsewhere: once for each state of a file, and its end is not ours."""

from __future__ import annotations

import os

import pytest

from biorag.errors import MissingError
from biorag.generators import preflight
from tests.hostile.tiny_gguf import STRING, Typed, tiny_llama

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.slow
BROKEN = tiny_llama().keyed(tokenizer__ggml__tokens=Typed(STRING, ["a"] * 259))


def test_a_whole_model_is_tried_once_for_as_long_as_it_stays_as_it_is(tmp_path, monkeypatch):
    path, ran = tiny_llama().write(tmp_path / "tiny.gguf"), []
    whole = preflight._run
    monkeypatch.setattr(preflight, "_run", lambda path: ran.append(path) or whole(path))
    preflight.try_out(path, tmp_path / "trials")
    preflight.try_out(path, tmp_path / "trials")
    assert ran == [path]
    os.utime(path, ns=(0, 0))
    preflight.try_out(path, tmp_path / "trials")
    assert len(ran) == 2
    monkeypatch.setattr(preflight, "version", lambda package: "another")
    preflight.try_out(path, tmp_path / "trials")
    assert len(ran) == 3, "another llama.cpp may end otherwise"


def test_a_model_that_ends_its_process_is_refused_each_time_and_not_recorded(tmp_path, capfd):
    path = BROKEN.write(tmp_path / "broken.gguf")
    for _ in range(2):
        with pytest.raises(MissingError, match=r"llama\.cpp fails at .*broken\.gguf \(SIGABRT\)"):
            preflight.try_out(path, tmp_path / "trials")
    assert not (tmp_path / "trials").exists()
    assert "ggml_print_backtrace" not in capfd.readouterr().err, "no debugger is started"


def test_a_model_that_takes_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "TRIAL_SECONDS", 0.01)
    with pytest.raises(MissingError, match=r"did not load within 0\.01 seconds"):
        preflight.try_out(tiny_llama().write(tmp_path / "tiny.gguf"), tmp_path / "trials")


def test_a_folder_of_records_that_cannot_be_written_is_warned_of(tmp_path, caplog):
    (tmp_path / "trials").write_text("a file")
    preflight.try_out(tiny_llama().write(tmp_path / "tiny.gguf"), tmp_path / "trials")
    assert "cannot be recorded" in caplog.text
