"""The recipe of a sweep: cells that share a retriever or a reranker share its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from biorag.benchmarks.per_question import PER_QUESTION
from biorag.lab.recipes import sweep_report
from biorag.lab.recipes.grid import ASKED, BASE, EVIDENCE, NONE, RETRIEVER, Sweep
from biorag.lab.recipes.recipe import ExperimentRecipe, StepTemplate
from biorag.registries import NEGATIVES

SCALE = "sweep"  # the one scale of a sweep's recipe
DATASET = "dataset"
INDEPENDENT = ("bm25",)  # negatives of the reranker that all cells share
# How the untrained are searched, with which every sweep is compared.
BASELINES = {"bm25": "--name {base-index.name} --mode bm25 --no-rerank", BASE: "--name {base-index.name} --no-rerank"}


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
            "tables": sweep_report.tables(sweep),
            "findings": list(sweep_report.findings(sweep)),
            "plots": list(sweep_report.plots(sweep)),
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
