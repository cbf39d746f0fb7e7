"""The command line: `biorag COMMAND …`. Errors become one sentence and an exit code here."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, cast

import typer

from biorag.commands.application import Application, CommandKind, Group, hoisted
from biorag.commands.show import ConsoleHandler
from biorag.errors import BadInputError, BioragError, MissingError, ServiceError, bounded
from biorag.utils import secrets
from biorag.utils.cores import check_addresses
from biorag.utils.locks import begun
from biorag.utils.network import remember_credentials, restrict
from biorag.utils.panics import is_panic
from biorag.utils.registry import Registry
from biorag.utils.text import showable

UNREAD = 141  # as of what SIGPIPE ends: nobody reads the output any more
INTERNAL = 1
AFTER_STOP = 5.0  # seconds in which an error is what a library made of a signal
PATH_FAULTS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)


def _commands(rows: str, panel: str = "Commands") -> list[CommandKind]:
    """Return commands from lines `name | module:function | summary`; help lists a name with a `*` on request only.

    A module stands in the `commands` of the core, or of the wing before it.
    """
    kinds = []
    for row in rows.strip().splitlines():
        name, target, summary = (cell.strip() for cell in row.split("|"))
        wing, _, function = target.rpartition(".")
        commands = f".{wing}.commands" if wing else ".commands"
        module = target if target.startswith(".") else f"{commands}.{function}"
        seldom = name.startswith("*")
        kinds.append(CommandKind(name.strip("*"), module, summary, panel=panel, seldom=seldom))
    return kinds


GENERATE = Registry(
    "command",
    *_commands("""
        negatives | lab.generate:negatives       | Generate hard negatives for the queries of pairs.
        pairs     | lab.generate:pairs           | Generate pairs and hard negatives from retrieval scenarios.
        queries   | lab.generate:queries         | Generate questions that snippets answer.
        filter    | lab.generate:keep_consistent | Keep the rows whose positive is retrieved for their query.
    """),
)
TRAIN = Registry(
    "command",
    *_commands("""
        pipeline           | lab.reproduce:pipeline   | Train a retriever and its reranker.
        retriever          | train:retriever          | Train a bi-encoder.
        reranker           | train:reranker           | Train a late-interaction reranker (ColBERT).
        cross-encoder      | train:cross_encoder      | Train a cross-encoder.
        question-generator | train:question_generator | Train a question generator.
        reader             | train:reader             | Train a reader of claims and answers.
        generator          | train:generator          | Train a generator that reads evidence.
        language-model     | train:language_model     | Pre-train a BERT and its vocabulary on a corpus.
    """),
)
PROGRAM = Registry(
    "command",
    *_commands(
        """
        doctor           | doctor:doctor             | Check the installation, and that a question works.
        index            | index:index               | Index a corpus, or bring its index up to date.
        ask              | ask:ask                   | Answer a question, each sentence checked.
        chat             | faces.chat:chat           | Ask one question after another.
        serve            | faces.serve:serve         | Serve a page and APIs over an index.
        search           | ask:search                | Find the snippets that are relevant to a query.
        show             | ask:show_snippet          | Print a whole snippet, its reference and its study.
        verify           | verify:verify             | Judge claims by the evidence of an index.
        weigh            | verify:weigh              | Show the studies for and against a claim.
        check            | papers.check:check        | Check whether a manuscript's citations hold.
        indexes          | indexes:app               | List, show, rename, delete, export, import indexes.
        info             | indexes:info              | List indexes or settings.
        delete           | delete:delete             | Remove snippets from an index.
        fetch            | lab.graph:fetch           | Fetch the records of a PubMed query into a file.
        *corpus          | lab.corpus:app            | Export a corpus for many machines.
        *embed           | lab.corpus:embed          | Encode an export, also on a Ray cluster.
        *plan            | lab.plan:plan             | Estimate the resources that a large corpus takes.
        models           | models:models             | List the models on this machine.
        *models convert  | models:convert            | Convert pickled weights to safetensors.
        models recommend | models:recommend          | List published models that are worth their size.
        mcp              | faces.serve:mcp           | Serve an index to assistants by MCP.
        *snapshot        | indexes:old_names         | The old name of 'indexes export' and 'import'.
        """,
        "Use",
    ),
    *_commands(
        """
        bench       | .registries:BENCHMARKS  | Measure retrieval and answers.
        tune        | lab.tune:tune           | Choose a setting of retrieval on your questions.
        tune prompt | lab.tune_prompt:prompt  | Optimise the instruction before a query.
        ablate      | lab.reproduce:ablate    | Train and measure every cell of a grid.
        reproduce   | lab.reproduce:reproduce | Run a paper's recipe beside its own figures.
        run         | lab.reproduce:run       | Run a recipe of your own.
        """,
        "Measure",
    ),
    *_commands(
        """
        data     | lab.data:app    | Convert and sample published data sets.
        generate | .cli:GENERATE   | Generate training rows with a model, and filter them.
        graph    | lab.graph:app   | Build and fill the citation graph.
        mine     | mine:mine       | Mine negatives from an index for your pairs.
        train    | .cli:TRAIN      | Train retriever, rerankers, reader and question generator.
        merge    | lab.merge:merge | Merge encoders of one base into one.
        """,
        "Train",
    ),
)


_stops: list[tuple[float, int]] = []  # when signals came, and which: a library may make another error of one, or none


class Commands(Group):
    """The program, whose errors are one sentence on stderr and the exit code of their kind."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(kinds=PROGRAM, **attributes)

    def make_context(self, info_name: str | None, args: list[str], *others: Any, **extra: Any) -> Any:
        """Read the command line, on which some options of the program stand anywhere."""
        with _told():  # of help too, which a full disk may not take
            return super().make_context(info_name, hoisted(args), *others, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with `--debug` errors show their traceback too."""
        with _told(ctx.params.get("debug", False)):
            return super().invoke(ctx)


@contextmanager
def _told(debug: bool = False) -> Iterator[None]:
    """End the program at an error that users see, which is told in one sentence."""
    try:
        yield
    except (SystemExit, typer.Exit):  # of help, too
        raise
    except BaseException as error:
        while isinstance(error, BaseExceptionGroup):  # of a task
            error = error.exceptions[0]
        if isinstance(error, BrokenPipeError):
            raise SystemExit(UNREAD) from None
        if _stops:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        message, code = _sentence_of(error)
        if debug:
            typer.echo(showable(traceback.format_exc()), err=True)
        for line in error.details if isinstance(error, BioragError) else ():
            typer.echo(showable(line), err=True)
        _print_error(message)
        raise SystemExit(code) from None


app = Application(
    name="biorag",
    cls=Commands,
    add_completion=True,
    help="Answers biomedical questions from PubMed evidence. This is not medical advice. Start with "
    "'biorag index demo', then: biorag ask 'What does metformin do?'",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"biorag {version('biorag')}")
        raise typer.Exit


@app.callback()
def settings(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--config", help="Settings file. Default: biorag.toml in the home.")
    ] = None,
    offline: Annotated[
        bool | None, typer.Option("--offline", help="Connect only to hosts named on this command line.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show log messages and tracebacks.")] = False,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Set up logging and remember where the settings are."""
    from biorag.settings.sources import keep_configured  # help needs no settings

    ctx.obj = {"config": file, "offline": offline}
    keep_configured(file)
    secrets.forget()
    remember_credentials()
    restrict(() if offline else None)  # a command that has settings names its hosts later
    handler = ConsoleHandler()
    handler.setFormatter(
        logging.Formatter("%(levelname)s %(name)s: %(message)s" if debug else "%(levelname)s: %(message)s")
    )
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler], force=True)
    if not debug:
        logging.getLogger("biorag").setLevel(logging.INFO)
        for noisy in ("httpx", "transformers", "sentence_transformers", "huggingface_hub"):
            logging.getLogger(noisy).setLevel(logging.ERROR)


def _sentence_of(error: BaseException) -> tuple[str, int]:
    """Return the sentence and the exit code of an error that users see; raise one that is a bug."""
    if isinstance(error, KeyboardInterrupt) or (_stops and time.monotonic() - _stops[-1][0] < AFTER_STOP):
        resumes = begun - {"export"}  # of a model, which a search makes if need be, and from the start
        kept = "; finished work is kept, and the same command resumes" if resumes else ""
        return f"interrupted{kept}", 128 + (_stops[-1][1] if _stops else signal.SIGINT)
    if isinstance(error, BioragError):
        return str(error), error.exit_code
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        return "standard input or output is closed: connect it, or name a file", BadInputError.exit_code
    if isinstance(error, OSError):
        kind = MissingError if error.errno in PATH_FAULTS else ServiceError
        fault = f"{error.filename or 'a file'}: {error.strerror or error}"
        return f"{fault}: check the path, its permissions and the disk", kind.exit_code
    if is_panic(error):
        advice = "run 'biorag doctor'; if it finds nothing, index the corpus again"
        return f"the engine failed ({error}): {advice}", ServiceError.exit_code
    try:
        check_addresses()  # without them, whatever a library says
    except ServiceError as limit:
        return str(limit), limit.exit_code
    if isinstance(error, MemoryError):
        return "memory ran out: end other programs, or give this one more", ServiceError.exit_code
    raise error


def _print_traceback(*error: Any) -> None:
    """Show the traceback of a bug like any other text, where Python would write it as it is."""
    typer.echo(showable("".join(traceback.format_exception(*error))), err=True)


def _print_error(message: str) -> None:
    with suppress(BrokenPipeError):
        line = bounded(showable(message)).replace("\n", "\\n")  # one, whatever a file is called
        typer.echo(f"error: {line}", err=True)


def _stop(number: int, frame: object) -> None:
    _stops.append((time.monotonic(), number))
    raise KeyboardInterrupt


def _unraisable(fault: Any) -> None:
    """Send a signal again that came where nothing can be raised; report any other fault as Python does."""
    if _stops and isinstance(fault.exc_value, KeyboardInterrupt):
        Timer(0.01, os.kill, (os.getpid(), _stops[-1][1])).start()
    else:
        sys.__unraisablehook__(fault)


def _run() -> None:
    """Run a command, and write out what it printed, which a full disk or a closed pipe may not take."""
    try:
        try:
            app()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left cannot be interrupted
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes the rest
        raise


def _to_stdout(write: Callable[[Any], Any], content: Any) -> Any:
    """Write to standard output; an error names it, which a file's that is written to does not."""
    try:
        return write(content)
    except OSError as error:
        error.filename = "standard output"
        raise


def main() -> None:
    """Run the command line; any other exception is a bug and is reported without a traceback."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    sys.unraisablehook = _unraisable
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that this one starts import nothing from the current folder
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # closed; no file may take its place, and what is read from it is an error
            os.set_inheritable(os.open(os.devnull, os.O_WRONLY), True)  # which is `number`, the lowest that is free
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115, PTH123 - to the end
    raw: Any = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    raw.__dict__["write"] = partial(_to_stdout, raw.write)
    for stream in (sys.stdout, sys.stderr):
        cast(TextIOWrapper, stream).reconfigure(
            encoding="utf-8", errors="backslashreplace"
        )  # as JSON is, whatever the locale
    try:
        with _told():
            _run()
    except Exception as error:
        if "--debug" in sys.argv:
            sys.excepthook = _print_traceback
            raise
        _print_error(
            f"internal error ({type(error).__name__}: {error}): run again as 'biorag --debug ...' and report it"
        )
        sys.exit(INTERNAL)
