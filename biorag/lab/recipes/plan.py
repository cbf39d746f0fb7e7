"""The steps of a recipe at a scale: one command for each point of a step's axes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from biorag.errors import BadInputError, UsageError, suggestion
from biorag.lab.recipes.getting import WantedInput, wanted_inputs
from biorag.lab.recipes.recipe import (
    MEMORY_ONLY,
    AxisValue,
    ExperimentRecipe,
    Point,
    RecipeServer,
    Scale,
    SettingValue,
    StepTemplate,
    Value,
    models_of,
    named_in,
)
from biorag.lab.recipes.steps import FIGURE, FILES, OUT, TITLE, Step
from biorag.settings.settings import FIELDS, checked
from biorag.utils.files import sha256_of
from biorag.utils.registry import or_list
from biorag.utils.versions import installed_versions

T = TypeVar("T")

BLANK = re.compile(r"\{([^{}\"]+)\}")  # no object of JSON
# {step}, {step.name}, {step:path.in.its.report}, {step(axis=value, axis=value)}; of a value also {value(axis=*)}
NAMED = re.compile(r"(?P<name>[\w-]+)(?:\((?P<at>[^()]*)\))?(?P<title>\.name)?(?::(?P<figure>[\w.@+-]+))?")
EVERY = "*"  # value of an axis
BATCH = "train_batch_size"
COLBERT = "a reranker timed beside colbert-ai"
EXTRAS = {
    COLBERT: "colbert",
    "train": "train",
    "tune prompt": "prompts",
    "bench mteb": "mteb",
    "--baseline": "bench",
    "--lora": "decoders",
}
SHARED = (("train", "retriever"), ("train", "reranker"))  # the trainings that several processes may share

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
    start = words.index(FIELDS[setting].flag)
    return [*words[:start], *words[start + (1 if use.given[setting] is True else 2) :]]


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
        step, colon, setting = name.partition(":")
        if not equals or not (setting if colon else step):
            raise UsageError(f"--set {text!r} is not NAME=VALUE or STEP:NAME=VALUE: write for example train_epochs=2")
        return cls(step, setting, value) if colon else cls(None, name, value)


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


@dataclass(frozen=True, slots=True)
class Instance:
    """A template's step at a point of its axes, and its command line as the program reads it."""

    template: StepTemplate
    at: tuple[tuple[str, AxisValue], ...]
    step: Step
    use: CommandUse


@dataclass(frozen=True, slots=True)
class Choices:
    """What a run chooses of a recipe: `data` replaces `{data}` in paths, `hardware` names a profile.

    Of a backbone None is the scale's own. `read` reads each command line; without it no line is checked, and every
    setting is in every key.
    """

    data: Path = Path("data")
    backbone: str | None = None
    hardware: str | None = None
    changes: tuple[Change, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict)
    read: Reader = field(default=lambda words: CommandUse(words[0], frozenset(FIELDS)))


class RecipePlan:
    """The steps of a recipe at a scale.

    Raises UsageError if there is no such scale, backbone or profile, or a change has no effect; BadInputError if a
    command has a blank that nothing fills.
    """

    def __init__(self, recipe: ExperimentRecipe, scale: str, choices: Choices = Choices()) -> None:
        self.recipe = recipe
        self.scale: Scale = _of(recipe.scales, scale, "scale")
        self.scale_name, self.choices = scale, choices
        self.backbone_name = choices.backbone or self.scale.backbone
        self.backbone = _of(recipe.backbones, self.backbone_name, "backbone")
        for name in choices.urls:
            _of(recipe.servers, name, "server")
        self.hardware = _of(recipe.hardware, choices.hardware, "hardware profile") if choices.hardware else None
        self.axes: Mapping[str, tuple[AxisValue, ...]] = {**recipe.axes, **self.scale.axes}
        data = str(choices.data)
        self.inputs = self.scale.paths(choices.data)
        optional = {name: recipe.inputs[name].option for name in self.inputs if recipe.inputs[name].option}
        options = {
            name: (option, path) for name, option in optional.items() if Path(path := self.inputs[name]).exists()
        }
        self._own: dict[str, Value] = {
            **self.inputs,
            **dict.fromkeys(optional, ()),
            **options,
            **{"base": self.backbone.model, "data": data},
        }
        self._chosen: dict[str, Value] = {**self.backbone.values, **self.scale.values, **self._own}
        self.values: dict[str, Value] = {**recipe.values, **self._chosen}
        self.changes = Changes(choices.changes, self.values, self.scale.settings)
        self._hash = cache(content_hash)
        self._versions = installed_versions()  # a step is done by the program, which is part of its key
        self._made: dict[tuple[str, tuple[tuple[str, AxisValue], ...]], Instance] = {}
        self._by_key: dict[str, Step] = {}
        self._making: list[str] = []
        self.instances = [
            self._instance(template, point) for template in self.templates() for point in self._points(template)
        ]
        self.changes.check_used()

    @property
    def steps(self) -> list[Step]:
        """The steps in the recipe's order, one for each point of a template; equal commands are one and the same."""
        return [instance.step for instance in self.instances]

    @property
    def extras(self) -> list[str]:
        """The extras of biorag that the steps need, by their commands and options."""
        said: set[str] = set()
        for arguments in (step.arguments for step in self.steps):
            said |= {arguments[0], " ".join(arguments[:2]), *(word for word in arguments if word.startswith("--"))}
            if {"--baseline", "--reranker"} <= set(arguments):
                said.add(COLBERT)
        return sorted({extra for word, extra in EXTRAS.items() if word in said})

    def missing(self) -> list[WantedInput]:
        """Return the missing inputs of the scale."""
        return wanted_inputs(self.recipe, self.scale_name, self.choices.data)

    def at(self, step: str, at: Point) -> list[Instance]:
        """Return the instances of a step at some values of its axes; none if the scale leaves it out."""
        return [
            instance
            for instance in self.instances
            if instance.template.name == step and at.items() <= dict(instance.at).items()
        ]

    @property
    def settings(self) -> dict[str, SettingValue]:
        """The settings of all steps: the scale's, and those of the hardware profile."""
        return {**self.scale.settings, **(self.hardware.settings if self.hardware else {})}

    @property
    def servers(self) -> dict[str, RecipeServer]:
        """The servers that steps ask, by name."""
        named = {name for step in self.steps for name in step.servers}
        return {name: server for name, server in self.recipe.servers.items() if name in named}

    @property
    def urls(self) -> dict[str, str]:
        """The URLs of these servers."""
        return {name: self.choices.urls.get(name, server.url) for name, server in self.servers.items()}

    @property
    def gated(self) -> dict[str, bool]:
        """The models whose licence is accepted first, and whether a step loads them, not a server alone."""
        loaded = {id for step in self.steps for id in named_in(step.arguments)}
        named, known = loaded | {server.model for server in self.servers.values()}, models_of(self.recipe)
        return {id: id in loaded for id in sorted(named & known.keys()) if known[id].gated}

    def templates(self) -> Iterator[StepTemplate]:
        """Yield the templates of the scale."""
        for template in self.recipe.steps:
            if not template.scales or self.scale_name in template.scales:
                yield template

    def _points(self, template: StepTemplate) -> Iterator[Point]:
        for values in product(*(self.axes[axis] for axis in template.axes)):
            point = dict(zip(template.axes, values, strict=True))
            wanted = not template.when or any(_within(point, when) for when in template.when)
            if wanted and not any(_within(point, without) for without in self.scale.without):
                yield point

    def _instance(self, template: StepTemplate, point: Point) -> Instance:
        key = (template.name, tuple(sorted(point.items())))
        if key not in self._made:
            if template.name in self._making:
                raise BadInputError(f"step {template.name!r} needs itself")
            self._making.append(template.name)
            step, use = self._step(template, point)
            # Equal commands of two templates are one step, whose index has the name that the first gave it.
            step = self._by_key.setdefault(step.key, step)
            self._made[key] = Instance(template, tuple(point.items()), step, use)
            self._making.pop()
        return self._made[key]

    def _step(self, template: StepTemplate, point: Point) -> tuple[Step, CommandUse]:
        needs: dict[str, Step] = {}
        words = [filled for word in shlex.split(template.run) for filled in self._filled(template, word, point, needs)]
        texts = {file: self._text(template, text, point, needs) for file, text in template.files.items()}
        paths = [Path(word) for word in words if word in self.inputs.values() or "/" in word]
        paths += [Path(path) for path in self.inputs.values() if any(path in text for text in texts.values())]
        files = dict.fromkeys(path for path in paths if path.exists())
        name = f"{template.name} {', '.join(map(str, point.values()))}".strip()
        use = self._read(name, words)
        all_words = len(words)
        words, changed = self.changes.applied(template.name, words, use)
        changed = {**template.settings, **changed}
        processes = self.hardware.processes if self.hardware and tuple(words[:2]) in SHARED else 1
        if processes > 1:
            if BATCH in use.given and BATCH not in changed:
                words, changed[BATCH] = without_option(words, use, BATCH), use.given[BATCH]
            changed[BATCH] = self._share({**self.scale.settings, **changed}, processes, name)
        if processes > 1 or len(words) < all_words:
            use = self._read(name, words)
        settings = {**self.scale.settings, **changed}
        read = {name: value for name, value in settings.items() if use.reads(name) and name not in MEMORY_ONLY}
        keyed = json.dumps([read, self._versions], sort_keys=True)
        of_profile = self.hardware.steps.get(template.name, {}) if self.hardware else {}
        inputs, extra = (keyed, *map(self._hash, files)), tuple({**of_profile, **changed}.items())
        return Step(name, tuple(words), tuple(needs.values()), inputs, tuple(texts.items()), extra, processes), use

    def _share(self, settings: Mapping[str, SettingValue], processes: int, name: str) -> int:
        """Return the rows of a batch that each process takes; raises UsageError if they cannot be equally many."""
        batch = checked({BATCH: settings[BATCH]} if BATCH in settings else {}).training.batch_size
        if batch % processes:
            raise UsageError(
                f"step {name!r} has batches of {batch:,} rows, which {processes} processes cannot share equally: name "
                f"another profile by --hardware, or another batch by --set {BATCH}"
            )
        return batch // processes

    def _read(self, name: str, words: Sequence[str]) -> CommandUse:
        try:
            return self.choices.read([FIGURE.sub("1", word) for word in words])
        except UsageError as error:
            raise BadInputError(f"step {name!r}: {error}") from None

    def _filled(self, template: StepTemplate, word: str, point: Point, needs: dict[str, Step]) -> list[str]:
        """Return a word with its blanks filled; a blank alone may become several words, or none."""
        if whole := BLANK.fullmatch(word):
            named = NAMED.fullmatch(whole[1])
            if named and (every := self._every(named["at"], point)):
                blank = f"{{{named['name']}}}"
                return [filled for at in every for filled in self._filled(template, blank, at, needs)]
            value = self._value(template, whole[1], point)
            if isinstance(value, tuple):
                return [filled for word in value for filled in self._filled(template, word, point, needs)]
            if value is None and whole[1] in self.recipe.servers:
                return self.recipe.servers[whole[1]].words(whole[1])
        return [self._text(template, word, point, needs)]

    def _text(self, template: StepTemplate, text: str, point: Point, needs: dict[str, Step]) -> str:
        return BLANK.sub(lambda blank: self._blank(template, blank[1], point, needs), text)

    def _every(self, at: str | None, point: Point) -> list[Point]:
        """Return the points at each value of an axis that a blank names as `axis=*`; none if it names none."""
        values = _values_of(at)
        axis = next((axis for axis, value in values.items() if value == EVERY and axis in self.axes), None)
        return [{**point, **values, axis: value} for value in self.axes[axis]] if axis else []

    def _blank(self, template: StepTemplate, name: str, point: Point, needs: dict[str, Step]) -> str:
        if f"{{{name}}}" in (OUT, FILES, TITLE):
            return f"{{{name}}}"
        if name in point:
            return str(point[name])
        named = NAMED.fullmatch(name)
        if named and (every := self._every(named["at"], point)):
            return "".join(self._blank(template, named["name"], at, needs) for at in every)
        value = self._value(template, name, point)
        if value is not None and not isinstance(value, tuple):
            return self._text(template, str(value), point, needs)
        if named and any(named["name"] == other.name for other in self.templates()):
            step = self._needed(template, named["name"], {**point, **_values_of(named["at"])})
            needs[step.key] = step
            if named["figure"]:
                return step.figure_place(named["figure"])
            return step.title_place if named["title"] else step.place
        raise BadInputError(f"step {template.name!r} names {{{name}}}, which is neither a value, an input nor a step")

    def _value(self, template: StepTemplate, name: str, point: Point) -> Value | None:
        """Return what stands for a blank in a template's command at a point, changed if a change says so."""
        value = self.values.get(name)
        for axis, names in self.recipe.by.items():
            if name in names and axis in point and name not in self._chosen:
                value = names[name].get(str(point[axis]), names[name].get(EVERY, value))
        return self.changes.value(template.name, name, value)

    def _needed(self, template: StepTemplate, name: str, point: Point) -> Step:
        """Return the step of a name at a point."""
        for candidate in self.templates():
            if candidate.name != name or not point.keys() >= set(candidate.axes):
                continue
            for values in self._points(candidate):
                if all(str(values[axis]) == str(point[axis]) for axis in candidate.axes):
                    return self._instance(candidate, values).step
        raise BadInputError(
            f"step {template.name!r} needs {name!r}, which the recipe does not have at {dict(point)}: name the values "
            f"of its axes, {{{name}(axis=value)}}"
        )


def _within(point: Point, when: Mapping[str, tuple[AxisValue, ...]]) -> bool:
    return all(point.get(axis) in allowed for axis, allowed in when.items())


def _values_of(at: str | None) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in (at or "").split(",") if pair.strip()]
    return {axis.strip(): value.strip() for axis, _, value in pairs}


def _of(known: Mapping[str, T], name: str, kind: str) -> T:
    if name not in known:
        raise UsageError(f"there is no {kind} {name!r} in this recipe: use {or_list(known)}")
    return known[name]


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file, or the names and hashes of a folder's files."""
    if path.is_file():
        return sha256_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return json.dumps([(str(file.relative_to(path)), sha256_of(file)) for file in files])
