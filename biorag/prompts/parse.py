"""Reading a model's reply: strictly as the JSON asked for, else the first JSON object found in it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from biorag.prompts.marks import numbers_in
from biorag.utils.text import whole

THOUGHT = "</think>"  # ends what a model writes before its answer
MOST_OBJECTS = 1000  # places where a reply's JSON object is looked for
MOST_CITED = 200  # citations that are read of a reply
LARGEST_NUMBER = 10**9  # of a citation; a larger one is that


@dataclass(frozen=True, slots=True)
class Reply:
    """The fields of a reply; `strict` if it was the JSON object asked for and nothing else."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False

    def text(self, key: str) -> str:
        """Return a string field, empty if it is absent or no string."""
        value = self.fields.get(key, "")
        return whole(value).strip() if isinstance(value, str) else ""

    def choice(self, letters: Sequence[str]) -> str | None:
        """Return the chosen letter; None where none of `letters` was chosen."""
        value = self.text("answer_choice").strip(" .:)(").upper()
        return value if value in letters else None

    def is_asked(self, letters: Sequence[str]) -> bool:
        """Return whether it is strictly the JSON asked for, with one of `letters`, or with a text if there are none."""
        return self.strict and bool(self.choice(letters) if letters else self.text("answer"))


def parse_reply(text: str) -> Reply:
    """Read a reply, without what a model thinks aloud before it; never raises."""
    text = text.rpartition(THOUGHT)[2]
    try:
        value = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return Reply(_first_object(text))
    return Reply(value, strict=True) if isinstance(value, dict) else Reply()


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON")


def _first_object(text: str) -> dict[str, Any]:
    decoder = json.JSONDecoder(strict=False)
    for match in itertools.islice(re.finditer(r"\{", text), MOST_OBJECTS):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def cited_numbers(reply: Reply, text: str) -> list[int]:
    """Return the numbers of the documents that a reply cites, each once; at most `MOST_CITED`.

    They stand in `citations` (numbers, or objects with `n`), and as marks in `text`, the reply's prose after
    `plain_marks`.
    """
    listed = reply.fields.get("citations")
    numbers = map(_cited, listed[:MOST_CITED] if isinstance(listed, list) else [])
    cited = [*(number for number in numbers if number is not None), *numbers_in(text)]
    return list(dict.fromkeys(cited))[:MOST_CITED]


def _cited(item: Any) -> int | None:
    number = item.get("n") if isinstance(item, dict) else item
    if isinstance(number, str) and number.isascii() and number.isdigit():
        number = int(number[:9])
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    return max(-LARGEST_NUMBER, min(number, LARGEST_NUMBER))
