"""What clients ask, typed and bounded: the same bodies from the API and from the page's form."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from biorag.api.library import checked_options, conditions
from biorag.api.session import Session
from biorag.errors import ServiceError
from biorag.retrieval.heat_map import HeatMap
from biorag.retrieval.retriever import Ranking
from biorag.types import Answer, CheckedSentence, FieldFilter, Question

GONE = "nobody waits for the answer any more"
LONGEST_QUESTION = 4000  # characters, of which encoders read some hundreds of words
Text = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_QUESTION)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Condition = Annotated[str, StringConstraints(max_length=1000)]


class _Body(BaseModel):
    """A request's body, in which nothing unknown may stand."""

    model_config = ConfigDict(extra="forbid")


class Ranked(_Body):
    """How snippets are found; what is left out is as the server was started."""

    filter: list[Condition] | Condition = Field(
        default=[], max_length=1000, description="Conditions, as --filter takes them."
    )
    exclude_pmid: list[int] = Field(default=[], max_length=1000, description="PubMed records to leave out.")
    k: int | None = Field(default=None, ge=1, le=200, description="Hits.")
    k_init: int | None = Field(default=None, ge=1, le=2000, description="Candidates of the first stage.")
    mode: str | None = Field(default=None, max_length=16, description="bm25, dense or hybrid.")
    rerank: bool | None = Field(default=None, description="Whether candidates are reranked.")

    @property
    def where(self) -> tuple[FieldFilter, ...]:
        """The conditions that hits must fulfil."""
        return conditions(self.filter, self.exclude_pmid)

    @property
    def changes(self) -> dict[str, Any]:
        """The settings of this question alone."""
        return {name: getattr(self, name) for name in ("k", "k_init", "mode", "rerank")}


class SearchBody(Ranked):
    """A search."""

    query: Text

    def run(self, session: Session) -> Ranking:
        """Return what is found."""
        return session.search(self.query, self.where, **self.changes)


class AskBody(Ranked):
    """A question."""

    question: Text
    options: dict[Annotated[str, StringConstraints(max_length=1)], Text] = Field(
        default={}, max_length=26, description="Texts of a multiple-choice question by their letters."
    )
    include_retracted: bool | None = Field(default=None, description="Whether retracted articles are evidence.")
    answer_anyway: bool | None = Field(default=None, description="Whether to answer where the index is unlikely to.")

    def run(self, session: Session, growing: GrowingText | None = None) -> Answer:
        """Return the answer; `growing` is given what the generator has written so far.

        Raises
        ------
        GoneError
            If nobody waits for it.
        """
        if growing and growing.abandoned:
            raise GoneError(GONE)
        asked = Question("ask", self.question, checked_options(self.options))
        changes = self.changes | {"include_retracted": self.include_retracted, "answer_anyway": self.answer_anyway}
        return session.ask(asked, self.where, growing, **changes)


class VerifyBody(_Body):
    """A claim to judge, by one snippet or by what a search for it finds."""

    claim: Text
    snippet: Name | None = Field(default=None, description="Id or PMID of the snippet to judge by.")
    filter: list[Condition] | Condition = Field(default=[], max_length=1000)

    def run(self, session: Session) -> CheckedSentence:
        """Return the verdict."""
        return session.verify(self.claim, self.snippet, conditions(self.filter))


class HeatMapBody(_Body):
    """A question and a snippet, whose words are compared."""

    question: Text
    id: Name

    def run(self, session: Session) -> HeatMap:
        """Return which words matched."""
        return session.heat_map(self.question, self.id)


class GoneError(ServiceError):
    """The client left before its answer was written."""


class GrowingText:
    """A generator's reply as it grows in a thread; stops the writing once nobody waits for it."""

    def __init__(self) -> None:
        self.reply = ""
        self.abandoned = False

    def __call__(self, reply: str) -> None:
        """Take what has been written so far.

        Raises
        ------
        GoneError
            If the client is gone.
        """
        if self.abandoned:
            raise GoneError(GONE)
        self.reply = reply
