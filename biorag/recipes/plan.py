"""The steps of a recipe at a scale: one command for each point of a step's axes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import TypeVar

from biorag.corpus.sources import DEMO
from biorag.errors import BadInputError, UsageError
from biorag.recipes.recipe import AxisValue, ExperimentRecipe, Point, Scale, StepTemplate, Value
from biorag.recipes.steps import FILES, OUT, TITLE, Step
from biorag.utils.files import sha256_of
from biorag.utils.registry import or_list
from biorag.utils.versions import installed_versions

T = TypeVar("T")

BLANK = re.compile(r"\{([^{}\"]+)\}")  # no object of JSON
# {step}, {step.name}, {step(axis=value, axis=value)}
NEEDED = re.compile(r"(?P<step>[\w-]+)(?:\((?P<at>[^()]*)\))?(?P<title>\.name)?")


@dataclass(frozen=True, slots=True)
class Instance:
    """A template's step at a point of its axes."""

    template: StepTemplate
    at: tuple[tuple[str, AxisValue], ...]
    step: Step


class RecipePlan:
    """The steps of a recipe at a scale.

    `backbone` names one of the recipe's, None the scale's own; `data` replaces `{data}` in the paths of inputs.

    Raises UsageError if there is no such scale or backbone; BadInputError if a command has a blank that nothing fills.
    """

    def __init__(self, recipe: ExperimentRecipe, scale: str, backbone: str | None, data: Path) -> None:
        self.recipe = recipe
        self.scale: Scale = _of(recipe.scales, scale, "scale")
        self.scale_name = scale
        self.backbone_name = backbone or self.scale.backbone
        self.backbone = _of(recipe.backbones, self.backbone_name, "backbone")
        self.axes: Mapping[str, tuple[AxisValue, ...]] = {**recipe.axes, **self.scale.axes}
        self.inputs = {name: path.replace("{data}", str(data)) for name, path in self.scale.inputs.items()}
        own = {"base": self.backbone.model, "data": str(data)}
        self._values: dict[str, Value] = {**self.backbone.values, **self.scale.values, **self.inputs, **own}
        # Every step reads the settings and is done by the program, so both are part of its key.
        self._settings = json.dumps([dict(self.scale.settings), installed_versions()], sort_keys=True)
        self._hash = cache(content_hash)
        self._made: dict[tuple[str, tuple[tuple[str, AxisValue], ...]], Instance] = {}
        self._making: list[str] = []
        self.instances = [
            self._instance(template, point) for template in self._templates() for point in self._points(template)
        ]

    @property
    def steps(self) -> list[Step]:
        """The steps, each once, in the recipe's order."""
        return [instance.step for instance in self.instances]

    def missing(self) -> dict[str, str]:
        """Return the missing inputs of the scale: name to path."""
        return {name: path for name, path in self.inputs.items() if path != DEMO and not Path(path).exists()}

    def lacking(self) -> list[str]:
        """Return missing inputs in words: the path, the data set, and where to get it."""
        wanted = [(path, self.recipe.inputs[name]) for name, path in self.missing().items()]
        return [f"{path} ({'; '.join(filter(None, (data.what, data.get)))})" for path, data in wanted]

    def at(self, step: str, at: Point) -> list[Instance]:
        """Return the instances of a step at some values of its axes; none if the scale leaves it out."""
        return [
            instance
            for instance in self.instances
            if instance.template.name == step and at.items() <= dict(instance.at).items()
        ]

    def _templates(self) -> Iterator[StepTemplate]:
        for template in self.recipe.steps:
            if not template.scales or self.scale_name in template.scales:
                yield template

    def _points(self, template: StepTemplate) -> Iterator[Point]:
        for values in product(*(self.axes[axis] for axis in template.axes)):
            point = dict(zip(template.axes, values, strict=True))
            if not template.when or any(_within(point, when) for when in template.when):
                yield point

    def _instance(self, template: StepTemplate, point: Point) -> Instance:
        key = (template.name, tuple(sorted(point.items())))
        if key not in self._made:
            if template.name in self._making:
                raise BadInputError(f"step {template.name!r} needs itself")
            self._making.append(template.name)
            self._made[key] = Instance(template, tuple(point.items()), self._step(template, point))
            self._making.pop()
        return self._made[key]

    def _step(self, template: StepTemplate, point: Point) -> Step:
        needs: dict[str, Step] = {}
        words = [filled for word in shlex.split(template.run) for filled in self._filled(template, word, point, needs)]
        texts = {
            file: BLANK.sub(lambda blank: self._blank(template, blank[1], point, needs), text)
            for file, text in template.files.items()
        }
        paths = [Path(word) for word in words if word in self.inputs.values() or "/" in word]
        paths += [Path(path) for path in self.inputs.values() if any(path in text for text in texts.values())]
        files = dict.fromkeys(path for path in paths if path.exists())
        name = f"{template.name} {', '.join(map(str, point.values()))}".strip()
        return Step(
            name, tuple(words), tuple(needs.values()), (self._settings, *map(self._hash, files)), tuple(texts.items())
        )

    def _filled(self, template: StepTemplate, word: str, point: Point, needs: dict[str, Step]) -> list[str]:
        """Return a word with its blanks filled; a blank alone may become several words, or none."""
        if (whole := BLANK.fullmatch(word)) and isinstance(value := self._values.get(whole[1]), tuple):
            return [one for part in value for one in self._filled(template, part, point, needs)]
        return [BLANK.sub(lambda blank: self._blank(template, blank[1], point, needs), word)]

    def _blank(self, template: StepTemplate, name: str, point: Point, needs: dict[str, Step]) -> str:
        if f"{{{name}}}" in (OUT, FILES, TITLE):
            return f"{{{name}}}"
        if name in point:
            return str(point[name])
        value = self._values.get(name)
        if value is not None and not isinstance(value, tuple):
            return BLANK.sub(lambda blank: self._blank(template, blank[1], point, needs), str(value))
        if (match := NEEDED.fullmatch(name)) and any(match["step"] == one.name for one in self._templates()):
            step = self._needed(template, match["step"], {**point, **_values_of(match["at"])})
            needs[step.key] = step
            return step.title_place if match["title"] else step.place
        raise BadInputError(f"step {template.name!r} names {{{name}}}, which is neither a value, an input nor a step")

    def _needed(self, template: StepTemplate, name: str, point: Point) -> Step:
        """Return the step of a name at a point."""
        for candidate in self._templates():
            if candidate.name != name or not point.keys() >= set(candidate.axes):
                continue
            for own in self._points(candidate):
                if all(str(own[axis]) == str(point[axis]) for axis in candidate.axes):
                    return self._instance(candidate, own).step
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
