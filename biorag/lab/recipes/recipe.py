"""Recipe files: inputs, steps, axes, and tables with the paper's own figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
)

from biorag.errors import BadInputError, MissingError, UsageError
from biorag.lab.recipes import papers
from biorag.models.published import published
from biorag.settings.settings import SECRETS, URLS, WITHOUT_EFFECT, checked
from biorag.settings.sources import PREFIX
from biorag.utils.network import is_server, login_apart
from biorag.utils.parsing import parse_toml, read_toml

AxisValue = str | int | float
Value = AxisValue | tuple[str, ...]
Point = Mapping[str, AxisValue]  # a value on each of some axes
Known = float | Literal[""]  # a figure of the paper; empty where it has none
FigurePath = str | tuple[str, ...]  # keys of a report joined by dots; of several figures, their mean
SettingValue = str | int | float | bool


MODELS = Path(__file__).with_name("models.toml")
SEQ2SEQ = "seq2seq:"  # before the id of a model that writes questions
MODEL_OPTIONS = (
    *("--base", "--encoder", "--query-encoder", "--passage-encoder", "--model", "--reranker", "--baseline"),
)
# Settings that change memory and time alone; which graph is used decides a result.
MEMORY_ONLY = WITHOUT_EFFECT - {"graph"}


def _are_settings(values: Mapping[str, SettingValue]) -> Mapping[str, SettingValue]:
    try:
        checked(values)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return values


def _change_no_result(values: Mapping[str, SettingValue]) -> Mapping[str, SettingValue]:
    for name in values:
        if name not in MEMORY_ONLY:
            raise ValueError(f"{name} changes results, which a [hardware] profile must not: give it by --set")
    return values


SharedSettings = Annotated[Mapping[str, SettingValue], AfterValidator(_are_settings)]
MemorySettings = Annotated[SharedSettings, AfterValidator(_change_no_result)]


class _RecipePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NamedModel(_RecipePart):
    """A published model that steps name by its id.

    `config` is the part of its config.json that sets the architecture and the sizes. `form` is how it is published:
    transformers' bare model, a sentence-transformers folder with its `pooling`, or a ColBERT checkpoint.
    """

    licence: str
    form: Literal["transformers", "sentence-transformers", "colbert"] = "transformers"
    pooling: Literal["mean", "cls", "last", "weightedmean"] = "mean"
    pickled: bool = Field(False, description="Published without safetensors.")
    gated: bool = Field(False, description="Its licence is accepted on its page first.")
    config: Mapping[str, Any] = Field(min_length=1)


class Input(_RecipePart):
    """A data set: its description, how to get it, and its size at each scale.

    `format` says what it looks like, `files` those of a folder by their names in it, so that the tests can rehearse the
    recipe on stand-ins. An input with an `option` is left out, with that option, where it is not there.
    """

    what: str
    get: str = Field("", description="A file's URL, `hf download …`, or what a person does.")
    licence: str = ""
    sha256: str = Field("", description="As published; empty where the publisher gives none.")
    gigabytes: float = Field(0, ge=0, description="To download.")
    tokens: int = Field(128, ge=1, description="Tokens of a text, about.")
    size: Mapping[str, int] = {}
    format: str = ""
    files: Mapping[str, str] = {}
    option: str = ""


class RecipeServer(_RecipePart):
    """A server that steps ask: the blank `{name}` is replaced by options that name it and its model.

    `tokens` and `price` are those of a call's prompt and of its reply; a price is of a million tokens, in US dollars.
    """

    what: str
    url: str
    option: str = Field("--llm", description="The option that names it; that of its model ends in -model.")
    model: str = ""
    get: str = ""
    calls: Mapping[str, int] = {}
    tokens: tuple[int, int] = (0, 0)
    price: tuple[float, float] = (0.0, 0.0)

    def cost(self, scale: str) -> float:
        """Return the estimated price of all calls at a scale, in US dollars."""
        of_a_call = sum(price * tokens for price, tokens in zip(self.price, self.tokens, strict=True))
        return of_a_call * self.calls.get(scale, 0) / 1e6

    def words(self, name: str) -> list[str]:
        """Return the options; its URL, which may change, is left as a blank."""
        return [self.option, f"{{server:{name}}}", *([f"{self.option}-model", self.model] if self.model else [])]


class Backbone(_RecipePart):
    """The model that replaces `{base}`, and values where a scale has none."""

    model: str
    values: Mapping[str, Value] = {}


class HardwareProfile(_RecipePart):
    """How the recipe runs on devices of `memory_gb` or more each: settings that change memory and time alone.

    `steps` has those of single steps; `scales` restricts it to some scales. Of several `processes` each has a device
    and its share of the batch; such a profile is taken by name alone.
    """

    about: str
    scales: tuple[str, ...] = ()
    memory_gb: float = Field(gt=0)
    processes: int = Field(1, ge=1, description="Of a training of a retriever or a reranker.")
    settings: MemorySettings = {}
    steps: Mapping[str, MemorySettings] = {}


class Scale(_RecipePart):
    """A size to run the recipe at: paths of the inputs, values, settings, and the axes that differ.

    `departures` say where it departs from the paper. Steps at points of `without` are left out.
    """

    about: str
    departures: tuple[str, ...] = ()
    backbone: str
    inputs: Mapping[str, str] = {}
    values: Mapping[str, Value] = {}
    axes: Mapping[str, tuple[AxisValue, ...]] = {}
    without: tuple[Mapping[str, tuple[AxisValue, ...]], ...] = ()
    settings: SharedSettings = {}

    def paths(self, data: Path) -> dict[str, str]:
        """Return the paths of the inputs in a folder of data, by name."""
        return {name: path.replace("{data}", str(data)) for name, path in self.inputs.items()}


class StepWork(_RecipePart):
    """The work of a step, for its estimate: texts of an input, or a number of them, encoded or trained on.

    A training holds its rows in the host's memory: those of the input `held`, if they are others.
    """

    kind: Literal["encode", "train"]
    of: str | int
    texts: float = Field(1, gt=0, description="Texts of each row.")
    tokens: int | None = Field(None, ge=1)
    held: str | None = None

    @property
    def negatives(self) -> int:
        """The negatives of a training row: its texts but for a query and its passage."""
        return max(0, round(self.texts) - 2)


def _conditions(when: object) -> object:
    return [when] if isinstance(when, dict) else when


class StepTemplate(_RecipePart):
    """A command, repeated for every point of its axes; `files` are written for it, texts by name.

    `when` restricts it to some values of its axes; of several conditions one is enough. Templates may share a name if
    their conditions exclude each other. `settings` are its own, beside the scale's.
    """

    name: str
    run: str
    files: Mapping[str, str] = {}
    axes: tuple[str, ...] = ()
    when: Annotated[tuple[Mapping[str, tuple[AxisValue, ...]], ...], BeforeValidator(_conditions)] = ()
    scales: tuple[str, ...] = ()
    settings: SharedSettings = {}
    work: StepWork | None = None


class ReportedItem(_RecipePart):
    """A table, a figure, or a figure in the text of the paper: the tables, plots or steps that have it here.

    `why` says what is done otherwise than there, or why there is nothing.
    """

    item: str
    what: str
    by: tuple[str, ...] = ()
    how: Literal["as described", "ours", "cannot be had"]
    why: str = ""

    @model_validator(mode="after")
    def _is_told(self) -> ReportedItem:
        if not (self.why or (self.by and self.how == "as described")):
            raise ValueError(f"{self.item} has no table, plot or step that fills it as described, and no reason")
        return self


class Figure(_RecipePart):
    """A number in a step's report, at some scales or at all; points of axes that `at` does not name are averaged."""

    step: str
    at: Mapping[str, AxisValue] = {}
    value: FigurePath = ""
    scales: tuple[str, ...] = ()


class Column(_RecipePart):
    """A column of a table, and where its figure is in a report, or what fills `{}` in the path of rows that have one.

    `scales` restricts it to those that measure it. A file may give a list: title, value, and such scales if any.
    """

    title: str
    value: FigurePath
    scales: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, given: object) -> object:
        if not isinstance(given, list) or len(given) < 2:
            return given
        return {"title": given[0], "value": given[1], "scales": given[2:]}


class TableRow(_RecipePart):
    """A row of a table, with the paper's figures by column; without a step, or at others than `scales`, these alone."""

    title: str
    step: str = ""
    at: Mapping[str, AxisValue] = {}
    path: str = ""
    scales: tuple[str, ...] = ()
    paper: tuple[Known, ...] = ()

    def figure(self, column: Column) -> Figure | None:
        """Return where a cell's figure is; None for a row without a step."""
        paths = (column.value,) if isinstance(column.value, str) else column.value
        filled = tuple(self.path.replace("{}", path) if self.path else path for path in paths)
        value = filled[0] if isinstance(column.value, str) else filled
        scales = self.scales or column.scales
        return Figure(step=self.step, at=self.at, value=value, scales=scales) if self.step else None


class PaperTable(_RecipePart):
    """A table of the paper, to be filled; `against` is the title of the row that the others are compared with.

    `step`, `at` and `path` are those of rows that have none of their own; `step = ""` in a row stands for none.
    `rows_of` is the title of a table before it whose rows it has, without the paper's figures. `scales` are those of
    columns that have none of their own.
    """

    title: str
    scales: tuple[str, ...] = ()
    note: str = ""
    against: str = ""
    step: str = ""
    at: Mapping[str, AxisValue] = {}
    path: str = ""
    columns: tuple[Column, ...] = Field(min_length=1)
    rows: tuple[TableRow, ...] = ()
    rows_of: str = ""

    @model_validator(mode="before")
    @classmethod
    def _with_scales(cls, given: object) -> object:
        if not isinstance(given, dict) or not given.get("scales"):
            return given
        columns = map(Column.model_validate, given.get("columns", ()))
        return {
            **given,
            "columns": [{"scales": given["scales"], **one.model_dump(exclude_defaults=True)} for one in columns],
        }

    @model_validator(mode="after")
    def _rows_fit(self) -> PaperTable:
        for row in self.rows:
            if row.paper and len(row.paper) != len(self.columns):
                raise ValueError(
                    f"row {row.title!r} has {len(row.paper)} figures of the paper, not {len(self.columns)}"
                )
        if self.against and self.against not in [row.title for row in self.rows]:
            raise ValueError(f"table {self.title!r} has no row {self.against!r} to compare with")
        return self

    def number(self, column: str) -> int:
        """Return the place of a column."""
        return [one.title for one in self.columns].index(column)


class PlotColumn(_RecipePart):
    """A column of a table, by their titles."""

    table: str
    title: str


class RecipePlot(_RecipePart):
    """A plot of tables: bars or dots of columns of one, a colour each, or points, whose x and y are two columns."""

    title: str
    kind: Literal["bars", "dots", "points"] = "bars"
    columns: tuple[PlotColumn, ...] = Field(min_length=1)
    rows: tuple[str, ...] = Field((), description="Titles of the rows that are drawn, all by default.")
    log_x: bool = False

    @model_validator(mode="after")
    def _columns_fit(self) -> RecipePlot:
        if self.kind == "points" and len(self.columns) != 2:
            raise ValueError(f"plot {self.title!r}: points have two columns, x and y")
        if self.kind != "points" and len({column.table for column in self.columns}) > 1:
            raise ValueError(f"plot {self.title!r}: its columns are of several tables")
        return self


class RecipeFinding(_RecipePart):
    """A comparison that the paper draws: `higher` is the larger figure in it, `paper` the difference that it prints.

    `not_tested` says why what a scale compares is not what the paper compares, by the scale's name.
    """

    text: str
    higher: Figure
    lower: Figure
    paper: float | None = None
    not_tested: Mapping[str, str] = {}

    @property
    def both(self) -> tuple[Figure, Figure]:
        """The two figures."""
        return self.higher, self.lower


class TableFindings(_RecipePart):
    """Comparisons of rows of a table by one of its columns: a text, and the titles of the higher and the lower row.

    `at` takes the place of the table's.
    """

    of: tuple[str, str]
    at: Mapping[str, AxisValue] | None = None
    claims: tuple[tuple[str, str, str], ...]
    not_tested: Mapping[str, str] = {}


class ExperimentRecipe(_RecipePart):
    """A recipe file."""

    title: str
    paper: str = ""
    reported: tuple[ReportedItem, ...] = Field((), description="What the paper reports, in its order.")
    inputs: Mapping[str, Input] = {}
    servers: Mapping[str, RecipeServer] = {}
    models: Mapping[str, NamedModel] = {}
    backbones: Mapping[str, Backbone]
    hardware: Mapping[str, HardwareProfile] = {}
    values: Mapping[str, Value] = Field({}, description="For blanks, where backbone and scale have none of the name.")
    axes: Mapping[str, tuple[AxisValue, ...]] = {}
    by: Mapping[str, Mapping[str, Mapping[str, Value]]] = Field(
        {}, description='Values that depend on an axis: axis, name, value of the axis ("*": any other).'
    )
    scales: Mapping[str, Scale] = Field(min_length=1)
    steps: tuple[StepTemplate, ...] = Field(min_length=1)
    tables: tuple[PaperTable, ...] = ()
    findings: tuple[TableFindings | RecipeFinding, ...] = ()
    plots: tuple[RecipePlot, ...] = ()

    @model_validator(mode="after")
    def _names_are_known(self) -> ExperimentRecipe:
        steps = {step.name for step in self.steps}
        named = {
            "step": steps,
            "axis": self.axes,
            "scale": self.scales,
            "backbone": self.backbones,
            "input": self.inputs,
            "column": [(table.title, column.title) for table in self.tables for column in table.columns],
            "row": [(table.title, row.title) for table in self.tables for row in table.rows],
            "table, plot or step": [
                *(table.title for table in self.tables),
                *(plot.title for plot in self.plots),
                *steps,
            ],
        }
        for where, kind, names in self._references():
            for name in names:
                if name not in named[kind]:
                    raise ValueError(f"{where}: there is no {kind} {name!r}")
        self.compared()
        values = chain(self.values, self.servers, self.axes, *self.by.values())
        chosen = chain(
            *(scale.values for scale in self.scales.values()), *(base.values for base in self.backbones.values())
        )
        for name in sorted(steps & {*values, *chosen}):
            raise ValueError(f"{name!r} is both a step and a value: rename one")
        return self

    def _references(self) -> Iterator[tuple[str, str, Iterable[object]]]:
        """Yield the names by which parts of the recipe refer to others: where, of what kind, and which."""
        for number, table in enumerate(self.tables):
            if table.rows_of not in ("", *(earlier.title for earlier in self.tables[:number])):
                raise ValueError(f"table {table.title!r}: there is no table {table.rows_of!r} before it")
        yield from self._references_of_figures()
        for step in self.steps:
            yield f"step {step.name!r}", "axis", [*step.axes, *chain(*step.when)]
            yield f"step {step.name!r}", "scale", step.scales
        yield "by", "axis", self.by
        for name, profile in self.hardware.items():
            yield f"hardware profile {name!r}", "scale", profile.scales
            yield f"hardware profile {name!r}", "step", profile.steps
        for name, scale in self.scales.items():
            yield f"scale {name!r}", "backbone", [scale.backbone]
            yield f"scale {name!r}", "axis", [*scale.axes, *chain(*scale.without)]
            yield f"scale {name!r}", "input", scale.inputs
        for plot in self.plots:
            yield f"plot {plot.title!r}", "column", [(column.table, column.title) for column in plot.columns]

    def _references_of_figures(self) -> Iterator[tuple[str, str, Iterable[object]]]:
        for item in self.reported:
            yield item.item, "table, plot or step", item.by
        for table in self.tables:
            for row in self.rows(table):
                yield f"table {table.title!r}", "step", [row.step] if row.step else []
                yield f"table {table.title!r}", "axis", row.at
        for group in self.findings:
            if isinstance(group, TableFindings):
                title, where = group.of[0], f"findings of {group.of[0]!r}"
                yield where, "column", [group.of]
                yield where, "row", [(title, row) for _, *rows in group.claims for row in rows]
                yield where, "axis", group.at or {}
            else:
                yield f"finding {group.text!r}", "step", [figure.step for figure in group.both]
                yield f"finding {group.text!r}", "axis", chain(*(figure.at for figure in group.both))
            yield "findings", "scale", group.not_tested

    def profile_for(self, scale: str, memory: float = math.inf) -> str | None:
        """Return the hardware profile of a scale for a device with so many bytes: the largest one; None for none."""
        fitting = {
            profile.memory_gb: name
            for name, profile in self.hardware.items()
            if profile.memory_gb * 1e9 <= memory
            and profile.processes == 1
            and (not profile.scales or scale in profile.scales)
        }
        return fitting[max(fitting)] if fitting else None

    def rows(self, table: PaperTable) -> list[TableRow]:
        """Return a table's rows with its step, points and path, or those that it has of another."""
        if table.rows_of:
            others = self.rows(self._table(table.rows_of))
            return [row.model_copy(update={"at": {**row.at, **table.at}, "paper": ()}) for row in others]
        return [self._of_table(row, table, table.at) for row in table.rows]

    def compared(self) -> list[RecipeFinding]:
        """Return all findings, those that compare rows of tables as comparisons of their figures."""
        return list(chain.from_iterable(self._compared(group) for group in self.findings))

    def _table(self, title: str) -> PaperTable:
        return next(table for table in self.tables if table.title == title)

    @staticmethod
    def _of_table(row: TableRow, table: PaperTable, at: Point) -> TableRow:
        step = row.step if "step" in row.model_fields_set else table.step
        values = {"step": step, "at": {**at, **row.at}, "path": row.path or table.path}
        return row.model_copy(update=values)

    def _compared(self, group: TableFindings | RecipeFinding) -> Iterator[RecipeFinding]:
        if isinstance(group, RecipeFinding):
            yield group
            return
        table = self._table(group.of[0])
        number = table.number(group.of[1])
        rows = {row.title: self._of_table(row, table, table.at if group.at is None else group.at) for row in table.rows}
        for text, *titles in group.claims:
            figures = [rows[title].figure(table.columns[number]) for title in titles]
            printed = [rows[title].paper[number] if rows[title].paper else "" for title in titles]
            paper = None if "" in printed else round(float(printed[0]) - float(printed[1]), 6)
            higher, lower = figures
            if not higher or not lower:
                raise ValueError(f"finding {text!r}: a row of table {table.title!r} has no step")
            yield RecipeFinding(text=text, higher=higher, lower=lower, paper=paper, not_tested=group.not_tested)


def load_recipe(path: Path) -> ExperimentRecipe:
    """Read a recipe file.

    Raises MissingError if it is not there; BadInputError if it is not valid TOML, or a key is unknown or has a value
    that is not allowed.
    """
    if not path.is_file():
        raise MissingError(f"recipe {path} is not there: `biorag reproduce` has those of {', '.join(papers())}")
    recipe = read_toml(path, ExperimentRecipe)
    for scale in recipe.scales.values():
        check_no_secrets(path, scale.settings)
    return recipe


def check_no_secrets(path: Path, settings: Mapping[str, SettingValue]) -> None:
    """Refuse keys and logins in a file whose values reports repeat.

    Raises BadInputError naming the variable in which the secret belongs.
    """
    urls = {name: str(settings.get(name, "")) for name in URLS}
    logins = [f"{name}_login" for name, url in urls.items() if is_server(url) and login_apart(url)[1] is not None]
    if secrets := [name for name in settings if name in SECRETS] + logins:
        variable = PREFIX + secrets[0].upper()
        raise BadInputError(f"{path} has a key or a login, which reports would repeat: set {variable}")


@cache
def packaged() -> Mapping[str, NamedModel]:
    """Return the models of `models.toml` by their ids, each with the `config` of its architecture."""
    listed = parse_toml(MODELS.read_bytes(), str(MODELS))
    configs = listed["architectures"]
    described = {
        id: {
            **{name: value for name, value in model.items() if name != "architecture"},
            "config": configs[model["architecture"]],
        }
        for id, model in listed["models"].items()
    }
    return TypeAdapter(dict[str, NamedModel]).validate_python(described)


def models_of(recipe: ExperimentRecipe) -> Mapping[str, NamedModel]:
    """Return the models that a recipe may name: the packaged ones and its own."""
    return {**packaged(), **recipe.models}


def models_in(words: tuple[str, ...]) -> list[str]:
    """Return the models that a command names: ids, those of published encoders that it names, or folders of steps."""
    if words[:2] == ("models", "convert"):
        return [words[2]]
    named = [value.removeprefix(SEQ2SEQ) for option, value in pairwise(words) if option in MODEL_OPTIONS]
    encoders = published()
    return list(chain.from_iterable(encoders[name].models if name in encoders else [name] for name in named))


def named_in(words: tuple[str, ...]) -> list[str]:
    """Return the Hugging Face ids that a command names a model by."""
    values = models_in(words)
    return [value for value in values if value.count("/") == 1 and not value.startswith((".", "/", "~", "{"))]
