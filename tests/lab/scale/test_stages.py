"""Exports and vectors loaded into an index, which is then the one that a direct run makes; all stages in one run."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from biorag.corpus.rejects import RejectsFile
from biorag.errors import BadInputError, MismatchError, MissingError, ServiceError
from biorag.indexes.store import Store
from biorag.indexing import index_corpus
from biorag.lab.scale import snippet_folder
from biorag.lab.scale.stages import index_in_stages
from biorag.lab.scale.vectors import VectorFolder, encode_here
from tests.lab.scale.stages import (
    Pipeline,
    bm25_scores,
    counts,
    direct,
    facts,
    points,
    random_file,
    write_lines,
)
from tests.pubmed_records import article, deletions, file_of

pytestmark = pytest.mark.slow


def seeds(count: int, quick: int) -> list[Any]:
    """Return seeds, all but the first of them for `make test-all`."""
    return [pytest.param(seed, marks=[pytest.mark.long] * (seed >= quick)) for seed in range(count)]


def random_corpus(seed: int, folder: Path, bad: bool) -> list[Path]:
    draw = Random(seed)
    return [random_file(draw, folder / f"{number}", bad) for number in range(draw.randint(2, 5))]


@pytest.mark.parametrize("seed", seeds(8, quick=2))
def test_an_index_by_stages_is_the_one_of_a_direct_run(settings, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(snippet_folder, "PART_ROWS", 1 + seed % 4)
    blocks, skips = seed % 2 == 1, seed % 4 >= 2
    paths = random_corpus(100 + seed, tmp_path, skips)
    rejects = [RejectsFile(tmp_path / name) if skips else None for name in ("a.jsonl", "b.jsonl")]
    alone, staged = settings.replace(name="direct"), settings.replace(name="staged")
    expected = direct(alone, *paths, blocks=blocks, rejects=rejects[0])
    report = Pipeline(tmp_path, blocks).index(staged, *paths, rejects=rejects[1])
    assert counts(report) == counts(expected)
    assert points(staged) == points(alone)
    assert bm25_scores(staged) == bm25_scores(alone)
    assert facts(staged) == facts(alone)


@pytest.mark.parametrize("seed", seeds(4, quick=1))
def test_an_index_that_is_updated_by_stages_is_as_a_fresh_one(settings, tmp_path, seed):
    blocks = seed % 2 == 1
    paths = random_corpus(200 + seed, tmp_path, bad=False)
    pipeline, staged = Pipeline(tmp_path, blocks), settings.replace(name="staged")
    for number in range(1, len(paths) + 1):
        try:
            pipeline.index(staged, *paths[:number])
        except BadInputError:
            continue  # deletions alone
        bm25 = Store(staged).require_manifest().bm25
        fresh = settings.replace(name=f"fresh{number}")
        direct(fresh, *paths[:number], blocks=blocks, bm25=bm25)
        assert points(staged) == points(fresh)
        assert bm25_scores(staged) == bm25_scores(fresh)
        assert facts(staged) == facts(fresh)
    assert len(pipeline.load.encoded()) == len(VectorFolder(pipeline.vectors, {}).done()), "none twice"


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """A baseline file and an update of it."""
    baseline = [article(pmid, f"Title {pmid}.", f"word{'abcdef'[pmid]} text.") for pmid in range(1, 6)]
    update = [article(2, "New.", "worda.", "2024-02-01"), deletions(3), article(4, "Back.", "", "2023-01-01")]
    paths = [tmp_path / "pubmed25n0001.xml", tmp_path / "pubmed25n0002.xml"]
    paths[0].write_bytes(file_of(*baseline))
    paths[1].write_bytes(file_of(update[0], deletions(3, 4), update[2]))
    return paths


def test_missing_vectors_are_told_before_anything_is_written(settings, tmp_path, files):
    pipeline = Pipeline(tmp_path)
    pipeline.export(*files)
    pipeline.embed(pipeline.manifest(settings))
    VectorFolder(pipeline.vectors, {}).batches()[0].unlink()
    with pytest.raises(MissingError, match=r"[123] snippets of .* have no vectors \('\d' for one\): run 'biorag embed"):
        pipeline.write(settings)
    assert not Store(settings).folder.exists()
    pipeline.embed(pipeline.manifest(settings))
    assert pipeline.write(settings).added == 4


def test_a_damaged_batch_is_named_and_the_next_load_completes(settings, tmp_path, files):
    pipeline = Pipeline(tmp_path)
    pipeline.export(*files)
    pipeline.embed(pipeline.manifest(settings))
    path = VectorFolder(pipeline.vectors, {}).batches()[0]
    content = path.read_bytes()
    place = content.index(b"\x00", len(content) // 3)
    path.write_bytes(content[:place] + bytes(64) + content[place + 64 :])
    with pytest.raises(MismatchError, match=rf"{path.name} is damaged .*: delete it, and run 'biorag embed' again"):
        pipeline.write(settings)
    path.unlink()
    pipeline.embed(pipeline.manifest(settings))
    assert pipeline.write(settings).complete
    fresh = settings.replace(name="fresh")
    direct(fresh, *files)
    assert points(settings) == points(fresh)


def write_texts(path: Path, *texts: str) -> Path:
    return write_lines(path, *((f"s{number}", text) for number, text in enumerate(texts)))


@pytest.fixture
def corpus(tmp_path) -> str:
    return str(write_texts(tmp_path / "corpus.jsonl", "Aspirin and fever.", "Heparin.", "Warfarin and the liver."))


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
    assert not (tiny.stages / "test").exists()


def test_an_update_encodes_what_the_index_lacks(tiny, corpus, tmp_path):
    index_in_stages(tiny, [corpus], None)
    write_texts(Path(corpus), "Aspirin and fever.", "Changed.", "Warfarin and the liver.", "New.")
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
    vectors = VectorFolder(tiny.stages / "test" / "vectors", {})
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
