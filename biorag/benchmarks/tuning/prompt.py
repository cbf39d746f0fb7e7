"""Tuning an encoder's query prompt: the questions, the search for an instruction, and its gain."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from biorag.benchmarks.significance import paired
from biorag.benchmarks.tuning.evolution import (
    MINIBATCH,
    Evolution,
    InstructionAdapter,
    Reflection,
    Searcher,
    draft_form,
    evolve,
    most_replies,
    write_curve,
)
from biorag.benchmarks.tuning.instruction import PromptTarget, parted
from biorag.benchmarks.tuning.study import dataset_hash
from biorag.corpus.datasets import Dataset
from biorag.engine import OpenGenerator, OpenIndex
from biorag.errors import BadInputError
from biorag.prompts.template import Template
from biorag.training.held_out import DROPPED, HELD_OUT, HeldOutSplit
from biorag.training.instructions import TASK
from biorag.training.synthesis.writers import Draws, PromptedWriter
from biorag.types import Generation, Progress, Question
from biorag.utils.files import write_json
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

STATE = "gepa"  # folder of GEPA's own state


@dataclass(frozen=True, slots=True)
class PromptQuestions:
    """Questions to reflect on, questions to choose instructions by, and held-out questions to measure at the end."""

    data: Dataset
    feedback: Sequence[Question]
    validation: Sequence[Question]
    held_out: Sequence[Question]

    @classmethod
    def draw(cls, data: Dataset, split: HeldOutSplit, number: int) -> PromptQuestions:
        """Draw questions of a part with the split's seed; measured are those that training held out.

        Raises BadInputError if there are too few.
        """
        benchmarks = () if split.part == DROPPED else split.benchmarks
        development = split.select(data).questions
        held_out = replace(split, part=HELD_OUT, benchmarks=benchmarks).select(data).questions
        drawn = Random(split.seed).sample(list(development), min(number, len(development)))
        half = len(drawn) // 2
        if not half:
            raise BadInputError(
                f"{data.name} has one question to develop on: two are needed, to reflect on and choose by"
            )
        return cls(data, drawn[:half], drawn[half:], held_out)

    @property
    def uses(self) -> dict[str, Sequence[Question]]:
        """The questions by their use."""
        return {"feedback": self.feedback, "validation": self.validation, "held_out": self.held_out}

    @property
    def identity(self) -> dict[str, Any]:
        """All that determines the measures on them."""
        ids = {use: [question.id for question in questions] for use, questions in self.uses.items()}
        return {"dataset": dataset_hash(self.data), "questions": ids}


@dataclass(frozen=True, slots=True)
class ReflectionModel:
    """The language model under a template: its name, its writer, and all that determines the replies."""

    name: str
    writer: PromptedWriter[Reflection]
    identity: Mapping[str, Any]

    @classmethod
    def of(cls, model: OpenGenerator, template: Template, draws: Draws, precision: str) -> ReflectionModel:
        """Return the model under a template; `precision` is the encoder's, whose scores it is shown."""
        identity = {
            **asdict(draws),
            "generator": model.identity,
            "template": template.sha256,
            "precision": precision,
            "versions": installed_versions(),
        }
        writer = PromptedWriter(model.generator, draft_form(template), draws, model.at_a_time)
        return cls(model.generator.name, writer, identity)

    def write(self, reflection: Reflection) -> Generation:
        """Return the model's reply."""
        return self.writer([reflection])[0][0]


class PromptRun(RunDirectory):
    """The directory of a search for an instruction; it is never complete: a larger budget continues it."""

    kind = "prompt tuning"
    manifest_name = "run.json"

    def first_prompt(self, current: str) -> str:
        """Return the query prompt that the encoder had when the search began, which may have been replaced since."""
        values = self._read_manifest()
        return str(values.get("prompt", current)) if values else current


class PromptTuning:
    """A search for a better instruction by dense retrieval, in the folder `out`; an interrupted one resumes.

    It begins with `seed_prompt`, or the encoder's own instruction; `calls` and `minibatch` are as in `evolve`.

    Raises MismatchError if the folder holds another search.
    """

    def __init__(
        self,
        out: Path,
        opened: OpenIndex,
        questions: PromptQuestions,
        model: ReflectionModel,
        seed_prompt: str | None,
        calls: int,
        minibatch: int = MINIBATCH,
    ) -> None:
        assert opened.encoder is not None, "dense retrieval loads the encoder"
        self._started = time.perf_counter()
        self._out, self._opened, self._encoder = out, opened, opened.encoder
        self._questions, self._model, self._calls = questions, model, calls
        self._minibatch = minibatch
        self._current = self._encoder.query_prompt
        self._before = PromptRun(out, {}).first_prompt(self._current)
        self._own, self._form = parted(self._before)
        self._first = seed_prompt or self._own or TASK
        self._index = {**opened.manifest.fingerprint()}
        identity = {"seed_prompt": self._first, "index": self._index, **questions.identity, **model.identity}
        self._run = PromptRun(out, {**identity, "minibatch": minibatch})
        self._run.finished()

    @property
    def most_replies(self) -> int:
        """How many replies the model is asked for at most."""
        return most_replies(self._calls, len(self._questions.validation), self._minibatch)

    def run(self, budget: str | None, target: PromptTarget | None, progress: Progress) -> dict[str, Any]:
        """Search, measure the winner, and write it into the target if there is one; return the report.

        What an earlier run wrote is replaced, too, where the prompt before it is now the best. `budget` is the name of
        the calls, for the report.
        """
        with self._run.locked():
            self._run.begin({"prompt": self._before})
            report = self._tuned(budget, progress)
            written = target is not None and target.changes({self._current, *report["prompt"].values()})
            report |= {
                "encoder": self._encoder.identity.id,
                "written": str(target.path) if target and written else None,
                "seconds": round(time.perf_counter() - self._started, 3),
            }
            write_json(self._out / "report.json", report)
            if target and written:
                target.write(report["prompt"]["after"])
        return report

    def _tuned(self, budget: str | None, progress: Progress) -> dict[str, Any]:
        """Evolve the instruction and measure it."""
        questions, seed = self._questions, self._opened.settings.seed
        search = Searcher(self._opened.retriever, self._opened.index, self._encoder, self._form, questions.data)
        with progress("Metric calls", self._calls) as advance:
            adapter = InstructionAdapter(search, self._model.write, advance)
            shown = questions.feedback, questions.validation
            evolution = evolve(self._first, shown, adapter, self._calls, seed, self._out / STATE, self._minibatch)
        measured = _measured(evolution, self._own, questions, search, seed)
        write_curve(self._out, evolution)
        kept = measured["winner"] if measured["held_out"]["difference"] >= 0 else self._own
        return {
            "dataset": questions.data.name,
            "questions": {use: len(drawn) for use, drawn in questions.uses.items()},
            "index": self._index,
            "seed_prompt": self._first,
            **measured,
            "prompt": {"before": self._before, "after": self._form.prompt(kept)},
            "llm": self._model.name,
            "budget": budget,
            "minibatch": self._minibatch,
            "calls": evolution.calls,
            **adapter.spent(),
            "candidates": [asdict(candidate) for candidate in evolution.candidates],
        }


def _measured(
    evolution: Evolution, own: str, questions: PromptQuestions, search: Searcher, seed: int
) -> dict[str, Any]:
    """Return the winner, which is the encoder's own instruction unless a candidate is better, and both ones' means."""
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
