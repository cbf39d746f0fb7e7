"""An export against the direct way: the same documents, deletions, sample, statistics, rejects; no file read twice."""

from __future__ import annotations

import json
import logging
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from biorag.corpus.blocks import WHOLE
from biorag.corpus.rejects import RejectsFile
from biorag.errors import BadInputError, MismatchError, MissingError
from biorag.indexes.surveying import survey
from biorag.indexes.writing import surveyed_changes
from biorag.lab.scale import snippet_folder
from biorag.lab.scale.snippet_folder import SnippetFolder
from biorag.types import Deletion
from tests.lab.scale.stages import BLOCKS, Pipeline, files_of, random_file


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


# --- against a survey


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed >= 6)) for seed in range(24)])
def test_an_export_is_what_a_direct_run_would_index(tmp_path, caplog, monkeypatch, seed):
    monkeypatch.setattr(snippet_folder, "PART_ROWS", 1 + seed % 5)
    draw = Random(seed)
    blocks, skips = seed % 2 == 1, seed % 3 == 0
    paths = [random_file(draw, tmp_path / f"{number}", skips) for number in range(draw.randint(1, 5))]
    rejects = RejectsFile(tmp_path / "rejects.jsonl") if skips else None
    split = BLOCKS if blocks else WHOLE
    sources = files_of(paths).sources
    pipeline = Pipeline(tmp_path, blocks)
    try:
        expected = survey(sources, rejects, lambda count: None, split)
    except BadInputError as error:
        with pytest.raises(BadInputError) as raised:
            pipeline.export(*paths, rejects=rejects)
        assert str(raised.value) == str(error)
        return
    with caplog.at_level(logging.WARNING):
        incoming = surveyed_changes(sources, expected, (lambda _: None) if skips else None, split)
        winners = list(incoming.winners)
        said = [record.message for record in caplog.records]
        caplog.clear()
        again = RejectsFile(tmp_path / "exported-rejects.jsonl") if skips else None
        export = pipeline.export(*paths, rejects=again)
        assert [record.message for record in caplog.records] == said
    assert documents(pipeline.snippets) == [split(one.change) for one in winners if one.change not in gone(winners)]
    changed = SnippetFolder(pipeline.snippets, {}).changed_documents()
    assert {document.id for document in changed if not document.restored} == {one.id for one in gone(winners)}
    assert {document.id for document in changed if document.restored} == {
        one.change.id for one in winners if one.revived
    }
    names = [source.record.name for source in export.sources]
    assert {(document.id, names[document.source]) for document in changed} <= {
        (one.change.id, one.source) for one in winners
    }
    assert sorted(map(repr, SnippetFolder(pipeline.snippets, {}).sample())) == sorted(map(repr, expected.sample))
    assert tuple(source.record for source in export.sources) == expected.sources
    assert [source.incremental for source in export.sources] == [path.suffix == ".xml" for path in paths]
    assert (export.duplicates, export.rejected) == (len(expected.superseded), expected.rejected)
    assert export.avg_len == expected.avg_len
    assert export.documents + export.deletions == expected.changes == len(winners)
    assert export.rows == sum(map(len, documents(pipeline.snippets)))
    if skips:
        assert (again.count, again.damaged) == (rejects.count, rejects.damaged)
        assert rejects.path.exists() == again.path.exists()
        assert not rejects.count or again.path.read_bytes() == rejects.path.read_bytes()


def gone(winners) -> list[Deletion]:
    return [one.change for one in winners if isinstance(one.change, Deletion)]


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
