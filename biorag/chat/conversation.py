"""A conversation: questions in turn over one open index, each searched so that it stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from biorag.answering.answerer import OnText
from biorag.api.documents import cited_hits
from biorag.api.library import checked_options, conditions
from biorag.api.results import written
from biorag.api.session import FoundSnippets, Session
from biorag.chat.rewriting import standalone
from biorag.errors import UsageError
from biorag.types import Answer, FieldFilter, Hit, Question
from biorag.utils.text import is_whole

FORMAT = "vancouver"  # of a reference, where none is named


@dataclass(frozen=True, slots=True)
class Turn:
    """A question as it was asked and as it was searched, under which filter, and its answer."""

    question: str
    searched: str
    filter: str
    answer: Answer


class Conversation:
    """Turns over a session, whose filter and whose options of the next question can be set.

    Parameters
    ----------
    where : conditions that hold besides the filter
    """

    def __init__(self, session: Session, where: tuple[FieldFilter, ...] = ()) -> None:
        self._session = session
        self._always, self._where = where, where
        self.filter = ""
        self.options: dict[str, str] = {}
        self.turns: list[Turn] = []

    @property
    def index(self) -> str:
        """The name of the index."""
        return self._session.name

    def standalone(self, question: str) -> str:
        """Return a question as it is to be searched: a follow-up made to stand alone.

        Raises
        ------
        ServiceError
            If the generator fails.
        """
        if not is_whole(question):
            raise UsageError("the question is not UTF-8: type it again")
        if not self.turns or self.options:
            return question
        last = self.turns[-1]
        return standalone(self._session, question, last.searched, last.answer.text)

    def ask(self, question: str, searched: str, on_text: OnText | None = None) -> Turn:
        """Answer a question by what is found for `searched`; an interrupted one leaves the conversation as it was.

        Raises
        ------
        UsageError
            If the question is blank.
        ServiceError
            If the generator fails.
        """
        answer = self._session.ask(Question("chat", searched, self.options), self._where, on_text)
        turn = Turn(question, searched, self.filter, answer)
        self.turns.append(turn)
        self.options = {}
        return turn

    def set_filter(self, text: str) -> None:
        """Search only what fulfils a condition from now on; an empty one clears it.

        Raises
        ------
        UsageError
            If it cannot be read, or names a field that no snippet has; the filter stays as it was.
        """
        where = conditions((text,) if text else ())
        self._session.check(where)
        self.filter, self._where = text, self._always + where

    def set_options(self, options: dict[str, str]) -> None:
        """Set the options of the next question.

        Raises
        ------
        UsageError
            If they are not two texts or more by capital letters.
        """
        self.options = checked_options(options)

    def show(self, name: str) -> FoundSnippets:
        """Return the snippet of a hit's number, or of an id or a PMID.

        Raises
        ------
        MissingError
            If there is none.
        """
        if not name:
            raise UsageError("name a hit: /show 2")
        hit = self._numbered(name)
        return self._session.show(hit.snippet.id if hit else name)

    def cite(self, argument: str) -> tuple[str, str]:
        """Return a format and the references in it of `N [FORMAT]`; without a number of what the answer cites.

        Raises
        ------
        UsageError
            If nothing was asked yet, or there is no such hit or format.
        """
        words = argument.split()
        number = words.pop(0) if words and words[0].isdigit() else ""
        format = words.pop(0) if words else FORMAT
        if words:
            raise UsageError(f"/cite {argument} cannot be read: write /cite 2, or /cite 2 bibtex")
        return format, written(format, self._cited(number))

    def new(self) -> None:
        """Forget what was asked; the filter stays."""
        self.turns.clear()
        self.options = {}

    def _cited(self, number: str) -> Sequence[Hit]:
        if not self.turns:
            raise UsageError("nothing was asked yet: ask a question, then /cite")
        if not number:
            return cited_hits(self.turns[-1].answer)
        hit = self._numbered(number)
        if hit is None:
            raise UsageError(f"the last answer has no hit {number}: it has {len(self.turns[-1].answer.hits)}")
        return [hit]

    def _numbered(self, name: str) -> Hit | None:
        """Return the hit of the last answer that has this number; None where it has none."""
        if not self.turns or not (name.isascii() and name.isdigit()):
            return None
        return next((hit for hit in self.turns[-1].answer.hits if str(hit.rank) == name), None)
