"""Groups of options: a command names the settings and the groups that it takes, and gets them made and checked.

    @groups.expanded
    def search(query: ..., settings: Annotated[Settings, Flags(RetrievalSettings, "name")], filters: Filters) -> None:

Typer reads a function's signature. This one has an option for each setting named by `Flags` instead of `settings`, and
an option for each field of a dataclass instead of the dataclass, under a panel of help if its annotation names one.
"""

from __future__ import annotations

import inspect
import keyword
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer

from biorag.commands import show
from biorag.commands.completion import choices, index_names
from biorag.commands.help import name_of
from biorag.commands.outputs import check_outputs
from biorag.errors import UsageError
from biorag.settings.section import Section, choices_of, without_none
from biorag.settings.settings import AN_OPTION, FIELDS, SECTIONS, URLS, SettingField, Settings, checked
from biorag.settings.sources import configuration_file, keep_configured, load_settings
from biorag.utils.network import is_server, restrict

CONTEXT = "ctx"


class Flags:
    """Which settings a command takes as options: single ones by their flat names, and sections `but` for some.

    `model` is what is trained, see `Option.models`; with `finds_index` the only index stands in for one that is not
    named. Help shows the `default` of a command that has one of its own.
    """

    def __init__(
        self,
        *of: type[Section] | str,
        but: Iterable[str] = (),
        model: str | None = None,
        finds_index: bool = False,
        default: str | None = None,
    ) -> None:
        self.finds_index, self._default = finds_index, default
        self._of, self._but, self._model = of, frozenset(but), model

    def parameters(self) -> Iterator[tuple[str, inspect.Parameter]]:
        """Yield the parameter of each option, after the name of its setting."""
        for name, entry in self._fields():
            assert entry.flag, f"{name} has no option"
            if self._model in (entry.option.models or (self._model,)):
                kind = _type_of_option(entry.field.annotation) | None
                annotation: Any = Annotated[kind, _option(name, entry, self._default)]
                yield name, _parameter(f"{name}_" if keyword.iskeyword(name) else name, annotation, None)

    def _fields(self) -> Iterator[tuple[str, SettingField]]:
        for selected in self._of:
            if isinstance(selected, str):
                yield selected, FIELDS[selected]
                continue
            for name, entry in FIELDS.items():
                if entry.section and SECTIONS[entry.section] is selected and entry.flag and name not in self._but:
                    yield name, entry


def _option(name: str, entry: SettingField, default: Any = None) -> Any:
    """Return the option of a setting; its default, which is not given, is only shown."""
    default = entry.field.default if default is None else default
    shown: str | bool = False
    if default is not None and default is not False and name != "name":
        shown = str(default).lower() if isinstance(default, bool) else str(default)
    kind = choices(values) if (values := choices_of(entry.field)) else {}
    described = entry.field.description
    if name == "name":
        kind = {"autocompletion": index_names}
        described = f"Index to use. Default: {default}." if default != entry.field.default else described
    spellings = [f"{entry.flag}/--no-{entry.flag[2:]}" if default is True else entry.flag, entry.option.short]
    return typer.Option(
        *filter(None, spellings),
        help=described,
        show_default=shown,
        rich_help_panel=entry.option.panel,
        **kind,
    )


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The settings that options of this command line set, its configuration file, and its `parameters` by name."""

    values: Mapping[str, Any]
    file: Path | None
    parameters: Collection[str] = ()

    def value(self, setting: str) -> Any:
        """Return the value that was given; None for none."""
        return self.values.get(setting)

    def first(self, *settings: str) -> str | None:
        """Return the option of the first of these settings that was given; None for none."""
        return next((FIELDS[setting].flag for setting in self.values if setting in settings), None)

    @property
    def configuration(self) -> Path:
        """The configuration file that is read if it exists."""
        return configuration_file(self.file)

    @property
    def options(self) -> list[str]:
        """The options that were given."""
        return [FIELDS[setting].flag for setting in self.values]


Options = Mapping[str, inspect.Parameter]
Values = Mapping[str, Any]


class _ParameterGroup(NamedTuple):
    """A parameter of a command: its options, its argument made of their values, the options by their setting."""

    options: Options
    argument: Callable[[Values, CommandLine], Any]
    names: Mapping[str, str] = MappingProxyType({})


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Typer with the options of its groups, which the function gets made and checked."""
    parameters = inspect.signature(command, eval_str=True).parameters
    parts = {name: _group_of(parameter) for name, parameter in parameters.items()}
    names = {setting: name for part in parts.values() for setting, name in part.names.items()}

    @wraps(command)
    def run(**values: Any) -> None:
        _check_numbers(values)
        context = values[CONTEXT]
        sources = {name: context.get_parameter_source(name) for name in values if name != CONTEXT}
        set_here = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
        settings = {setting: values[name] for setting, name in names.items() if values[name] is not None}
        line = CommandLine(settings, context.obj["config"], set_here)
        arguments = {name: part.argument(values, line) for name, part in parts.items()}
        check_outputs(options, values, context.info_name)  # now that the home is known
        command(**arguments)

    options = {CONTEXT: _parameter(CONTEXT, typer.Context), **_options_of(parts.values())}
    run.__dict__["__signature__"] = inspect.Signature(list(options.values()))
    run.__annotations__ = {name: option.annotation for name, option in options.items()}
    return run


def _group_of(parameter: inspect.Parameter) -> _ParameterGroup:
    name, annotation = parameter.name, parameter.annotation
    marks = getattr(annotation, "__metadata__", ())
    kind = get_args(annotation)[0] if marks else annotation
    if kind is Settings:
        return _settings_part(marks)
    if kind is CommandLine:
        return _ParameterGroup({}, lambda values, line: line)
    if isinstance(kind, type) and is_dataclass(kind):
        return _group_part(kind, next(iter(marks), None))
    return _ParameterGroup(
        {name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)}, lambda values, line: values[name]
    )


def _settings_part(flags: Collection[Flags]) -> _ParameterGroup:
    options = dict(option for selected in flags for option in selected.parameters())
    finds_index = any(selected.finds_index for selected in flags)

    def argument(values: Values, line: CommandLine) -> Settings:
        settings = load_settings({"offline": values[CONTEXT].obj["offline"], **line.values}, line.file)
        keep_configured(line.file, settings)
        named = [line.values[name] for name in URLS if is_server(line.values.get(name, ""))]
        restrict(named if settings.services.offline else None)
        return with_index(settings) if finds_index and not is_named(settings) else settings

    names = {setting: option.name for setting, option in options.items()}
    return _ParameterGroup({option.name: option for option in options.values()}, argument, names)


def _group_part(kind: type[Any], panel: str | None) -> _ParameterGroup:
    annotations = get_type_hints(kind, include_extras=True)
    parts = {}
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parts[field.name] = _group_of(_parameter(field.name, _in_panel(annotations[field.name], panel), default))

    def argument(values: Values, line: CommandLine) -> Any:
        return kind(**{name: part.argument(values, line) for name, part in parts.items()})

    return _ParameterGroup(_options_of(parts.values()), argument)


def _check_numbers(values: Mapping[str, Any]) -> None:
    """Refuse numbers that no computation takes."""
    options = {parameter.name: parameter for parameter in values[CONTEXT].command.params}
    for name, value in values.items():
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise UsageError(f"{name_of(options[name])} {number} is not a finite number: give another")
            if isinstance(number, int) and abs(number) >= 2**63:
                raise UsageError(f"{name_of(options[name])} {number} is beyond 64 bits: give a smaller number")


def overridden(settings: Settings, **values: Any) -> Settings:
    """Return settings with the values that options of a command's own give; None was not given."""
    changes = {setting: value for setting, value in values.items() if value is not None}
    return checked({**settings.flat(), **changes}, dict.fromkeys(changes, AN_OPTION))


def is_named(settings: Settings) -> bool:
    """Return whether an option, a variable or a file names the index; of settings as they were loaded."""
    return "name" in settings.index.model_fields_set


def with_index(settings: Settings) -> Settings:
    """Return settings that name no index with the one to use, and say which; unchanged if it is not clear."""
    from biorag.indexes.store import index_names, unnamed_index

    name = unnamed_index(settings)
    if name is None:
        return settings
    others = len(index_names(settings)) - 1
    why = f"one of {others + 1}, choose with --name" if others else "the only one"
    show.err.print(f"Index {name!r} ({why})", soft_wrap=True)
    return settings.replace(name=name)


def _options_of(parts: Iterable[_ParameterGroup]) -> dict[str, inspect.Parameter]:
    return {name: option for part in parts for name, option in part.options.items()}


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _in_panel(annotation: Any, panel: str | None) -> Any:
    """Return an option's annotation with another panel; a group's with the panel for its options."""
    if panel is None:
        return annotation
    if get_origin(annotation) is not Annotated:
        return Annotated[annotation, panel]
    kind, option, *marks = get_args(annotation)
    option = copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option, *marks]


def _type_of_option(annotation: Any) -> Any:
    """Return the type that Typer parses: for choices their text, which the settings check, naming the source."""
    kind = without_none(annotation)
    return str if get_origin(kind) is Literal else kind
