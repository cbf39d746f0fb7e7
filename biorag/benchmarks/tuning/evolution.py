"""Instructions evolved by GEPA: a model reads what an instruction found and writes a better one.

Agrawal et al. (2025), GEPA: Reflective prompt evolution can outperform reinforcement learning, arXiv:2507.19457; by the
authors' package. A candidate is a parent rewritten after a minibatch of questions; if it does better on them it is
measured on the validation questions, and the next parent is drawn among those that are best on one of these.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biorag.benchmarks.tuning.budget import MINIBATCH
from biorag.benchmarks.tuning.trials import MEASURE, Missed, Reflection, Trial, Trials
from biorag.errors import MissingError
from biorag.prompts.template import Template, render_documents
from biorag.training.synthesis.writers import DraftForm
from biorag.types import Generation, Prompt, Question, Snippet
from biorag.utils.files import json_text, write_text
from biorag.utils.outputs import is_plot
from biorag.utils.plots import PlotPanel, write_plot

if TYPE_CHECKING:
    from gepa.core.adapter import EvaluationBatch

logger = logging.getLogger(__name__)

INSTRUCTION = "instruction"
LENGTHS = (600, 300, 150, 75, 0)  # characters of a passage that the model is shown, until the prompt fits


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
    """The candidates in the order in which they came, the seed first, and the metric calls in all."""

    candidates: Sequence[Candidate]
    calls: int

    @property
    def best(self) -> Candidate:
        """Return the candidate with the highest score, of equals the first."""
        return max(self.candidates, key=lambda each: each.score)


def require_gepa() -> None:
    """Refuse to go on without the package.

    Raises
    ------
    MissingError
        Naming the extra that brings it.
    """
    try:
        import gepa  # noqa: F401
    except ImportError:
        raise MissingError("tuning a prompt needs GEPA: run pip install 'biorag[prompts]'") from None


def evolve(
    seed_instruction: str,
    feedback: Sequence[Question],
    validation: Sequence[Question],
    trials: Trials,
    calls: int,
    seed: int,
    minibatch: int = MINIBATCH,
) -> Evolution:
    """Evolve an instruction for about so many metric calls: the last round may go past them.

    Parameters
    ----------
    feedback : questions that the model is shown
    validation : questions that candidates are chosen on
    minibatch : how many questions the model is shown at a time
    """
    import gepa

    try:
        result = gepa.optimize(
            seed_candidate={INSTRUCTION: seed_instruction},
            trainset=list(feedback),
            valset=list(validation),
            adapter=InstructionAdapter(trials),
            max_metric_calls=calls,
            reflection_minibatch_size=minibatch,
            track_best_outputs=False,
            logger=_Log(),
            seed=seed,
        )
    except _Failed as failed:
        raise failed.error from None
    rows = zip(
        result.candidates, result.val_aggregate_scores, result.parents, result.discovery_eval_counts, strict=True
    )
    candidates = [Candidate(each[INSTRUCTION], score, parents[0], spent) for each, score, parents, spent in rows]
    return Evolution(candidates, result.total_metric_calls or 0)


def _is_candidates(beginning: bytes) -> bool:
    return beginning.startswith(b'{"instruction": ')


CURVES = {"candidates.jsonl": _is_candidates, "curve.png": is_plot}  # files that `write_curve` writes


def write_curve(folder: Path, evolution: Evolution) -> None:
    """Write `candidates.jsonl`, and `curve.png`: the candidates' scores, and the best so far, over the metric calls."""
    found = evolution.candidates
    lines = [json_text(asdict(each)) + "\n" for each in found]
    write_text(folder / "candidates.jsonl", "".join(lines))
    scores = [(each.calls, each.score) for each in found]
    best = [(calls, max(score for _, score in scores[:place])) for place, (calls, _) in enumerate(scores, 1)]
    best.append((evolution.calls, evolution.best.score))
    write_plot(
        folder / "curve.png", [PlotPanel("instructions", "metric calls", MEASURE, {"each": scores, "best": best})]
    )


class InstructionAdapter:
    """What GEPA asks of us: scores of an instruction's questions, and a better instruction."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials

    def evaluate(
        self, batch: list[Question], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Question, str]:
        """Return the nDCG@10 of questions searched with a candidate."""
        from gepa.core.adapter import EvaluationBatch

        scores = self._trials.scores(candidate[INSTRUCTION], batch)
        return EvaluationBatch([question.id for question in batch], scores, list(batch))

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: EvaluationBatch[Question, str],
        components_to_update: list[str],
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the questions to reflect on; what they found is looked up where the model is really asked."""
        return {INSTRUCTION: [{"question": question} for question in eval_batch.trajectories or ()]}

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Return a new instruction; the same one where the model writes none, which then fares no better."""
        questions = [record["question"] for record in reflective_dataset[INSTRUCTION]]
        try:
            reply = self._trials.reply(candidate[INSTRUCTION], questions)
        except Exception as error:  # GEPA would ask again, then go on without
            raise _Failed(error) from error
        return {INSTRUCTION: instruction_of(reply) or candidate[INSTRUCTION]}


class _Failed(BaseException):
    """Carries an error past GEPA, which catches every `Exception` of a proposal."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Log:
    """GEPA's log lines, as ours."""

    def log(self, message: str) -> None:
        """Log a message; it is of interest to --debug alone."""
        logger.debug("%s", message)


def instruction_of(reply: Generation) -> str:
    """Return the instruction of a reply in one line; of one that was cut, its whole sentences."""
    text = " ".join(reply.text.split())
    return text[: text.rfind(".") + 1] if reply.capped else text


def draft_form(template: Template) -> DraftForm[Reflection]:
    """Return what a model is asked for: a better instruction."""

    def prompts(subject: Reflection, number: int) -> Iterator[Prompt]:
        for length in LENGTHS:
            examples = "\n\n".join(_example(place, trial, length) for place, trial in enumerate(subject.trials, 1))
            yield template.fill(instruction=subject.instruction, examples=examples)

    return DraftForm((INSTRUCTION,), prompts, INSTRUCTION)


def _example(number: int, trial: Trial, length: int) -> str:
    """Return what the model is shown of a question."""
    parts = [f"Question {number}: {trial.question.text}", "Found first:", _documents(trial.found, length)]
    if trial.missed:
        parts += ["Missed:", _documents([missed.snippet for missed in trial.missed], length)]
    return "\n".join([*parts, f"Feedback: {feedback_of(trial)}"])


def _documents(snippets: Sequence[Snippet], length: int) -> str:
    return render_documents([Snippet(each.id, each.title[:length], each.content[:length]) for each in snippets])


def feedback_of(trial: Trial) -> str:
    """Return in words how well a question was answered."""
    if not trial.found:
        right = "nothing was found"
    elif not trial.right:
        right = "none of the documents found first answers the question"
    else:
        places = " and ".join(map(str, trial.right))
        right = (
            f"of the documents found first, {places} {'answers' if len(trial.right) == 1 else 'answer'} the question"
        )
    missed = f"; {', '.join(map(_missed, trial.missed))}" if trial.missed else ""
    return f"{MEASURE} is {trial.score:.2f} of 1: {right}{missed}."


def _missed(missed: Missed) -> str:
    return f"one that does stands at rank {missed.rank}" if missed.rank else "one that does was not found at all"
