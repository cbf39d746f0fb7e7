"""`biorag tune prompt`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show, sides
from biorag.commands.synthetic import PromptFile, Temperature, language_model
from biorag.engine import OpenIndex, encoder_files, open_index
from biorag.errors import BadInputError, MismatchError, MissingError, UsageError, unknown_name
from biorag.models.finding import ModelFiles, weights_hash
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.benchmarks.tuning.evolution import Evolution
    from biorag.benchmarks.tuning.trials import Reflection, Trials
    from biorag.corpus.datasets import Dataset
    from biorag.training.synthesis.writers import PromptedWriter
    from biorag.types import Generation, Question

QUESTIONS = 200
REPORT, TRIALS, COPY = "report.json", "trials.jsonl", "encoder"


def prompt(
    ctx: typer.Context,
    dataset: Annotated[Path, typer.Argument(help="Folder in BEIR layout.")],
    out: Annotated[Path, typer.Option(help="Folder of the report; an interrupted run resumes.")],
    budget: Annotated[str, typer.Option(help="light, medium or heavy.")] = "light",
    calls: Annotated[
        int | None, typer.Option(min=1, help="Metric calls (a question searched each) in place of --budget.")
    ] = None,
    seed_prompt: Annotated[
        str | None, typer.Option(help="Instruction to begin with; else the encoder's own.", show_default=False)
    ] = None,
    questions: Annotated[
        int, typer.Option(min=2, help="Questions drawn: a half to reflect on, a half to choose by.")
    ] = QUESTIONS,
    write: Annotated[
        bool,
        typer.Option(
            "--write/--no-write",
            help="Set the winner as the encoder's query prompt: in its directory, else in a copy, OUT/encoder.",
        ),
    ] = True,
    dropped: sides.Dropped = False,
    guard: sides.Guards = None,
    train_validation: sides.Validation = None,
    name: options.Name = None,
    encoder: options.Encoder = None,
    qdrant: options.Qdrant = None,
    llm: options.Llm = None,
    llm_model: options.LlmModel = None,
    template: PromptFile = None,
    temperature: Temperature = 1.0,
    instruction_tokens: Annotated[
        int,
        typer.Option("--max-tokens", min=8, max=256, help="Cap on an instruction.", rich_help_panel=options.GENERATION),
    ] = 96,
    cache: options.Cache = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Optimise the instruction before a query by GEPA, and write the winner into the encoder's configuration.

    A language model is shown what an instruction found for three questions, and writes a better one; instructions are
    chosen by nDCG@10 of dense retrieval. The questions are those that training with this --validation and --seed saw;
    before and after are measured on those that it held out. Passages are not encoded again.

    Examples:

      biorag tune prompt data/bioasq --name decoder --out runs/prompt

      biorag tune prompt data/bioasq --name decoder --llm http://localhost:8080 --budget medium --out runs/prompt --json

      biorag tune prompt data/bioasq --seed-prompt "Retrieve abstracts that answer" --no-write --out runs/prompt
    """
    from biorag.benchmarks.tuning.budget import CANDIDATES
    from biorag.benchmarks.tuning.evolution import require_gepa
    from biorag.benchmarks.tuning.instruction import check_keeps_prompts, write_query_prompt
    from biorag.utils.files import write_json
    from biorag.utils.plots import require_matplotlib

    if budget not in CANDIDATES:
        raise unknown_name("--budget", budget, CANDIDATES)
    if seed_prompt is not None and not seed_prompt.strip():
        raise UsageError("--seed-prompt is empty: write an instruction, or leave it out")
    require_gepa()
    require_matplotlib()
    started = time.perf_counter()
    settings = options.configured(ctx, mode="dense", rerank=False)
    chosen = Questions.drawn(dataset, settings, ctx.params)
    with open_index(settings) as ready:
        files = encoder_files(settings, ready.manifest)
        target = files.path if is_the_users(files) else out / COPY
        if write:
            check_keeps_prompts(files.path)
            _check_replaced(target, files)
        assert ready.encoder is not None, "dense retrieval loads the encoder"
        current = ready.encoder.query_prompt
        report = _tuned(out, ready, chosen, settings, ctx.params)
    # What an earlier run wrote goes, too, where the prompt before it is now the best.
    held = {current, *report["prompt"].values()}
    changed = write and (len(held) > 1 or (target != files.path and target.exists()))
    report |= {
        "encoder": files.id,
        "written": str(target) if changed else None,
        "seconds": round(time.perf_counter() - started, 3),
    }
    write_json(out / REPORT, report)
    if changed:
        if target != files.path:
            _copy(files.path, target)
        write_query_prompt(target, report["prompt"]["after"])
    if as_json:
        show.print_json(report)
    else:
        _print(report)


@dataclass(frozen=True, slots=True)
class Questions:
    """Those that the model reflects on, those that instructions are chosen by, and those measured at the end."""

    data: Dataset
    feedback: Sequence[Question]
    validation: Sequence[Question]
    held_out: Sequence[Question]

    @classmethod
    def drawn(cls, folder: Path, settings: Settings, given: Mapping[str, Any]) -> Questions:
        """Draw questions with the seed.

        Raises
        ------
        UsageError
            If dropped questions are asked for without what dropped them.
        BadInputError
            If there are too few.
        """
        from biorag.corpus.datasets import load_dataset

        guards = given["guard"] or ()
        sides.check_dropped(given)
        data = load_dataset(folder)
        side = sides.dropped if given["dropped"] else sides.training
        development = side(data, settings, guards).questions
        held_out = sides.held_out(data, settings, () if given["dropped"] else guards).questions
        drawn = Random(settings.seed).sample(list(development), min(given["questions"], len(development)))
        half = len(drawn) // 2
        if not half:
            raise BadInputError(
                f"{data.name} has one question to develop on: two are needed, to reflect on and choose by"
            )
        return cls(data, drawn[:half], drawn[half:], held_out)

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the measures on them."""
        from biorag.benchmarks.tuning.study import dataset_hash

        used = {"feedback": self.feedback, "validation": self.validation, "held_out": self.held_out}
        ids = {use: [question.id for question in questions] for use, questions in used.items()}
        return {"dataset": dataset_hash(self.data), "questions": ids}

    @property
    def counts(self) -> dict[str, int]:
        """How many questions there are for each use."""
        return {
            "feedback": len(self.feedback),
            "validation": len(self.validation),
            "held_out": len(self.held_out),
        }


def _tuned(
    out: Path, ready: OpenIndex, chosen: Questions, settings: Settings, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Evolve the instruction, going on with an earlier run, and measure it; return the report."""
    from biorag.benchmarks.tuning.budget import metric_calls, most_replies
    from biorag.benchmarks.tuning.evolution import evolve, write_curve
    from biorag.benchmarks.tuning.instruction import parted
    from biorag.benchmarks.tuning.trials import Searcher, TrialFile, Trials
    from biorag.training.instructions import TASK

    assert ready.encoder is not None, "dense retrieval loads the encoder"
    prompt = _prompt_before(out, ready.encoder.query_prompt)
    own, form = parted(prompt)
    begin = given["seed_prompt"] or own or TASK
    asked = Asked.of(settings, given)
    manifest = ready.manifest.fingerprint()
    identity = {"prompt": prompt, "seed_prompt": begin, "index": manifest, **chosen.identity, **asked.identity}
    file = TrialFile(out / TRIALS, identity)
    file.finished()
    calls = given["calls"] or metric_calls(given["budget"], len(chosen.validation))
    show.err.print(
        f"about {calls:,} metric calls, a question searched each, and at most "
        f"{most_replies(calls, len(chosen.validation)):,} replies of {asked.name}"
    )
    search = Searcher(ready.retriever, ready.index, ready.encoder, form, chosen.data)
    out.mkdir(parents=True, exist_ok=True)
    with file.appending() as stream, show.progress("Metric calls", calls) as advance:
        trials = Trials(stream, file.read(), search, asked.write, advance)
        evolution = evolve(begin, chosen.feedback, chosen.validation, trials, calls, settings.seed)
        measured = _measured(evolution, own, chosen, trials, settings.seed)
    write_curve(out, evolution)
    kept = measured["winner"] if measured["held_out"]["difference"] >= 0 else own
    return {
        "dataset": chosen.data.name,
        "questions": chosen.counts,
        "index": manifest,
        "seed_prompt": begin,
        **measured,
        "prompt": {"before": prompt, "after": form.prompt(kept)},
        "llm": asked.name,
        "budget": None if given["calls"] else given["budget"],
        "calls": evolution.calls,
        **trials.spent(),
        "candidates": [asdict(each) for each in evolution.candidates],
    }


def _prompt_before(out: Path, current: str) -> str:
    """Return the encoder's query prompt; where an earlier run into the folder wrote one that it tried, that before."""
    from biorag.benchmarks.tuning.instruction import parted
    from biorag.benchmarks.tuning.trials import TrialFile

    file = TrialFile(out / TRIALS, {})
    try:
        before = str(json.loads(file.manifest.read_bytes())["identity"]["prompt"])
    except (OSError, ValueError, KeyError, TypeError):
        return current
    form = parted(before)[1]
    return before if current in {form.prompt(instruction) for instruction, _ in file.read().scores} else current


@dataclass(frozen=True, slots=True)
class Asked:
    """The language model under a template: its name, what writes, and all that determines what is written."""

    name: str
    writer: PromptedWriter[Reflection]
    identity: Mapping[str, Any]

    @classmethod
    def of(cls, settings: Settings, given: Mapping[str, Any]) -> Asked:
        """Load the template and the model."""
        from biorag.benchmarks.tuning.evolution import request
        from biorag.prompts.template import load_template
        from biorag.training.synthesis.writers import Draws
        from biorag.utils.versions import installed_versions

        template = load_template("reflection", given["template"], "examples", ("instruction", "examples"))
        draws = Draws(1, given["instruction_tokens"], given["temperature"], settings.seed)
        model = language_model(settings)
        identity = {
            **asdict(draws),
            "generator": model.identity,
            "template": template.sha256,
            "precision": settings.retrieval.precision,
            "versions": installed_versions(),
        }
        return cls(model.generator.name, model.writer(request(template), draws), identity)

    def write(self, reflection: Reflection) -> Generation:
        """Return the model's reply."""
        return self.writer([reflection])[0][0]


def _measured(evolution: Evolution, own: str, chosen: Questions, trials: Trials, seed: int) -> dict[str, Any]:
    """Return the winner, which is the encoder's own instruction unless a candidate is better, and both ones' means."""
    from biorag.benchmarks.significance import paired

    def mean(instruction: str, questions: Sequence[Question]) -> float:
        return fmean(trials.scores(instruction, questions))

    best, before = evolution.best, mean(own, chosen.validation)
    winner = best.instruction if best.score > before else own
    ours, theirs = (trials.scores(each, chosen.held_out) for each in (winner, own))
    found = paired(ours, theirs, seed)
    return {
        "winner": winner,
        "development": {"before": before, "after": max(before, best.score)},
        "held_out": {
            "before": fmean(theirs),
            "after": fmean(ours),
            "difference": found.difference,
            "low": found.low,
            "high": found.high,
            "p_value": found.p_value,
        },
    }


def is_the_users(files: ModelFiles) -> bool:
    """Return whether an encoder was named by its directory; a package's and the hub's are not the user's to change."""
    return Path(files.id).is_absolute()


def _check_replaced(target: Path, files: ModelFiles) -> None:
    """Refuse to write an encoder where something else is.

    Raises
    ------
    MismatchError
        If the target is there, but with other weights.
    """
    if not target.exists():
        return
    try:
        known = weights_hash(target) == files.sha256
    except MissingError:
        known = False
    if not known:
        raise MismatchError(f"{target} is there and is no copy of encoder {files.id!r}: choose another --out")


def _copy(encoder: Path, target: Path) -> None:
    """Copy an encoder that is not the user's to change; a copy that is there goes."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    for folder in (unfinished, target):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(encoder, unfinished)
    unfinished.rename(target)


def _print(report: Mapping[str, Any]) -> None:
    development, held_out = report["development"], report["held_out"]
    rows = [
        (
            f"{use.replace('_', ' ')} ({count} questions)",
            f"{found['before']:.4f}",
            f"{found['after']:.4f}",
        )
        for use, count, found in (
            ("development", report["questions"]["validation"], development),
            ("held out", report["questions"]["held_out"], held_out),
        )
    ]
    show.table("nDCG@10, dense retrieval", ["", "before", "after"], rows)
    tried = [(each["instruction"], f"{each['score']:.4f}") for each in report["candidates"]]
    show.table("Candidates", ["instruction", "nDCG@10"], tried)
    show.err.print(
        f"held out: {held_out['difference']:+.4f} (95 % interval {held_out['low']:+.4f} to {held_out['high']:+.4f}); "
        f"{report['calls']:,} metric calls, {report['lm_calls']:,} replies of {report['llm']}"
    )
    if held_out["difference"] < 0:
        show.err.print(
            "note: on the held-out questions the winner is worse than the encoder's own prompt, which stays: take a "
            "stronger --llm or more --questions"
        )
    elif report["prompt"]["before"] == report["prompt"]["after"]:
        show.err.print("note: no candidate is better than the encoder's own prompt, which stays")
    elif written := report["written"]:
        indexed = report["encoder"] == report["index"]["encoder"]["id"] == str(Path(written).resolve())
        use = "it answers this index's questions from now on" if indexed else f"search with --encoder {written}"
        show.err.print(f"the query prompt is written to {written}: {use}", soft_wrap=True)
