"""What `biorag plan --measure` measures, on a tiny encoder and by a clock of the test's own."""

from __future__ import annotations

from itertools import count

import pytest

from biorag.corpus.sources import Source
from biorag.errors import BadInputError
from biorag.models.finding import find_encoder
from biorag.scale import measuring
from biorag.scale.measuring import Effort, measure
from biorag.scale.parquet import row_count
from biorag.scale.sizes import encoder_size
from biorag.settings.sources import load_settings


@pytest.mark.parametrize(
    ("clock", "cpu", "rate"),
    [
        ([100.0, 100.5, 101.0, 101.5, 102.0], [7.0, 8.0, 9.0, 10.0, 11.0], 4 / 2.0),  # two threads
        ([100.0, 103.0, 106.0, 109.0, 112.0], [7.0, 8.0, 9.0, 10.0, 11.0], 2 / 2.0),  # beside other programs
    ],
)
def test_a_rate_is_of_the_steps_after_the_first_by_the_lesser_time(monkeypatch, clock, cpu, rate):
    for name, times in (("perf_counter", iter(clock)), ("process_time", iter(cpu))):
        monkeypatch.setattr(measuring.time, name, lambda times=times: next(times))
    assert measuring._rate(count(), 2.0) == rate


def test_exported_snippets_are_counted_not_their_parts(tmp_path, monkeypatch):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "a", "title": "", "content": "x"}\n')
    monkeypatch.setattr(measuring, "_rate", lambda steps, seconds: next(steps) or 2.5)
    assert measuring._exporting([Source("corpus.jsonl", path)], tmp_path, 1.0) == 2.5 * 1024
    (written,) = tmp_path.glob("*.parquet")
    assert row_count(written) == 1024


def test_a_sample_repeats_a_small_corpus_with_ids_of_its_own(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "a", "title": "", "content": "x"}\n{"id": "b", "title": "", "content": "y"}\n')
    sample = measuring._sample([Source("corpus.jsonl", path)], 5)
    assert [(snippet.id, snippet.content) for snippet in sample] == list(zip("01234", "xyxyx", strict=True))
    with pytest.raises(BadInputError, match="no snippet to measure with"):
        measuring._sample([], 5)


def test_the_starter_is_read_from_its_headers():
    size = encoder_size(find_encoder("starter"))
    layer = 4 * 384 * 384 + 2 * 384 * 1536
    assert size.multiplied == 6 * layer + 384 * 384  # and the pooler
    assert (size.dimension, size.window, size.parameters) == (384, 256, 22_713_728)


@pytest.mark.models
def test_this_machine_is_measured(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "usable_cores", lambda: 1)
    settings = load_settings({"encoder": str(tiny_encoder), "home": str(tmp_path)}, None)
    machine = measure(settings, ["demo"], Effort(seconds=0.05, encoded=8, loaded=16, built=16, batch=4))
    measured = machine.measured
    assert measured is not None
    assert (measured.cores, measured.built) == (machine.cores, 16)
    rates = {name: value for name, value in measured.model_dump().items() if name.endswith("_per_second")}
    assert len(rates) == 6
    assert min(rates.values()) > 0
