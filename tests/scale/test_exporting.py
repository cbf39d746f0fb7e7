"""An export against the direct way: the same documents, deletions, sample, statistics, rejects; no file read twice."""

from __future__ import annotations

import gzip
import json
import logging
import os
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
from biorag.errors import BadInputError, MismatchError, MissingError, ServiceError
from biorag.indexes.surveying import SAMPLE, survey
from biorag.indexes.writing import surveyed_changes
from biorag.scale import sources as reading
from biorag.scale.parquet import read_table
from biorag.scale.snippet_folder import SOURCES, SnippetFolder
from biorag.scale.sources import HELD, ROW_COLUMNS, TALLY
from biorag.types import Deletion
from biorag.utils.locks import DirectoryLock
from tests.pubmed_records import article, deletions, file_of
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


def test_fewer_files_leave_no_part_of_the_others(tmp_path, lines, read):
    one, two = lines("1.jsonl", ("a", "x"), ("b", "y")), lines("2.jsonl", ("b", "z"), ("c", "z"))
    pipeline = Pipeline(tmp_path)
    pipeline.export(one, two)
    pipeline.export(one)
    assert [[snippet.content for snippet in blocks] for blocks in documents(pipeline.snippets)] == [["x"], ["y"]]
    assert sorted(path.name for path in pipeline.snippets.iterdir()) == [
        "deletions.parquet",
        "export.json",
        "part-00000-00000.parquet",
        "sample.parquet",
        "sources",
    ]
    pipeline.export(two, one)
    assert [blocks[0].content for blocks in documents(pipeline.snippets)] == ["z", "x", "y"]
    assert read == ["1.jsonl", "2.jsonl"]


def test_a_file_that_was_moved_is_not_read_again_and_is_called_as_now(tmp_path, lines, read):
    (tmp_path / "other").mkdir()
    first, moved = lines("1.jsonl", ("a", "x")), tmp_path / "other" / "1.jsonl"
    with first.open("a") as stream:
        stream.write("{}\n")
    pipeline = Pipeline(tmp_path)
    pipeline.export(first, rejects=RejectsFile(tmp_path / "rejects.jsonl"))
    first.rename(moved)
    export = pipeline.export(moved, rejects=RejectsFile(tmp_path / "rejects.jsonl"))
    assert read == ["1.jsonl"]
    assert [source.record.name for source in export.sources] == [str(moved)]
    assert json.loads((tmp_path / "rejects.jsonl").read_text())["file"] == str(moved)


def test_the_same_file_twice_is_read_once(tmp_path, lines, read):
    path = lines("1.jsonl", ("a", "x"), ("b", "y"))
    export = Pipeline(tmp_path).export(path, path)
    assert (export.rows, export.duplicates, read) == (2, 2, ["1.jsonl"])


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


def test_damaged_gzip_stops_or_is_rejected_with_what_precedes_it(tmp_path):
    whole = gzip.compress(file_of(*(article(pmid, f"T{pmid}.", os.urandom(200).hex()) for pmid in range(1, 400))))
    path = tmp_path / "pubmed.xml.gz"
    path.write_bytes(whole[: len(whole) // 2])
    pipeline = Pipeline(tmp_path)
    with pytest.raises(BadInputError, match=r"pubmed.xml.gz, line \d+: damaged or truncated gzip"):
        pipeline.export(path)
    expected, found = (RejectsFile(tmp_path / name) for name in ("a.jsonl", "b.jsonl"))
    surveyed = survey(files_of([path]).sources, expected, lambda count: None)
    for _ in range(2):  # read, and as it was read
        assert pipeline.export(path, rejects=found).rows == surveyed.snippets > 10
        assert found.damaged == expected.damaged
        assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
        found = RejectsFile(tmp_path / "b.jsonl")


def test_a_corpus_without_snippets_is_refused(tmp_path, lines):
    (tmp_path / "deletions.xml").write_bytes(file_of(deletions(1, 2)))
    for path in (lines("empty.jsonl"), tmp_path / "deletions.xml"):
        with pytest.raises(BadInputError, match="holds no snippet"):
            Pipeline(tmp_path).export(path)


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


@pytest.mark.parametrize("name", ["part-00000-00000.parquet", "sample.parquet", "deletions.parquet"])
def test_damaged_files_of_an_export_are_named(tmp_path, lines, name):
    Pipeline(tmp_path).export(lines("1.jsonl", ("a", "x")))
    path = tmp_path / "snippets" / name
    path.write_bytes(path.read_bytes()[:-20])
    folder = SnippetFolder(tmp_path / "snippets", {})
    with pytest.raises(MismatchError, match=rf"{name} is damaged \(.*\): delete"):
        _ = documents(folder.path), folder.sample(), folder.changed_documents()


def test_a_part_of_another_export_is_refused(tmp_path, lines):
    pipeline = Pipeline(tmp_path)
    pipeline.export(lines("1.jsonl", ("a", "x"), ("b", "y")))
    other = Pipeline(tmp_path / "other")
    other.export(lines("2.jsonl", ("c", "x")))
    shutil.copy(other.snippets / "part-00000-00000.parquet", pipeline.snippets)
    with pytest.raises(MismatchError, match=r"part-00000-00000.parquet is of another export"):
        documents(pipeline.snippets)


@pytest.mark.parametrize(
    "change",
    [
        {"parts": [{"name": "../../secret.parquet", "rows": 1, "source": 0}]},
        {"parts": [{"name": "part-00000-00000.parquet\n", "rows": 1, "source": 0}]},
        {"parts": [{"name": "part-00000-00000.parquet", "rows": 1, "source": 1}]},
        {"parts": [{"name": "part-00000-00000.parquet", "rows": -1, "source": 0}]},
        {"parts": {"name": 1}},
        {"sources": [{"record": {}, "incremental": False}]},
        {"avg_len": "long"},
        {"blocks": {"tokens": 0, "overlap": 0}},
        {"more": 1},
    ],
)
def test_a_manifest_that_is_not_an_exports_is_refused(tmp_path, lines, change):
    Pipeline(tmp_path).export(lines("1.jsonl", ("a", "x")))
    manifest = tmp_path / "snippets" / "export.json"
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**values, "export": {**values["export"], **change}}))
    with pytest.raises(MismatchError, match=r"export.json is damaged"):
        SnippetFolder(tmp_path / "snippets", {}).export()


@pytest.mark.parametrize("content", ["", "[]", "null", '{"complete": true}', '{"complete": true, "identity": {}}'])
def test_a_manifest_that_lacks_its_parts_is_refused(tmp_path, content):
    (tmp_path / "export.json").write_text(content)
    with pytest.raises(MismatchError, match=r"export.json is damaged"):
        SnippetFolder(tmp_path, {}).export()


# --- other people's folders, and other processes


def test_a_folder_of_other_files_is_left_alone(tmp_path, lines):
    path = lines("1.jsonl", ("a", "x"))
    (tmp_path / "snippets").mkdir()
    (tmp_path / "snippets" / "part-1.parquet").write_text("mine")
    with pytest.raises(MismatchError, match="holds something other than a folder of exported snippets"):
        Pipeline(tmp_path).export(path)
    assert [path.name for path in (tmp_path / "snippets").iterdir()] == ["part-1.parquet"]


def test_hidden_files_behind_a_link_are_not_removed(tmp_path, lines):
    path = lines("1.jsonl", ("a", "x"))
    pipeline = Pipeline(tmp_path)
    pipeline.export(path)
    home = tmp_path / "somebody"
    (home / ".ssh").mkdir(parents=True)
    shutil.rmtree(pipeline.snippets / SOURCES)
    (pipeline.snippets / SOURCES).symlink_to(home)
    pipeline.export(path)
    assert (home / ".ssh").is_dir()


def test_two_exports_at_once_do_not_mix(tmp_path, lines):
    path = lines("1.jsonl", ("a", "x"))
    with (
        DirectoryLock(tmp_path / "snippets", exclusive=True),
        pytest.raises(ServiceError, match="folder of exported snippets 'snippets' is being written by process"),
    ):
        Pipeline(tmp_path).export(path)
