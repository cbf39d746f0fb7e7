"""Forms of the page as the bodies of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from biorag.errors import UsageError
from biorag.server.requests import AskBody

FIELDS = 64
B = TypeVar("B", bound=BaseModel)


async def fields_of(request: Request) -> dict[str, str]:
    """Return the filled fields of a form; of several of one name the last.

    Raises
    ------
    UsageError
        If it is not a form.
    """
    try:
        fields = parse_qs((await request.body()).decode("utf-8"), max_num_fields=FIELDS)
    except ValueError:
        raise UsageError("the form cannot be read: send it again from the page") from None
    return {name: values[-1].strip() for name, values in fields.items() if values[-1].strip()}


def ask_body(fields: Mapping[str, str]) -> AskBody:
    """Return the question of a form.

    Raises
    ------
    UsageError
        If a field cannot be read.
    """
    values: dict[str, Any] = {"question": fields.get("question", ""), "options": _options(fields.get("options", ""))}
    values["filter"] = fields.get("filter", [])
    values |= {name: fields.get(name) for name in ("k", "mode")}
    values |= {name: True for name in ("include_retracted", "answer_anyway") if name in fields}
    return checked(AskBody, values)


def checked(kind: type[B], values: Mapping[str, Any]) -> B:
    """Return a body of these values.

    Raises
    ------
    UsageError
        Naming the first field that is wrong.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise UsageError(f"{field}: {first['msg']}") from None


def _options(text: str) -> dict[str, str]:
    """Return the options of lines `A=text`."""
    options: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        letter, equals, option = line.partition("=")
        letter = letter.strip()
        if not equals or letter in options:
            raise UsageError(f"option {line!r} cannot be read: write a line each, as A=thiamine, each letter once")
        options[letter] = option.strip()
    return options
