"""Tuning an encoder's query prompt: an instruction evolved by GEPA, and its gain on held-out questions.

Agrawal et al. (2025), GEPA: Reflective prompt evolution can outperform reinforcement learning, arXiv:2507.19457; by the
authors' package. A candidate is a parent rewritten after a minibatch of questions. If it does better on them, it is
measured on the validation questions; the next parent is drawn from the candidates that are best on one of these.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from biorag.benchmarks.retrieval import DEPTH, evaluate, judged_id
from biorag.benchmarks.significance import paired
from biorag.corpus.datasets import Dataset
from biorag.engine import OpenIndex, encoder_files
from biorag.errors import BadInputError
from biorag.generators.source import OpenGenerator
from biorag.lab.synthesis.drafts import DraftForm, Draws, PromptedWriter, free_texts
from biorag.lab.tuning.run import dataset_hash
from biorag.models.prompted import copy_prompted
from biorag.prompts.template import Template, render_documents
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Retriever
from biorag.training.contamination import HELD_OUT, HeldOutSplit
from biorag.training.instructions import TASK, PromptedEncoder, PromptForm, parted
from biorag.types import Generation, Index, OnProgress, Progress, Prompt, Question, Snippet
from biorag.utils.files import write_json
from biorag.utils.runs import RunDirectory
from biorag.utils.versions import installed_versions

if TYPE_CHECKING:
    from gepa.core.adapter import EvaluationBatch

logger = logging.getLogger(__name__)

STATE = "gepa"  # folder of GEPA's own state
COPY = "encoder"  # folder of the encoder with the new prompt
INSTRUCTION = "instruction"
MEASURE, CUTOFF = "nDCG@10", 10
SHOWN = 3  # retrieved passages, and missed passages, of a question
LENGTHS = (600, 300, 150, 75, 0)  # characters of a passage that the model is shown, until the prompt fits


class SearchEffort(NamedTuple):
    """The size of a search: questions drawn, questions that the model is shown at a time, and metric calls.

    Half of the questions are to reflect on, half to choose by. A metric call is one question searched with one
    instruction.
    """

    questions: int
    minibatch: int
    calls: int


# Questions and minibatches of Synthesize-Train-Merge (arXiv 2602.04731), Table 8; the metric calls are those of dspy 3
# (`GEPA.auto_budget`) for so many validation questions.
BUDGETS = {
    "light": SearchEffort(200, 3, 780),
    "medium": SearchEffort(400, 5, 1690),
    "heavy": SearchEffort(600, 8, 3135),
}


# --- searching with an instruction ---


class Trial(NamedTuple):
    """A question searched with an instruction: its nDCG@10, the first passages, and relevant ones missed.

    `right` are the ranks of relevant passages among the first; `missed` are relevant passages below rank 10, each with
    its rank, None below rank 100.
    """

    question: Question
    score: float
    first: Sequence[Snippet]
    right: Sequence[int]
    missed: Sequence[tuple[Snippet, int | None]]


@dataclass(frozen=True, slots=True)
class Searcher:
    """Dense retrieval with an instruction before each query."""

    retriever: Retriever
    index: Index
    encoder: PromptedEncoder
    form: PromptForm
    dataset: Dataset

    def __call__(self, instruction: str, questions: Sequence[Question]) -> list[Trial]:
        """Return the trials of questions of the dataset."""
        self.encoder.query_prompt = self.form.prompt(instruction)
        run: dict[str, list[str]] = {}
        snippets: dict[str, dict[str, Snippet]] = {}
        for question, ranking in search_questions(self.retriever, questions, DEPTH):
            judged = self.dataset.qrels[question.id]
            hits = [(judged_id(hit.snippet.id, hit.snippet.pmid, judged), hit.snippet) for hit in ranking.hits]
            run[question.id] = list(dict.fromkeys(id for id, _ in hits))
            snippets[question.id] = dict(reversed(hits))  # of one id the first
        _, values = evaluate({question.id: self.dataset.qrels[question.id] for question in questions}, run)
        return [
            self._trial(question, values[question.id][MEASURE], run[question.id], snippets[question.id])
            for question in questions
        ]

    def scores(self, instruction: str, questions: Sequence[Question]) -> list[float]:
        """Return the nDCG@10 of questions searched with an instruction."""
        return [trial.score for trial in self(instruction, questions)]

    def _trial(self, question: Question, score: float, ids: Sequence[str], snippets: Mapping[str, Snippet]) -> Trial:
        relevant = [id for id, grade in self.dataset.qrels[question.id].items() if grade > 0]
        ranks = {id: rank for rank, id in enumerate(ids, 1)}
        below = [id for id in relevant if ranks.get(id, DEPTH + 1) > CUTOFF]
        missed = sorted(below, key=lambda id: ranks.get(id, DEPTH))[:SHOWN]
        known = {**self.index.fetch([id for id in missed if id not in ranks]), **snippets}
        return Trial(
            question,
            score,
            [snippets[id] for id in ids[:SHOWN]],
            [rank for rank, id in enumerate(ids[:SHOWN], 1) if id in relevant],
            [(known[id], ranks.get(id)) for id in missed if id in known],
        )


@dataclass(frozen=True, slots=True)
class PromptQuestions:
    """Questions to reflect on, questions to choose instructions by, and held-out questions to measure at the end."""

    data: Dataset
    feedback: Sequence[Question]
    validation: Sequence[Question]
    held_out: Sequence[Question]

    @classmethod
    def draw(cls, data: Dataset, split: HeldOutSplit, number: int) -> PromptQuestions:
        """Draw questions of the split's part with its seed; `held_out` are those that training held out.

        Raises BadInputError if there are too few.
        """
        development = split.select(data).questions
        held_out = replace(split, part=HELD_OUT).select(data).questions
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
        """Everything that determines the measures on them."""
        ids = {use: [question.id for question in questions] for use, questions in self.uses.items()}
        return {"dataset": dataset_hash(self.data), "questions": ids}


# --- asking a model for a better instruction ---


@dataclass(frozen=True, slots=True)
class Reflection:
    """An instruction and its trials, from which a model writes a better one; `number` tells repeats apart."""

    instruction: str
    trials: Sequence[Trial]
    number: int = 0

    @property
    def id(self) -> str:
        """Hash of the instruction, the questions and the number."""
        named = json.dumps([self.instruction, self.number, *(trial.question.id for trial in self.trials)])
        return hashlib.sha256(named.encode()).hexdigest()[:32]


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

    def writer(self) -> PromptedWriter:
        """Return the writer of instructions."""
        return PromptedWriter(self.model.generator, draft_form(self.template), self.draws)


def draft_form(template: Template) -> DraftForm:
    """Return the form of the request for a better instruction."""

    def prompts(subject: Reflection, _: int) -> Iterator[Prompt]:
        for length in LENGTHS:
            examples = "\n\n".join(_example(number, trial, length) for number, trial in enumerate(subject.trials, 1))
            yield template.fill(instruction=subject.instruction, examples=examples)

    return DraftForm(free_texts(INSTRUCTION), prompts, INSTRUCTION)


def _example(number: int, trial: Trial, length: int) -> str:
    """Return a question as the model sees it."""
    lines = [f"Question {number}: {trial.question.text}", "Found first:", _documents(trial.first, length)]
    if trial.missed:
        lines += ["Missed:", _documents([snippet for snippet, _ in trial.missed], length)]
    return "\n".join([*lines, f"Feedback: {feedback_of(trial)}"])


def _documents(snippets: Sequence[Snippet], length: int) -> str:
    return render_documents([Snippet(one.id, one.title[:length], one.content[:length]) for one in snippets])


def feedback_of(trial: Trial) -> str:
    """Describe in words how well a question was answered."""
    if not trial.first:
        right = "nothing was found"
    elif not trial.right:
        right = "none of the documents found first answers the question"
    else:
        ranks = " and ".join(map(str, trial.right))
        verb = "answers" if len(trial.right) == 1 else "answer"
        right = f"of the documents found first, {ranks} {verb} the question"
    missed = "".join(
        f"{', ' if number else '; '}one that does " + (f"stands at rank {rank}" if rank else "was not found at all")
        for number, (_, rank) in enumerate(trial.missed)
    )
    return f"{MEASURE} is {trial.score:.2f} of 1: {right}{missed}."


def instruction_of(reply: Generation) -> str:
    """Return the instruction of a reply in one line; of a truncated reply the whole sentences."""
    text = " ".join(reply.text.split())
    return text[: text.rfind(".") + 1] if reply.capped else text


# --- the search ---


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instruction that GEPA kept, its mean nDCG@10 on the validation questions, and its parent.

    `calls` are the metric calls before it was measured.
    """

    instruction: str
    score: float
    parent: int | None
    calls: int


class InstructionAdapter:
    """Gives GEPA the scores of an instruction, and a better instruction, which `writer` asks a model for.

    `replies` counts the model's replies.
    """

    def __init__(self, search: Searcher, writer: PromptedWriter, on_progress: OnProgress) -> None:
        self._search, self._writer, self._on_progress = search, writer, on_progress
        self.replies = 0

    def evaluate(
        self, batch: list[Question], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Trial, str]:
        """Return the nDCG@10 of questions searched with a candidate."""
        from gepa.core.adapter import EvaluationBatch

        trials = self._search(candidate[INSTRUCTION], batch)
        self._on_progress(len(batch))
        return EvaluationBatch([question.id for question in batch], [trial.score for trial in trials], trials)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[Trial, str], components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the trials to reflect on."""
        return {INSTRUCTION: [{"trial": trial} for trial in eval_batch.trajectories or ()]}

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Return a new instruction; the same one if the model writes none, so that GEPA drops it."""
        trials = [record["trial"] for record in reflective_dataset[INSTRUCTION]]
        try:
            ((reply,),) = self._writer([Reflection(candidate[INSTRUCTION], trials, self.replies)])
        except Exception as error:  # GEPA would ask again, then go on without
            raise _ProposalError(error) from error
        self.replies += 1
        return {INSTRUCTION: instruction_of(reply) or candidate[INSTRUCTION]}


class _ProposalError(BaseException):
    """Carries an error past GEPA, which catches every `Exception` of a proposal."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def evolve(
    seed_prompt: str,
    questions: PromptQuestions,
    adapter: InstructionAdapter,
    effort: SearchEffort,
    seed: int,
    folder: Path,
) -> tuple[list[Candidate], int]:
    """Return the candidates in order of discovery, the seed prompt first, and the number of metric calls.

    The last round may exceed the metric calls. An interrupted search resumes from GEPA's state in `folder`, and a
    larger one continues it.
    """
    import gepa

    try:
        result = gepa.optimize(
            seed_candidate={INSTRUCTION: seed_prompt},
            trainset=list(questions.feedback),
            valset=list(questions.validation),
            adapter=adapter,
            max_metric_calls=effort.calls,
            reflection_minibatch_size=effort.minibatch,
            track_best_outputs=False,
            logger=SimpleNamespace(log=logger.debug),
            run_dir=str(folder),
            seed=seed,
        )
    except _ProposalError as failed:
        raise failed.error from None
    rows = zip(
        result.candidates, result.val_aggregate_scores, result.parents, result.discovery_eval_counts, strict=True
    )
    candidates = [Candidate(texts[INSTRUCTION], score, parents[0], spent) for texts, score, parents, spent in rows]
    return candidates, result.total_metric_calls or 0


class PromptRun(RunDirectory):
    """The directory of a search for an instruction; it is never complete: more calls continue it."""

    kind = "prompt tuning"
    manifest_name = "run.json"


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
    encoder, seed, started = opened.load_encoder(), opened.settings.seed, time.perf_counter()
    before = encoder.query_prompt
    current, form = parted(before)
    run = PromptRun(out, _identity(opened, questions, reflection, effort))
    run.finished()
    search = Searcher(opened.retriever, opened.index, encoder, form, questions.data)
    with run.locked():
        run.begin({})
        with progress("Metric calls", effort.calls) as advance:
            adapter = InstructionAdapter(search, reflection.writer(), advance)
            candidates, calls = evolve(current or TASK, questions, adapter, effort, seed, out / STATE)
        measured = _measured(candidates, current, questions, search, seed)
        after = form.prompt(measured["winner"] if measured["held_out"]["difference"] >= 0 else current)
        written = _written(opened, out / COPY, before, after) if write else None
        report = {
            "dataset": questions.data.name,
            "questions": {use: len(drawn) for use, drawn in questions.uses.items()},
            "index": opened.manifest.fingerprint(),
            "seed_prompt": current or TASK,
            **measured,
            "prompt": {"before": before, "after": after},
            "llm": reflection.model.generator.name,
            "minibatch": effort.minibatch,
            "calls": calls,
            "lm_calls": adapter.replies,
            "candidates": [asdict(candidate) for candidate in candidates],
            "written": str(written) if written else None,
            "seconds": round(time.perf_counter() - started, 3),
        }
        write_json(out / "report.json", report)
    return report


def _identity(
    opened: OpenIndex, questions: PromptQuestions, reflection: ReflectionModel, effort: SearchEffort
) -> dict[str, Any]:
    """Return everything that determines the search besides the metric calls."""
    return {
        "seed_prompt": opened.load_encoder().query_prompt,
        "index": opened.manifest.fingerprint(),
        **questions.identity,
        **reflection.identity,
        "precision": opened.settings.retrieval.precision,
        "versions": installed_versions(),
        "minibatch": effort.minibatch,
    }


def _measured(
    candidates: Sequence[Candidate], current: str, questions: PromptQuestions, search: Searcher, seed: int
) -> dict[str, Any]:
    """Return the winner (the encoder's own instruction unless a candidate is better) and the means of both."""
    best = max(candidates, key=lambda candidate: candidate.score)  # of equals the first
    before = fmean(search.scores(current, questions.validation))
    winner = best.instruction if best.score > before else current
    ours, theirs = (search.scores(instruction, questions.held_out) for instruction in (winner, current))
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
