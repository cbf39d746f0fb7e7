"""Instructions evolved by GEPA: a model reads what an instruction found and writes a better one.

Agrawal et al. (2025), GEPA: Reflective prompt evolution can outperform reinforcement learning, arXiv:2507.19457; by the
authors' package. A candidate is a parent rewritten after a minibatch of questions; if it does better on them it is
measured on the validation questions, and the next parent is drawn among those that are best on one of these.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from biorag.benchmarks.retrieval import DEPTH, evaluate, judged_id
from biorag.benchmarks.tuning.instruction import PromptedEncoder, PromptForm
from biorag.corpus.datasets import Dataset
from biorag.errors import MissingError, unknown_name
from biorag.prompts.template import Template, render_documents
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Retriever
from biorag.training.synthesis.writers import DraftForm
from biorag.types import Generation, Index, OnProgress, Prompt, Question, Snippet
from biorag.utils.files import json_text, write_text
from biorag.utils.plots import PlotPanel, write_plot

if TYPE_CHECKING:
    from gepa.core.adapter import EvaluationBatch

logger = logging.getLogger(__name__)

INSTRUCTION = "instruction"
MEASURE, CUTOFF = "nDCG@10", 10
SHOWN = 3  # passages found, and passages missed, of a question
LENGTHS = (600, 300, 150, 75, 0)  # characters of a passage that the model is shown, until the prompt fits
MINIBATCH = 3  # questions that the model is shown at a time, GEPA's default
CANDIDATES = {"light": 6, "medium": 12, "heavy": 18}  # by budget
SAMPLE, PERIOD, TRIALS_EACH = 35, 5, 5  # dspy's minibatch, trials between full evaluations, trials a candidate


@dataclass(frozen=True, slots=True)
class Spending:
    """Settings of a search."""

    questions: int = 200  # drawn, half of them to reflect on, half to choose by
    minibatch: int = MINIBATCH  # questions that the model is shown at a time
    temperature: float = 1.0
    max_tokens: int = 96  # of a reply


# Synthesize-Train-Merge (arXiv 2602.04731), Table 8: 100, 200 or 300 training examples, and as many for validation.
STM = {
    "light": Spending(200, 3, 0.7, 1000),
    "medium": Spending(400, 5, 0.7, 1000),
    "heavy": Spending(600, 8, 0.7, 1000),
}
RECIPES = {"stm": STM}


def spending(recipe: str | None, budget: str) -> Spending:
    """Return a recipe's settings for a budget; without a recipe biorag's own.

    Raises UsageError if there is no such recipe or budget.
    """
    if budget not in CANDIDATES:
        raise unknown_name("--budget", budget, CANDIDATES)
    if recipe is None:
        return Spending()
    if recipe not in RECIPES:
        raise unknown_name("--recipe", recipe, RECIPES)
    return RECIPES[recipe][budget]


def metric_calls(budget: str, validation: int) -> int:
    """Return the metric calls of a budget, one question searched with one instruction each.

    This is `GEPA.auto_budget` of dspy 3 for one prompt: V + 5n + 35N + FV, for n candidates and V validation questions,
    with N = max(4 log2 n, 1.5 n) trials and F = ⌊(N + 1) / 5⌋ + 1 evaluations of all questions.
    """
    candidates = CANDIDATES[budget]
    trials = int(max(4 * math.log2(candidates), 1.5 * candidates))
    evaluations = (trials + 1) // PERIOD + 1
    return validation + candidates * TRIALS_EACH + trials * SAMPLE + evaluations * validation


def most_replies(calls: int, validation: int, minibatch: int = MINIBATCH) -> int:
    """Return the most replies that the model is asked for: one for two minibatches, after the seed's validation."""
    return max(0, math.ceil((calls - validation) / (2 * minibatch)))


@dataclass(frozen=True, slots=True)
class Missed:
    """A relevant passage below the first ten, at this rank; None is below the first hundred."""

    snippet: Snippet
    rank: int | None


@dataclass(frozen=True, slots=True)
class Trial:
    """A question searched with an instruction: its nDCG@10, the first passages found, and relevant ones missed.

    `right` are the ranks of the relevant ones among those found.
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
    """Dense retrieval through an index, its encoder's queries under an instruction."""

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
    """An instruction that GEPA kept, its mean nDCG@10 on the validation questions, and the one it was written from.

    `calls` are the metric calls before it was measured.
    """

    instruction: str
    score: float
    parent: int | None
    calls: int


@dataclass(frozen=True, slots=True)
class Evolution:
    """The candidates in the order in which they came, the seed first, and the total of metric calls."""

    candidates: Sequence[Candidate]
    calls: int

    @property
    def best(self) -> Candidate:
        """Return the candidate with the highest score, of equals the first."""
        return max(self.candidates, key=lambda candidate: candidate.score)


def require_gepa() -> None:
    """Refuse to go on without the package.

    Raises MissingError naming the extra that brings it.
    """
    try:
        import gepa  # noqa: F401
    except ImportError:
        raise MissingError("tuning a prompt needs GEPA: run pip install 'biorag[prompts]'") from None


def evolve(
    seed_instruction: str,
    questions: tuple[Sequence[Question], Sequence[Question]],
    adapter: InstructionAdapter,
    calls: int,
    seed: int,
    folder: Path,
    minibatch: int = MINIBATCH,
) -> Evolution:
    """Evolve an instruction for about so many metric calls: the last round may go past them.

    `questions` are those that the model is shown, `minibatch` of them at a time, and those that candidates are chosen
    on. An interrupted search resumes from GEPA's state in `folder`, and a larger one continues it.
    """
    import gepa

    feedback, validation = questions
    try:
        result = gepa.optimize(
            seed_candidate={INSTRUCTION: seed_instruction},
            trainset=list(feedback),
            valset=list(validation),
            adapter=adapter,
            max_metric_calls=calls,
            reflection_minibatch_size=minibatch,
            track_best_outputs=False,
            logger=SimpleNamespace(log=logger.debug),
            run_dir=str(folder),
            seed=seed,
        )
    except _Failed as failed:
        raise failed.error from None
    rows = zip(
        result.candidates, result.val_aggregate_scores, result.parents, result.discovery_eval_counts, strict=True
    )
    candidates = [Candidate(texts[INSTRUCTION], score, parents[0], spent) for texts, score, parents, spent in rows]
    return Evolution(candidates, result.total_metric_calls or 0)


class InstructionAdapter:
    """Gives GEPA the scores of an instruction's questions, and a better instruction, which `write` asks a model for."""

    def __init__(self, search: Searcher, write: Callable[[Reflection], Generation], on_progress: OnProgress) -> None:
        self._search, self._write, self._on_progress = search, write, on_progress
        self._spent = dict.fromkeys(("calls", "replies", "prompt", "completion"), 0)
        self._new = 0

    def evaluate(
        self, batch: list[Question], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Trial, str]:
        """Return the nDCG@10 of questions searched with a candidate."""
        from gepa.core.adapter import EvaluationBatch

        trials = self._search(candidate[INSTRUCTION], batch)
        self._spent["calls"] += len(batch)
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
        """Return a new instruction; the same one where the model writes none, which then fares no better."""
        trials = [record["trial"] for record in reflective_dataset[INSTRUCTION]]
        try:
            reply = self._write(Reflection(candidate[INSTRUCTION], trials, self._spent["replies"]))
        except Exception as error:  # GEPA would ask again, then go on without
            raise _Failed(error) from error
        self._new += 1
        for name, count in (("replies", 1), ("prompt", reply.prompt_tokens), ("completion", reply.completion_tokens)):
            self._spent[name] += count
        return {INSTRUCTION: instruction_of(reply) or candidate[INSTRUCTION]}

    def get_adapter_state(self) -> dict[str, Any]:
        """Return the counts that GEPA keeps with its own state."""
        return dict(self._spent)

    def set_adapter_state(self, state: dict[str, Any]) -> None:
        """Take over the counts of an interrupted search."""
        if state:
            self._on_progress(state["calls"] - self._spent["calls"])
            self._spent = dict(state)

    def spent(self) -> dict[str, Any]:
        """Return the replies that the search took, the new ones among them, and their tokens."""
        tokens = {name: self._spent[name] for name in ("prompt", "completion")}
        return {"lm_calls": self._spent["replies"], "new_lm_calls": self._new, "tokens": tokens}


class _Failed(BaseException):
    """Carries an error past GEPA, which catches every `Exception` of a proposal."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def write_curve(folder: Path, evolution: Evolution) -> None:
    """Write `candidates.jsonl`, and `curve.png`: the candidates' scores, and the best so far, over the metric calls."""
    candidates = evolution.candidates
    write_text(folder / "candidates.jsonl", "".join(json_text(asdict(each)) + "\n" for each in candidates))
    scores = [(candidate.calls, candidate.score) for candidate in candidates]
    best = [(calls, max(score for _, score in scores[:count])) for count, (calls, _) in enumerate(scores, 1)]
    best.append((evolution.calls, evolution.best.score))
    write_plot(
        folder / "curve.png", [PlotPanel("instructions", "metric calls", MEASURE, {"each": scores, "best": best})]
    )


def instruction_of(reply: Generation) -> str:
    """Return the instruction of a reply in one line; of one that was cut, its whole sentences."""
    text = " ".join(reply.text.split())
    return text[: text.rfind(".") + 1] if reply.capped else text


def draft_form(template: Template) -> DraftForm[Reflection]:
    """Return the form of the request for a better instruction."""

    def prompts(subject: Reflection, number: int) -> Iterator[Prompt]:
        for length in LENGTHS:
            examples = "\n\n".join(_example(place, trial, length) for place, trial in enumerate(subject.trials, 1))
            yield template.fill(instruction=subject.instruction, examples=examples)

    return DraftForm((INSTRUCTION,), prompts, INSTRUCTION)


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
    """Return in words how well a question was answered."""
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
