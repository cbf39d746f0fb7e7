"""A panic of Rust code, which is no Exception in Python, ends a command as its errors do."""

from __future__ import annotations

import pytest

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


def test_what_is_no_panic_goes_on(monkeypatch, tmp_path):
    def leaves(*_: object) -> None:
        raise GeneratorExit("another one")

    monkeypatch.setattr("biorag.indexes.store.Store.require_manifest", leaves)
    with pytest.raises(GeneratorExit):
        invoke("search", "fever", home=tmp_path)
