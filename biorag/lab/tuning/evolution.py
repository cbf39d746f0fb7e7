"""Instructions evolved by GEPA: a model reads the results of an instruction and writes a better one.

Agrawal et al. (2025), GEPA: Reflective prompt evolution can outperform reinforcement learning, arXiv:2507.19457; by the
authors' package. A candidate is a parent rewritten after a minibatch of questions. If it does better on them, it is
measured on the validation questions; the next parent is drawn from the candidates that are best on one of these.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from biorag.benchmarks.retrieval import DEPTH, evaluate, judged_id
from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError
from biorag.lab.synthesis.writers import DraftForm, free_texts
from biorag.lab.tuning.run import dataset_hash
from biorag.prompts.template import Template, render_documents
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Retriever
from biorag.training.held_out import HELD_OUT, HeldOutSplit
from biorag.training.instructions import PromptedEncoder, PromptForm
from biorag.types import Generation, Index, OnProgress, Prompt, Question, Snippet

if TYPE_CHECKING:
    from gepa.core.adapter import EvaluationBatch

logger = logging.getLogger(__name__)

INSTRUCTION = "instruction"
MEASURE, CUTOFF = "nDCG@10", 10
SHOWN = 3  # retrieved passages, and missed passages, of a question
LENGTHS = (600, 300, 150, 75, 0)  # characters of a passage that the model is shown, until the prompt fits
SAMPLE, PERIOD, TRIALS_EACH = 35, 5, 5  # dspy's minibatch, trials between full evaluations, trials a candidate


class Budget(NamedTuple):
    """The size of a search.

    `candidates` are dspy's; questions (half to reflect on, half to choose by) and how many the model is shown at a time
    are those of Synthesize-Train-Merge (arXiv 2602.04731), Table 8.
    """

    candidates: int
    questions: int
    minibatch: int

    def metric_calls(self, validation: int) -> int:
        """Return the metric calls for so many validation questions, one question searched with one instruction each.

        This is `GEPA.auto_budget` of dspy 3 for one prompt: V + 5n + 35N + FV, for n candidates and V validation
        questions, with N = max(4 log2 n, 1.5 n) trials and F = ⌊(N + 1) / 5⌋ + 1 evaluations of all questions.
        """
        trials = int(max(4 * math.log2(self.candidates), 1.5 * self.candidates))
        evaluations = (trials + 1) // PERIOD + 1
        return validation + self.candidates * TRIALS_EACH + trials * SAMPLE + evaluations * validation


BUDGETS = {"light": Budget(6, 200, 3), "medium": Budget(12, 400, 5), "heavy": Budget(18, 600, 8)}


class SearchEffort(NamedTuple):
    """The metric calls of a search, the questions that the model is shown at a time, and GEPA's seed."""

    calls: int
    minibatch: int
    seed: int


class Missed(NamedTuple):
    """A relevant passage below rank 10, and its rank; None below rank 100."""

    snippet: Snippet
    rank: int | None


class Trial(NamedTuple):
    """A question searched with an instruction: its nDCG@10, the first passages, and relevant ones missed.

    `right` are the ranks of relevant passages among the first.
    """

    question: Question
    score: float
    found: Sequence[Snippet]
    right: Sequence[int]
    missed: Sequence[Missed]


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
        shown = ids[:SHOWN]
        ranks = {id: rank for rank, id in enumerate(ids, 1)}
        below = [id for id in relevant if ranks.get(id, DEPTH + 1) > CUTOFF]
        missed = sorted(below, key=lambda id: ranks.get(id, DEPTH))[:SHOWN]
        known = {**self.index.fetch([id for id in missed if id not in ranks]), **snippets}
        return Trial(
            question,
            score,
            [snippets[id] for id in shown],
            [rank for rank, id in enumerate(shown, 1) if id in relevant],
            [Missed(known[id], ranks.get(id)) for id in missed if id in known],
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instruction that GEPA kept, its mean nDCG@10 on the validation questions, and its parent.

    `calls` are the metric calls before it was measured.
    """

    instruction: str
    score: float
    parent: int | None
    calls: int


@dataclass(frozen=True, slots=True)
class Evolution:
    """The candidates in order of discovery, the seed first, and the number of metric calls."""

    candidates: Sequence[Candidate]
    calls: int

    @property
    def best(self) -> Candidate:
        """The candidate with the highest score; the first of equals."""
        return max(self.candidates, key=lambda candidate: candidate.score)


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


def evolve(
    seed_instruction: str, questions: PromptQuestions, adapter: InstructionAdapter, effort: SearchEffort, folder: Path
) -> Evolution:
    """Evolve an instruction; the last round may exceed the metric calls.

    An interrupted search resumes from GEPA's state in `folder`, and a larger one continues it.
    """
    import gepa

    try:
        result = gepa.optimize(
            seed_candidate={INSTRUCTION: seed_instruction},
            trainset=list(questions.feedback),
            valset=list(questions.validation),
            adapter=adapter,
            max_metric_calls=effort.calls,
            reflection_minibatch_size=effort.minibatch,
            track_best_outputs=False,
            logger=SimpleNamespace(log=logger.debug),
            run_dir=str(folder),
            seed=effort.seed,
        )
    except _Failed as failed:
        raise failed.error from None
    rows = zip(
        result.candidates, result.val_aggregate_scores, result.parents, result.discovery_eval_counts, strict=True
    )
    candidates = [Candidate(texts[INSTRUCTION], score, parents[0], spent) for texts, score, parents, spent in rows]
    return Evolution(candidates, result.total_metric_calls or 0)


class InstructionAdapter:
    """Gives GEPA the scores of an instruction, and a better instruction, which `write` asks a model for.

    `replies` counts the model's replies.
    """

    def __init__(self, search: Searcher, write: Callable[[Reflection], Generation], on_progress: OnProgress) -> None:
        self._search, self._write, self._on_progress = search, write, on_progress
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
            reply = self._write(Reflection(candidate[INSTRUCTION], trials, self.replies))
        except Exception as error:  # GEPA would ask again, then go on without
            raise _Failed(error) from error
        self.replies += 1
        return {INSTRUCTION: instruction_of(reply) or candidate[INSTRUCTION]}


class _Failed(BaseException):
    """Carries an error past GEPA, which catches every `Exception` of a proposal."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def instruction_of(reply: Generation) -> str:
    """Return the instruction of a reply in one line; of a truncated reply the whole sentences."""
    text = " ".join(reply.text.split())
    return text[: text.rfind(".") + 1] if reply.capped else text


def draft_form(template: Template) -> DraftForm[Reflection]:
    """Return the form of the request for a better instruction."""

    def prompts(subject: Reflection, _: int) -> Iterator[Prompt]:
        for length in LENGTHS:
            examples = "\n\n".join(_example(number, trial, length) for number, trial in enumerate(subject.trials, 1))
            yield template.fill(instruction=subject.instruction, examples=examples)

    return DraftForm(free_texts(INSTRUCTION), prompts, INSTRUCTION)


def _example(number: int, trial: Trial, length: int) -> str:
    """Return a question as the model sees it."""
    parts = [f"Question {number}: {trial.question.text}", "Found first:", _documents(trial.found, length)]
    if trial.missed:
        parts += ["Missed:", _documents([missed.snippet for missed in trial.missed], length)]
    return "\n".join([*parts, f"Feedback: {feedback_of(trial)}"])


def _documents(snippets: Sequence[Snippet], length: int) -> str:
    shortened = [Snippet(snippet.id, snippet.title[:length], snippet.content[:length]) for snippet in snippets]
    return render_documents(shortened)


def feedback_of(trial: Trial) -> str:
    """Describe in words how well a question was answered."""
    if not trial.found:
        right = "nothing was found"
    elif not trial.right:
        right = "none of the documents found first answers the question"
    else:
        ranks = " and ".join(map(str, trial.right))
        verb = "answers" if len(trial.right) == 1 else "answer"
        right = f"of the documents found first, {ranks} {verb} the question"
    missed = f"; {', '.join(map(_missed, trial.missed))}" if trial.missed else ""
    return f"{MEASURE} is {trial.score:.2f} of 1: {right}{missed}."


def _missed(missed: Missed) -> str:
    return f"one that does stands at rank {missed.rank}" if missed.rank else "one that does was not found at all"
