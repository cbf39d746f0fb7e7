"""Records that travel between packages, and protocols of the objects they are passed to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import Field

if TYPE_CHECKING:  # importing NumPy costs a third of the time that --help may take
    import numpy as np
    from numpy.typing import NDArray

Vectors: TypeAlias = "NDArray[np.float32]"
# What records that are read from files may hold; biorag.utils.parsing holds them to it.
Label: TypeAlias = Annotated[str, Field(max_length=4096, strict=True)]
Sha256: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Dimension: TypeAlias = Annotated[int, Field(ge=1, le=65_536)]  # as Qdrant takes them

OnProgress: TypeAlias = Callable[[int], None]  # called with the number of steps just done


class Progress(Protocol):
    """Shows a stage of `total` steps, None if unknown: `with progress("Indexing", 1000) as advance: advance(1)`."""

    def __call__(self, description: str, total: int | None) -> AbstractContextManager[OnProgress]:
        """Begin a stage."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """One passage of evidence, as MedRAG and BEIR corpora have it; search filters on its other fields, `metadata`."""

    id: str
    title: str
    content: str
    pmid: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def contents(self) -> str:
        """Title and content in one text by MedRAG's rule: joined by ". ", or " " after `.`, `?` or `!`."""
        if not self.title or not self.content:
            return self.title or self.content
        return self.title + (" " if self.title.endswith((".", "?", "!")) else ". ") + self.content

    @property
    def document(self) -> str:
        """The id of the document that this is a block of; its own id if it is not a block."""
        document = self.metadata.get("document")
        if isinstance(document, str) and self.id == block_id(document, self.metadata.get("block")):
            return document
        return self.id

    @property
    def retracted(self) -> bool:
        """Whether the corpus says that the article was retracted."""
        return self.metadata.get("retracted") is True

    @property
    def location(self) -> str:
        """Where in its document the snippet stands, as a citation names it: `p. 3`, or a section; "" if unknown."""
        page, section = self.metadata.get("page"), self.metadata.get("section")
        if isinstance(page, int) and not isinstance(page, bool):
            return f"p. {page}"
        return section if isinstance(section, str) else ""

    @property
    def digest(self) -> str:
        """SHA-256 (first 16 bytes, hex) of everything but the id: tells changed snippets from unchanged."""
        fields = [self.title, self.content, self.pmid, dict(self.metadata)]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:32]


Fetch: TypeAlias = Callable[[Sequence[str]], Mapping[str, Snippet]]  # passages by id; unknown ids are left out


def block_id(document: str, block: object) -> str:
    """Return the snippet id of a document's block, counted from 0."""
    return f"{document}#{block}"


class Deletion(NamedTuple):
    """The deletion of a document."""

    id: str


Change: TypeAlias = Snippet | Deletion


class ScoredDoc(NamedTuple):
    """A snippet id with its score for one query."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved snippet at its rank (from 1)."""

    rank: int
    snippet: Snippet
    score: float


@dataclass(frozen=True, slots=True)
class Question:
    """A question; `options` maps letters to texts, empty for an open question."""

    id: str
    text: str
    options: Mapping[str, str] = field(default_factory=dict)
    answer: str | None = None
    pmids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Citation:
    """A verified reference to the hit numbered `n` in the prompt; `quote` stands verbatim in its snippet."""

    n: int
    id: str
    pmid: int | None
    title: str
    quote: str
    score: float
    retracted: bool = False
    location: str = ""


EXTRACT, GENERATE = "extract", "generate"  # what makes an answer
MAY = "This may answer it:"  # before what may be one


class Verdict(StrEnum):
    """What the evidence at hand says of a sentence; a supported sentence need not be true.

    Unsure: a reader leans to "supported" or "contradicted", with less probability than the verdict requires.
    """

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    CONTRADICTED = "contradicted"
    UNSURE = "unsure"


AnswerKind: TypeAlias = Literal["yesno", "factoid", "list", "summary"]
ClaimLabel: TypeAlias = Literal["supports", "contradicts", "neither"]  # what evidence does to a claim
LABELS: tuple[ClaimLabel, ...] = ("supports", "contradicts", "neither")  # as a `Reader` orders them
Basis: TypeAlias = Literal["quote", "reader", "none"]  # of a verdict: the words themselves, a reader, or nothing
Certainty: TypeAlias = Literal["answer", "may", "nothing"]  # of an answer by the evidence
LABEL_OF: Mapping[str, ClaimLabel] = {
    Verdict.SUPPORTED: "supports",
    Verdict.CONTRADICTED: "contradicts",
    Verdict.UNSUPPORTED: "neither",
    Verdict.UNSURE: "neither",
}


@dataclass(frozen=True, slots=True)
class EvidenceSpan:
    """The evidence of a verdict: `quote` is verbatim from the contents of snippet `id`, the `n`-th hit (from 1)."""

    n: int
    id: str
    pmid: int | None
    quote: str
    verdict: Verdict


class Opposition(NamedTuple):
    """What the `n`-th hit says against a sentence that others support: `quote` is verbatim from its contents."""

    n: int
    id: str
    pmid: int | None
    quote: str
    probability: float


@dataclass(frozen=True, slots=True)
class CheckedSentence:
    """A sentence of an answer without its marks, its verdict, the hits that support it, and the spans that decided.

    `basis` is what the verdict rests on: the evidence has these words, or a reader says so. `difference` is the number,
    name or negation in which the evidence differs from the sentence, where nothing else does. `probability` is a
    reader's: that the evidence supports the sentence, contradicts it, or does neither, by these labels. `otherwise`
    are other hits that surely contradict the sentence.
    """

    text: str
    verdict: Verdict
    citations: tuple[int, ...] = ()
    evidence: tuple[EvidenceSpan, ...] = ()
    probability: Mapping[ClaimLabel, float] = field(default_factory=dict)
    otherwise: tuple[Opposition, ...] = ()
    basis: Basis = "none"
    difference: str = ""


@dataclass(frozen=True, slots=True)
class Stance:
    """What a snippet does to a claim, how surely, and the sentence that says so, verbatim.

    `leaning` is the side that the probability is of where the verdict is unsure. See `CheckedSentence` for the basis.
    """

    verdict: Verdict
    probability: float
    quote: str
    leaning: Verdict | None = None
    basis: Basis = "none"


@dataclass(frozen=True, slots=True)
class AnswerItem:
    """A bullet of a list, a sentence of the evidence, and the numbers of the hits that hold it."""

    text: str
    citations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question.

    `choice` is None if no option could be read from the reply, `parsed` tells whether the reply was the JSON asked for.
    `supplied` counts the hits in the prompt; `notes` says what was cut or dropped. `timings_ms` has "cached" instead of
    "generate" if the reply came from the cache. `evidence_probability`, that the index holds an answer, is None if it
    was not estimated; `certainty` tells which of three answers it makes, and `abstained` whether that is "nothing".
    `kind` is what an open question asks for; `short_answer` is "yes" or "no" where a reader says so of a yes/no
    question; `items` are those of a list. `retries` counts how often a free reply was asked for again.
    """

    question: Question
    reply: str = ""
    text: str = ""
    choice: str | None = None
    parsed: bool = False
    reasoning: str = ""
    relevant_context: str | None = None
    option_logprobs: Mapping[str, float] = field(default_factory=dict)
    citations: tuple[Citation, ...] = ()
    hits: tuple[Hit, ...] = ()
    supplied: int = 0
    retries: int = 0
    notes: tuple[str, ...] = ()
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    answerer: str = GENERATE
    sentences: tuple[CheckedSentence, ...] = ()
    certainty: Certainty | None = None
    abstained: bool = False
    evidence_probability: float | None = None
    kind: AnswerKind | None = None
    short_answer: str = ""
    items: tuple[AnswerItem, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A query, a passage that answers it, and passages that do not.

    `kind` is how the negatives were mined, empty where that is not known. The ids are empty where a row has only texts,
    and so is the `instruction` where the row has none of its own.
    """

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    kind: str = ""
    query_id: str = ""
    positive_id: str = ""
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """The encoder that an index must be searched with: SHA-256 of its weights, and of its other parts if recorded."""

    id: Label
    revision: Label
    sha256: Sha256
    dimension: Dimension
    configuration: Mapping[Label, Sha256] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return its JSON, without a configuration that was not recorded."""
        return {name: value for name, value in asdict(self).items() if name != "configuration" or value}


EXISTS, CONTAINS = "exists", "~"


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """One condition on a payload field; `op` is one of `=`, `>=`, `<=`, `>`, `<`, `in`, `exists` (any value) or `~`.

    `~` holds where a text has these words in this order, whatever their case.
    """

    field: str
    op: str
    value: str | int | float | bool | tuple[int, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Alternatives on payload fields: one must hold, with all of its conditions."""

    alternatives: tuple[Where, ...]
    negated: bool = False


Condition: TypeAlias = FieldFilter | AnyOf
Where: TypeAlias = tuple[Condition, ...]  # conditions that must all hold


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """One request: a dense vector, a text for BM25, or a query's token vectors (tokens, dim) for MaxSim.

    `among` restricts the search to these snippet ids and makes it exact. `exact` compares a vector with all snippets
    that qualify, without the graph.
    """

    query: Vectors | str
    limit: int
    where: Where = ()
    among: frozenset[str] | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat prompt: instructions and the user's turn."""

    system: str
    user: str


class SparseText(NamedTuple):
    """A sparse vector: token ids and weights."""

    indices: list[int]
    values: list[float]


class Encoded(NamedTuple):
    """Vectors of texts (texts, dimension), token vectors (tokens, dim) of each, and BM25 vectors if computed before."""

    vectors: Vectors
    tokens: list[Vectors]
    terms: Sequence[SparseText] = ()


class LocatedTokens(NamedTuple):
    """The token vectors of a passage (tokens, dim), and the (start, end) of each token in its text.

    Special tokens have empty spans. A passage longer than the window has more spans than vectors.
    """

    vectors: Vectors
    spans: list[tuple[int, int]]


class Sampling(NamedTuple):
    """How tokens are drawn: with a seed (0 to 2³¹ - 1), at a temperature; 0 takes the likeliest."""

    temperature: float = 0.0
    seed: int = 0


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for a JSON object of the schema; `max_tokens` caps each free text that the object begins with.

    A reply that is not `constrained` is asked for by the prompt alone, and `max_tokens` caps all of it.
    """

    prompt: Prompt
    schema: Mapping[str, Any]
    max_tokens: int
    sampling: Sampling = GREEDY
    constrained: bool = True


class Generation(NamedTuple):
    """The raw reply, whether the token cap cut it, whether it came from the cache, and its tokens (0 if unknown)."""

    text: str
    capped: bool
    cached: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Scores(NamedTuple):
    """Log-probability of each choice, unseen ones left out, and whether they came from the cache."""

    logprobs: Mapping[str, float]
    cached: bool = False


class Encoder(Protocol):
    """Turns texts into vectors, float32 of shape (texts, dimension)."""

    identity: EncoderIdentity

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode questions, with the model's query prompt if it has one."""

    def encode_snippets(self, texts: Sequence[str]) -> Vectors:
        """Encode passages, with the model's document prompt if it has one."""


class TokenEncoder(Protocol):
    """Turns texts into a vector per token, for late interaction."""

    def query_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return a (tokens, dim) array for each question."""

    def snippet_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return a (tokens, dim) array for each passage."""


class SentenceEncoder(TokenEncoder, Protocol):
    """A token encoder that says where in a passage its tokens stand."""

    def located_tokens(self, texts: Sequence[str]) -> list[LocatedTokens]:
        """Return the token vectors of passages, with the place of each token."""


class Reranker(Protocol):
    """Scores candidates against queries; larger is better."""

    def score_all(self, queries: Sequence[str], candidates: Sequence[Sequence[Snippet]]) -> list[Vectors]:
        """Return each query's scores of its candidates, shape (candidates,)."""


class Reading(NamedTuple):
    """What a reader says of each window of evidence.

    Attributes
    ----------
    stances : probabilities (windows, 3), by `LABELS`, of a claim or a yes/no question
    answers : probabilities (windows,) that a window answers a question; None from a reader that does not tell
    quotes : the part of each window that decides; "" where it is not told
    """

    stances: Vectors
    answers: Vectors | None = None
    quotes: Sequence[str] = ()


class Trust(NamedTuple):
    """From which probabilities a reader's words count; above 1 never.

    Attributes
    ----------
    supports, contradicts : of a claim
    polar : "yes" or "no" of a question
    precision : how often its verdicts were right from there on where it was measured; None where it was not
    no : weight of the probability of "no" to a question, of a reader that finds it too seldom
    answers : weight of the probability that a sentence answers, where sentences are chosen; 0 does not ask for it
    """

    supports: float = 0.5
    contradicts: float = 0.5
    polar: float = 0.5
    precision: float | None = None
    no: float = 1.0
    answers: float = 0.5

    @property
    def tells_sides(self) -> bool:
        """Whether both verdicts on a claim count: with one alone, every study would be on the same side."""
        return max(self.supports, self.contradicts) <= 1


class Reader(Protocol):
    """Reads evidence beside a claim or a question."""

    name: str
    trust: Trust
    reads_whole: bool  # whether a window may be a whole text; else it has a few sentences
    tells_answers: bool  # whether it says which windows answer a question
    reads_questions: bool  # whether it says "supports" for yes; else a question is put to it as a statement

    @property
    def sha256(self) -> str:
        """The identity of its weights, or of what else determines its words."""

    @property
    def spent(self) -> str:
        """What its reading has cost so far, for people; "" for one that costs nothing but time here."""

    def read(self, query: str, windows: Sequence[str]) -> Reading:
        """Read each window beside a claim or a question."""


class Index(Protocol):
    """Snippets with their dense and BM25 vectors, searchable by both."""

    @property
    def dimension(self) -> int:
        """The length of its dense vectors."""

    def count(self) -> int:
        """Return the number of snippets."""

    def search(self, probes: Sequence[IndexQuery]) -> list[list[ScoredDoc]]:
        """Answer each probe with its best ids, best first; equal scores in the order of their ids."""

    def fetch(self, ids: Sequence[str]) -> dict[str, Snippet]:
        """Return the stored snippets by id; unknown ids are left out."""

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the stored content digests by id; unknown ids are left out."""

    def dense_vectors(self, ids: Sequence[str]) -> dict[str, Vectors]:
        """Return the stored dense vectors (dimension,) by id, of unit length for cosine; unknown ids are left out."""

    def vectors(self, ids: Sequence[str]) -> dict[str, tuple[Vectors, Vectors | None]]:
        """Return the stored dense and token vectors, (dimension,) and (tokens, dim), by id, as `upsert` takes them.

        Token vectors are None where the index stores none; unknown ids are left out.
        """

    def ids(self) -> Iterator[str]:
        """Yield every snippet's id, in an order that stays the same while nothing is written."""

    def upsert(
        self,
        snippets: Sequence[Snippet],
        vectors: Vectors,
        tokens: Sequence[Vectors] = (),
        terms: Sequence[SparseText] = (),
    ) -> None:
        """Add or replace snippets with vectors (snippets, dimension), (tokens, dim) each, and BM25 vectors if computed.

        They are durable when it returns.
        """

    def delete(self, ids: Sequence[str]) -> None:
        """Remove snippets; unknown ids are ignored; durable when it returns."""

    def deleted_share(self) -> float | None:
        """Return the share of deleted and replaced points, whose words BM25 counts until they are vacuumed.

        None if the store does not tell.
        """

    def optimize(self) -> None:
        """Build the search structures and vacuum deleted points; safe to repeat."""

    def seal(self) -> str | None:
        """End the writing, and return the SHA-256 of the files' checksums; None if biorag does not keep the files."""

    def close(self) -> None:
        """Release the index."""


class Generator(Protocol):
    """A language model that answers prompts, under a JSON schema or freely."""

    name: str
    context_window: int

    @property
    def controls(self) -> Sequence[str]:
        """Return the strings of its chat format, if known, which a document must not contain."""

    def count_tokens(self, prompt: Prompt) -> int:
        """Return the number of tokens the prompt takes in the context window."""

    def generate(self, request: GenerationRequest, on_text: Callable[[str], None] | None = None) -> Generation:
        """Reply as the request says; `on_text` sees the reply so far as it grows."""

    def score(self, prompt: Prompt, choices: Sequence[str]) -> Scores:
        """Return each choice's log-probability as the first text of the reply; unseen ones are left out."""
