"""Batches of which each set of a mixture has its share."""

from __future__ import annotations

from collections import Counter

import pytest
from datasets import Dataset

from biorag.errors import BadInputError
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training import retriever
from biorag.training.data import TrainingSet, columns, mixed
from biorag.training.sampling import SharedBatchSampler, rows_of_batch
from biorag.types import TrainingRow
from tests.conftest import WORDS
from tests.training.trainers import QUIET, train_retriever

pytestmark = pytest.mark.models

COUPLES = [(one, other) for one in WORDS for other in WORDS if one < other]
SYNTHETIC = [TrainingRow(f"{a} {b}?", f"{a} heals {b}.") for a, b in COUPLES[:40]]
LABELLED = [TrainingRow(f"{a} or {b}?", f"{b} hurts {a}.", (f"{a} {b}",)) for a, b in COUPLES[40:52]]
SPLIT = mixed([TrainingSet("s", SYNTHETIC, [], share=0.2), TrainingSet("l", LABELLED, LABELLED[:2], share=0.8)])


def sampler_of(rows, sizes, shares, batch, epoch=0, seed=0):
    """Return a sampler of the rows of sets, one set after the other; an epoch draws as many as there are, twice."""
    data = Dataset.from_dict(columns(rows, 1))
    options = {"batch_size": batch, "drop_last": False, "valid_label_columns": ["label"], "seed": seed}
    sampler = SharedBatchSampler(data, shares, sizes, 2 * len(rows), **options)
    sampler.set_epoch(epoch)
    return sampler


def test_each_batch_has_the_shares_and_no_text_twice():
    """Every synthetic row comes once before any comes again; three labelled rows repeat a text of another."""
    labelled = [*LABELLED, *(TrainingRow(row.query, f"{row.positive} Too.") for row in LABELLED[:3])]
    rows = [*SYNTHETIC, *labelled]
    found = list(sampler_of(rows, {"s": 40, "l": 15}, {"s": 0.2, "l": 0.8}, 10))
    assert len(found) == 11
    for batch in found:
        assert sum(index < 40 for index in batch) == 2 and len(batch) == 10
        texts = [text for index in batch for text in (rows[index].query, rows[index].positive, *rows[index].negatives)]
        assert len(texts) == len(set(texts))
    synthetic = [index for batch in found for index in batch if index < 40]
    assert max(Counter(synthetic).values()) == 1
    drawn = Counter(index for batch in found for index in batch if index >= 40)
    assert drawn.keys() == set(range(40, 55)) and max(drawn.values()) - min(drawn.values()) <= 2


def test_rows_of_a_batch_go_by_largest_remainders():
    sizes = dict.fromkeys("abc", 10_000)
    assert rows_of_batch({"a": 0.2, "b": 0.8}, sizes, 6144) == {"a": 1229, "b": 4915}  # 1228.8 and 4915.2
    assert rows_of_batch({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, sizes, 8) == {"a": 3, "b": 3, "c": 2}
    assert rows_of_batch({"a": 0.2, "b": 0.8}, {"a": 2, "b": 8}, 10) == {"a": 2, "b": 8}, "a batch may be the whole"
    with pytest.raises(BadInputError, match=r"share 0\.1 of set 'a' is no row of 4"):
        rows_of_batch({"a": 0.1, "b": 0.9}, sizes, 4)
    with pytest.raises(BadInputError, match="takes 8 rows of set 'b', which has 7"):
        rows_of_batch({"a": 0.2, "b": 0.8}, {"a": 100, "b": 7}, 10)


def test_a_run_trains_on_such_batches(tiny_encoder, tmp_path, monkeypatch):
    """An epoch has all 40 synthetic rows, a fifth of 200; rows with and without negatives stand in one batch."""
    settings = Settings.of(precision="fp32", train_batch_size=10, train_max_tokens=32, train_max_steps=6)
    settings = settings.replace(train_eval_steps=2)
    assert [len(part) for part in SPLIT.passes()] == [200]
    labels = []
    compute = retriever.RetrieverTrainer.compute_loss

    def recorded(trainer, model, inputs, *arguments, **options):
        labels.append(inputs["label"].tolist())
        return compute(trainer, model, inputs, *arguments, **options)

    monkeypatch.setattr(retriever.RetrieverTrainer, "compute_loss", recorded)
    files = find_encoder(str(tiny_encoder))
    manifest = train_retriever(files, SPLIT, settings, tmp_path / "whole", {}, QUIET)
    assert [sorted(of_batch) for of_batch in labels] == [[0] * 2 + [1] * 8] * 6
    assert [part["share"] for part in manifest["identity"]["data"]["sets"]] == [0.2, 0.8]


def test_several_processes_refuse_a_batch_that_is_not_full(monkeypatch):
    monkeypatch.setattr("biorag.training.sampling.process_count", lambda: 2)
    rows = [*SYNTHETIC, *(TrainingRow(row.query, "One passage.") for row in LABELLED)]
    with pytest.raises(BadInputError, match="sets l have too few different texts for a batch of 10, which several"):
        next(iter(sampler_of(rows, {"s": 40, "l": 12}, {"s": 0.2, "l": 0.8}, 10)))
