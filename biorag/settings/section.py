"""What the sections share: the marks of a field for its flag, its variable and its effect on results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator
from pydantic.fields import FieldInfo

LARGEST = 1_000_000  # of weights: beyond, products of scores lose their order, and in the end overflow
STARTER = "starter"  # an encoder and a generator that packages bring
RETRIEVAL, GENERATION, DATA, RUN = "Retrieval", "Generation", "Data", "Run"  # panels of the commands' help

M = TypeVar("M")


class Flag:
    """The option of a setting, whose help is the field's description.

    Parameters
    ----------
    names : as Typer takes them: `--k`, `-k`, `--rerank/--no-rerank`
    panel : the panel of the help that shows it
    shows_default : whether help shows the default
    models : what a setting of training applies to, if not to all of `TRAINED`
    choices : the values that it takes, where its type does not name them, such as a registry
    """

    def __init__(
        self,
        *names: str,
        panel: str | None = None,
        shows_default: bool = True,
        models: tuple[str, ...] = (),
        choices: Iterable[str] = (),
    ) -> None:
        self.names, self.panel, self.shows_default, self.models = names, panel, shows_default, models
        self.choices = choices

    @property
    def longest(self) -> str:
        """The option as messages name it."""
        return max((name.partition("/")[0] for name in self.names), key=len)


@dataclass(frozen=True, slots=True)
class Variable:
    """The environment variable by which a service's own tools take a setting; ours takes precedence."""

    name: str


class Effect(Enum):
    """How a setting affects results, where its value does not determine them."""

    NAMES = auto()  # it names what determines them (a model, an index, a file), whose hash stands in identities
    NONE = auto()  # it concerns this machine or speed, or is a secret


class BoundSecret(SecretStr):
    """A key or login and the server that it was set for, `host:port`; it is sent to no other."""

    def __init__(self, secret: str, server: str) -> None:
        super().__init__(secret)
        self.server = server


Secret = SecretStr | None
ONCE = {"once": True}  # `extra` of a log message that a command shows once


def marked(field: FieldInfo, kind: type[M]) -> M | None:
    """Return the mark of a kind that a field carries."""
    return next((mark for mark in field.metadata if isinstance(mark, kind)), None)


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """Return the values that a setting takes, where they are few and have names; else none."""
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        return tuple(str(value) for value in get_args(annotation))
    flag = marked(field, Flag)
    return tuple(flag.choices) if flag else ()


def expanded(path: Path) -> Path:
    """Return a path with the home directory in the place of `~`; raise ValueError where nobody knows it."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{error}: write the path in full") from None


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

    def flat(self) -> dict[str, Any]:
        """Return every setting of this section by its name."""
        return {info.alias or name: getattr(self, name) for name, info in type(self).model_fields.items()}

    def public(self) -> dict[str, Any]:
        """Return the settings that determine results or name what does, as JSON values for reports."""
        return self._without(Effect.NONE)

    def identity(self) -> dict[str, Any]:
        """Return the settings whose values determine results, as JSON values for the identity of a run."""
        return self._without(Effect.NONE, Effect.NAMES)

    def _without(self, *effects: Effect) -> dict[str, Any]:
        left_out = {name for name, info in type(self).model_fields.items() if marked(info, Effect) in effects}
        return self.model_dump(mode="json", by_alias=True, exclude=left_out)
