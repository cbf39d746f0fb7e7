"""The record of how far a run has come."""

import pytest

from biorag.errors import MismatchError
from biorag.indexes.progress import (
    PROGRESS,
    IndexingProgress,
    clear_progress,
    read_progress,
    shortfall,
    write_progress,
)


def test_a_record_comes_back_until_it_is_cleared(tmp_path):
    nothing, some = IndexingProgress(0, (), {}), IndexingProgress(7, ("a#0", "naïve"), {"a": "corpus.jsonl"})
    assert read_progress(tmp_path) == nothing
    write_progress(tmp_path, some)
    assert read_progress(tmp_path) == some
    clear_progress(tmp_path)
    clear_progress(tmp_path)
    assert read_progress(tmp_path) == nothing


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"done": -1, "batch": [], "torn": {}}', '{"done": 1}'])
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / PROGRESS).write_text(text)
    with pytest.raises(MismatchError, match=r"progress\.json is damaged \(.*\): delete it"):
        read_progress(tmp_path)


def test_an_incomplete_index_says_what_it_lacks(tmp_path):
    assert shortfall(tmp_path) == "its last indexing run was interrupted: run the same command again"
    write_progress(tmp_path, IndexingProgress(0, (), dict.fromkeys("edcba", "x.jsonl") | {"f": "y.xml"}))
    assert shortfall(tmp_path) == "6 documents are torn (a, b, c and 3 more): index x.jsonl, y.xml again"
    (tmp_path / PROGRESS).write_text("{")
    assert "progress.json is damaged" in shortfall(tmp_path)
