"""The stages on Ray: one session on two cores, whose workers die, fail, and give what this process gives."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("ray")

from biorag.errors import MissingError, ServiceError
from biorag.lab.scale.parquet import NAMES, read_table
from biorag.lab.scale.ray_cluster import encode_by_ray, ray_session, worker_errors
from biorag.lab.scale.snippet_folder import SnippetFolder
from biorag.lab.scale.vectors import VectorFolder
from biorag.settings.settings import Settings
from tests.lab.scale.stages import HashLoad, Pipeline
from tests.pubmed_records import article, deletions, file_of

# Ray ends the process that started it when a daemon of its own dies, and with it all tests of that process.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of two cores, whose processes can import these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with ray_session("local", 2):
            yield


@pytest.fixture
def paths(tmp_path) -> list[Path]:
    """Files of PubMed and of JSON Lines."""
    paths = [tmp_path / "1.xml", tmp_path / "2.xml", tmp_path / "3.jsonl"]
    paths[0].write_bytes(file_of(*(article(pmid, f"Title {pmid}.", f"Text {pmid}.") for pmid in range(1, 25))))
    paths[1].write_bytes(file_of(article(3, "New.", "Text.", "2024-02-01"), deletions(4, 5)))
    rows = [{"id": f"d{number}", "content": f"Text of {number}."} for number in range(20)]
    paths[2].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


def contents(folder: Path, names: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(names))}


def check_all_once(pipeline: Pipeline) -> None:
    """Hold that every snippet has one vector."""
    folder = SnippetFolder(pipeline.snippets, {})
    wanted = [row for part in folder.export().parts for row in folder.rows(part, NAMES).to_pylist()]
    tables = [read_table(path, NAMES) for path in VectorFolder(pipeline.vectors, {}).batches()]
    stored = [row for table in tables for row in table.to_pylist()]
    assert sorted(map(repr, stored)) == sorted(map(repr, wanted))


def test_ray_encodes_what_this_process_does(cluster, settings, tmp_path, paths):
    here, there = Pipeline(tmp_path / "here"), Pipeline(tmp_path / "there")
    assert here.export(*paths) == there.export(*paths)
    names = "part-*.parquet"
    assert contents(here.snippets, names) == contents(there.snippets, names)
    manifest = here.manifest(settings)
    here.embed(manifest, 4)
    report = there.embed(manifest, 4, encode_by_ray(None, 0))
    assert (report.encoded, report.unchanged) == (42, 0)
    assert contents(here.vectors, "batch-*") == contents(there.vectors, "batch-*")
    assert sorted(there.load.encoded()) == sorted(here.load.encoded())
    assert 1 <= there.load.loads() <= 2
    assert os.getpid() not in map(int, (there.load.log / "loaded").read_text().split())
    assert there.embed(manifest, 4, encode_by_ray(2, 0)).encoded == 0


@dataclass(frozen=True)
class Dying(HashLoad):
    """Is killed as it encodes its third batch, the first time that a worker comes to that."""

    def __call__(self, manifest):
        encoding, mark, calls = super().__call__(manifest), self.log / "died", []

        def encode(snippets):
            calls.append(1)
            if len(calls) == 3 and not mark.exists():
                mark.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return encoding(snippets)

        return encode


@dataclass(frozen=True)
class DyingPipeline(Pipeline):
    @property
    def load(self) -> HashLoad:
        return Dying(self.folder / "log")


def test_a_worker_that_is_killed_is_replaced(cluster, settings, tmp_path, paths):
    pipeline = DyingPipeline(tmp_path)
    pipeline.export(*paths)
    report = pipeline.embed(pipeline.manifest(settings), 3, encode_by_ray(2, 0))
    assert (tmp_path / "log" / "died").is_file()
    assert report.encoded == 42
    assert pipeline.load.loads() >= 2
    check_all_once(pipeline)


@dataclass(frozen=True)
class Failing(HashLoad):
    """Raises an error where the model is loaded, or where a snippet is encoded."""

    at: str = ""

    def __call__(self, manifest):
        if not self.at:
            raise MissingError("model 'x' is not on this machine: copy it there")
        encoding = super().__call__(manifest)

        def encode(snippets):
            if any(snippet.id == self.at for snippet in snippets):
                raise ServiceError("the encoder needs more memory: set a smaller --batch-size")
            return encoding(snippets)

        return encode


def embed_failing(settings: Settings, pipeline: Pipeline, at: str) -> None:
    load = Failing(pipeline.load.log, at=at)
    encode = encode_by_ray(2, 0)
    with worker_errors():
        pipeline.embed(pipeline.manifest(settings), 5, lambda job, batches: encode(replace(job, load=load), batches))


@pytest.mark.parametrize(
    ("at", "error", "sentence"),
    [
        ("", MissingError, "model 'x' is not on this machine: copy it there"),
        ("d7", ServiceError, "the encoder needs more memory: set a smaller --batch-size"),
    ],
)
def test_an_error_of_a_worker_is_its_sentence(cluster, settings, tmp_path, paths, at, error, sentence):
    pipeline = Pipeline(tmp_path)
    pipeline.export(*paths)
    with pytest.raises(error) as raised:
        embed_failing(settings, pipeline, at)
    assert str(raised.value) == sentence
