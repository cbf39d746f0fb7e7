"""`biorag chat`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from biorag.commands import options, show, show_answer
from biorag.commands.groups import expanded
from biorag.corpus.sentences import terms
from biorag.errors import BioragError
from biorag.settings.settings import Settings
from biorag.utils.text import showable

if TYPE_CHECKING:
    from biorag.api.session import Session
    from biorag.faces.chat.conversation import Conversation

PROMPT = "biorag> "


@expanded
def chat(
    settings: Annotated[Settings, options.INDEX, options.RANKING, options.GENERATOR, options.ANSWER],
    filter: options.Filters = None,
) -> None:
    """Ask one question after another, each answered as 'biorag ask' does; models stay loaded.

    A follow-up such as "and in children?" is made to stand alone. /help lists the commands, Ctrl-C stops an answer, and
    exit, bye or Ctrl-D ends. Lines that are piped in are asked in turn. No file keeps your questions, unless you /save
    them.

    Examples:

      biorag chat
      biorag chat --name pubmed --llm starter --filter 'year>=2015'
      biorag chat < questions.txt
    """
    from biorag.api.session import Session
    from biorag.faces.chat.conversation import Conversation

    with show_answer.waiting() as stage:
        stage("Opening the index")
        session = Session(settings, eager=True)
    with session:
        is_typed = sys.stdin.isatty()
        talk = _Talk(session, Conversation(session, filter or ()), is_typed)
        for line in _typed(session.name) if is_typed else _piped():
            if not talk.heard(line):
                break
    if talk.failure and not is_typed:
        raise typer.Exit(talk.failure.exit_code)


def _typed(index: str) -> Iterator[str]:
    """Yield the lines that are typed, with the editing and the history of readline; Ctrl-C clears one, Ctrl-D ends."""
    with suppress(ImportError):  # Windows has none, and edits lines itself
        import readline  # noqa: F401

    show.err.print(f"Index {index!r}. Ask a question, or /help; exit or Ctrl-D ends.")
    prompt = PROMPT if show.out.is_terminal else ""  # which input() writes to stdout
    while True:
        try:
            yield input(prompt)
        except EOFError:
            show.err.print()
            return
        except UnicodeDecodeError:
            show.err.print("error: the line is not UTF-8: type it again")
        except KeyboardInterrupt as stop:
            if not _is_ctrl_c(stop):
                raise
            show.err.print()


def _piped() -> Iterator[str]:
    """Yield the lines of standard input, each shown before its answer."""
    for raw in sys.stdin.buffer:
        if line := raw.decode("utf-8", "surrogateescape").strip():
            show.out.print(Text(showable(PROMPT + line)), soft_wrap=True)
            yield line


class _Talk:
    """Executes the lines of a conversation; `failure` is the first error.

    At a terminal Ctrl-C stops the last line's work; otherwise it ends the command.
    """

    def __init__(self, session: Session, conversation: Conversation, is_typed: bool) -> None:
        self._session, self._conversation, self._is_typed = session, conversation, is_typed
        self.failure: BioragError | None = None

    def heard(self, text: str) -> bool:
        """Execute a line, printing errors; return whether the conversation continues."""
        from biorag.faces.chat.conversation import parse_line

        try:
            command, argument = parse_line(text)
            if command == "/quit":
                return False
            if command or argument:
                getattr(self, command.replace("/", "_") or "_ask")(argument)  # such as `_show`
        except KeyboardInterrupt as stop:
            if not (self._is_typed and _is_ctrl_c(stop)):
                raise
            show.err.print("stopped")
        except BioragError as error:
            self.failure = self.failure or error
            show.err.print(f"error: {error}", soft_wrap=True)
        return True

    def _ask(self, question: str) -> None:
        from biorag.retrieval.last_hits import keep_last_hits

        with show_answer.waiting() as stage:
            stage("Reading the question")
            if not self._conversation.is_searched(question):
                show.err.print("Not searched: no snippet is about this. Ask a question, or /help.")
                return
            searched = self._conversation.standalone(question)
            if searched != question:
                show.err.print(Text(showable(f"searched: {searched}"), style="dim"), soft_wrap=True)
            stage("Writing, not checked yet" if self._session.settings.generation.llm else "Answering")
            turn = self._conversation.ask(question, searched, on_text=stage.provisional)
        keep_last_hits(self._session.settings, turn.answer.hits)
        show_answer.answer(turn.answer)

    def _help(self, _: str) -> None:
        from biorag.faces.chat.conversation import COMMANDS

        show.table("Commands", ["", ""], list(COMMANDS.items()))

    def _show(self, name: str) -> None:
        turns = self._conversation.turns
        show_answer.snippets(self._conversation.show(name), terms(turns[-1].searched) if turns else set())

    def _cite(self, argument: str) -> None:
        show.out.print(Text(self._conversation.cite(argument).rstrip("\n")), soft_wrap=True)

    def _filter(self, condition: str) -> None:
        if condition:
            self._conversation.set_filter("" if condition == "off" else condition)
        show.err.print(f"filter: {self._conversation.filter or 'none'}", soft_wrap=True)

    def _save(self, name: str) -> None:
        show.err.print(f"saved to {self._conversation.save(name)}", soft_wrap=True)

    def _new(self, _: str) -> None:
        self._conversation.turns.clear()
        show.err.print("a new conversation")


def _is_ctrl_c(stop: KeyboardInterrupt) -> bool:
    return type(stop) is KeyboardInterrupt  # not the program's own of SIGTERM, which ends it
