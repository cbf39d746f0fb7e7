"""The results of a session: hits, answers, snippets, verdicts, as records, JSON, tables, and Markdown in notebooks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, overload

from biorag.errors import MissingError, unknown_name
from biorag.references.formats import plain
from biorag.registries import OUTPUTS, TERMINAL, WEIGHINGS, OutputKind
from biorag.types import EXTRACT, LABEL_OF, MAY, Answer, CheckedSentence, EvidenceSpan, Hit, Reader, Snippet, Verdict
from biorag.utils.registry import Registry
from biorag.utils.text import showable

if TYPE_CHECKING:
    from pandas import DataFrame

    from biorag.answering.weighing import Weighing
    from biorag.references.facts import Facts

T = TypeVar("T")
CERTAIN = 0.95  # a reader's probability of a verdict, from which on marks leave it out


class Tone(StrEnum):
    """Whether a line is good news."""

    PLAIN = "plain"
    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"


class VerdictLine(NamedTuple):
    """A line and its tone."""

    text: str
    tone: Tone


class _Items(Sequence[T]):
    """A sequence of the items that a field has."""

    _field: ClassVar[str]

    @property
    def _items(self) -> tuple[T, ...]:
        return tuple(getattr(self, self._field))

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._items[index]


@dataclass(frozen=True, repr=False)
class SearchResult(_Items[Hit]):
    """The hits of a search, best first: a sequence, each with `rank`, `score` and `snippet`.

    `timings_ms` are the milliseconds of each stage.
    """

    _field = "hits"
    query: str
    mode: str
    hits: tuple[Hit, ...]
    timings_ms: dict[str, float]

    def __repr__(self) -> str:
        lines = (f"{hit.rank:>3} {hit.score:.3f} {hit.snippet.id}: {hit.snippet.title}" for hit in self.hits)
        return showable("\n".join([f"<{len(self)} hits for {self.query!r}>", *lines]))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag search --json` prints."""
        from biorag.api.json_views import hit_json

        hits = [hit_json(hit) for hit in self.hits]
        return {"query": self.query, "mode": self.mode, "hits": hits, "timings_ms": self.timings_ms}

    def to_pandas(self) -> DataFrame:
        """Return a row a hit: rank, score, id, pmid, title, content, and each field of metadata.

        Raises `MissingError` if pandas is not installed.
        """
        return _frame(self.hits)

    def to(self, format: str) -> str:
        """Return the hits as `--format` writes them: md, csv, tsv, ris, bibtex, csl-json or vancouver."""
        return written(format, self.hits)

    def _repr_markdown_(self) -> str:
        return f"{plain(self.query)}\n\n{written('md', self.hits)}"


@dataclass(frozen=True, repr=False)
class AnswerResult(Answer):
    """An answer, each sentence checked against the evidence, with its models; `text` is its sentences alone.

    `str()` also has the yes or no before them (`short_answer`), and the marks after them.
    """

    models: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: Answer, models: dict[str, Any]) -> Self:
        """Return an answer with the names of the models that made it."""
        return cls(**{part.name: getattr(answer, part.name) for part in fields(Answer)}, models=models)

    @property
    def supported(self) -> bool:
        """Whether there is an answer of which the evidence supports a sentence and contradicts none.

        Of a multiple-choice answer the option counts, not the reasoning.
        """
        judged = self.sentences[:1] if self.choice else self.sentences
        verdicts = {sentence.verdict for sentence in judged}
        return not self.abstained and Verdict.SUPPORTED in verdicts and Verdict.CONTRADICTED not in verdicts

    @property
    def cited_hits(self) -> list[Hit]:
        """The hits that the answer cites; all hits if it cites none."""
        cited = {citation.n for citation in self.citations}
        return [hit for hit in self.hits if hit.rank in cited or not cited]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag ask --json` prints."""
        from biorag.api.json_views import answer_json

        return answer_json(self, self.models)

    def to_pandas(self) -> DataFrame:
        """Return the evidence as `SearchResult.to_pandas` does."""
        return _frame(self.hits)

    def to(self, format: str) -> str:
        """Return the cited hits, or all if none is cited, as `biorag ask --format` writes them."""
        return written(format, self.cited_hits)

    def __str__(self) -> str:
        texts = [
            " ".join(sentence.text + mark_of(sentence) + cited_numbers(sentence) for sentence in group)
            for group in paragraphs(self)
        ]
        lead = f"{self.choice}." if self.choice else lead_of(self)
        if len(texts) > 1:
            return "\n".join(filter(None, [lead, *(f"- {text}" for text in texts)]))
        return " ".join(filter(None, [lead, *(texts or [self.text])]))

    def __repr__(self) -> str:
        return f"<answer {str(self)!r}>"

    def _repr_markdown_(self) -> str:
        parts = [f"**{plain(self.question.text)}**", plain(str(self)), *map(plain, self.notes), self.to("md")]
        return "\n\n".join(parts)


@dataclass(frozen=True, repr=False)
class SnippetResult(_Items[Snippet]):
    """The snippets that an id or a PMID names, with the facts of each."""

    _field = "snippets"
    index_name: str
    snippets: tuple[Snippet, ...]
    facts: tuple[Facts, ...]

    def __repr__(self) -> str:
        return showable("\n\n".join(f"{one.id}: {one.title}\n{one.content}" for one in self.snippets))

    def to_json(self, mark: str = "") -> dict[str, Any]:
        """Return the JSON that `biorag show --json` prints, with the places of the words of `mark`."""
        from biorag.api.json_views import snippet_json
        from biorag.corpus.sentences import terms

        words = terms(mark)
        shown = [snippet_json(snippet, facts, words) for snippet, facts in zip(self.snippets, self.facts, strict=True)]
        return {"index": self.index_name, "snippets": shown}

    def to(self, format: str) -> str:
        """Return their references as `--format` writes them."""
        return written(format, [Hit(rank, snippet, 0.0) for rank, snippet in enumerate(self.snippets, 1)])

    def _repr_markdown_(self) -> str:
        texts = [f"**{plain(snippet.title or snippet.id)}**\n\n{plain(snippet.content)}" for snippet in self.snippets]
        return "\n\n".join(texts)


@dataclass(frozen=True, repr=False)
class VerdictResult:
    """The verdict of the evidence on a claim, and the spans that it rests on, else the nearest sentence."""

    checked: CheckedSentence
    nearest: EvidenceSpan | None = None

    @property
    def verdict(self) -> str:
        """The verdict."""
        return self.checked.verdict.value

    @property
    def evidence(self) -> tuple[EvidenceSpan, ...]:
        """The spans that decided the verdict."""
        return self.checked.evidence

    def __repr__(self) -> str:
        lines = [f"{span.id}: {span.quote}" for span in self.evidence]
        nearest = [f"nearest, {self.nearest.id}: {self.nearest.quote}"] if self.nearest else []
        return showable("\n".join([f"<{self.verdict}: {self.checked.text!r}>", *lines, *nearest]))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag verify --json` prints."""
        from biorag.api.json_views import basis_json

        evidence = [
            {"id": span.id, "pmid": span.pmid, "quote": span.quote, "verdict": span.verdict.value}
            for span in self.evidence
        ]
        decided = basis_json(self.checked)
        near = {"nearest": {"id": self.nearest.id, "quote": self.nearest.quote}} if self.nearest else {}
        return {"claim": self.checked.text, "verdict": self.verdict, "evidence": evidence, **near, **decided}


@dataclass(frozen=True, repr=False)
class WeighResult:
    """The studies that support a claim and those that oppose it: `weighing.supporting`, `opposing` and `unsure`."""

    weighing: Weighing
    timings_ms: dict[str, float]

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.weighing.counts.items())
        lines = [
            f"{name}: {study.snippet.id}: {study.stance.quote}"
            for name, studies in self.weighing.columns.items()
            for study in studies
        ]
        return showable("\n".join([f"<{counts}: {self.weighing.claim!r}>", *lines]))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag weigh --json` prints."""
        from biorag.api.json_views import weighing_json

        return {**weighing_json(self.weighing), "timings_ms": self.timings_ms}

    def to(self, format: str) -> str:
        """Return the studies as `biorag weigh --format` writes them: md, csv or trec-biogen."""
        return written(format, self.weighing, WEIGHINGS)

    def _repr_markdown_(self) -> str:
        return self.to("md")


def verdict_line(answer: Answer) -> VerdictLine | None:
    """Return the line that says how the evidence supports an answer; None for an answer without sentences."""
    if answer.question.options and not answer.choice and answer.reply:
        return VerdictLine("Answer: the model's reply names no option", Tone.BAD)
    if not answer.sentences:
        return None
    judged = answer.sentences[:1] if answer.choice else answer.sentences
    numbers = sorted({n for sentence in judged for n in sentence.citations})
    by = f" by {', '.join(f'[{n}]' for n in numbers)}" if numbers else ""
    if answer.answerer == EXTRACT and not answer.choice:
        count = len(judged)
        sentences = "sentence" if count == 1 else "sentences"
        return VerdictLine(f"Extract: {count} {sentences} of the evidence, verbatim", Tone.PLAIN)
    line, tone = _verdict_of(judged, by)
    if answer.answerer == EXTRACT:
        confirmed = judged[0].verdict is not Verdict.UNSUPPORTED
        line = f"Chosen by the evidence alone: {line[0].lower() + line[1:]}" if confirmed else CHOSEN
    return VerdictLine(line, tone)


def _verdict_of(sentences: Sequence[CheckedSentence], by: str) -> VerdictLine:
    counts = {kind: sum(sentence.verdict is kind for sentence in sentences) for kind in Verdict}
    total, supported, unsure = len(sentences), counts[Verdict.SUPPORTED], counts[Verdict.UNSURE]
    by_reader = any(one.basis == "reader" for one in sentences if one.verdict is Verdict.SUPPORTED)
    said = "supported" if by_reader else "stated"
    if counts[Verdict.CONTRADICTED]:
        first = next(sentence for sentence in sentences if sentence.verdict is Verdict.CONTRADICTED)
        line = said_of(first).capitalize()
        if total > 1:
            line = f"{counts[Verdict.CONTRADICTED]} of {total} sentences {said_of(first)}"
        return VerdictLine(f"{line}, {supported} {said}{by}" if supported else line, Tone.BAD)
    if supported == total:
        return VerdictLine(f"{said.capitalize()}{by}", Tone.GOOD)
    if supported:
        line = f"{supported} of {total} sentences {said}{by}"
        return VerdictLine(f"{line}, {unsure} not sure" if unsure else line, Tone.DOUBTFUL)
    if unsure:
        this = "this" if total == 1 else f"{unsure} of {total} sentences"
        return VerdictLine(f"Not sure whether the evidence says {this}", Tone.DOUBTFUL)
    return VerdictLine(said_of(sentences[0]).capitalize(), Tone.DOUBTFUL)


CHOSEN = "Chosen, not confirmed: no sentence states it"
LEADS = {"yes": "Yes.", "no": "No."}


def lead_of(answer: Answer) -> str:
    """Return what an extract begins with: a trusted reader's yes or no, or that it may be an answer; else "".

    What a generator wrote begins with it already.
    """
    if answer.answerer != EXTRACT or answer.choice:
        return ""
    return MAY if answer.certainty == "may" and answer.sentences else LEADS.get(answer.short_answer, "")


def said_of(sentence: CheckedSentence) -> str:
    """Return what is established of a sentence, by its words or by a reader: "stated", "differs", "contradicted"."""
    if sentence.verdict is Verdict.UNSURE:
        return "not sure"
    if sentence.basis == "reader":
        return sentence.verdict.value
    if sentence.difference:
        return "differs"
    return "stated" if sentence.verdict is Verdict.SUPPORTED else "not stated in these words"


def difference_line(sentence: CheckedSentence) -> str:
    """Return "[2] says 12 %, not 21 %" of a sentence from which the evidence differs; "" of any other."""
    numbers = ", ".join(f"[{n}]" for n in dict.fromkeys(span.n for span in sentence.evidence))
    return f"{numbers or 'the evidence'} says {sentence.difference}" if sentence.difference else ""


def paragraphs(answer: Answer) -> list[list[CheckedSentence]]:
    """Return the sentences of an answer as they are shown: of a list of evidence, those of each snippet apart."""
    if answer.kind != "list" or answer.answerer != EXTRACT:
        return [list(answer.sentences)] if answer.sentences else []
    return [list(group) for _, group in itertools.groupby(answer.sentences, lambda sentence: sentence.citations)]


def mark_of(sentence: CheckedSentence) -> str:
    """Return the mark after a sentence: its verdict, unless it is supported, and how sure a reader is of it.

    Of a sentence that the reader is not sure of it is the probability of what it leans to.
    """
    mark, label = said_of(sentence), LABEL_OF[sentence.verdict]
    probability = sentence.probability.get(label, 1.0) if sentence.basis == "reader" else 1.0
    if sentence.verdict is Verdict.UNSURE and sentence.probability:
        leaning = max((Verdict.SUPPORTED, Verdict.CONTRADICTED), key=lambda kind: sentence.probability[LABEL_OF[kind]])
        mark += f": {percent(sentence.probability[LABEL_OF[leaning]])} {leaning.value}"
    elif probability < CERTAIN:
        mark += f", {percent(probability)}"
    elif sentence.verdict is Verdict.SUPPORTED:
        return ""
    return f" [{mark}]"


def otherwise_line(sentence: CheckedSentence) -> str:
    """Return "2 studies say otherwise than" of a sentence that others support."""
    count = len(sentence.otherwise)
    return f"{count} {'study says' if count == 1 else 'studies say'} otherwise than"


def percent(probability: float) -> str:
    """Return a probability as "83 %"."""
    return f"{100 * probability:.0f} %"


def cited_numbers(sentence: CheckedSentence) -> str:
    """Return the numbers of the hits that a sentence cites, in brackets after a space; empty for none."""
    return f" [{', '.join(map(str, sentence.citations))}]" if sentence.citations else ""


def written(format: str, result: Sequence[Hit] | Weighing, kinds: Registry[OutputKind] = OUTPUTS) -> str:
    """Return hits, or a weighing, in one of the formats for it, without control characters.

    Raises `UsageError` if there is no such format.
    """
    if format == TERMINAL or format not in kinds:
        raise unknown_name(kinds.what, format, [name for name in kinds if name != TERMINAL])
    text: str = kinds[format].load()(result)
    return showable(text)


def _frame(hits: Sequence[Hit]) -> DataFrame:
    try:
        from pandas import DataFrame
    except ImportError:
        raise MissingError("to_pandas needs pandas: run pip install 'biorag[pandas]'") from None
    rows = [
        {
            "rank": hit.rank,
            "score": hit.score,
            "id": hit.snippet.id,
            "pmid": hit.snippet.pmid,
            "title": hit.snippet.title,
            "content": hit.snippet.content,
            **hit.snippet.metadata,
        }
        for hit in hits
    ]
    return DataFrame(rows, columns=None if rows else ["rank", "score", "id", "pmid", "title", "content"])


def read_by(reader: Reader | None) -> str:
    """Return whose words a reader's verdicts are, how often they were right, and their cost; "" where none count."""
    if reader is None or min(reader.trust.supports, reader.trust.contradicts, reader.trust.polar) > 1:
        return ""
    measured = reader.trust.precision
    right = f", right {measured:.0%} of the time where it was measured" if measured else ""
    return f"read by {reader.name}{right}" + (f" ({reader.spent})" if reader.spent else "")
