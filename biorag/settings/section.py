"""What sections share: settings with their options and effects on results, and checks of paths and URLs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum, auto
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from biorag.utils.network import addresses, host_of, is_server
from biorag.utils.registry import or_list

LARGEST = 1_000_000  # of weights: beyond, products of scores lose their order, and in the end overflow
STARTER = "starter"  # an encoder and a generator that packages bring
RETRIEVAL, GENERATION, DATA, RUN = "Retrieval", "Generation", "Data", "Run"  # panels of the commands' help
ONCE = {"once": True}  # `extra` of a log message that a command shows once


class Effect(Enum):
    """How a setting affects results: by its value, by naming a model, index or file, or not at all."""

    VALUE, NAMES, NONE = auto(), auto(), auto()


@dataclass(frozen=True, slots=True)
class Option:
    """The option of a setting, and its effect on results."""

    # whether it has an option, `--k-init`, of one that is on also `--no-…`; then its short form, `-k`
    flag: bool = False
    short: str = ""
    panel: str | None = None  # the panel of the help that shows it
    models: tuple[str, ...] = ()  # the kinds of model that a setting of training applies to, if not to all of `TRAINED`
    choices: Iterable[str] = ()  # the values that it takes, if its type does not name them, such as a registry
    variable: str = ""  # the variable by which a service's own tools take it; ours takes precedence
    effect: Effect = Effect.VALUE


def setting(default: Any, help: str, *, bounds: tuple[float, float] | None = None, **marks: Any) -> Any:
    """Return the field of a setting; `marks` are attributes of `Option` and keywords of pydantic's `Field`."""
    option_marks = {field.name: marks.pop(field.name) for field in fields(Option) if field.name in marks}
    if bounds:
        marks |= {"ge": bounds[0], "le": bounds[1]}
    return Field(default=default, description=help, json_schema_extra={"option": Option(**option_marks)}, **marks)  # type: ignore[dict-item]


option = partial(setting, flag=True)


def option_of(field: FieldInfo) -> Option:
    """Return the option of a setting."""
    extra: Any = field.json_schema_extra
    mark: Option = extra["option"]
    return mark


def without_none(annotation: Any) -> Any:
    """Return a type without the None that it may also be."""
    if get_origin(annotation) in (Union, UnionType):
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """Return the values that a setting takes, if they are few and have names; else none."""
    annotation = without_none(field.annotation)
    if get_origin(annotation) is Literal:
        return tuple(str(value) for value in get_args(annotation))
    return tuple(option_of(field).choices)


def expanded(path: Path) -> Path:
    """Return a path with `~` replaced by the home directory; raise ValueError if nobody knows it."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{error}: write the path in full") from None


def check_url(value: str | None) -> str | None:
    """Refuse a text that is not a URL, or that `check_plain` refuses."""
    if value is not None and not is_server(value):
        raise ValueError("give a URL such as http://localhost:6333")
    return check_plain(value)


def check_plain(value: str | None) -> str | None:
    """Refuse a URL with more than a scheme, a host, a port and a path: manifests, reports and messages show it."""
    for address in addresses(value) if value is not None and is_server(value) else ():
        if "@" in address:
            raise ValueError("write / in a password as %2F, ? as %3F and # as %23, and @ in a path as %40")
        if not host_of(address):
            raise ValueError("its host or port cannot be read: write e.g. http://localhost:8080")
        if "?" in address or "#" in address:
            raise ValueError(
                "leave out everything after the path; keys belong in QDRANT_API_KEY, BIORAG_LLM_API_KEY, "
                "BIORAG_READER_API_KEY or NCBI_API_KEY"
            )
    return value


class BoundSecret(SecretStr):
    """A key or login and the server that it was set for, `host:port`; it is sent to no other."""

    def __init__(self, secret: str, server: str) -> None:
        super().__init__(secret)
        self.server = server


class Section(BaseModel):
    """Settings that belong together; immutable. A field's alias is its name in files, reports and variables."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_alias=True, validate_by_name=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _has_no_nul(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("it has a NUL character, which no name or path may have")
        return value

    @field_validator("*")
    @classmethod
    def _is_among_the_choices(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        choices = option_of(field).choices if field.json_schema_extra else ()
        if choices and value is not None and value not in choices:
            raise ValueError(f"use {or_list(choices)}")
        return value

    def flat(self) -> dict[str, Any]:
        """Return every setting of this section by its name."""
        return {info.alias or name: getattr(self, name) for name, info in type(self).model_fields.items()}

    def given(self) -> dict[str, Any]:
        """Return the settings of this section that were given, by their names."""
        fields = type(self).model_fields
        return {fields[name].alias or name: getattr(self, name) for name in self.model_fields_set}

    def public(self) -> dict[str, Any]:
        """Return the settings that determine results or name what does, as JSON values for reports."""
        return self._without(Effect.NONE)

    def identity(self) -> dict[str, Any]:
        """Return the settings whose values determine results, if they have one, as JSON for the identity of a run."""
        return {name: value for name, value in self._without(Effect.NONE, Effect.NAMES).items() if value is not None}

    def _without(self, *effects: Effect) -> dict[str, Any]:
        options = {name: info for name, info in type(self).model_fields.items() if info.json_schema_extra}
        left_out = {name for name, info in options.items() if option_of(info).effect in effects}
        return self.model_dump(mode="json", by_alias=True, exclude=left_out)
