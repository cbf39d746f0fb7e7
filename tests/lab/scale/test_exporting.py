"""The folder of an export: whole after a killed one, and with the files of others left in it."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from biorag.errors import MismatchError, MissingError
from biorag.lab.scale import snippet_folder
from biorag.lab.scale.snippet_folder import SnippetFolder
from tests.lab.scale.stages import Pipeline


def documents(folder: Path) -> list[list]:
    """The documents of an export, in its order, each as its blocks."""
    export = SnippetFolder(folder, {})
    return list(chain.from_iterable(export.documents(part) for part in export.export().parts))


@pytest.fixture
def lines(tmp_path):
    """Write JSON Lines of these ids and texts."""

    def write(name: str, *rows: tuple[str, str]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps({"id": id, "content": text}) + "\n" for id, text in rows))
        return path

    return write


def test_a_killed_export_is_not_finished_and_the_next_one_is_whole(tmp_path, lines, monkeypatch):
    paths = [lines(f"{number}.jsonl", ("a", "x"), (f"b{number}", "y")) for number in range(3)]
    pipeline = Pipeline(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(snippet_folder, "write_table", lambda path, table: 1 / 0 if "00001" in path.name else None)
        with pytest.raises(ZeroDivisionError):
            pipeline.export(*paths)
    with pytest.raises(MissingError, match="is not finished: run 'biorag corpus export"):
        SnippetFolder(pipeline.snippets, {}).export()
    (pipeline.snippets / ".part-00000-00000.parquet.0123456789abcdef").write_text("half")
    fresh = Pipeline(tmp_path / "fresh")
    assert pipeline.export(*paths) == fresh.export(*paths)
    assert documents(pipeline.snippets) == documents(fresh.snippets)
    assert list(pipeline.snippets.rglob(".*")) == []


@pytest.mark.parametrize("name", ["part-mine.parquet", "part-00009-00009.parquet", ".part-x.parquet.mine"])
def test_the_parts_of_the_export_before_go_and_files_of_others_stay(tmp_path, lines, name):
    pipeline = Pipeline(tmp_path)
    pipeline.export(lines("0.jsonl", ("a", "x")), lines("1.jsonl", ("b", "y")))
    (pipeline.snippets / name).write_text("a user's")
    pipeline.export(lines("2.jsonl", ("c", "z")))
    assert (pipeline.snippets / name).read_text() == "a user's"
    assert [path.name for path in pipeline.snippets.glob("part-0000*-0000[0-8].parquet")] == [
        "part-00000-00000.parquet"
    ]
    (pipeline.snippets / "part-00000-00000.parquet").write_text("a user's")
    with pytest.raises(MismatchError, match="biorag did not write it"):
        pipeline.export(lines("3.jsonl", ("d", "z")))
    assert (pipeline.snippets / "part-00000-00000.parquet").read_text() == "a user's"
