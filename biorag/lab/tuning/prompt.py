"""Tuning an encoder's query prompt: the search for an instruction, and its gain on held-out questions."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from biorag.benchmarks.significance import paired
from biorag.engine import OpenIndex, encoder_files
from biorag.generators.source import OpenGenerator
from biorag.lab.synthesis.writers import Draws, PromptedWriter
from biorag.lab.tuning.evolution import (
    Evolution,
    InstructionAdapter,
    PromptQuestions,
    Reflection,
    SearchEffort,
    Searcher,
    draft_form,
    evolve,
)
from biorag.models.prompted import copy_prompted
from biorag.prompts.template import Template
from biorag.training.instructions import TASK, parted
from biorag.types import Generation, Progress
from biorag.utils.files import write_json
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

STATE = "gepa"  # folder of GEPA's own state
COPY = "encoder"  # folder of the encoder with the new prompt


class PromptRun(RunDirectory):
    """The directory of a search for an instruction; it is never complete: more calls continue it."""

    kind = "prompt tuning"
    manifest_name = "run.json"


@dataclass(frozen=True, slots=True)
class ReflectionModel:
    """The language model that writes instructions, its template, and how it is sampled."""

    model: OpenGenerator
    template: Template
    draws: Draws

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the replies."""
        return {**asdict(self.draws), "generator": self.model.identity, "template": self.template.sha256}

    def writer(self) -> Callable[[Reflection], Generation]:
        """Return the function that asks the model for an instruction."""
        writer = PromptedWriter(self.model.generator, draft_form(self.template), self.draws)
        return lambda reflection: writer([reflection])[0][0]


def tune_prompt(
    out: Path,
    opened: OpenIndex,
    questions: PromptQuestions,
    reflection: ReflectionModel,
    effort: SearchEffort,
    write: bool,
    progress: Progress,
) -> dict[str, Any]:
    """Evolve and measure an encoder's instruction; with `write` an encoder with the winner is written to `out/COPY`."""
    encoder, started = opened.load_encoder(), time.perf_counter()
    before = encoder.query_prompt
    own, form = parted(before)
    run = _run(out, opened, questions, reflection, effort)
    search = Searcher(opened.retriever, opened.index, encoder, form, questions.data)
    with run.locked():
        run.begin({})
        with progress("Metric calls", effort.calls) as advance:
            adapter = InstructionAdapter(search, reflection.writer(), advance)
            evolution = evolve(own or TASK, questions, adapter, effort, out / STATE)
        measured = _measured(evolution, own, questions, search, effort.seed)
        after = form.prompt(measured["winner"] if measured["held_out"]["difference"] >= 0 else own)
        written = _written(opened, out / COPY, before, after) if write else None
        report = {
            "dataset": questions.data.name,
            "questions": {use: len(drawn) for use, drawn in questions.uses.items()},
            "index": opened.manifest.fingerprint(),
            "seed_prompt": own or TASK,
            **measured,
            "prompt": {"before": before, "after": after},
            "llm": reflection.model.generator.name,
            "minibatch": effort.minibatch,
            "calls": evolution.calls,
            "lm_calls": adapter.replies,
            "candidates": [asdict(candidate) for candidate in evolution.candidates],
            "written": str(written) if written else None,
            "seconds": round(time.perf_counter() - started, 3),
        }
        write_json(out / "report.json", report)
    return report


def _run(
    out: Path, opened: OpenIndex, questions: PromptQuestions, reflection: ReflectionModel, effort: SearchEffort
) -> PromptRun:
    """Return the run of a search; raises MismatchError if the folder holds another."""
    identity = {
        "seed_prompt": opened.load_encoder().query_prompt,
        "index": opened.manifest.fingerprint(),
        **questions.identity,
        **reflection.identity,
        "precision": opened.settings.retrieval.precision,
        "versions": installed_versions(),
        "minibatch": effort.minibatch,
    }
    run = PromptRun(out, identity)
    run.finished()
    return run


def _written(opened: OpenIndex, folder: Path, before: str, after: str) -> Path | None:
    """Write an encoder with a new prompt in place of an earlier winner; return None if the prompt stays."""
    shutil.rmtree(folder, ignore_errors=True)
    if after == before:
        return None
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    copy_prompted(encoder_files(opened.settings, opened.manifest), unfinished, {"query": after})
    unfinished.rename(folder)
    return folder


def _measured(
    evolution: Evolution, own: str, questions: PromptQuestions, search: Searcher, seed: int
) -> dict[str, Any]:
    """Return the winner (the encoder's own instruction unless a candidate is better) and the means of both."""
    best, before = evolution.best, fmean(search.scores(own, questions.validation))
    winner = best.instruction if best.score > before else own
    ours, theirs = (search.scores(instruction, questions.held_out) for instruction in (winner, own))
    comparison = asdict(paired(ours, theirs, seed))
    return {
        "winner": winner,
        "development": {"before": before, "after": max(before, best.score)},
        "held_out": {
            "before": fmean(theirs),
            "after": fmean(ours),
            **{key: comparison[key] for key in ("difference", "low", "high", "p_value")},
        },
    }
