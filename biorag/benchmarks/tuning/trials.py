"""Trials of instructions: each question's search, and each reply of the model, kept so that none is made twice."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeAlias

from typing_extensions import TypedDict

from biorag.benchmarks.retrieval import DEPTH, evaluate, judged_id
from biorag.benchmarks.tuning.instruction import Form
from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError
from biorag.retrieval.batches import search_questions
from biorag.retrieval.retriever import Retriever
from biorag.types import Generation, Index, OnProgress, Question, Snippet
from biorag.utils.files import json_line
from biorag.utils.parsing import parsed
from biorag.utils.runs import NEXT_STEP, Count, ResumableFile
from biorag.utils.text import whole

MEASURE, CUTOFF = "nDCG@10", 10
SHOWN = 3  # passages found, and passages missed, of a question

Place: TypeAlias = tuple[str, str]  # instruction and question's id


class PromptedEncoder(Protocol):
    """An encoder whose query prompt may be changed."""

    query_prompt: str


@dataclass(frozen=True, slots=True)
class Missed:
    """A relevant passage below the first ten, at this rank; None is below the first hundred."""

    snippet: Snippet
    rank: int | None


@dataclass(frozen=True, slots=True)
class Trial:
    """A question searched with an instruction: its nDCG@10, the first passages found, and relevant ones missed.

    `right` are the places (from 1) of the relevant ones among those found.
    """

    question: Question
    score: float
    found: Sequence[Snippet]
    right: Sequence[int]
    missed: Sequence[Missed]


@dataclass(frozen=True, slots=True)
class Reflection:
    """What a model writes a better instruction of: an instruction, and what it found; `number` counts from 0."""

    instruction: str
    trials: Sequence[Trial]
    number: int = 0

    @property
    def id(self) -> str:
        """Hash of the instruction, the questions and the number."""
        return reflection_id(self.instruction, [trial.question for trial in self.trials], self.number)


def reflection_id(instruction: str, questions: Sequence[Question], number: int) -> str:
    """Return the name of what a model writes of an instruction and questions, the first time and later ones."""
    named = json.dumps([instruction, number, *(question.id for question in questions)])
    return hashlib.sha256(named.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Searcher:
    """Dense retrieval through an index, its encoder's queries under an instruction."""

    retriever: Retriever
    index: Index
    encoder: PromptedEncoder
    form: Form
    dataset: Dataset

    def __call__(self, instruction: str, questions: Sequence[Question]) -> list[Trial]:
        """Search questions of the dataset and score what is found."""
        self.encoder.query_prompt = self.form.prompt(instruction)
        run: dict[str, list[str]] = {}
        snippets: dict[str, dict[str, Snippet]] = {}
        for question, ranking in search_questions(self.retriever, questions, DEPTH):
            judged = self.dataset.qrels[question.id]
            found = [(judged_id(hit.snippet.id, hit.snippet.pmid, judged), hit.snippet) for hit in ranking.hits]
            run[question.id] = list(dict.fromkeys(id for id, _ in found))
            snippets[question.id] = dict(reversed(found))  # of one id the first
        _, values = evaluate({question.id: self.dataset.qrels[question.id] for question in questions}, run)
        return [
            self._trial(question, values[question.id][MEASURE], run[question.id], snippets[question.id])
            for question in questions
        ]

    def _trial(self, question: Question, score: float, ids: Sequence[str], snippets: Mapping[str, Snippet]) -> Trial:
        relevant = [id for id, grade in self.dataset.qrels[question.id].items() if grade > 0]
        shown = ids[:SHOWN]
        ranks = {id: rank for rank, id in enumerate(ids, 1)}
        lacking = sorted(
            (id for id in relevant if ranks.get(id, DEPTH + 1) > CUTOFF), key=lambda id: ranks.get(id, DEPTH)
        )
        unseen = self.index.fetch([id for id in lacking[:SHOWN] if id not in ranks])
        known = {**unseen, **snippets}
        return Trial(
            question,
            score,
            [snippets[id] for id in shown],
            [place for place, id in enumerate(shown, 1) if id in relevant],
            [Missed(known[id], ranks.get(id)) for id in lacking[:SHOWN] if id in known],
        )


@dataclass(frozen=True, slots=True)
class Held:
    """What a file of trials holds: scores, the model's replies by reflection, and the bytes of its whole lines."""

    scores: dict[Place, float]
    replies: dict[str, Generation]
    size: int


class KeptScores(TypedDict):
    """A line of scores: an instruction's, by question."""

    instruction: str
    scores: dict[str, float]


class KeptReply(TypedDict):
    """A line of a reply: its text, whether it was cut, and the tokens of the prompt and the text."""

    reflection: str
    reply: tuple[str, bool, Count, Count]


class TrialFile(ResumableFile[None]):
    """A JSONL file of scores by instruction and question, and of replies."""

    def counted(self, counts: dict[str, int]) -> None:
        """Return nothing: trials are never complete."""

    def read(self) -> Held:
        """Return what the file holds.

        Raises
        ------
        BadInputError
            If a whole line is none of ours.
        """
        held = Held({}, {}, 0)
        size = 0
        for number, line in enumerate(self.whole_lines(), 1):
            try:
                self._take(parsed(KeptScores | KeptReply, line), held)
            except ValueError:
                raise BadInputError(
                    f"{self.path}, line {number}: neither scores nor a reply: delete the file and run the same "
                    f"again, or {NEXT_STEP}"
                ) from None
            size += len(line)
        return Held(held.scores, held.replies, size)

    @staticmethod
    def _take(values: Any, held: Held) -> None:
        if "scores" in values:
            held.scores.update(((values["instruction"], id), score) for id, score in values["scores"].items())
            return
        text, capped, asked, wrote = values["reply"]
        reply = Generation(text, capped, prompt_tokens=asked, completion_tokens=wrote)
        held.replies[values["reflection"]] = reply


class Trials:
    """Scores and replies, those that are not held yet made and written.

    Parameters
    ----------
    stream : the file's end, opened to append
    held : what it holds
    search : gives the trials of an instruction
    write : gives a model's reply
    """

    def __init__(
        self,
        stream: BinaryIO,
        held: Held,
        search: Callable[[str, Sequence[Question]], list[Trial]],
        write: Callable[[Reflection], Generation],
        on_progress: OnProgress,
    ) -> None:
        self._stream, self._search, self._write = stream, search, write
        self._scores, self._replies = held.scores, held.replies
        self._trials: dict[Place, Trial] = {}
        self._on_progress = on_progress
        self._asked: dict[str, Generation] = {}  # replies that this run took, written now or before
        self._times: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._new = 0
        stream.truncate(held.size)

    def scores(self, instruction: str, questions: Sequence[Question]) -> list[float]:
        """Return the nDCG@10 of questions searched with an instruction."""
        new = [question for question in questions if (instruction, question.id) not in self._scores]
        if new:
            found = self._searched(instruction, new)
            scores = {trial.question.id: trial.score for trial in found}
            self._scores.update(((instruction, id), score) for id, score in scores.items())
            self._append({"instruction": instruction, "scores": scores})
        self._on_progress(len(questions))
        return [self._scores[instruction, question.id] for question in questions]

    def reply(self, instruction: str, questions: Sequence[Question]) -> Generation:
        """Return what the model wrote of an instruction and what it found; another text each time."""
        place = instruction, tuple(question.id for question in questions)
        number = self._times[place]
        self._times[place] += 1
        id = reflection_id(instruction, questions, number)
        if id not in self._replies:
            lacking = [question for question in questions if (instruction, question.id) not in self._trials]
            if lacking:
                self._searched(instruction, lacking)
            trials = [self._trials[instruction, question.id] for question in questions]
            reply = self._write(Reflection(instruction, trials, number))
            kept = [whole(reply.text), reply.capped, reply.prompt_tokens, reply.completion_tokens]
            self._append({"reflection": id, "reply": kept})
            self._replies[id] = reply
            self._new += 1
        self._asked[id] = self._replies[id]
        return self._replies[id]

    def spent(self) -> dict[str, Any]:
        """Return how many replies this run took, how many of them are new, and the tokens of all."""
        replies = self._asked.values()
        tokens = {
            "prompt": sum(reply.prompt_tokens for reply in replies),
            "completion": sum(reply.completion_tokens for reply in replies),
        }
        return {"lm_calls": len(replies), "new_lm_calls": self._new, "tokens": tokens}

    def _searched(self, instruction: str, questions: Sequence[Question]) -> list[Trial]:
        found = self._search(instruction, questions)
        self._trials.update(((instruction, trial.question.id), trial) for trial in found)
        return found

    def _append(self, values: Mapping[str, Any]) -> None:
        self._stream.write(json_line(values))
        self._stream.flush()
