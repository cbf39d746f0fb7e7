"""Answers from evidence: prompt a generator, read its reply, verify its citations."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from biorag.answering.abstention.estimator import EvidenceEstimator
from biorag.answering.echoes import fault_of
from biorag.answering.extract import Extractor, extracted
from biorag.answering.options import by_evidence
from biorag.answering.replies import chosen, written
from biorag.answering.shortening import shortened
from biorag.answering.verification.checker import Checker
from biorag.errors import BadInputError, UsageError, unknown_name
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template, schema_for
from biorag.retrieval.retriever import Ranking, Retriever
from biorag.settings.settings import Settings
from biorag.types import EXTRACT, Answer, FieldFilter, GenerationRequest, Generator, Prompt, Question, Scores

EVIDENCE = "evidence"
SCORE = "score"
METHODS = {  # the ways to answer a multiple-choice question
    "generate": "JSON reply",
    SCORE: "compare log-likelihoods",
    EVIDENCE: "the option that the evidence supports best, without a model",
}
WITHOUT_GENERATOR = frozenset([EVIDENCE])
ANSWER_MARGIN = 64  # tokens kept for the fields after the free text and the chat format
CACHED_NOTE = "the model was not asked: its reply was cached (--no-cache asks it)"
NOTHING = "The index holds nothing that answers this."
OnText = Callable[[str], None]


class PromptTooLongError(BadInputError):
    """A question that does not fit the generator's window even without documents."""


class Comparable(NamedTuple):
    """A question to be answered by comparing its options as replies to a prompt."""

    answer: Answer
    prompt: Prompt


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise unknown_name("way to answer", method, METHODS)


class Answerer:
    """Answers questions from what the retriever finds; without a retriever, from the model alone.

    Without a generator the answer is sentences of the evidence, or for `--llm none` the hits alone.
    """

    def __init__(
        self,
        retriever: Retriever | None,
        generator: Generator | None,
        settings: Settings,
        extractor: Extractor | None = None,
        checker: Checker | None = None,
        estimator: EvidenceEstimator | None = None,
    ) -> None:
        self._retriever = retriever
        self._generator = generator
        self._settings = settings
        self._extractor = extractor or Extractor()
        self._checker = checker or Checker()
        self._estimator = estimator

    def answer(
        self,
        question: Question,
        where: tuple[FieldFilter, ...] = (),
        method: str = "generate",
        on_text: OnText | None = None,
    ) -> Answer:
        """Answer one question from evidence that fulfils `where`; see `answer_or_withhold`."""
        _check_method(method)
        return self.answer_or_withhold(question, self.retrieve([question], [where])[0], method, on_text)

    def answer_or_withhold(
        self,
        question: Question,
        ranking: Ranking | None,
        method: str = "generate",
        on_text: OnText | None = None,
    ) -> Answer:
        """Answer as `answer_from` does, unless the index is too unlikely to hold an answer to an open question.

        Then the text says so, the hits are the nearest there are, and nothing is generated. A question with options is
        always answered: the probability is that of short questions, and these are often long case reports.
        """
        if self._estimator is None or ranking is None or question.options:
            return self.answer_from(question, ranking, method, on_text)
        probability = self._estimator.probability(ranking)
        if probability is None or self._settings.abstention.answer_anyway or probability >= self._estimator.threshold:
            answer = self.answer_from(question, ranking, method, on_text)
            return replace(answer, evidence_probability=probability)
        return Answer(
            question,
            text=NOTHING,
            hits=ranking.hits,
            timings_ms=ranking.timings_ms,
            notes=(
                f"the evidence answers this with probability {probability:.2f} (--answer-anyway shows what it says)",
            ),
            answerer="generate" if self._generator else EXTRACT,
            abstained=True,
            evidence_probability=probability,
        )

    def retrieve(
        self, questions: Sequence[Question], wheres: Sequence[tuple[FieldFilter, ...]]
    ) -> Sequence[Ranking | None]:
        """Return the evidence of each question, whose options the retriever never sees; None without a retriever."""
        if self._retriever is None:
            return [None] * len(questions)
        texts = [question.text for question in questions]
        return self._retriever.search_all(texts, wheres=wheres, retracted=self._settings.retrieval.include_retracted)

    def answer_from(
        self,
        question: Question,
        ranking: Ranking | None,
        method: str = "generate",
        on_text: OnText | None = None,
    ) -> Answer:
        """Answer one question from what was retrieved for it.

        Several threads may call this if the generator lets them.

        Parameters
        ----------
        ranking : None for an answer without evidence
        method : one of `METHODS`
        on_text : sees the raw reply as it grows

        Raises
        ------
        PromptTooLongError
            If the question alone does not fit the generator's window.
        """
        _check_method(method)
        answer = _with_evidence(Answer(question), ranking)
        if question.options and (method == EVIDENCE or self._generator is None):
            return self._choose(answer)
        if self._generator is None and self._settings.generation.llm:
            return replace(answer, notes=("no generator was asked (--llm none): this is the evidence alone",))
        if ranking and not ranking.hits and not question.options:
            return replace(answer, notes=("no evidence was found, so there is no answer",))
        if self._generator is None:
            return self._extract(answer)
        if method == SCORE:
            (scored,) = self.score_all([(question, ranking)])
            if isinstance(scored, PromptTooLongError):
                raise scored
            return scored
        start = time.perf_counter()
        answer, cached = self._generate(self._generator, answer, on_text)
        return _timed_reply(answer, cached, _milliseconds(start))

    def _extract(self, answer: Answer) -> Answer:
        start = time.perf_counter()
        sentences = self._extractor.extract(answer.question.text, answer.hits)
        return _timed(extracted(answer, sentences), EXTRACT, _milliseconds(start))

    def _choose(self, answer: Answer) -> Answer:
        start = time.perf_counter()
        chosen = by_evidence(answer, self._extractor, self._checker)
        return _timed(chosen, EVIDENCE, _milliseconds(start))

    def _generate(self, generator: Generator, answer: Answer, on_text: OnText | None) -> tuple[Answer, bool]:
        """Return the answer, and whether its reply was cached."""
        question = answer.question
        name = "open" if not question.options else "choice" if answer.hits else "closed_book"
        template = load_template(name, self._settings.generation.prompt)
        prompt, supplied, notes = self._fitted(generator, template, answer, self._settings.generation.max_tokens)
        generation = generator.generate(
            GenerationRequest(prompt, schema_for(question, supplied), self._settings.generation.max_tokens), on_text
        )
        if generation.capped:
            notes += (f"the model's text was cut at {self._settings.generation.max_tokens} tokens (--max-tokens)",)
        answer = replace(answer, reply=generation.text, supplied=supplied, notes=answer.notes + notes)
        reply = parse_reply(generation.text)
        if question.options:
            return chosen(answer, reply, template, self._checker), generation.cached
        titles = [hit.snippet.title for hit in answer.hits]
        if fault := fault_of(reply.text("answer"), question, template, titles):
            note = f"the model's reply {fault}, so it is not shown: this is an extract of the evidence"
            extract = extracted(answer, self._extractor.extract(question.text, answer.hits))
            return replace(extract, notes=(note, *extract.notes)), generation.cached
        return written(answer, reply, self._checker), generation.cached

    def score_all(self, asked: Sequence[tuple[Question, Ranking | None]]) -> list[Answer | PromptTooLongError]:
        """Answer multiple-choice questions by the log-likelihoods of their options, in one batch of the generator.

        A question that does not fit the generator's window gives its error. The times are shares of the batch's.
        """
        assert self._generator is not None, "scoring takes a generator"
        start = time.perf_counter()
        answers = [_with_evidence(Answer(question), ranking) for question, ranking in asked]
        fitted = [self._comparable(self._generator, answer) for answer in answers]
        compared = [each for each in fitted if not isinstance(each, PromptTooLongError)]
        choices = [tuple(each.answer.question.options) for each in compared]
        prompts = [each.prompt for each in compared]
        scores = iter(self._generator.score_all(list(zip(prompts, choices, strict=True))))
        elapsed_ms = (time.perf_counter() - start) * 1000 / max(1, len(compared))
        return [
            each if isinstance(each, PromptTooLongError) else _scored(each, next(scores), elapsed_ms) for each in fitted
        ]

    def _comparable(self, generator: Generator, answer: Answer) -> Comparable | PromptTooLongError:
        """Return a question's prompt whose replies are its options, or that it does not fit."""
        question = answer.question
        if not question.options:
            raise UsageError("an open question has no options to score: use --answer generate")
        template = load_template("score" if answer.hits else "closed_book_score", self._settings.generation.prompt)
        try:
            prompt, supplied, notes = self._fitted(generator, template, answer, 0)
        except PromptTooLongError as error:
            return error
        return Comparable(replace(answer, supplied=supplied, notes=notes), prompt)

    def _fitted(
        self, generator: Generator, template: Template, answer: Answer, output_tokens: int
    ) -> tuple[Prompt, int, tuple[str, ...]]:
        """Return the prompt with as many snippets, best first, as the window takes, and what was cut."""
        room = generator.context_window - output_tokens - ANSWER_MARGIN
        sentences = self._settings.generation.sentences
        snippets = shortened(answer.question.text, answer.hits, sentences, self._extractor)
        for supplied in range(len(snippets), -1, -1):
            prompt = template.render(answer.question, snippets[:supplied], generator.controls)
            if generator.count_tokens(prompt) <= room:
                break
        else:
            raise PromptTooLongError(
                f"question {answer.question.id!r} does not fit the generator's window of "
                f"{generator.context_window} tokens: shorten it, or lower --max-tokens"
            )
        cut = len(snippets) - supplied
        if not cut:
            return prompt, supplied, ()
        note = f"{cut} of {len(snippets)} documents did not fit the window of {generator.context_window} tokens"
        return prompt, supplied, (note,)


def _with_evidence(answer: Answer, ranking: Ranking | None) -> Answer:
    return replace(answer, hits=ranking.hits, timings_ms=ranking.timings_ms) if ranking else answer


def _scored(comparable: Comparable, scores: Scores, elapsed_ms: float) -> Answer:
    """Return the answer whose option is likeliest; of equal ones the first letter's."""
    answer, question = comparable.answer, comparable.answer.question
    logprobs = {letter: round(score, 4) for letter, score in scores.logprobs.items()}
    choice = max(scores.logprobs, key=lambda letter: (scores.logprobs[letter], -ord(letter)), default=None)
    notes = answer.notes if choice else (*answer.notes, "the model's likeliest replies hold none of the options")
    answered = replace(
        answer,
        reply=json.dumps({"option_logprobs": logprobs, **({"answer_choice": choice} if choice else {})}),
        text=question.options[choice] if choice else "",
        choice=choice,
        parsed=choice is not None,
        option_logprobs=logprobs,
        notes=notes,
    )
    return _timed_reply(answered, scores.cached, elapsed_ms)


def _timed_reply(answer: Answer, cached: bool, elapsed_ms: float) -> Answer:
    """Return an answer with the time of its reply; the cache's is not reported as the model's."""
    notes = answer.notes + ((CACHED_NOTE,) if cached else ())
    return _timed(replace(answer, notes=notes), "cached" if cached else "generate", elapsed_ms)


def _milliseconds(start: float) -> float:
    return (time.perf_counter() - start) * 1000


def _timed(answer: Answer, stage: str, elapsed_ms: float) -> Answer:
    """Return an answer with the time of a stage."""
    timings = dict(answer.timings_ms)
    total = round(timings.pop("total", 0.0) + elapsed_ms, 3)
    return replace(answer, timings_ms={**timings, stage: round(elapsed_ms, 3), "total": total})
