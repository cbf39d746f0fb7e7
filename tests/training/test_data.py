"""From rows to columns: which rows are used, negatives in turn, what is hashed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace

import pytest

from biorag.errors import BadInputError, UsageError
from biorag.registries import NEGATIVES
from biorag.settings.settings import Settings
from biorag.training.data import IN_BATCH, Split, check_negatives, columns, usable, write_columns
from biorag.types import TrainingRow


def row(number: int, negatives: int = 0, kind: str = "") -> TrainingRow:
    """Row `number`, whose negative j is `n{number}.{j}`."""
    texts = tuple(f"n{number}.{place}" for place in range(1, negatives + 1))
    return TrainingRow(f"q{number}", f"p{number}", texts, kind)


# --- usable -------------------------------------------------------------------------------------------------

PAIRS = [row(1), row(2)]
MINED = [row(3, 1, "bm25"), row(4, 2, "bm25")]


@pytest.mark.parametrize(
    ("rows", "negatives", "count", "used"),
    [
        (PAIRS, IN_BATCH, 1, PAIRS),
        (PAIRS, IN_BATCH, 0, PAIRS),
        (MINED, IN_BATCH, 1, MINED),
        (MINED, IN_BATCH, 0, MINED),
        (PAIRS + MINED, IN_BATCH, 1, MINED),
        (PAIRS + MINED, IN_BATCH, 0, PAIRS + MINED),
        (PAIRS + MINED, "bm25", 1, MINED),
        (MINED + PAIRS, "bm25", 4, MINED),
        ([row(5, 1)], "bm25", 1, [row(5, 1)]),
        ([row(5, 1), *MINED], "bm25", 1, [row(5, 1), *MINED]),
        ([row(6, 1, "random"), row(7, 1, "bm25")], IN_BATCH, 1, [row(6, 1, "random"), row(7, 1, "bm25")]),
    ],
)
def test_rows_that_can_be_trained_on(rows, negatives, count, used):
    assert usable(rows, negatives, count) == used


@pytest.mark.parametrize("kind", ["bm25", "random", "retriever"])
def test_mined_negatives_alone_need_some(kind):
    with pytest.raises(BadInputError, match=f"no mined negatives: run 'biorag mine PAIRS --negatives {kind}'"):
        usable(PAIRS, kind, 1)


@pytest.mark.parametrize("kind", NEGATIVES)
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, None),
        ({"train_hard_negatives": 0}, "--hard-negatives 1"),
        ({"train_in_batch": "positives"}, "--in-batch"),
    ],
)
def test_settings_that_only_in_batch_negatives_allow(kind, settings, named):
    if kind == IN_BATCH or named is None:
        check_negatives(kind, Settings.of(**settings).training)
    else:
        with pytest.raises(UsageError, match=named):
            check_negatives(kind, Settings.of(**settings).training)


# --- columns ------------------------------------------------------------------------------------------------


def test_the_shortest_passage_fills_what_a_row_lacks_and_the_label_says_how_many_it_has():
    found = columns([row(1, 2), row(2, 4), row(3, 1)], 5)
    assert list(found)[-1] == "label" and found["label"] == [2, 4, 1]
    assert [found[f"negative_{place}"] for place in range(1, 5)] == [
        ["n1.1", "n2.1", "n3.1"],
        ["n1.2", "n2.2", "p3"],
        ["p1", "n2.3", "p3"],
        ["p1", "n2.4", "p3"],
    ]
    assert "label" not in columns([row(1, 2), row(2, 4), row(3, 1)], 1)


# --- fingerprint --------------------------------------------------------------------------------------------

FULL = TrainingRow("q", "p", ("n", "m"), "bm25", "id1", "id2")


def test_a_fingerprint_is_of_the_rows_as_lines_of_json():
    asked = replace(FULL, instruction="Find it")
    split = Split([FULL, row(1)], [row(2, 1), asked])

    def slow(rows):
        records = [
            {name: value for name, value in asdict(one).items() if name != "instruction" or value} for one in rows
        ]
        lines = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
        return hashlib.sha256(lines.encode()).hexdigest()

    assert split.fingerprint() == {
        "training_rows": 2,
        "training_sha256": slow([FULL, row(1)]),
        "validation_rows": 2,
        "validation_sha256": slow([row(2, 1), asked]),
    }


def test_columns_of_a_file_are_those_of_memory(tmp_path):
    from datasets import Dataset

    held = columns([row(number, number % 3) for number in range(2500)], 2)
    write_columns(held, tmp_path / "rows" / "0.arrow")
    mapped = Dataset.from_file(str(tmp_path / "rows" / "0.arrow"))
    assert mapped.features == Dataset.from_dict(held).features
    assert mapped[:] == held and "label" in held
