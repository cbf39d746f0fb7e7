"""The estimate of indexing: what it adds up, by a clock that the work itself moves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from biorag.corpus.sources import find_sources
from biorag.indexes import estimating
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.indexes.surveying import SAMPLE, survey
from biorag.types import Snippet
from tests.conftest import write_medrag
from tests.fakes import HashEncoder, encoding_snippets

LOADING, FIRST, WRITING = 7.0, 0.1, 0.001  # seconds of loading, of the first call beside its texts, and of a snippet


@pytest.mark.parametrize(("pace", "sampled"), [(1e-6, SAMPLE), (1e-4, None), (1.0, estimating.FEW)])
def test_the_parts_of_an_estimate_are_those_of_the_run(settings, tmp_path, monkeypatch, pace, sampled):
    """Encoding takes `pace` seconds a character: as much of the sample is encoded as 2 seconds allow."""
    snippets = [Snippet(f"s{number}", "", "word " * (1 + number % 40)) for number in range(600)]
    now = [0.0]
    monkeypatch.setattr(estimating, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    write = EdgeIndex.upsert

    def upsert(index, written, vectors, tokens):
        now[0] += WRITING * len(written)
        write(index, written, vectors, tokens)

    monkeypatch.setattr(EdgeIndex, "upsert", upsert)
    encoder, calls = HashEncoder(), []

    def encode(texts):
        now[0] += pace * sum(len(text.contents) for text in texts) + (0 if calls else FIRST)
        calls.append(len(texts))
        return encoding_snippets(encoder)(texts)

    def load():
        now[0] += LOADING
        return encode

    sources = find_sources([str(write_medrag(tmp_path / "c.jsonl", snippets))], tmp_path / "spool")
    surveyed = survey(sources, None, lambda _: None)
    manifest = Store(settings).new_manifest(encoder.identity, surveyed.avg_len)
    found = estimating.estimate(lambda: manifest, replace(surveyed, seconds=3.0), load)
    assert (found.snippets, found.parts["loading"], found.parts["reading"]) == (600, LOADING, 6.0)
    texts = sum(len(snippet.contents) for snippet in snippets)
    assert found.parts["encoding"] == pytest.approx(pace * texts, rel=0.1, abs=0.1), "the sample is a draw"
    assert found.parts["writing"] == pytest.approx(600 * (WRITING + estimating.OPTIMIZE_SECONDS), abs=0.1)
    assert found.seconds == pytest.approx(sum(found.parts.values()), abs=0.3), "each is rounded"
    assert calls == [estimating.FEW, found.sample]
    assert found.sample == sampled or (sampled is None and estimating.FEW < found.sample < SAMPLE)
