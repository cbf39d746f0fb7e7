"""The record of how far a run has come."""

import pytest

from biorag.errors import MismatchError
from biorag.indexes.progress import PROGRESS, IndexingProgress, clear_progress, read_progress, write_progress


def test_a_record_comes_back_until_it_is_cleared(tmp_path):
    assert read_progress(tmp_path) == IndexingProgress(0, ())
    write_progress(tmp_path, IndexingProgress(7, ("a", "naïve")))
    assert read_progress(tmp_path) == IndexingProgress(7, ("a", "naïve"))
    clear_progress(tmp_path)
    clear_progress(tmp_path)
    assert read_progress(tmp_path) == IndexingProgress()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "[" * 100_000, '{"done": "x", "batch": []}', '{"done": -1, "batch": []}'),
        *('{"done": 1.5, "batch": []}', '{"done": 1, "batch": [1]}', '{"done": 1, "batch": [], "more": 2}'),
    ],
)
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / PROGRESS).write_text(text)
    with pytest.raises(MismatchError, match=r"progress\.json is damaged \(.*\): delete it"):
        read_progress(tmp_path)
