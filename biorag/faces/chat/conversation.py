"""A conversation: questions in turn over one session, each made to stand alone; slash commands; Markdown of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from biorag.answering.guards.words import RARE, rarity, stems
from biorag.api.results import AnswerResult, SnippetResult, written
from biorag.api.session import Session, check_text
from biorag.errors import MissingError, UsageError, unknown_name
from biorag.faces.chat.followups import in_turn, standalone
from biorag.references.escaping import in_markdown
from biorag.references.reference import reference_line, reference_of
from biorag.types import Hit
from biorag.utils.files import check_output
from biorag.utils.text import showable

FORMAT = "vancouver"  # of references, by default
NEAR = 0.4  # mean MaxSim from which a snippet has to do with a few words
LONGEST = 10_000  # characters of a line
THANKS = 2  # words of a line that may ask for nothing
COMMANDS = {
    "/help": "this list",
    "/show N": "the whole snippet of hit N, or of an id or a PMID",
    "/cite N [FORMAT]": "the reference of hit N, of the cited hits without N: vancouver, bibtex, ris …",
    "/filter CONDITION": "search only snippets that meet it: year>=2020; /filter shows it, /filter off clears it",
    "/save FILE": "write the conversation as Markdown, with its citations",
    "/new": "begin a new conversation: the questions are forgotten (/save them first), the filter stays",
    "/quit": "end, as exit, bye and Ctrl-D do",
}
LEAVING = ("exit", "quit", "bye")  # words that end it, too
NAMES = tuple(usage.partition(" ")[0] for usage in COMMANDS)


def parse_line(text: str) -> tuple[str, str]:
    """Return the slash command of a line, "" for a question, and its argument or the question.

    Raises `UsageError` if the line begins with a slash and is not a command, naming the nearest one.
    """
    text = text.strip()
    if text.lower() in LEAVING:
        return "/quit", ""
    if not text.startswith("/"):
        return "", text
    name, _, argument = text.partition(" ")
    if name.lower() not in NAMES:
        raise unknown_name("command", name, NAMES)
    return name.lower(), argument.strip()


@dataclass(frozen=True, slots=True)
class Turn:
    """A question as it was asked and as it was searched, its filter, and its answer."""

    question: str
    searched: str
    filter: str
    answer: AnswerResult


class Conversation:
    """Turns over a session; `filters` always hold, beside the filter that is set."""

    def __init__(self, session: Session, filters: Sequence[str] = ()) -> None:
        self._session, self._filters = session, tuple(filters)
        self.filter = ""
        self.turns: list[Turn] = []

    def is_searched(self, line: str) -> bool:
        """Return whether a line asks for something.

        "Thanks" is a word or two, of which the literature hardly has one, and no snippet comes near to it.
        """
        check_text(line)
        if len(line) > LONGEST:
            raise UsageError(f"the line is longer than {LONGEST:,} characters: shorten it")
        if len(line.split()) > THANKS or max(map(rarity, stems(line)), default=0.0) < RARE:
            return True
        near = self._session.nearness(line, filter=self._conditions)
        return near is None or near >= NEAR

    def standalone(self, question: str) -> str:
        """Return a question as it will be searched: a follow-up made to stand alone.

        Raises `ServiceError` if the generator fails.
        """
        check_text(question)
        return standalone(self._session, question, *self._last)

    def ask(self, question: str, searched: str, on_text: Callable[[str], None] | None = None) -> Turn:
        """Answer a question as it is to be searched; an interrupted turn is not kept.

        Raises `UsageError` if the question is blank; `ServiceError` if the generator fails.
        """
        answer = self._session.ask(searched, filter=self._conditions, on_text=on_text)
        answer = in_turn(answer, question, searched, self._last[1]).public()
        turn = Turn(question, searched, self.filter, answer)
        self.turns.append(turn)
        return turn

    @property
    def _last(self) -> tuple[str, str]:
        """The last question as it was searched, and its answer; empty before the first."""
        return (self.turns[-1].searched, self.turns[-1].answer.text) if self.turns else ("", "")

    @property
    def _conditions(self) -> tuple[str, ...]:
        return (*self._filters, *([self.filter] if self.filter else []))

    def set_filter(self, text: str) -> None:
        """Search only snippets that meet a condition from now on; "" clears it. A wrong one raises `UsageError`."""
        self._session.check_filter(text)
        self.filter = text

    def show(self, name: str) -> SnippetResult:
        """Return the snippets of a hit's number, an id or a PMID; raise `MissingError` if there is none."""
        if not name:
            raise UsageError("name a hit: /show 2")
        hit = self._numbered(name)
        try:
            return self._session.show(hit.snippet.id if hit else name)
        except MissingError as error:
            raise MissingError(f"{error}, or the number of one of {self._count()} hits") from None

    def cite(self, argument: str) -> str:
        """Return the references of `N [FORMAT]`; without a number, of the hits that the answer cites.

        Raises `UsageError` if nothing was asked yet, or there is no such hit or format.
        """
        words = argument.split()
        number = words.pop(0) if words and words[0].isdigit() else ""
        format = words.pop(0) if words else FORMAT
        if words:
            raise UsageError(f"/cite {argument} cannot be read: write /cite 2, or /cite 2 bibtex")
        return written(format, self._cited(number))

    def save(self, name: str) -> Path:
        """Write the conversation as Markdown to a new file; return its path.

        Raises `UsageError` if no file is named, it exists or cannot be written, or nothing was asked yet.
        """
        if not name:
            raise UsageError("name a file to write: /save asthma.md")
        if not self.turns:
            raise UsageError("nothing was asked yet: ask a question, then /save")
        try:
            path = Path(name).expanduser()
            check_output(path)
            with path.open("x", encoding="utf-8") as stream:
                stream.write(markdown(self._session.name, self.turns))
        except (OSError, RuntimeError, ValueError) as error:  # a home that is not known, a name that no file can have
            fault = getattr(error, "strerror", None) or error
            raise UsageError(f"{showable(name)} cannot be written ({fault}): name another file") from None
        return path

    def _cited(self, number: str) -> Sequence[Hit]:
        if not self.turns:
            raise UsageError("nothing was asked yet: ask a question, then /cite")
        answer = self.turns[-1].answer
        if not number:
            return answer.cited_hits
        hit = self._numbered(number)
        if hit is None:
            raise UsageError(f"the last answer has no hit {number}: it has {self._count()}")
        return [hit]

    def _count(self) -> int:
        return len(self.turns[-1].answer.hits) if self.turns else 0

    def _numbered(self, name: str) -> Hit | None:
        """Return the hit of the last answer with this number, if there is one."""
        hits = self.turns[-1].answer.hits if self.turns and name.isascii() and name.isdigit() else ()
        return next((hit for hit in hits if str(hit.rank) == name), None)


def markdown(index: str, turns: Sequence[Turn]) -> str:
    """Return a conversation as Markdown, quotes escaped."""
    lines = [f"# Questions to the index {in_markdown(index)}"]
    for turn in turns:
        lines += ["", *_turn(turn)]
    return showable("\n".join(lines) + "\n")


def _turn(turn: Turn) -> Iterator[str]:
    answer = turn.answer
    yield f"## {in_markdown(turn.question)}"
    if turn.searched != turn.question:
        yield from ("", f"*Searched: {in_markdown(turn.searched)}*")
    if turn.filter:
        yield from ("", f"*Filter: {in_markdown(turn.filter)}*")
    yield from ("", in_markdown(str(answer)) or "*No answer.*")
    for note in answer.notes:
        yield from ("", f"*Note: {in_markdown(note)}*")
    if answer.hits and not answer.abstained:
        yield ""
        yield from map(_reference, answer.cited_hits)


def _reference(hit: Hit) -> str:
    reference = reference_of(hit.snippet)
    link = f" <{reference.url}>" if reference.url else ""
    notes = "".join(f" {note}." for note in reference.notes)
    return f"- {in_markdown(f'[{hit.rank}] {reference_line(hit.snippet)}{notes}')}{link}"
