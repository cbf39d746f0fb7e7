"""A sweep of the ablation: its TOML file, the cells of its grid, and the recipe that trains and measures them.

Cells that share a retriever or a reranker share its steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from biorag.benchmarks.per_question import PER_QUESTION
from biorag.corpus.sources import DEMO
from biorag.errors import BadInputError, MissingError, UsageError
from biorag.lab.conversion.run import QUERIES
from biorag.lab.conversion.sampling import qrels_of
from biorag.lab.recipes.recipe import (
    ExperimentRecipe,
    Point,
    SharedSettings,
    StepTemplate,
    check_no_secrets,
)
from biorag.lab.recipes.steps import METRICS
from biorag.registries import NEGATIVES, swept_negatives
from biorag.settings.section import STARTER
from biorag.utils.parsing import read_toml
from biorag.utils.registry import or_list

SCALE = "sweep"  # the one scale of a sweep's recipe
DATASET, MIRAGE = "dataset", "MIRAGE"
NONE = "none"  # no pretraining, no reranker
EVIDENCE = "evidence"  # a generator's place is taken by the reader of evidence
PAIR = ("negatives", "similarity")
RETRIEVER = ("base", "pretraining", *PAIR)  # the axes of a retriever
ASKED = ("k", "generator")  # those of answers
NAMING = (*PAIR, "k_init")
PER_ROW = 4
TEMPLATE = Path(__file__).parent / "sweep-of-data.toml"
CORPORA = ("corpus.jsonl*", "snippets.jsonl*")
BASE = "base"  # the step of a retriever as it was given
INDEPENDENT = ("bm25",)  # negatives of the reranker that all cells share
# How the untrained are searched, with which every sweep is compared.
BASELINES = {"bm25": "--name {base-index.name} --mode bm25 --no-rerank", BASE: "--name {base-index.name} --no-rerank"}
SHOWN = ("success@3", "success@5", "success@10", "nDCG@10")


def _swept(name: str) -> str:
    if name not in swept_negatives():
        raise ValueError(f"use {or_list(swept_negatives())}")
    return name


def _listed(value: object) -> object:
    return [value] if isinstance(value, str | int) else value


Negatives = Annotated[str, AfterValidator(_swept)]
Similarity = Literal["cosine", "dot"]
Reranker = Literal["none", "untrained", "independent", "own-kind", "aligned"]
Several = BeforeValidator(_listed)  # a value alone is a list of it
Depths = Annotated[tuple[Annotated[int, Field(ge=1, le=10_000)], ...], Several, Field(min_length=1)]
Names = Annotated[tuple[str, ...], Several, Field(min_length=1)]


class Sweep(BaseModel):
    """A grid. Paths are relative to the folder the command runs in.

    `settings` are biorag's own, as in biorag.toml; all commands read them. `hard_negatives` is the number used of each
    mined row; `per_row`, the number mined, defaults to it. `aligned` lists the negatives whose retrievers get an
    aligned reranker; None means all of them. `pretraining` names corpora whose titles and abstracts retrievers read
    first, or "none". With `mirage`, its benchmark.json, each cell answers its questions, of `mirage_tasks` or all, from
    `k` snippets by each `generator`: a model or server as --llm takes it, or "evidence", the reader alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: tuple[Path, ...] = Field(min_length=1)
    corpus: tuple[Path, ...] = Field(min_length=1)
    evaluate: tuple[Path, ...] = ()
    held_out: bool = True
    guard: tuple[Path, ...] = ()
    base: Names = (STARTER,)
    pretraining: Names = (NONE,)
    reranker_base: str | None = None
    max_positives: int | None = Field(None, ge=1)
    per_row: int | None = Field(None, ge=1)
    hard_negatives: int | None = Field(None, ge=1, le=64)
    negatives: tuple[Negatives, ...] = ("in-batch", "bm25", "random")
    similarity: tuple[Similarity, ...] = ("cosine", "dot")
    reranker: tuple[Reranker, ...] = ("none", "untrained", "independent", "aligned")
    aligned: tuple[Negatives, ...] | None = None
    k_init: Depths = (20, 100)
    mirage: Path | None = None
    mirage_tasks: tuple[str, ...] = ()
    mirage_limit: int | None = Field(None, ge=1)
    k: Depths = (5,)
    generator: Names = (EVIDENCE,)
    settings: SharedSettings = {}

    @field_validator(
        "evaluate", "base", "pretraining", "negatives", "similarity", "reranker", "k_init", "k", "generator"
    )
    @classmethod
    def _distinct(cls, values: tuple[Path | str | int, ...]) -> tuple[Path | str | int, ...]:
        return tuple(dict.fromkeys(values))

    @model_validator(mode="after")
    def _mines_enough(self) -> Sweep:
        if self.mined < (self.hard_negatives or 1):
            raise ValueError(f"per_row mines {self.per_row} negatives, and hard_negatives uses {self.hard_negatives}")
        return self

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Sweep:
        """Return the sweep of values that a command was given; raises UsageError for one that it may not have."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            option = str(first["loc"][0]).replace("_", "-") if first["loc"] else "pipeline"
            raise UsageError(f"--{option}: {first['msg'].removeprefix('Value error, ')}") from None

    @property
    def mined(self) -> int:
        """The negatives that are mined for each row."""
        return self.per_row or self.hard_negatives or PER_ROW

    @property
    def files(self) -> list[Path]:
        """The files and folders that the sweep names."""
        pretraining = [Path(name) for name in self.pretraining if name != NONE]
        return [*self.train, *self.corpus, *self.evaluate, *self.guard, *pretraining, *filter(None, [self.mirage])]

    def varied(self, axes: Sequence[str]) -> tuple[str, ...]:
        """Return those of the axes that have several values; negatives and similarity always name a cell."""
        return tuple(axis for axis in axes if axis in NAMING or len(getattr(self, axis)) > 1)

    def kinds(self, reranker: str) -> list[str]:
        """Return the negatives whose retrievers get such a reranker; in-batch negatives have no own kind."""
        if reranker not in self.reranker:
            return []
        if reranker == "aligned":
            return [kind for kind in self.negatives if self.aligned is None or kind in self.aligned]
        return [kind for kind in self.negatives if reranker != "own-kind" or not NEGATIVES[kind].in_batch]


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises MissingError if the file, or one that it names, is not there; BadInputError if it is not valid TOML, or a key
    is unknown or has a value that is not allowed.
    """
    if not path.is_file():
        raise MissingError(f"sweep {path} is not there: `biorag ablate {path} --init DATA` writes one for your data")
    sweep = read_toml(path, Sweep)
    check_no_secrets(path, sweep.settings)
    if not sweep.evaluate and not sweep.mirage:
        raise BadInputError(f"{path} measures nothing: give `evaluate`, folders in BEIR's layout, or `mirage`")
    for file in sweep.files:
        if not file.exists() and str(file) != DEMO:
            raise MissingError(f"{path} names {file}, which is not there")
    return sweep


class Cell(NamedTuple):
    """One configuration: its name in tables, the end of the names of the steps that measure it, and its axes."""

    name: str
    pipeline: str
    point: Point


def cells(sweep: Sweep) -> list[Cell]:
    """Return the baselines, BM25 and each base, and the cells of the grid."""
    several = sweep.varied(("base",))
    grid = [Cell("BM25", "bm25", dict.fromkeys(several, sweep.base[0]))]
    for base in sweep.base:
        grid.append(Cell(f"{_of(sweep.base, base)}base encoder", BASE, dict.fromkeys(several, base)))
    axes = (sweep.base, sweep.pretraining, sweep.negatives, sweep.similarity)
    for values, reranker in product(product(*axes), sweep.reranker):
        base, pretraining, negatives, similarity = values
        if negatives not in sweep.kinds(reranker):
            continue
        name = f"{_of(sweep.base, base)}{_of(sweep.pretraining, pretraining)}{negatives} {similarity}"
        point = {axis: value for axis, value in zip(RETRIEVER, values, strict=True) if axis in sweep.varied(RETRIEVER)}
        if reranker == NONE:
            grid.append(Cell(name, reranker, point))
        else:
            for depth in sweep.k_init:
                grid.append(Cell(f"{name}, {reranker}, k_init {depth}", reranker, {**point, "k_init": depth}))
    return grid


def _of(values: Sequence[str], value: str) -> str:
    """Return the beginning of a cell's name that tells a value from the others; "" for one alone."""
    return f"{Path(value).name}, " if len(values) > 1 else ""


def sweep_text(data: Path) -> str:
    """Return the text of a sweep of the files in a folder: data sets in BEIR's layout, corpora, MIRAGE's questions.

    Raises MissingError if it has no data set or no corpus.
    """
    datasets = sorted({path.parent for path in data.rglob(QUERIES) if qrels_of(path.parent).is_file()})
    corpora = sorted(path for pattern in CORPORA for path in data.rglob(pattern))
    if not datasets or not corpora:
        lacks = (
            "no corpus (corpus.jsonl, snippets.jsonl)" if datasets else f"no folder with {QUERIES} and qrels/test.tsv"
        )
        raise MissingError(f"{data} has {lacks}: docs/ablation.md says what a sweep needs")
    benchmark = next(iter(sorted(data.rglob("benchmark.json"))), None)
    asked = (
        [f"mirage = {json.dumps(str(benchmark))}", "mirage_limit = 50  # questions of each task", ""]
        if benchmark
        else []
    )
    paths = {"train": datasets, "corpus": corpora, "evaluate": datasets, "guard": [benchmark] if benchmark else []}
    lists = {name: json.dumps(list(map(str, values)), ensure_ascii=False) for name, values in paths.items()}
    return TEMPLATE.read_text("utf-8").format(**lists, mirage="\n".join(asked))


def recipe_of(sweep: Sweep) -> ExperimentRecipe:
    """Return the recipe of a sweep."""
    files = {str(path): str(path) for path in sweep.files}
    bases = (*sweep.base, sweep.reranker_base, *sweep.generator)
    files |= {base: base for base in bases if base and Path(base).exists()}
    datasets = [str(path) for path in sweep.evaluate]
    axes: dict[str, Sequence[str | int]] = {
        "base": sweep.base,
        "pretraining": sweep.pretraining,
        "negatives": tuple(dict.fromkeys((*sweep.negatives, *INDEPENDENT))),
        "similarity": sweep.similarity,
        "k_init": sweep.k_init,
        "k": sweep.k,
        "generator": sweep.generator,
        DATASET: datasets,
    }
    scale = {"about": "A grid.", "backbone": SCALE, "inputs": files, "values": _values(sweep)}
    answer = {EVIDENCE: ("--answer", EVIDENCE), "*": ("--answer", "generate", "--llm", "{generator}")}
    return ExperimentRecipe.model_validate(
        {
            "title": "Ablation",
            "inputs": {name: {"what": "a file of the sweep"} for name in files},
            "backbones": {SCALE: {"model": sweep.base[0]}},
            "axes": axes,
            "values": {"answer": answer.get(sweep.generator[0], answer["*"])},
            "by": {"generator": {"answer": answer}},
            "scales": {SCALE: {**scale, "settings": sweep.settings}},
            "steps": (*_made(sweep), *_measured(sweep)),
            "tables": tables(sweep),
            "findings": list(findings(sweep)),
            "plots": list(plots(sweep)),
        }
    )


def _values(sweep: Sweep) -> dict[str, str | tuple[str, ...]]:
    """Return the words that fill the blanks of the templates."""
    guards = [word for path in sweep.guard for word in ("--guard", str(path))]
    tasks = [word for task in sweep.mirage_tasks for word in ("--task", task)]
    return {
        "train": tuple(map(str, sweep.train)),
        "corpus": tuple(map(str, sweep.corpus)),
        "guard": (*guards, "--drop-contaminated") if guards else (),
        "per_row": str(sweep.mined),
        "reranker_base": sweep.reranker_base or "{base}",
        "used": ("--hard-negatives", str(sweep.hard_negatives)) if sweep.hard_negatives else (),
        "capped": ("--max-positives", str(sweep.max_positives)) if sweep.max_positives else (),
        "held_out": ("--held-out",) if sweep.held_out else (),
        "mirage": str(sweep.mirage),
        "pretraining": sweep.pretraining[0],
        "generator": sweep.generator[0],
        "k": str(sweep.k[0]),
        "tasks": (*tasks, *(("--limit", str(sweep.mirage_limit)) if sweep.mirage_limit else ())),
    }


def _step(sweep: Sweep, name: str, axes: Sequence[str], run: str, **when: Sequence[str]) -> list[StepTemplate]:
    """Return a step, at these values of axes alone, or none without one; an axis of one value is no axis of it."""
    fixed = {axis: getattr(sweep, axis)[0] for axis in when if axis not in sweep.varied([axis])}
    if not all(when.values()) or any(value not in when[axis] for axis, value in fixed.items()):
        return []
    condition = {axis: tuple(values) for axis, values in when.items() if axis not in fixed}
    kept = [axis for axis in axes if axis == DATASET or axis in sweep.varied([axis])]
    return [StepTemplate(name=name, axes=tuple(kept), run=run, when=(condition,) if condition else ())]


def _made(sweep: Sweep) -> list[StepTemplate]:
    """Return the steps that make indexes, rows, retrievers and rerankers."""
    mined = [kind for kind in sweep.negatives if not NEGATIVES[kind].in_batch]
    independent = INDEPENDENT if "independent" in sweep.reranker else ()
    aligned, own = sweep.kinds("aligned"), sweep.kinds("own-kind")
    mine, rows = "mine {train} --negatives", "{guard} --per-row {per_row} --out {out}/rows.jsonl"
    reranker = "/rows.jsonl {used} --base {reranker_base} --out {out} {capped}"
    titles = [name for name in sweep.pretraining if name != NONE]
    first = "train retriever {pretraining} --pairs title-abstract --base {base} --similarity {similarity} --out {out}"
    index = "index {corpus} --encoder {retriever} --similarity {similarity} --name {name}"
    return [
        *_step(sweep, "base-index", ("base",), "index {corpus} --encoder {base} --name {name}"),
        *_step(sweep, "pretrained", ("base", "pretraining", "similarity"), first, pretraining=titles),
        *_step(
            sweep,
            "mined",
            ("base", "negatives"),
            f"{mine} {{negatives}} --name {{base-index.name}} {rows}",
            negatives=[*mined, *(kind for kind in independent if kind not in mined)],
        ),
        *_retrievers(sweep, mined, titles),
        *_step(sweep, "index", RETRIEVER, index, negatives=sweep.negatives),
        *_step(
            sweep,
            "independent",
            ("base",),
            f"train reranker {{mined(negatives=bm25)}}{reranker}",
            base=independent and sweep.base,
        ),
        *_step(
            sweep,
            "own-kind",
            ("base", "negatives"),
            f"train reranker {{mined}}{reranker} --negatives {{negatives}}",
            negatives=own,
        ),
        *_step(sweep, "mistakes", RETRIEVER, f"{mine} retriever --name {{index.name}} {rows}", negatives=aligned),
        *_step(sweep, "aligned", RETRIEVER, f"train reranker {{mistakes}}{reranker}", negatives=aligned),
    ]


def _retrievers(sweep: Sweep, mined: Sequence[str], titles: Sequence[str]) -> Iterator[StepTemplate]:
    """Yield the trainings of retrievers, on mined negatives or without, from the base or a pretrained one."""
    in_batch = [kind for kind in sweep.negatives if kind not in mined]
    options = "--negatives {negatives} --similarity {similarity} --out {out} {capped}"
    for start, pretraining in (("{base}", [NONE] if NONE in sweep.pretraining else []), ("{pretrained}", titles)):
        trained = f"--base {start} {options}"
        read = f"train retriever {{train}} --name {{base-index.name}} {{guard}} {trained}"
        yield from _step(sweep, "retriever", RETRIEVER, read, negatives=in_batch, pretraining=pretraining)
        rows = f"train retriever {{mined}}/rows.jsonl {{used}} {trained}"
        yield from _step(sweep, "retriever", RETRIEVER, rows, negatives=mined, pretraining=pretraining)


def _measured(sweep: Sweep) -> list[StepTemplate]:
    """Return the steps that measure cells on a data set, and on MIRAGE."""
    kept = f"{{held_out}} --per-question {{out}}/{PER_QUESTION} --run-file {{out}}/run.trec"
    templates = []
    for name in (*BASELINES, *sweep.reranker):
        axes: tuple[str, ...] = (*RETRIEVER, "k_init")
        when: dict[str, Sequence[str]] = {"negatives": sweep.kinds(name)}
        if name in BASELINES:
            axes, options = ("base",), BASELINES[name]
            when = {"base": sweep.base if name == BASE else sweep.base[:1]}
        elif name == NONE:
            axes, options = RETRIEVER, "--name {index.name} --no-rerank"
        else:
            reranker = "encoder" if name == "untrained" else f"{{{name}}}"
            options = f"--name {{index.name}} --k-init {{k_init}} --reranker {reranker}"
        run = f"bench retrieval {{dataset}} {options} {kept}"
        templates += _step(sweep, f"retrieval-{name}", (*axes, DATASET), run, **when)
        if sweep.mirage:
            run = f"bench mirage --benchmark {{mirage}} {{tasks}} {options} --k {{k}} {{answer}} --out {{out}}"
            templates += _step(sweep, f"answers-{name}", (*axes, *ASKED), run, **when)
    return templates


def pipeline_of(sweep: Sweep, name: str) -> ExperimentRecipe:
    """Return the recipe of a sweep of one cell, whose last step is an index with the reranker's token vectors."""
    recipe = recipe_of(sweep)
    run = "index {corpus} --encoder {retriever} --similarity {similarity} --reranker {aligned} --name"
    last = _step(sweep, "tokens", RETRIEVER, f"{run} {name}", negatives=sweep.negatives)
    return recipe.model_copy(update={"title": "Training pipeline", "steps": (*recipe.steps, *last)})


def tables(sweep: Sweep) -> list[dict[str, Any]]:
    """Return a table for each data set, and the accuracies on MIRAGE."""
    return [*(_table(sweep, str(dataset)) for dataset in sweep.evaluate), *_answer_tables(sweep)]


def _table(sweep: Sweep, dataset: str) -> dict[str, Any]:
    figures = {**{name: METRICS + name for name in SHOWN}, "ms/query": "timings_ms.total.p50"}
    return {
        "title": dataset,
        "columns": [{"title": name, "value": value} for name, value in figures.items()],
        "rows": [
            {"title": cell.name, "step": f"retrieval-{cell.pipeline}", "at": {**cell.point, "dataset": dataset}}
            for cell in cells(sweep)
        ],
    }


def _answer_tables(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield the accuracies on MIRAGE, a row for each cell, k and generator."""
    if not sweep.mirage:
        return
    rows = []
    for cell, k, generator in product(cells(sweep), sweep.k, sweep.generator):
        ends = (f", k {k}" if len(sweep.k) > 1 else "", f", {generator}" if len(sweep.generator) > 1 else "")
        asked = {"k": k, "generator": generator}
        at = {**cell.point, **{axis: asked[axis] for axis in sweep.varied(ASKED)}}
        rows.append({"title": cell.name + "".join(ends), "step": f"answers-{cell.pipeline}", "at": at})
    figures = {"average": "average", **{task: f"tasks.{task}.accuracy" for task in sweep.mirage_tasks}}
    columns = [{"title": title, "value": value} for title, value in figures.items()]
    yield {"title": MIRAGE, "note": "Accuracy.", "columns": columns, "rows": rows}


def plots(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield what is found by each cell, how much better for how much longer, and the accuracies."""
    for dataset in map(str, sweep.evaluate):
        success = [{"table": dataset, "title": name} for name in SHOWN[:-1]]
        yield {"title": f"{dataset}: share of questions with a relevant snippet", "kind": "dots", "columns": success}
        both = [{"table": dataset, "title": name} for name in ("ms/query", SHOWN[-1])]
        yield {"title": f"{dataset}: {SHOWN[-1]} against time", "kind": "points", "columns": both, "log_x": True}
    if sweep.mirage:
        yield {"title": "Accuracy on MIRAGE", "kind": "dots", "columns": [{"table": MIRAGE, "title": "average"}]}


def findings(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield the contrasts, and whether each cell, and BM25, ranks higher than its base encoder, by nDCG@10."""
    for dataset in map(str, sweep.evaluate):
        value, at = METRICS + SHOWN[-1], {"dataset": dataset}
        yield from _contrasts(sweep, f"{dataset}: ", "retrieval-", value, at)
        for cell in cells(sweep):
            base = {
                "step": f"retrieval-{BASE}",
                "at": {**{axis: cell.point[axis] for axis in sweep.varied(("base",))}, **at},
                "value": value,
            }
            own = {"step": f"retrieval-{cell.pipeline}", "at": {**cell.point, **at}, "value": value}
            if cell.pipeline != BASE:
                yield {"text": f"{dataset}: {cell.name} above the base encoder", "higher": own, "lower": base}
    if sweep.mirage:
        yield from _contrasts(sweep, f"{MIRAGE}: ", "answers-", "average", {})


def _contrasts(sweep: Sweep, where: str, step: str, value: str, at: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the comparisons of one axis, the mean over all others: rerankers, negatives, similarity, k_init."""

    def contrast(text: str, higher: tuple[str, Point], lower: tuple[str, Point]) -> dict[str, Any]:
        sides = ({"step": step + name, "at": {**at, **point}, "value": value} for name, point in (higher, lower))
        return {"text": where + text, **dict(zip(("higher", "lower"), sides, strict=True))}

    strongest: str = "aligned" if "aligned" in sweep.reranker else sweep.reranker[-1]
    for other in (name for name in map(str, sweep.reranker) if name != strongest):
        shared = [kind for kind in sweep.kinds(strongest) if kind in sweep.kinds(other)]
        whole = shared == sweep.kinds(strongest) == sweep.kinds(other)
        for point in [{}] if whole else [{"negatives": kind} for kind in shared]:
            text = "".join([f"{strongest} above {other}", *(f" ({kind})" for kind in point.values())])
            yield contrast(text, (strongest, point), (other, point))
    plain = NONE if NONE in sweep.reranker else strongest
    first, *rest = sweep.kinds(plain) or [""]
    for other in rest:
        yield contrast(f"{first} above {other}", (plain, {"negatives": first}), (plain, {"negatives": other}))
    for axis, values in (("similarity", sweep.similarity), ("base", sweep.base), ("pretraining", sweep.pretraining)):
        for name in values[1:]:
            yield contrast(f"{values[0]} above {name}", (plain, {axis: values[0]}), (plain, {axis: name}))
    if strongest != NONE and len(sweep.k_init) > 1:
        most, least = max(sweep.k_init), min(sweep.k_init)
        yield contrast(f"k_init {most} above {least}", (strongest, {"k_init": most}), (strongest, {"k_init": least}))
