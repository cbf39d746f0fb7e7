"""Answers from evidence: prompt a generator, read its reply, verify its citations."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from biorag.answering.certainty import TELLING, CertaintyModel, certainty_features, certainty_model, missing_words
from biorag.answering.extract import SHORT, Extractor, ScoredSentences, extracted
from biorag.answering.extract import chosen as chosen_sentences
from biorag.answering.guards.checker import Checker
from biorag.answering.kinds import kind_of, lacks_number
from biorag.answering.options import by_evidence
from biorag.answering.polar import POLAR, polar_evidence
from biorag.answering.replies import chosen, fault_of, written
from biorag.errors import BadInputError, UsageError, check_name
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template, schema_for
from biorag.retrieval.retriever import Ranking, Retriever
from biorag.settings.settings import Settings
from biorag.types import (
    EXTRACT,
    GREEDY,
    MAY,
    Answer,
    AnswerKind,
    Generation,
    GenerationRequest,
    Generator,
    Prompt,
    Question,
    Sampling,
    Where,
)

EVIDENCE = "evidence"
SCORE = "score"
METHODS = {  # the ways to answer a multiple-choice question
    "generate": "JSON reply",
    SCORE: "compare log-likelihoods",
    EVIDENCE: "the option that the evidence supports best, without a generator",
}
WITHOUT_GENERATOR = frozenset([EVIDENCE])
ANSWER_MARGIN = 64  # tokens kept for the fields after the free text and the chat format
RETRIES = tuple(Sampling(0.7, seed) for seed in (1, 2))  # of a free reply; a greedy one would repeat itself
CACHED_NOTE = "the model was not asked: its reply was cached (--no-cache asks it)"
FOUND_NOTHING = "I found nothing that answers this"
NOTHING = f"{FOUND_NOTHING}."
NAMING, MOST_NAMED = 0.85, 3  # rarity of a word that is named where no hit has it; how many are named
_UNKNOWN = re.compile(  # what a model says that finds no answer; "no evidence that …" is one
    r"\W*(?:i (?:do not|don['’]t) (?:know|have)\b|(?:this|it|the question|the answer) can(?:not|['’]t) be\b"
    r"|(?:there is )?(?:no (?:answer|information)|(?:not enough|insufficient) (?:information|evidence|data))\b"
    r"|the (?:given |provided |retrieved )?(?:documents?|evidence|context|snippets?|text|sources?|information)"
    r" (?:provided |given )?(?:do(?:es)?|is|are|did) (?:not|n['’]t|insufficient)\b)[^.]{0,200}\.?\W*$",
    re.IGNORECASE,
)
_YES_NO = re.compile(r"(?:yes|no)\b", re.IGNORECASE)
OnText = Callable[[str], None]


class PromptTooLongError(BadInputError):
    """A question that does not fit the generator's window even without documents."""


class Answerer:
    """Answers questions from the retriever's evidence; without a retriever, from the model alone.

    Without a generator the answer is sentences of the evidence, or for `--llm none` the hits alone.
    """

    def __init__(
        self,
        retriever: Retriever | None,
        generator: Generator | None,
        settings: Settings,
        extractor: Extractor | None = None,
        checker: Checker | None = None,
    ) -> None:
        self._retriever = retriever
        self._generator = generator
        self._settings = settings
        self._extractor = extractor or Extractor()
        self._checker = checker or Checker()

    def answer(
        self, question: Question, where: Where = (), method: str = "generate", on_text: OnText | None = None
    ) -> Answer:
        """Answer one question from evidence that fulfils `where`; see `answer_or_withhold`."""
        check_name("way to answer", method, METHODS)
        return self.answer_or_withhold(question, self.retrieve([question], [where])[0], method, on_text)

    def answer_or_withhold(
        self, question: Question, ranking: Ranking | None, method: str = "generate", on_text: OnText | None = None
    ) -> Answer:
        """Answer as `answer_from` does, unless the hits are too unlikely to hold an answer to an open question.

        An answer is given as one, as what may be one, without "yes" or "no", or withheld: then nothing is generated.
        A question with options is always answered: a choice is demanded.
        """
        settings = self._settings.abstention
        if ranking is None or question.options or not ranking.hits or settings.answer_anyway:
            return self.answer_from(question, ranking, method, on_text)
        scored, model, probability = self._estimated(question.text, ranking)
        certainty = model.certainty(probability, settings.evidence_threshold)
        if certainty == "nothing":
            return self._withheld(question, ranking, probability)
        answer = self.answer_from(question, ranking, method, on_text, scored)
        lacks = lacks_number(question.text, " ".join(each.text for each in answer.sentences))
        if certainty == "answer" and (lacks or ranking.is_guess):
            certainty = "may"
        answer = replace(answer, evidence_probability=round(probability, 4), certainty=answer.certainty or certainty)
        if answer.certainty == "may" and answer.answerer == EXTRACT and answer.sentences:
            return replace(answer, text=f"{MAY} {answer.text}", short_answer="")
        return answer

    @property
    def threshold(self) -> float:
        """The probability from which an open question has an answer."""
        given = self._settings.abstention.evidence_threshold
        return certainty_model(self._extractor.matches).answer if given is None else given

    def probability(self, question: str, ranking: Ranking) -> float:
        """Return the probability that the hits of a ranking hold an answer to an open question."""
        return self._estimated(question, ranking)[-1]

    def _estimated(self, question: str, ranking: Ranking) -> tuple[ScoredSentences, CertaintyModel, float]:
        scored = self._extractor.scored(question, ranking.hits)
        model = certainty_model(len(scored.matches) > 0)
        return scored, model, model.probability(certainty_features(question, ranking.hits, scored))

    def _withheld(self, question: Question, ranking: Ranking, probability: float) -> Answer:
        named = _named(question.text, missing_words(question.text, [hit.snippet.contents for hit in ranking.hits]))
        return Answer(
            question,
            kind=self._kind_of(question),
            text=f"{FOUND_NOTHING}: no mention of {', '.join(named)}." if named else NOTHING,
            hits=ranking.hits,
            timings_ms=ranking.timings_ms,
            notes=(
                f"the evidence answers this with probability {probability:.2f} (--answer-anyway shows what it says)",
            ),
            answerer="generate" if self._generator else EXTRACT,
            certainty="nothing",
            abstained=True,
            evidence_probability=round(probability, 4),
        )

    def retrieve(self, questions: Sequence[Question], wheres: Sequence[Where]) -> Sequence[Ranking | None]:
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
        scored: ScoredSentences | None = None,
    ) -> Answer:
        """Answer one question from its ranking; None asks the model alone. Threads may share a generator that can.

        `method` is one of `METHODS`; `on_text` sees the raw reply as it grows; `scored` are the sentences of the hits,
        if they are scored. Raises `PromptTooLongError` if the question alone does not fit the generator's window.
        """
        check_name("way to answer", method, METHODS)
        answer = Answer(question, kind=self._kind_of(question))
        if ranking:
            answer = replace(answer, hits=ranking.hits, timings_ms=ranking.timings_ms)
        start = time.perf_counter()
        answer, stage = self._answered(answer, ranking is not None, method, on_text, scored)
        if not stage:
            return answer
        elapsed_ms, timings = (time.perf_counter() - start) * 1000, dict(answer.timings_ms)
        total = round(timings.pop("total", 0.0) + elapsed_ms, 3)
        return replace(answer, timings_ms={**timings, stage: round(elapsed_ms, 3), "total": total})

    def _kind_of(self, question: Question) -> AnswerKind | None:
        return None if question.options else self._settings.generation.kind or kind_of(question.text)

    def _answered(
        self, answer: Answer, searched: bool, method: str, on_text: OnText | None, scored: ScoredSentences | None
    ) -> tuple[Answer, str]:
        """Return the answer and the stage that made it; "" for none."""
        question, generator = answer.question, self._generator
        if question.options and (method == EVIDENCE or generator is None):
            return by_evidence(answer, self._extractor, self._checker), EVIDENCE
        if generator is None and self._settings.generation.llm:
            return _noted(answer, "no generator was asked (--llm none): this is the evidence alone"), ""
        if searched and not answer.hits and not question.options:
            return _noted(answer, "no evidence was found, so there is no answer"), ""
        if generator is None:
            return self._extract(answer, scored), EXTRACT
        if method == SCORE:
            answer, cached = self._score(generator, answer)
        else:
            answer, cached = self._generate(generator, answer, on_text)
        return (_noted(answer, CACHED_NOTE), "cached") if cached else (answer, "generate")

    def _extract(self, answer: Answer, scored: ScoredSentences | None = None) -> Answer:
        """Return the extract; of a yes/no question with "yes" or "no" where a trusted reader says so.

        Then, and where sentences are on both sides, the one that says most for the likelier side comes first, and one
        for the other side second.
        """
        question = answer.question.text
        scored = self._extractor.read_again(question, scored or self._extractor.scored(question, answer.hits))
        rows = chosen_sentences(scored, answer.kind)
        if answer.kind != "yesno":
            return extracted(answer, rows)
        said = polar_evidence(question, scored, self._checker.reader, self._extractor.reader)
        if said is None:
            return extracted(answer, rows)
        trusted = said.probability[said.side] >= said.trusted_from
        sides = [said.deciding, said.other] if trusted or said.other is not None else []
        shown = [scored.rows[index] for index in sides if index is not None]
        answer = extracted(answer, list(dict.fromkeys([*shown, *rows]))[: SHORT.most])
        return replace(answer, short_answer=POLAR[said.side] if trusted else "")

    def _generate(self, generator: Generator, answer: Answer, on_text: OnText | None) -> tuple[Answer, bool]:
        """Return the answer, and whether its reply was cached."""
        question, settings = answer.question, self._settings.generation
        name = "open" if not question.options else "choice" if answer.hits else "closed_book"
        template = load_template(name, settings.prompt)
        answer, prompt = _fitted(generator, answer, template, settings.max_tokens)
        constrained = settings.json_mode == "constrained"
        max_tokens = settings.max_tokens + (0 if constrained else ANSWER_MARGIN)
        request = GenerationRequest(prompt, schema_for(question, answer.supplied), max_tokens, constrained=constrained)
        generation, retries = _replied(generator, request, tuple(question.options), on_text)
        answer = replace(answer, reply=generation.text, retries=retries)
        if generation.capped:
            answer = _noted(answer, f"the model's text was cut at {max_tokens} tokens (--max-tokens)")
        return self._read(answer, template), generation.cached

    def _read(self, answer: Answer, template: Template) -> Answer:
        """Return an answer with the contents of its reply; an extract if the reply is not an answer."""
        reply = parse_reply(answer.reply)
        if answer.question.options:
            return chosen(answer, reply, template, self._checker)
        if _UNKNOWN.match(reply.text("answer")):
            answer = _noted(answer, f"the model found no answer in the evidence: {reply.text('answer').strip()}")
            return replace(answer, text=NOTHING, certainty="nothing", abstained=True)
        titles = [hit.snippet.title for hit in answer.hits]
        if fault := fault_of(reply.text("answer"), answer.question, template, titles):
            note = f"the model's reply {fault}, so it is not shown: this is an extract of the evidence"
            return replace(self._extract(answer), notes=(note, *answer.notes))
        said = _YES_NO.match(reply.text("answer")) if answer.kind == "yesno" else None
        return replace(written(answer, reply, self._checker), short_answer=said[0].lower() if said else "")

    def _score(self, generator: Generator, answer: Answer) -> tuple[Answer, bool]:
        """Answer a multiple-choice question by the log-likelihoods of its options; of equal ones the first letter's."""
        question = answer.question
        if not question.options:
            raise UsageError("an open question has no options to score: use --answer generate")
        template = load_template("score" if answer.hits else "closed_book_score", self._settings.generation.prompt)
        answer, prompt = _fitted(generator, answer, template, 0)
        scores = generator.score(prompt, tuple(question.options))
        logprobs = {letter: round(score, 4) for letter, score in scores.logprobs.items()}
        choice = max(scores.logprobs, key=lambda letter: (scores.logprobs[letter], -ord(letter)), default=None)
        if choice is None:
            answer = _noted(answer, "the model's likeliest replies hold none of the options")
        answer = replace(
            answer,
            reply=json.dumps({"option_logprobs": logprobs, **({"answer_choice": choice} if choice else {})}),
            text=question.options[choice] if choice else "",
            choice=choice,
            parsed=choice is not None,
            option_logprobs=logprobs,
        )
        return answer, scores.cached


def _named(question: str, missing: Mapping[str, float]) -> list[str]:
    """Return what is named of the words that no hit has; "jet lag" where both words are missing."""
    named: list[str] = []
    for word, rare in missing.items():
        if rare >= TELLING and named and f"{named[-1]} {word}" in question:
            named[-1] += f" {word}"
        elif rare >= NAMING:
            named.append(word)
    return named[:MOST_NAMED]


def _replied(
    generator: Generator, request: GenerationRequest, letters: Sequence[str], on_text: OnText | None
) -> tuple[Generation, int]:
    """Return a reply and its number of retries: a free one is retried until it is what was asked, else the first stays.

    It is called cached if all of them were.
    """
    replies: list[Generation] = []
    for sampling in (GREEDY,) if request.constrained else (GREEDY, *RETRIES):
        replies.append(generator.generate(replace(request, sampling=sampling), on_text))
        if is_asked := parse_reply(replies[-1].text).is_asked(letters):
            break
    kept = replies[-1 if is_asked else 0]
    return kept._replace(cached=all(reply.cached for reply in replies)), len(replies) - 1


def _fitted(generator: Generator, answer: Answer, template: Template, output_tokens: int) -> tuple[Answer, Prompt]:
    """Return the answer with the number of snippets, best first, that the window takes, and their prompt."""
    window = generator.context_window
    snippets = [hit.snippet for hit in answer.hits]
    for supplied in range(len(snippets), -1, -1):
        prompt = template.render(answer.question, snippets[:supplied], generator.controls)
        if generator.count_tokens(prompt) <= window - output_tokens - ANSWER_MARGIN:
            break
    else:
        raise PromptTooLongError(
            f"question {answer.question.id!r} does not fit the generator's window of "
            f"{window} tokens: shorten it, or lower --max-tokens"
        )
    if cut := len(snippets) - supplied:
        answer = _noted(answer, f"{cut} of {len(snippets)} documents did not fit the window of {window} tokens")
    return replace(answer, supplied=supplied), prompt


def _noted(answer: Answer, note: str) -> Answer:
    return replace(answer, notes=(*answer.notes, note))
