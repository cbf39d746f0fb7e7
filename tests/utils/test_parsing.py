"""Untrusted JSON: bounded, typed, and never read from a pipe."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.errors import BadInputError, MismatchError, UsageError
from biorag.utils import parsing
from biorag.utils.parsing import opened_regular, parse_json, parse_toml, parsed_file, read_regular, validated


@dataclass(frozen=True)
class Inner:
    count: int


@dataclass(frozen=True)
class Outer:
    name: str
    share: float
    parts: tuple[Inner, ...] = ()


GOOD = {"name": "a", "share": 1, "parts": [{"count": 3}]}


def test_json_becomes_a_typed_record():
    assert validated(Outer, GOOD) == Outer("a", 1.0, (Inner(3),))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"share": "1"}, "share: Input should be a valid number"),
        ({"parts": [{"count": True}]}, "parts.0.count: Input should be a valid integer"),
        ({"more": 1}, "more: Unexpected keyword argument"),
    ],
)
def test_a_value_of_another_type_is_named(changes, fault):
    with pytest.raises(ValueError, match=fault):
        validated(Outer, {**GOOD, **changes})


@pytest.mark.parametrize(
    "text",
    ["NaN", "[1e400]", '"\\ud800"', "[" * 300 + "]" * 300, b"\xff", "1" * 5000],
    ids=lambda text: repr(text[:10]),
)
def test_what_no_json_is_or_breaks_its_reader_is_refused(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_an_exponent_in_a_text_is_only_text():
    assert parse_json('{"a": "1e400", "b": 1e30}') == {"a": "1e400", "b": 1e30}


@given(st.binary(max_size=200))
def test_bytes_give_values_or_a_value_error(content):
    try:
        parse_json(content)
    except ValueError:
        return


def test_a_pipe_is_not_appended_to_whether_it_is_read_or_not(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="a pipe that nobody reads"), opened_regular(tmp_path / "pipe", "ab"):
        pass
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(UsageError, match="not a regular file"), opened_regular(tmp_path / "pipe", "ab"):
        pass
    os.close(reader)


PARTS = ["a", '"a b"', '"\\"a"', "'a'", "a . a"]


@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "x = {{{} = 1}}"])
@pytest.mark.parametrize("part", PARTS)
def test_a_key_of_many_names_is_refused_before_it_is_parsed(monkeypatch, form, part):
    assert parse_toml(form.format(".".join([part] * 49)).encode(), "a.toml")
    monkeypatch.setattr(parsing.tomllib, "loads", lambda text: pytest.fail("parsed"))
    with pytest.raises(BadInputError, match=r"a\.toml is not valid TOML: a key of more than 100 names"):
        parse_toml(form.format(".".join([part] * 101)).encode(), "a.toml")


def test_values_of_toml_have_any_number_of_dots():
    values = {"dots": "." * 200, "text": "It is. " * 200, "numbers": [0.5] * 200}
    assert (
        parse_toml("\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items()).encode(), "") == values
    )


def test_a_file_beyond_its_bound_is_refused(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 11)
    assert len(read_regular(tmp_path / "large", 11)) == 11
    with pytest.raises(BadInputError, match="more than 10 bytes"):
        read_regular(tmp_path / "large", 10)


def test_a_damaged_file_is_one_sentence_with_advice(tmp_path):
    path = tmp_path / "record.json"
    assert parsed_file(Outer, path, MismatchError, "make it again") is None
    path.write_text("{}")
    with pytest.raises(MismatchError, match=r"record\.json is damaged \(name: .*\): make it again"):
        parsed_file(Outer, path, MismatchError, "make it again")
