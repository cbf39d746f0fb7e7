"""A panic of Rust code, which is no Exception in Python, ends a command as its errors do."""

from __future__ import annotations

import os
import sys

import pytest

from biorag.utils.panics import PanicError, panics_raised
from tests.cli import failed, invoke

PanicException = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


@pytest.mark.parametrize("debug", [False, True])
def test_a_panic_of_the_engine_is_one_sentence(monkeypatch, tmp_path, debug):
    def panics(*_: object) -> None:
        raise PanicException("index out of bounds: the len is 3 but the index is 7")

    monkeypatch.setattr("biorag.indexes.store.Store.require_manifest", panics)
    result = invoke(*["--debug"] * debug, "search", "fever", home=tmp_path)
    if debug:
        assert (result.exit_code, "Traceback" in result.stderr) == (6, True)
    else:
        failed(result, 6, "the engine failed (index out of bounds", "biorag doctor")


def test_a_panic_is_raised_without_what_rust_prints_and_other_output_is_kept(capfd):
    with pytest.raises(PanicError, match="index out of bounds"), panics_raised():
        os.write(2, b"thread '<unnamed>' panicked at lib.rs:1:2\n")
        raise PanicException("index out of bounds")
    with pytest.raises(ValueError, match="another"), panics_raised():
        os.write(2, b"kept\n")
        raise ValueError("another")
    with panics_raised(), panics_raised():
        sys.stderr.write("and this\n")
    assert capfd.readouterr().err == "kept\nand this\n"
