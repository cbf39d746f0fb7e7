"""The folders of an export and of its vectors: nothing encoded twice, whatever ended a run; files of others stay."""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from biorag.errors import MismatchError, MissingError
from biorag.indexes.bm25 import Bm25Encoder
from biorag.indexes.manifest import Manifest
from biorag.lab.scale import snippet_folder
from biorag.lab.scale.parquet import KEYS, NAMES, read_table
from biorag.lab.scale.snippet_folder import SnippetFolder
from biorag.lab.scale.vectors import StoredVectors, VectorFolder
from biorag.types import Snippet
from tests.fakes import HashEncoder
from tests.lab.scale.stages import Pipeline, write_lines

TEXTS = [(f"d{number}", f"text of number {number}") for number in range(10)]


@pytest.fixture
def pipeline(tmp_path) -> Pipeline:
    """An export of ten snippets in two files."""
    pipeline = Pipeline(tmp_path)
    pipeline.export(*(write_lines(tmp_path / f"{half}.jsonl", *TEXTS[5 * half :][:5]) for half in range(2)))
    return pipeline


def snippets_of(pipeline: Pipeline) -> list[Snippet]:
    folder = SnippetFolder(pipeline.snippets, {})
    return list(chain.from_iterable(chain.from_iterable(map(folder.documents, folder.export().parts))))


def stored(pipeline: Pipeline) -> list[tuple[str, str]]:
    """The id and digest of every vector that is there."""
    tables = [read_table(path, NAMES) for path in VectorFolder(pipeline.vectors, {}).batches()]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def expected(pipeline: Pipeline) -> list[tuple[str, str]]:
    return sorted((snippet.id, snippet.digest) for snippet in snippets_of(pipeline))


def check_vectors(pipeline: Pipeline, manifest: Manifest) -> None:
    """Hold what is looked up against what the encoders give."""
    snippets = snippets_of(pipeline)
    found = StoredVectors(VectorFolder(pipeline.vectors, {}), manifest)(snippets)
    texts = [snippet.contents for snippet in snippets]
    assert found.vectors.tobytes() == HashEncoder().encode_snippets(texts).tobytes()
    bm25 = Bm25Encoder.of(manifest)
    terms = [bm25.document(text) for text in texts]
    assert [list(vector.indices) for vector in found.terms] == [list(vector.indices) for vector in terms]
    assert [list(vector.values) for vector in found.terms] == [
        [float(np.float32(value)) for value in vector.values] for vector in terms
    ]


@pytest.mark.parametrize("batch_size", [1, 3, 5, 65_536])
def test_every_snippet_gets_its_vectors_once(settings, pipeline, batch_size):
    manifest = pipeline.manifest(settings)
    report = pipeline.embed(manifest, batch_size)
    assert (report.snippets, report.encoded, report.unchanged) == (10, 10, 0)
    assert stored(pipeline) == expected(pipeline)
    assert pipeline.load.encoded() == [id for id, _ in TEXTS]
    assert len(VectorFolder(pipeline.vectors, {}).batches()) == 2 * -(-5 // batch_size)
    check_vectors(pipeline, manifest)
    folder = VectorFolder(pipeline.vectors, {})
    assert folder.made() == (manifest, pipeline.snippets.resolve(), True)
    text = folder.manifest.read_text()
    folder.manifest.write_text(text.replace(pipeline.snippets.name, f"{pipeline.snippets.name}\\u0000"))
    with pytest.raises(MismatchError, match=r"vectors\.json is damaged"):
        folder.made()
    folder.manifest.write_text(text)
    before = {path: path.stat().st_mtime_ns for path in pipeline.vectors.glob("batch-*")}
    again = pipeline.embed(manifest, batch_size=2)
    assert (again.encoded, again.unchanged, pipeline.load.loads()) == (0, 10, 1)
    assert {path: path.stat().st_mtime_ns for path in pipeline.vectors.glob("batch-*")} == before


KILLED = """
import os, sys
from pathlib import Path
from biorag.lab.scale import parquet, vectors
from biorag.settings.settings import Settings
from tests.lab.scale.stages import Pipeline, write_lines
name, calls, folder = sys.argv[1:]
owner, call = {"between": (vectors, "write_table"), "within": (parquet.pq, "write_table")}[name]
calls, original = int(calls), getattr(owner, call)
def killed(*arguments, **options):
    global calls
    calls -= 1
    if not calls:
        if name == "within":
            arguments[1].write(b"PAR1 torn")
            arguments[1].flush()
        os.kill(os.getpid(), 9)
    return original(*arguments, **options)
setattr(owner, call, killed)
pipeline = Pipeline(Path(folder))
pipeline.embed(pipeline.manifest(Settings.of(home=Path(folder) / "home")))
"""


@pytest.mark.parametrize(("place", "calls", "left"), [("between", 3, 0), ("within", 2, 1)])
def test_a_killed_run_resumes(settings, pipeline, tmp_path, place, calls, left):
    words = [sys.executable, "-c", KILLED, place, str(calls), str(tmp_path)]
    assert subprocess.run(words, check=False, cwd=Path(__file__).parents[3]).returncode == -9
    folder = VectorFolder(pipeline.vectors, {})
    before = stored(pipeline)
    assert len(list(pipeline.vectors.glob(".batch-*"))) == left
    assert len(folder.batches()) == calls - 1
    made = folder.made()
    assert made is not None
    assert not made[2]
    shutil.rmtree(pipeline.load.log)
    report = pipeline.embed(made[0])
    assert report.encoded == 10 - len(before)
    assert len(pipeline.load.encoded()) == report.encoded
    assert stored(pipeline) == expected(pipeline)
    assert list(pipeline.vectors.glob(".*")) == []
    check_vectors(pipeline, made[0])


@pytest.mark.parametrize("damage", ["truncated", "keys", "not Parquet", "empty"])
def test_a_damaged_batch_is_encoded_again(settings, pipeline, caplog, damage):
    manifest = pipeline.manifest(settings)
    pipeline.embed(manifest)
    path = VectorFolder(pipeline.vectors, {}).batches()[1]
    content = path.read_bytes()
    place = content.index(read_table(path, KEYS).column("key")[0].as_py().to_bytes(8, "little"))
    flipped = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    path.write_bytes({"truncated": content[:-30], "keys": flipped, "not Parquet": b"text", "empty": b""}[damage])
    report = pipeline.embed(manifest)
    assert report.encoded == len(pipeline.load.encoded()) - 10 > 0
    assert f"{path} is damaged" in caplog.text
    assert path.with_name(f"{path.name}.damaged").is_file()
    assert stored(pipeline) == expected(pipeline)
    assert path.read_bytes() == content
    check_vectors(pipeline, manifest)


@pytest.mark.parametrize("name", ["batch-mine.parquet", ".batch-x.parquet.mine", "notes.txt"])
def test_files_of_others_stay_in_the_folder_of_vectors(settings, pipeline, name):
    pipeline.embed(pipeline.manifest(settings))
    (pipeline.vectors / name).write_text("a user's")
    pipeline.embed(pipeline.manifest(settings))
    assert (pipeline.vectors / name).read_text() == "a user's"
    assert stored(pipeline) == expected(pipeline)


def documents(folder: Path) -> list[list]:
    """The documents of an export, in its order, each as its blocks."""
    export = SnippetFolder(folder, {})
    return list(chain.from_iterable(export.documents(part) for part in export.export().parts))


def test_a_killed_export_is_not_finished_and_the_next_one_is_whole(tmp_path, monkeypatch):
    paths = [write_lines(tmp_path / f"{number}.jsonl", ("a", "x"), (f"b{number}", "y")) for number in range(3)]
    pipeline = Pipeline(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(snippet_folder, "write_table", lambda path, table: 1 / 0 if "00001" in path.name else None)
        with pytest.raises(ZeroDivisionError):
            pipeline.export(*paths)
    with pytest.raises(MissingError, match="is not finished: 'biorag corpus export"):
        SnippetFolder(pipeline.snippets, {}).export()
    (pipeline.snippets / ".part-00000-00000.parquet.0123456789abcdef").write_text("half")
    fresh = Pipeline(tmp_path / "fresh")
    assert pipeline.export(*paths) == fresh.export(*paths)
    assert documents(pipeline.snippets) == documents(fresh.snippets)
    assert list(pipeline.snippets.rglob(".*")) == []


@pytest.mark.parametrize("name", ["part-mine.parquet", "part-00009-00009.parquet", ".part-x.parquet.mine"])
def test_the_parts_of_the_export_before_go_and_files_of_others_stay(tmp_path, name):
    pipeline = Pipeline(tmp_path)
    pipeline.export(write_lines(tmp_path / "0.jsonl", ("a", "x")), write_lines(tmp_path / "1.jsonl", ("b", "y")))
    (pipeline.snippets / name).write_text("a user's")
    pipeline.export(write_lines(tmp_path / "2.jsonl", ("c", "z")))
    assert (pipeline.snippets / name).read_text() == "a user's"
    assert [path.name for path in pipeline.snippets.glob("part-0000*-0000[0-8].parquet")] == [
        "part-00000-00000.parquet"
    ]
    (pipeline.snippets / "part-00000-00000.parquet").write_text("a user's")
    with pytest.raises(MismatchError, match="biorag did not write it"):
        pipeline.export(write_lines(tmp_path / "3.jsonl", ("d", "z")))
    assert (pipeline.snippets / "part-00000-00000.parquet").read_text() == "a user's"
