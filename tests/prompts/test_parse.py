"""Reading replies: golden cases in golden/replies.json (options A to D), and properties."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.prompts.marks import plain_marks
from biorag.prompts.parse import Reply, cited_numbers, parse_reply

CASES = json.loads((Path(__file__).parent / "golden" / "replies.json").read_text(encoding="utf-8"))
LETTERS = ("A", "B", "C", "D")

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["A", "b.", "E"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["answer_choice", "citations", "answer", "n", "quote"]), inner, max_size=4)
    ),
    max_leaves=12,
)
FRAGMENTS = st.lists(
    st.sampled_from(
        [*'{}[]:,"\\ \n', '"answer_choice"', '"A"', "```json", "NaN", "1e999", "\ud83d", "\\ud83d", "-", "9" * 50]
    )
).map("".join)
CUT_JSON = st.builds(lambda value, cut: json.dumps(value)[:cut], JSON_VALUES, st.integers(0, 200))
REPLIES = st.one_of(st.text(st.characters()), FRAGMENTS, CUT_JSON)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden_replies(case):
    reply = parse_reply(case["reply"])
    assert reply.fields == case["fields"]
    assert reply.strict is case["strict"]
    assert reply.choice(LETTERS) == case["choice"]


@pytest.mark.parametrize(
    ("text", "of_letters", "of_text"),
    [
        ('{"answer_choice": "b.", "answer": "yes"}', True, True),
        ('{"answer_choice": "E", "answer": " "}', False, False),
        ('{"answer": "yes"}', False, True),
        ('```json\n{"answer_choice": "B", "answer": "yes"}\n```', False, False),
        ("B", False, False),
    ],
)
def test_a_reply_is_what_was_asked_for_if_it_is_json_alone_with_a_choice_or_a_text(text, of_letters, of_text):
    assert (parse_reply(text).is_asked(LETTERS), parse_reply(text).is_asked(())) == (of_letters, of_text)


@given(REPLIES)
def test_any_reply_is_read_without_an_error(text):
    reply = parse_reply(text)
    assert isinstance(reply.fields, dict)
    assert reply.choice(LETTERS) in (None, *LETTERS)
    assert reply.choice(()) is None
    for key in ("answer_choice", "answer", "citations", "absent"):
        reply.text(key).encode()
    numbers = cited_numbers(reply, text)
    assert len(numbers) == len(set(numbers))


@given(JSON_VALUES, st.sampled_from(["", "Reply: ", "```json\n"]), st.sampled_from(["", "\n```", " Done."]))
def test_an_object_is_found_whatever_surrounds_it(value, before, after):
    fields = {"answer": value}
    reply = parse_reply(before + json.dumps(fields) + after)
    assert json.dumps(reply.fields) == json.dumps(fields)
    assert reply.strict <= (before == after == "")


def test_nan_is_no_json_but_the_rest_is_read():
    for constant in ("NaN", "Infinity", "-Infinity"):
        reply = parse_reply(f'{{"confidence": {constant}, "answer_choice": "A"}}')
        assert (reply.choice(LETTERS), reply.text("confidence"), reply.strict) == ("A", "", False)


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('{"a":[', "]}")])
@pytest.mark.parametrize("depth", [100, 3_000])
def test_deep_nesting_is_no_error(opening, closing, depth):
    assert parse_reply(opening * depth) == Reply()
    nested = parse_reply(opening * depth + "1" + closing * depth)
    assert nested.choice(LETTERS) is None
    assert cited_numbers(nested, "") == []
    if depth == 100:
        assert nested.strict is opening.startswith("{")


def test_half_a_surrogate_pair_becomes_one_mark():
    text = Reply({"answer": "a\ud83db"}).text("answer")
    assert (len(text), text[0], text[2]) == (3, "a", "b")
    assert text.encode().decode() == text


@pytest.mark.parametrize(
    ("listed", "prose", "expected"),
    [
        ([2, 1, 2], "", [2, 1]),
        (["1", "x", "-1", "²", True, None, 1.0, [1], {}], "", [1]),
        ([{"n": 1, "quote": "fever"}, {"n": "2"}], "", [1, 2]),
        ([{"n": 1, "quote": 5}, {"quote": "fever"}], "", [1]),
        ([0, -3, 99], "", [0, -3, 99]),
        ({"n": 1}, "", []),
        (None, "Pyridoxine helps [1], see Document 3.", [1, 3]),
        ([{"n": 1, "quote": "fever"}], "As [1] and [2] say", [1, 2]),
    ],
)
def test_cited_numbers_by_hand(listed, prose, expected):
    assert cited_numbers(Reply({"citations": listed}), plain_marks(prose)) == expected
