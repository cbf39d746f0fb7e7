"""What a user changes of a recipe by `--set`, and which settings a step's command reads."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from biorag.errors import UsageError, suggestion
from biorag.lab.recipes.recipe import SettingValue, Value
from biorag.settings.settings import FIELDS, checked

EVERYWHERE = frozenset(("precision", "seed"))  # settings that also commands without their option read


@dataclass(frozen=True, slots=True)
class CommandUse:
    """A step's command line as the program reads it: the settings it can be given, and those that it is given."""

    name: str
    takes: frozenset[str] = frozenset()
    given: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def reads(self, setting: str) -> bool:
        """Return whether the setting can change what the command does; one without an option is read by all."""
        return setting in self.takes or setting in EVERYWHERE or not FIELDS[setting].flag


def without_option(words: Sequence[str], use: CommandUse, setting: str) -> list[str]:
    """Return a command without the option of a setting that it is given."""
    place = words.index(FIELDS[setting].flag)
    return [*words[:place], *words[place + (1 if use.given[setting] is True else 2) :]]


# Reads the words after `biorag`; raises UsageError if the program would.
Reader = Callable[[Sequence[str]], CommandUse]


@dataclass(frozen=True, slots=True)
class Change:
    """A value of the recipe, or a setting, that a run changes; for one step by its name, else for all."""

    step: str | None
    name: str
    value: str

    @classmethod
    def parsed(cls, text: str) -> Change:
        """Read `NAME=VALUE` or `STEP:NAME=VALUE`; raises UsageError if it is neither."""
        name, equals, value = text.partition("=")
        step, colon, rest = name.partition(":")
        if not equals or not (rest if colon else step):
            raise UsageError(f"--set {text!r} is not NAME=VALUE or STEP:NAME=VALUE: write for example train_epochs=2")
        return cls(step, rest, value) if colon else cls(None, name, value)


class Changes:
    """Changes to a plan's values and settings, and what each replaced.

    Raises UsageError if one names neither a value of the recipe nor a setting, or has a value that is not allowed.
    """

    def __init__(
        self, changes: Sequence[Change], values: Mapping[str, Value], settings: Mapping[str, SettingValue]
    ) -> None:
        self._changes, self._settings = changes, settings
        self._replaced: dict[Change, Any] = {}
        for change in changes:
            if change.name in values:
                continue
            if change.name not in FIELDS:
                near = suggestion(change.name, (*values, *FIELDS))
                raise UsageError(
                    f"--set {change.name}: the recipe has no such value, and biorag no such setting{near}: use one of "
                    f"{', '.join(sorted(values))}, or a setting of docs/settings.md"
                )
            checked({change.name: change.value}, {change.name: "--set"})

    def value(self, step: str, name: str, value: Value | None) -> Value | None:
        """Return a value as a step's command has it; of a list the words of the change."""
        for change in self._of(step):
            if change.name == name and value is not None:
                self._replaced.setdefault(change, list(value) if isinstance(value, tuple) else value)
                value = tuple(shlex.split(change.value)) if isinstance(value, tuple) else change.value
        return value

    def applied(self, step: str, words: Sequence[str], use: CommandUse) -> tuple[list[str], dict[str, SettingValue]]:
        """Return a step's command without the options that changed settings replace, and these settings."""
        words, changed = list(words), dict[str, SettingValue]()
        for change in self._of(step):
            if change.name in FIELDS and use.reads(change.name):
                before: Any = self._settings.get(change.name, FIELDS[change.name].field.default)
                if FIELDS[change.name].flag in words and change.name in use.given:
                    before, words = use.given[change.name], without_option(words, use, change.name)
                self._replaced.setdefault(change, before)
                changed[change.name] = checked({change.name: change.value}).flat()[change.name]
        return words, changed

    def check_used(self) -> None:
        """Raise UsageError if a change is of no step."""
        for change in self._changes:
            if change not in self._replaced:
                where = f"step {change.step!r}" if change.step else "any step"
                raise UsageError(f"--set {change.name} has no effect on {where} at this scale: check both names")

    def deviations(self) -> list[dict[str, Any]]:
        """Return each change with what it replaced, as reports have them."""
        return [
            {"step": change.step or "all", "name": change.name, "value": change.value, "was": was}
            for change, was in self._replaced.items()
        ]

    def _of(self, step: str) -> list[Change]:
        return [change for change in self._changes if change.step in (None, step)]
