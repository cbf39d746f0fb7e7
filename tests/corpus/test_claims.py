"""Rows of claims: what is read, citation marks, the wording of trial results, and faults."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.claims import WORDINGS, ClaimRow, TrialResult, read_claims, without_marks
from biorag.errors import BadInputError
from biorag.types import Snippet

RESULT = {"id": "r", "intervention": "aspirin", "comparator": "placebo", "outcome": "fever", "evidence": "It fell."}


def rows(tmp_path, *values, name="claims.jsonl"):
    content = "".join(json.dumps(value) + "\n" for value in values).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return list(read_claims(path))


def test_a_row_brings_its_text_or_the_id_of_a_snippet_or_neither(tmp_path):
    labelled = {"id": "a", "claim": "X is Y.", "title": "On X", "sentences": ["X is Y.", "So."], "label": "supports"}
    first, second, third, empty = rows(
        tmp_path,
        labelled | {"rationale": [0], "other": 1},
        {"id": "b", "claim": "X.", "snippet": "s"},
        {"id": "c", "claim": "X."},
        {"id": "d", "claim": "X.", "sentences": []},
        name="claims.jsonl.gz",
    )
    assert first == ClaimRow("a", "X is Y.", None, "On X", ("X is Y.", "So."), "supports", (0,))
    assert first.text == Snippet("a", "On X", "X is Y. So.")
    assert (second.snippet, second.text, third.snippet, third.text) == ("s", None, None, None)
    assert empty.text == Snippet("d", "", ""), "a text without words supports nothing, and is not searched for"


@pytest.mark.parametrize(
    ("claim", "read"),
    [
        ("It was found [<|cit|>].", "It was found."),
        ("It was found<|multi_cit|>, they say [<|other_cit|>,18, <|cit|>].", "It was found, they say."),
        ("It (<|cit|>) may rise [18,<|other_cit|>] in men.", "It may rise in men."),
        ("It fell by [19%] in [1] (p < 0.05).", "It fell by [19%] in [1] (p < 0.05)."),
        ("A<|b c|>", "A<|b c|>"),
    ],
)
def test_citation_marks_are_removed_and_other_brackets_stay(claim, read):
    assert without_marks(claim) == read


@pytest.mark.parametrize(
    ("direction", "true"),
    [
        ("significantly increase", "increased"),
        ("significantly increased", "increased"),
        ("significantly decreased", "decreased"),
        ("no significant difference", "unchanged"),
    ],
)
def test_a_trial_result_becomes_a_true_and_a_false_claim_of_one_wording(tmp_path, direction, true):
    supported, contradicted = rows(tmp_path, RESULT | {"direction": direction})
    assert [(row.label, row.sentences, row.rationale) for row in (supported, contradicted)] == [
        ("supports", ("It fell.",), (0,)),
        ("contradicts", ("It fell.",), (0,)),
    ]
    named = {"intervention": "aspirin", "comparator": "placebo", "outcome": "fever"}
    worded = {direction: [text.format(**named) for text in texts] for direction, texts in WORDINGS.items()}
    number = [text.lower() for text in worded[true]].index(supported.claim.lower())
    assert contradicted.claim.lower() in {
        texts[number].lower() for direction, texts in worded.items() if direction != true
    }
    assert supported.claim[0].isupper()


def test_wordings_and_false_directions_are_all_used():
    drawn = Counter()
    for number in range(200):
        result = TrialResult(str(number), "A", "B", "c", "no significant difference", "None.")
        drawn.update(row.claim for row in result.claims())
    assert len(drawn) == 9
    assert min(drawn.values()) > 10


def test_every_published_row_is_read(shared_data):
    files = sorted(shared_data.glob("claims/*/*.jsonl.gz"))
    if not files:
        pytest.skip("the shared data has no claims")
    for path in files:
        claims = list(read_claims(path))
        assert all(row.label and row.text and "<|" not in row.claim for row in claims)
        assert all(index < len(row.sentences or ()) for row in claims for index in row.rationale)


@pytest.mark.parametrize(
    "line",
    [
        "3",
        "{",
        '{"id": "a"}',
        '{"id": "a", "claim": " [<|cit|>] "}',
        '{"id": "a", "claim": "\\u200b\\ufeff"}',
        '{"id": "a", "claim": "X.", "label": "true"}',
        '{"id": "a", "claim": "X.", "sentences": "X is Y."}',
        json.dumps(RESULT | {"direction": "up"}),
        json.dumps(RESULT | {"direction": "significantly increased", "outcome": ""}),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, line):
    path = tmp_path / "claims.jsonl"
    path.write_text(json.dumps({"id": "ok", "claim": "X."}) + "\n" + line + "\n")
    with pytest.raises(BadInputError, match="line 2"):
        list(read_claims(path))


@given(st.dictionaries(st.sampled_from(["id", "claim", "intervention", "label", "sentences"]), st.text(max_size=20)))
def test_nothing_but_our_error_is_raised(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("claims") / "claims.jsonl"
    path.write_text(json.dumps(values) + "\n")
    try:
        assert all(row.claim.strip() for row in read_claims(path))
    except BadInputError as error:
        assert "line 1" in str(error)
