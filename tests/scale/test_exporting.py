"""An export against the direct way: the same documents, deletions, sample, statistics, rejects; no file read twice."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from random import Random

import numpy as np
import pytest

from biorag.corpus.blocks import WHOLE
from biorag.corpus.rejects import RejectsFile
from biorag.errors import BadInputError, MismatchError, MissingError
from biorag.indexes.surveying import SAMPLE, survey
from biorag.indexes.writing import surveyed_changes
from biorag.scale import sources as reading
from biorag.scale.parquet import read_table
from biorag.scale.snippet_folder import SOURCES, SnippetFolder
from biorag.scale.sources import HELD, ROW_COLUMNS, TALLY
from biorag.types import Deletion
from tests.scale.stages import BLOCKS, Pipeline, files_of, random_file


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """The names of the files that are read, as they are read."""
    names: list[str] = []
    original = reading.read_changes

    def read_changes(source, *arguments):
        names.append(source.path.name)
        return original(source, *arguments)

    monkeypatch.setattr(reading, "read_changes", read_changes)
    return names


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
    monkeypatch.setattr(reading, "PART_ROWS", 1 + seed % 5)
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


def test_the_sample_is_the_surveys_where_the_corpus_is_larger(tmp_path, lines):
    paths = [
        lines(f"{number}.jsonl", *((f"{number}-{row}", f"text {row}") for row in range(SAMPLE))) for number in range(2)
    ]
    paths.append(lines("2.jsonl", ("0-1", "text 1"), ("1-7", "other text")))
    expected = survey(files_of(paths).sources, None, lambda count: None).sample
    Pipeline(tmp_path).export(*paths)
    sample = SnippetFolder(tmp_path / "snippets", {}).sample()
    assert len(sample) == SAMPLE
    assert sample == list(expected), "in one order, for a projection is fitted to it"


# --- again


def test_a_second_export_reads_the_new_files_alone(tmp_path, read):
    draw = Random(7)
    pipeline = Pipeline(tmp_path)
    paths = [random_file(draw, tmp_path / f"{number}") for number in range(4)]
    pipeline.export(*paths[:2])
    assert read == [path.name for path in paths[:2]]
    pipeline.export(*paths)
    assert read == [path.name for path in paths]
    grown = documents(pipeline.snippets)
    pipeline.export(*paths)
    assert read == [path.name for path in paths]
    fresh = Pipeline(tmp_path / "fresh")
    assert fresh.export(*paths) == SnippetFolder(pipeline.snippets, {}).export()
    assert documents(fresh.snippets) == grown == documents(pipeline.snippets)


def test_what_is_read_otherwise_is_refused_or_read_again(tmp_path, lines, read):
    path = lines("1.jsonl", ("a", "x"))
    Pipeline(tmp_path).export(path)
    with pytest.raises(MismatchError, match="was made with other blocks: choose another --out"):
        Pipeline(tmp_path, blocks=True).export(path)
    Pipeline(tmp_path).export(path, skips=True)
    assert read == ["1.jsonl", "1.jsonl"], "a file whose bad lines are skipped is another reading"


# --- rejects and faults of the corpus


def test_a_bad_line_stops_and_the_fixed_file_alone_is_read_again(tmp_path, lines, read):
    good, bad = lines("1.jsonl", ("a", "x")), lines("2.jsonl", ("b", "y"))
    bad.write_text(bad.read_text() + "nonsense\n")
    pipeline = Pipeline(tmp_path)
    with pytest.raises(BadInputError, match=r"2.jsonl, line 2: not JSON .* skip it with --on-bad-line skip"):
        pipeline.export(good, bad)
    with pytest.raises(MissingError, match="is not finished"):
        SnippetFolder(pipeline.snippets, {}).export()
    bad.write_text(bad.read_text().replace("nonsense\n", ""))
    assert pipeline.export(good, bad).rows == 2
    assert read == ["1.jsonl", "2.jsonl", "2.jsonl"]


# --- kills and damage


KILLED = """
import os, sys
from pathlib import Path
from biorag.scale import exporting, sources
from tests.scale.stages import Pipeline

folder, paths = Path(sys.argv[1]), [Path(path) for path in sys.argv[2:]]
for name, owner, call in (("row", sources, "write_table"), ("tally", sources.np, "savez"),
                          ("part", exporting, "link_or_copy"), ("deletions", exporting, "write_table")):
    pid = os.fork()
    if not pid:
        original, calls = getattr(owner, call), []
        def second(*arguments, **options):
            calls.append(1)
            if len(calls) == 2:
                os.kill(os.getpid(), 9)
            return original(*arguments, **options)
        setattr(owner, call, second)
        Pipeline(folder / name).export(*paths)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 9, name
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, list[Path]]:
    """Exports that were killed, by the place where, and the files that they are of."""
    folder = tmp_path_factory.mktemp("killed")
    paths = [folder / f"{number}.jsonl" for number in range(4)]
    for number, path in enumerate(paths):
        rows = [{"id": id, "content": f"text {number}"} for id in ("a" if number < 2 else f"c{number}", f"b{number}")]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [sys.executable, "-c", KILLED, str(folder), *map(str, paths)]
    subprocess.run(words, check=True, cwd=Path(__file__).parents[2])
    return folder, paths


@pytest.mark.parametrize(("place", "before"), [("row", 0), ("tally", 1), ("part", 4), ("deletions", 4)])
def test_a_killed_export_resumes(tmp_path, killed, read, place, before):
    top, paths = killed
    pipeline = Pipeline(top / place)
    with pytest.raises(MissingError, match="is not finished: run 'biorag corpus export"):
        SnippetFolder(pipeline.snippets, {}).export()
    export = pipeline.export(*paths)
    assert len(read) == len(paths) - before, "a file whose reading was finished is not read again"
    assert export == Pipeline(tmp_path).export(*paths)
    assert documents(pipeline.snippets) == documents(tmp_path / "snippets")
    assert [path for path in pipeline.snippets.rglob(".*")] == []


@pytest.mark.parametrize("damage", ["torn tally", "no tally", "torn record", "no rows", "fewer rows", "torn rows"])
def test_what_was_kept_of_a_file_and_is_damaged_is_read_again(tmp_path, lines, read, damage):
    path = lines("1.jsonl", ("a", "x"), ("b", "y"))
    pipeline = Pipeline(tmp_path)
    expected = pipeline.export(path)
    (place,) = (pipeline.snippets / SOURCES).iterdir()
    rows = place / "rows-00000.parquet"
    if damage == "torn tally":
        (place / TALLY).write_bytes((place / TALLY).read_bytes()[:-40])
    elif damage == "no tally":
        np.savez(place / TALLY, other=np.arange(2))
    elif damage == "torn record":
        (place / HELD).write_text("{")
    elif damage == "no rows":
        rows.unlink()
    elif damage == "fewer rows":
        reading.write_table(rows, read_table(rows, ROW_COLUMNS).slice(1))
    else:
        rows.write_bytes(rows.read_bytes()[:-9])
    assert pipeline.export(path) == expected
    assert read == ["1.jsonl", "1.jsonl"]
    assert [blocks[0].content for blocks in documents(pipeline.snippets)] == ["x", "y"]


def test_a_part_of_another_export_is_refused(tmp_path, lines):
    pipeline = Pipeline(tmp_path)
    pipeline.export(lines("1.jsonl", ("a", "x"), ("b", "y")))
    other = Pipeline(tmp_path / "other")
    other.export(lines("2.jsonl", ("c", "x")))
    shutil.copy(other.snippets / "part-00000-00000.parquet", pipeline.snippets)
    with pytest.raises(MismatchError, match=r"part-00000-00000.parquet is of another export"):
        documents(pipeline.snippets)


# --- other people's folders, and other processes
