"""What Python gets: hits, answers and verdicts, as records, as tables, and as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, overload

from biorag.api.documents import answer_json, cited_hits, is_supported, search_json, snippets_json, verdict_json
from biorag.api.session import FoundSnippets
from biorag.api.verdicts import MARKS, cited_numbers
from biorag.corpus.sentences import terms
from biorag.errors import MissingError, unknown_name
from biorag.references.reference import reference_of, source_line
from biorag.registries import OUTPUTS, TERMINAL
from biorag.retrieval.retriever import Ranking
from biorag.types import Answer, CheckedSentence, Citation, Hit, Snippet, Verdict

if TYPE_CHECKING:
    from pandas import DataFrame

STYLES = {
    Verdict.SUPPORTED: "",
    Verdict.UNSUPPORTED: "background:#fff3cd",
    Verdict.CONTRADICTED: "text-decoration:line-through;color:#a00020",
}
CELL = 300  # characters of a passage in a table of a notebook


class _Hits(Sequence[Hit]):
    """Hits in their order."""

    hits: tuple[Hit, ...]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[index]


@dataclass(frozen=True)
class SearchResult(_Hits):
    """What a search found, best first: a sequence of hits, each with `rank`, `score` and `snippet`.

    `timings_ms` are the milliseconds of each stage.
    """

    query: str
    mode: str
    hits: tuple[Hit, ...]
    timings_ms: dict[str, float] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as `biorag search --json` prints it."""
        return search_json(Ranking(self.query, self.hits, self.timings_ms), self.mode)

    def to_pandas(self) -> DataFrame:
        """Return a row a hit: rank, score, id, pmid, title, content, and each field of metadata.

        Raises
        ------
        MissingError
            If pandas is not installed.
        """
        return _frame(self.hits)

    def to(self, format: str) -> str:
        """Return the hits as `--format` writes them: md, csv, tsv, ris, bibtex, csl-json or vancouver."""
        return written(format, self.hits)

    def _repr_html_(self) -> str:
        return f"<p>{_text(self.query)}</p>{_table(self.hits)}"


@dataclass(frozen=True)
class AnswerResult:
    """An answer, each of whose sentences is checked against the evidence; `str()` gives its text with marks."""

    answer: Answer = field(repr=False)
    models: dict[str, Any] = field(repr=False)

    @property
    def text(self) -> str:
        """The answer's text; of a multiple-choice question the option's."""
        return self.answer.text

    @property
    def choice(self) -> str | None:
        """The letter of the option that was chosen; None for none."""
        return self.answer.choice

    @property
    def sentences(self) -> tuple[CheckedSentence, ...]:
        """The sentences, each with its verdict, the numbers of the hits that it cites, and what decided."""
        return self.answer.sentences

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations, each with the quote that stands verbatim in its snippet."""
        return self.answer.citations

    @property
    def hits(self) -> tuple[Hit, ...]:
        """The evidence, best first."""
        return self.answer.hits

    @property
    def abstained(self) -> bool:
        """Whether no answer was given, since the index is too unlikely to hold one."""
        return self.answer.abstained

    @property
    def evidence_probability(self) -> float | None:
        """The probability that the index holds an answer; None where it was not estimated."""
        return self.answer.evidence_probability

    @property
    def supported(self) -> bool:
        """Whether the evidence supports a sentence and contradicts none."""
        return is_supported(self.answer)

    def to_json(self) -> dict[str, Any]:
        """Return it as `biorag ask --json` prints it."""
        return answer_json(self.answer, self.models)

    def to_pandas(self) -> DataFrame:
        """Return the evidence as `SearchResult.to_pandas` does."""
        return _frame(self.hits)

    def to(self, format: str) -> str:
        """Return the cited hits, all where none is cited, as `biorag ask --format` writes them."""
        return written(format, cited_hits(self.answer))

    def __str__(self) -> str:
        return marked_text(self.answer)

    def _repr_html_(self) -> str:
        answer = self.answer
        text = " ".join(map(_sentence, answer.sentences)) or _text(answer.text)
        choice = f"<b>{_text(answer.choice)}.</b> " if answer.choice else ""
        notes = "".join(f"<p><small>{_text(note)}</small></p>" for note in answer.notes)
        return f"<p><b>{_text(answer.question.text)}</b></p><p>{choice}{text}</p>{_table(answer.hits)}{notes}"


@dataclass(frozen=True)
class SnippetResult(Sequence[Snippet]):
    """The snippets that an id or a PMID names."""

    found: FoundSnippets = field(repr=False)

    @property
    def snippets(self) -> tuple[Snippet, ...]:
        """The snippets."""
        return self.found.snippets

    def to_json(self, mark: str = "") -> dict[str, Any]:
        """Return them as `biorag show --json` prints them, `mark` being words whose places are given."""
        return snippets_json(self.found.index, self.found.snippets, self.found.facts, terms(mark))

    def to(self, format: str) -> str:
        """Return their references as `--format` writes them."""
        return written(format, [Hit(rank, snippet, 0.0) for rank, snippet in enumerate(self.snippets, 1)])

    def __len__(self) -> int:
        return len(self.snippets)

    @overload
    def __getitem__(self, index: int) -> Snippet: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Snippet]: ...
    def __getitem__(self, index: int | slice) -> Snippet | Sequence[Snippet]:
        return self.snippets[index]

    def _repr_html_(self) -> str:
        return "".join(f"<h4>{_text(each.title)}</h4><p>{_text(each.content)}</p>" for each in self.snippets)


@dataclass(frozen=True)
class VerdictResult:
    """What the evidence says of a claim: `verdict` is supported, unsupported or contradicted."""

    checked: CheckedSentence

    @property
    def verdict(self) -> str:
        """The verdict."""
        return self.checked.verdict.value

    def to_json(self) -> dict[str, Any]:
        """Return it as `biorag verify --json` prints it."""
        return verdict_json(self.checked)


def written(format: str, hits: Sequence[Hit]) -> str:
    """Return hits in an output format.

    Raises
    ------
    UsageError
        If there is no such format.
    """
    if format == TERMINAL or format not in OUTPUTS:
        raise unknown_name("output format", format, [name for name in OUTPUTS if name != TERMINAL])
    text: str = OUTPUTS[format].load()(hits)
    return text


def marked_text(answer: Answer) -> str:
    """Return an answer's text: unsupported and contradicted sentences marked, citations after each."""
    parts = [sentence.text + MARKS[sentence.verdict] + cited_numbers(sentence) for sentence in answer.sentences]
    text = " ".join(parts) or answer.text
    return f"{answer.choice}. {text}" if answer.choice else text


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


def _text(text: object) -> str:
    return escape(str(text), quote=True)


def _sentence(sentence: CheckedSentence) -> str:
    shown = f'<span style="{STYLES[sentence.verdict]}">{_text(sentence.text)}</span>'
    return shown + MARKS[sentence.verdict] + cited_numbers(sentence)


def _table(hits: Sequence[Hit]) -> str:
    rows = []
    for hit in hits:
        reference = reference_of(hit.snippet)
        name = _text(reference.pmid or reference.id)
        link = f'<a href="{_text(reference.url)}">{name}</a>' if reference.url else name
        passage = hit.snippet.content
        shown = passage if len(passage) <= CELL else passage[:CELL] + "…"
        title = f"<b>{_text(hit.snippet.title)}</b><br>" if hit.snippet.title else ""
        source = _text(source_line(reference))
        notes = "".join(f"<b>{_text(note)}.</b> " for note in reference.notes)
        cells = f"{notes}{title}{_text(shown)}<br><small>{source}</small>"
        rows.append(f"<tr><td>{hit.rank}<td>{link}<td style='text-align:left'>{cells}<td>{hit.score:.3f}")
    return f"<table><tr><th>#<th>PMID<th>Snippet<th>Score{''.join(rows)}</table>"
