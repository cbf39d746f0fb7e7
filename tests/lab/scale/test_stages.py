"""The three stages in one run: what is left of a run that ended early, and folders that are left of other runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from biorag.errors import ServiceError
from biorag.indexes.store import Store
from biorag.indexing import index_corpus
from biorag.lab.scale.stages import STAGES, index_in_stages
from biorag.lab.scale.vectors import VectorFolder, encode_here
from tests.lab.scale.stages import counts, facts, points


def write_lines(path: Path, *texts: str) -> Path:
    rows = [{"id": f"s{number}", "content": text} for number, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def corpus(tmp_path) -> str:
    return str(write_lines(tmp_path / "corpus.jsonl", "Aspirin and fever.", "Heparin.", "Warfarin and the liver."))


@pytest.fixture
def tiny(settings, tiny_encoder):
    return settings.replace(encoder=str(tiny_encoder), batch_size=2)


def test_a_joined_run_makes_the_index_of_a_direct_one(tiny, corpus):
    report = index_in_stages(tiny, [corpus], None)
    direct = tiny.replace(name="direct")
    expected = index_corpus(direct, [corpus])
    assert (counts(report), report.files) == (counts(expected), expected.files)
    assert facts(tiny) == facts(direct), "compact token vectors among them, as a direct run keeps them"
    stored, made = points(tiny), points(direct)
    assert {id: point[:2] for id, point in stored.items()} == {id: point[:2] for id, point in made.items()}
    assert not (tiny.home / STAGES / "test").exists()


def test_an_update_encodes_what_the_index_lacks(tiny, corpus, tmp_path):
    index_in_stages(tiny, [corpus], None)
    write_lines(Path(corpus), "Aspirin and fever.", "Changed.", "Warfarin and the liver.", "New.")
    report = index_in_stages(tiny, [corpus], None, folder=tmp_path / "kept")
    assert (report.added, report.updated, report.unchanged, report.snippets) == (1, 1, 2, 4)
    assert len(VectorFolder(tmp_path / "kept" / "vectors", {}).done()) == 2
    again = index_in_stages(tiny, [corpus], None, folder=tmp_path / "kept")
    assert (again.added, again.updated, again.unchanged) == (0, 0, 4)


def failing(job, batches):
    yield from encode_here(job, batches[:1])
    raise ServiceError("a worker was lost")


def test_a_run_that_ended_early_is_resumed(tiny, corpus):
    with pytest.raises(ServiceError, match="a worker was lost"):
        index_in_stages(tiny, [corpus], None, failing)
    vectors = VectorFolder(tiny.home / STAGES / "test" / "vectors", {})
    (first,) = vectors.batches()
    before = first.stat().st_mtime_ns
    assert Store(tiny).manifest() is None
    seen: list[int] = []

    def encode(job, batches):
        assert first.stat().st_mtime_ns == before
        seen.extend(len(batch.rows) for batch in batches)
        return encode_here(job, batches)

    assert index_in_stages(tiny, [corpus], None, encode).snippets == 3
    assert seen == [1]
