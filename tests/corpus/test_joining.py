"""Which records are of one paper."""

import pytest

from biorag.corpus.joining import paper_numbers
from biorag.types import Snippet

TITLE = "Zinc lozenges and the common cold"
DOE = {"year": 2019, "authors": ["Doe, Jane"]}


def record(title: str = TITLE, pmid: int | None = None, **fields) -> Snippet:
    return Snippet(f"{title} {pmid} {fields}", title, "Text.", pmid, fields)


@pytest.mark.parametrize(
    ("own", "other", "is_one"),
    [
        (record("A", 1), record("B", 1), True),
        (record("A", doi="https://doi.org/10.5/X"), record("B", doi="10.5/x"), True),
        (record(**DOE), record("Zinc Lozenges and the common cold.", year=2019, authors=["DOE J"]), True),
        (record(**DOE), record(f"RETRACTED: {TITLE}"), True),
        (record(pmid=1, **DOE), record(doi="10.5/x", **DOE), True),
        (record(pmid=1, **DOE), record(pmid=2, **DOE), True),
        (record(pmid=1), record(pmid=2), False),
        (record(**DOE), record(**DOE | {"year": 2018}), False),
        (record(**DOE), record(**DOE | {"authors": ["Roe, Jane"]}), False),
        (record("Letter", n=1), record("Letter", n=2), False),
    ],
)
def test_records_are_of_one_paper_by_number_or_by_title_year_and_author(own, other, is_one):
    assert paper_numbers([own, record("Quite another title of a paper"), other]) == [0, 1, 0 if is_one else 2]


def test_a_record_joins_those_that_share_nothing():
    assert paper_numbers([record("A", 1), record("B", doi="10.5/x"), record("C", 1, doi="10.5/x")]) == [0, 0, 0]
