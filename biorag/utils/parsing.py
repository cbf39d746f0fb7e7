"""Input from files and servers: bounded, and parsed into the type that it must have."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json

from biorag.errors import BadInputError, BioragError, UsageError

M = TypeVar("M", bound=BaseModel)

LARGEST = 64 << 20  # bytes of a JSON file, unless its reader says otherwise
_DEEP = re.compile(rb"(?<![\w\\-])(?:(?:[\w-]++|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}")
_HUGE = re.compile(rb"\d[eE]\+?\d{3}")  # of numbers beyond the range of floats, which parse as infinity


def read_regular(path: Path, largest: int = LARGEST) -> bytes:
    """Return a file's bytes; raise `BadInputError` if it has more than `largest`, or is a pipe or a device."""
    content = read_beginning(path, largest + 1)
    if len(content) > largest:
        raise BadInputError(f"{path} has more than {largest:,} bytes: is it the right file?")
    return content


def read_beginning(path: Path, count: int) -> bytes:
    """Return a file's first bytes; raise `BadInputError` at a pipe or a device."""
    with opened_regular(path) as stream:
        return stream.read(count)


@contextmanager
def opened_regular(path: Path, mode: Literal["rb", "ab"] = "rb") -> Iterator[BinaryIO]:
    """Open a file; raise `BadInputError`, of an output `UsageError`, at a pipe or a device: one may wait for ever."""
    with naming(path), open(path, mode, opener=without_waiting) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise (UsageError if mode == "ab" else BadInputError)(f"{path} is not a regular file: name one")
        yield stream


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a file in the system's error that names none, as of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or (error.errno and str(path))
        raise


def without_waiting(path: str, flags: int) -> int:
    """Open a file, or a pipe with a reader, as `open` asks an opener to; nothing is appended through a link."""
    try:
        return os.open(path, flags | os.O_NONBLOCK | (os.O_NOFOLLOW if flags & os.O_APPEND else 0), 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO and flags & os.O_WRONLY:
            raise UsageError(f"{path} is a pipe that nobody reads: name a regular file") from None
        raise


def parse_json(content: bytes | str) -> Any:
    """Return the values of JSON text.

    Raises `ValueError` if it is not JSON in UTF-8, or has NaN, an infinity, half a surrogate pair or 200 levels.
    """
    values = from_json(content, allow_inf_nan=False)
    if _HUGE.search(content.encode() if isinstance(content, str) else content):
        json.dumps(values, allow_nan=False)
    return values


def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """Return the values of a TOML file; raise `BadInputError`, naming the file, if it is not valid."""
    if _DEEP.search(content):  # the parser takes the square of them
        raise BadInputError(f"{name} is not valid TOML: a key of more than 100 names")
    try:
        values = tomllib.loads(content.decode("utf-8"))
        json.dumps(values, default=str)  # no number has thousands of digits, in hex neither
        return values
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{name} is not valid TOML: {error}") from None


def read_toml(path: Path, kind: type[M]) -> M:
    """Return a TOML file that is there as a model of pydantic's.

    Raises BadInputError if it is not valid TOML, or a key is unknown or has a value that is not allowed.
    """
    try:
        return kind.model_validate(parse_toml(path.read_bytes(), str(path)))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        value = "" if isinstance(first["input"], dict) else f" (it has {first['input']!r})"
        raise BadInputError(f"{path}: {key}: {first['msg'].removeprefix('Value error, ')}{value}") from None


def packaged_toml(module: str, name: str) -> dict[str, Any]:
    """Return the values of a TOML file of biorag's own, which lies beside the module of this `__file__`."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))


def parsed(kind: Any, content: bytes | str, extra: Literal["forbid", "ignore"] = "forbid") -> Any:
    """Return JSON text as a value of a type: a dataclass, a `TypedDict`, `list[int]`, an annotated type.

    Of JSON's types only arrays become tuples, and integers floats. Raises `ValueError` as `parse_json` does, or naming
    the first field that does not fit.
    """
    parse_json(content)
    try:
        return _adapter(kind).validate_json(content, strict=True, extra=extra)
    except ValidationError as error:
        raise ValueError(fault_of(error)) from None


def validated(kind: Any, values: Any, extra: Literal["forbid", "ignore"] = "forbid") -> Any:
    """Return the values of JSON as a value of a type; see `parsed`, also for its errors."""
    try:
        text = json.dumps(values)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return parsed(kind, text, extra)


def typed(kind: Any, values: Any) -> Any:
    """Return a library's values as a value of a type with strict fields, without others; raises as `parsed` does."""
    try:
        return _adapter(kind).validate_python(values, extra="ignore")
    except ValidationError as error:
        raise ValueError(fault_of(error)) from None


def parsed_file(kind: Any, path: Path, error: type[BioragError], advice: str, largest: int = LARGEST) -> Any:
    """Return a JSON file as a value of a type, None if it is not there; raise `error`, with the advice, at damage."""
    try:
        return parsed(kind, read_regular(path, largest))
    except FileNotFoundError:
        return None
    except ValueError as fault:
        raise error(f"{path} is damaged ({fault}): {advice}") from None


def fault_of(error: ValidationError) -> str:
    """Return the first fault of a validation: the field, and the expectation."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])[:80]
    message = "Input should be an object" if "instance of" in first["msg"] else first["msg"][:120]
    return f"{field}: {message}" if field else message


# What users are told to give, by the kind of pydantic's fault.
_ADVICE = {
    "greater_than": "give more than {gt}",
    "greater_than_equal": "give at least {ge}",
    "less_than": "give less than {lt}",
    "less_than_equal": "give at most {le}",
    "int_parsing": "give a whole number",
    "int_from_float": "give a whole number",
    "float_parsing": "give a number",
    "bool_parsing": "give true or false",
    "string_too_long": "give at most {max_length} characters",
    "string_too_short": "give at least {min_length} character(s)",
    "string_pattern_mismatch": "give one name of letters, digits, '.', '_' and '-'",  # of settings, only names have one
}


def advice_of(fault: Mapping[str, Any]) -> str:
    """Return what to give in place of a value that a validation refused, in words for users."""
    advice = _ADVICE.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    return str(advice.format(**fault["ctx"]) if fault["type"] in _ADVICE and "ctx" in fault else advice)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
