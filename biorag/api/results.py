"""The results of a session: hits, answers, snippets, verdicts, as records, JSON, tables, and Markdown in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

from biorag.api.answer_text import cited_numbers, lead_of, mark_of, paragraphs, words_of
from biorag.corpus.sentences import matches, terms
from biorag.errors import MissingError, unknown_name, without_commands
from biorag.references.escaping import in_markdown
from biorag.references.facts import Facts, facts_of
from biorag.references.formats import citation
from biorag.references.reference import reference_of
from biorag.registries import OUTPUTS, TERMINAL, OutputKind
from biorag.types import Answer, CheckedSentence, Citation, EvidenceSpan, Hit, Snippet, Verdict
from biorag.utils.registry import Registry
from biorag.utils.text import showable

if TYPE_CHECKING:
    from pandas import DataFrame

    from biorag.answering.weighing import Weighing

DIGITS = 6  # of scores and probabilities: the last ones differ with how vectors lie in memory
T = TypeVar("T")


class _Items(Sequence[T]):
    """A sequence of the items that a field has."""

    _field: ClassVar[str]

    def __len__(self) -> int:
        return len(getattr(self, self._field))

    def __getitem__(self, index: Any) -> Any:
        return getattr(self, self._field)[index]


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
        lines = (
            f"{hit.rank:>3} {hit.score:.3f} {hit.snippet.id}: {reference_of(hit.snippet).heading}" for hit in self.hits
        )
        return showable("\n".join([f"<{len(self)} hits for {self.query!r}>", *lines]))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag search --json` prints."""
        hits = [_hit_json(hit) for hit in self.hits]
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
        return f"{in_markdown(self.query)}\n\n{written('md', self.hits)}"


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

    def public(self) -> Self:
        """Return the answer for those who have no command line: its notes name no options."""
        return replace(self, notes=tuple(map(without_commands, self.notes)))

    @property
    def cited_hits(self) -> list[Hit]:
        """The hits that the answer cites; all hits if it cites none."""
        cited = {citation.n for citation in self.citations}
        return [hit for hit in self.hits if hit.rank in cited or not cited]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag ask --json` prints."""
        probability = self.evidence_probability
        return {
            "question": self.question.text,
            "options": dict(self.question.options),
            "kind": self.kind,
            "short_answer": self.short_answer,
            "items": [{"text": item.text, "citations": list(item.citations)} for item in self.items],
            "answer": self.text,
            "choice": self.choice,
            "reasoning": self.reasoning,
            "relevant_context": self.relevant_context,
            "citations": [_citation_json(citation, self) for citation in self.citations],
            "hits": [_hit_json(hit) for hit in self.hits],
            "models": dict(self.models),
            "parsed": self.parsed,
            "option_logprobs": dict(self.option_logprobs),
            "supplied": self.supplied,
            "notes": list(self.notes),
            "timings_ms": dict(self.timings_ms),
            "answerer": self.answerer,
            "certainty": self.certainty,
            "abstained": self.abstained,
            "evidence_probability": None if probability is None else round(probability, DIGITS),
            "sentences": [_sentence_json(sentence) for sentence in self.sentences],
        }

    def to_pandas(self) -> DataFrame:
        """Return the evidence as `SearchResult.to_pandas` does."""
        return _frame(self.hits)

    def to(self, format: str) -> str:
        """Return the cited hits, or all if none is cited, as `biorag ask --format` writes them."""
        return written(format, self.cited_hits)

    def __str__(self) -> str:
        texts = [
            " ".join(words_of(sentence) + mark_of(sentence) + cited_numbers(sentence) for sentence in group)
            for group in paragraphs(self)
        ]
        lead = f"{self.choice}." if self.choice else lead_of(self)
        if len(texts) > 1:
            return "\n".join(filter(None, [lead, *(f"- {text}" for text in texts)]))
        return " ".join(filter(None, [lead, *(texts or [self.text])]))

    def __repr__(self) -> str:
        return f"<answer {str(self)!r}>"

    def _repr_markdown_(self) -> str:
        parts = [
            f"**{in_markdown(self.question.text)}**",
            in_markdown(str(self)),
            *map(in_markdown, self.notes),
            self.to("md"),
        ]
        return "\n\n".join(parts)


@dataclass(frozen=True, repr=False)
class SnippetResult(_Items[Snippet]):
    """The snippets that an id or a PMID names, with the facts of each."""

    _field = "snippets"
    index_name: str
    snippets: tuple[Snippet, ...]
    facts: tuple[Facts, ...]

    def __repr__(self) -> str:
        return showable("\n\n".join(f"{one.id}: {reference_of(one).heading}\n{one.content}" for one in self.snippets))

    def to_json(self, mark: str = "") -> dict[str, Any]:
        """Return the JSON that `biorag show --json` prints, with the places of the words of `mark`."""
        words = terms(mark)
        shown = [_snippet_json(snippet, facts, words) for snippet, facts in zip(self.snippets, self.facts, strict=True)]
        return {"index": self.index_name, "snippets": shown}

    def to(self, format: str) -> str:
        """Return their references as `--format` writes them."""
        return written(format, [Hit(rank, snippet, 0.0) for rank, snippet in enumerate(self.snippets, 1)])

    def _repr_markdown_(self) -> str:
        texts = [
            f"**{in_markdown(reference_of(snippet).heading)}**\n\n{in_markdown(snippet.content)}"
            for snippet in self.snippets
        ]
        return "\n\n".join(texts)


class NearSentence(NamedTuple):
    """A sentence that comes near a claim, and what of the claim it and its title lack: words, names, quantities.

    `denies` is the word by which it denies something where the claim denies nothing, else "".
    """

    id: str
    pmid: int | None
    quote: str
    lacking: tuple[str, ...]
    denies: str


@dataclass(frozen=True, repr=False)
class VerdictResult:
    """The verdict of the evidence on a claim, and the spans that it rests on, else the nearest sentences."""

    checked: CheckedSentence
    near: tuple[NearSentence, ...] = ()

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
        near = [f"near, {one.id}: {one.quote}" for one in self.near]
        return showable("\n".join([f"<{self.verdict}: {self.checked.text!r}>", *lines, *near]))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `biorag verify --json` prints."""
        near = [{**one._asdict(), "lacking": list(one.lacking)} for one in self.near]
        return {
            "claim": self.checked.text,
            "verdict": self.verdict,
            "evidence": [
                {"id": span.id, "pmid": span.pmid, "quote": span.quote, "verdict": span.verdict.value}
                for span in self.evidence
            ],
            **({"nearest": near[0], "near": near} if near else {}),
            **_basis_json(self.checked),
        }


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


def _hit_json(hit: Hit) -> dict[str, Any]:
    """Return the JSON of a hit."""
    snippet = hit.snippet
    return {
        "rank": hit.rank,
        "id": snippet.id,
        "pmid": snippet.pmid,
        "title": snippet.title,
        "content": snippet.content,
        "score": round(hit.score, DIGITS),
        **_optional(snippet.location, snippet.retracted),
        "metadata": dict(snippet.metadata),
        "facts": facts_of(snippet).to_json(),
    }


def _basis_json(checked: CheckedSentence) -> dict[str, Any]:
    """Return what a verdict rests on, what differs, and a reader's probability of each label, if one was asked."""
    rounded = {label: round(value, DIGITS) for label, value in checked.probability.items()}
    return {
        "basis": checked.basis,
        **({"difference": checked.difference} if checked.difference else {}),
        **({"probability": rounded} if rounded else {}),
    }


def _sentence_json(sentence: CheckedSentence) -> dict[str, Any]:
    otherwise = [
        {"id": study.id, "pmid": study.pmid, "quote": study.quote, "probability": round(study.probability, DIGITS)}
        for study in sentence.otherwise
    ]
    return {
        "text": sentence.text,
        "verdict": sentence.verdict.value,
        "citations": list(sentence.citations),
        "evidence": [{"id": span.id, "quote": span.quote} for span in sentence.evidence],
        **_basis_json(sentence),
        **({"otherwise": otherwise} if otherwise else {}),
    }


def _citation_json(citation: Citation, answer: Answer) -> dict[str, Any]:
    fields = {**asdict(citation), "score": round(citation.score, DIGITS)}
    retracted, location = fields.pop("retracted"), fields.pop("location")
    metadata = next((hit.snippet.metadata for hit in answer.hits if hit.rank == citation.n), {})
    return {**fields, **_optional(location, retracted), "metadata": dict(metadata)}


def _optional(location: str, retracted: bool) -> dict[str, Any]:
    return ({"location": location} if location else {}) | ({"retracted": True} if retracted else {})


def _snippet_json(snippet: Snippet, facts: Facts, words: set[str]) -> dict[str, Any]:
    """Return the JSON of a whole snippet with its reference; `marks` are the spans of these words in the content."""
    reference = reference_of(snippet)
    return {
        "id": snippet.id,
        "pmid": snippet.pmid,
        "title": snippet.title,
        "content": snippet.content,
        "metadata": dict(snippet.metadata),
        "facts": facts.to_json(),
        "reference": citation(reference),
        "url": reference.url or None,
        "marks": [list(span) for span in matches(snippet.content, words)],
    }
