"""The command line: `biorag COMMAND …`. Errors become one sentence and an exit code here."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer

from biorag.commands import (
    ablation,
    ask,
    chat,
    config,
    corpus,
    data,
    delete,
    doctor,
    embed,
    fetch,
    generate_filter,
    generate_negatives,
    generate_pairs,
    generate_queries,
    graph,
    index,
    indexes,
    info,
    mcp,
    merge,
    mine,
    models,
    plan,
    reproduce,
    search,
    serve,
    show,
    show_snippet,
    snapshot,
    train_cross_encoder,
    train_question_generator,
    train_reranker,
    train_retriever,
    train_verifier,
    tune,
    tune_abstention,
    tune_prompt,
    verify,
)
from biorag.commands.application import ANYWHERE, ANYWHERE_WITH_VALUE, Application, Group, hoisted
from biorag.commands.mistakes import NO_ARGUMENTS, UnknownCommandError, WrongUsage, sentence
from biorag.errors import BioragError, MissingError, ServiceError, UsageError
from biorag.registries import BENCHMARKS
from biorag.utils import secrets
from biorag.utils.network import remember_credentials, restrict
from biorag.utils.panics import is_panic
from biorag.utils.text import showable

INTERRUPTED, TERMINATED = 130, 143
INTERNAL = 1
PATH_FAULTS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)


# Panels of the help, with the commands of each in the order in which one comes to need them; others follow the first.
PANELS = {
    "Use": (
        *("doctor", "index", "ask", "chat", "serve", "search", "show", "verify", "info", "indexes", "delete", "fetch"),
        *("corpus", "embed", "plan", "models", "mcp", "config", "snapshot"),
    ),
    "Measure": ("bench", "tune", "tune abstention", "tune prompt", "ablate", "reproduce", "run"),
    "Train": ("data", "generate", "graph", "mine", "train", "merge"),
}


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


class Commands(Group):
    """A command group whose errors are one sentence on stderr and the exit code of their kind.

    A command's name may be of two words, the first of which is a command too: `tune DATASET`, `tune prompt DATASET`.
    """

    panels = PANELS
    seldom = ("corpus", "embed", "plan")  # commands for many machines, which a page of help only names

    def make_context(self, info_name: str | None, args: list[str], *others: Any, **extra: Any) -> Any:
        """Read the command line, on which some options of the program stand anywhere."""
        try:
            return super().make_context(info_name, hoisted(args), *others, **extra)
        except WrongUsage as error:
            _refuse(error)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first words name, the longer name first."""
        if (longer := " ".join(args[:2])) in self.commands:
            args = [longer, *args[2:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with `--debug` errors show their traceback too."""
        try:
            return super().invoke(ctx)
        except (UnknownCommandError, WrongUsage) as error:
            _refuse(error)
        except BioragError as error:
            _trace(ctx)
            for line in error.details:
                typer.echo(showable(line), err=True)
            _say(str(error))
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            _trace(ctx)
            _say(
                f"{error.filename or 'a file'}: {error.strerror or error}: check the path, its permissions and the disk"
            )
            kind = MissingError if error.errno in PATH_FAULTS else ServiceError
            raise typer.Exit(kind.exit_code) from None
        except KeyboardInterrupt as stop:
            _say("interrupted; finished work is kept, and the same command resumes")
            raise typer.Exit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED) from None
        except BaseException as error:
            if not is_panic(error):
                raise
            _trace(ctx)
            _say(f"the engine failed ({error}): run 'biorag doctor'; if it finds nothing, index the corpus again")
            raise typer.Exit(ServiceError.exit_code) from None


class BenchmarkCommands(Mapping[str, Any]):
    """The commands of the registered benchmarks, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        single = Application(add_completion=False, pretty_exceptions_enable=False)
        single.command(name)(BENCHMARKS[name].load())
        return typer.main.get_command(single)

    def __iter__(self) -> Iterator[str]:
        return iter(BENCHMARKS)

    def __len__(self) -> int:
        return len(BENCHMARKS)


class Benchmarks(Group):
    """The group of the registered benchmarks."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(MutableMapping[str, Any], BenchmarkCommands())  # nothing is added to this group


app = Application(
    name="biorag",
    cls=Commands,
    pretty_exceptions_enable=False,
    help="""Answers biomedical questions from PubMed evidence. This is not medical advice. Start with
'biorag index demo', then: biorag ask What does metformin do?""",
)
app.command("doctor", short_help="Check what is installed, and that a question works.")(doctor.doctor)
app.command("index", cls=index.IndexCommand, short_help="Index a corpus, or bring its index up to date.")(index.index)
app.command("ask", short_help="Answer a question, each sentence checked.")(ask.ask)
app.command("chat", short_help="Ask one question after another.")(chat.chat)
app.command("search", short_help="Find the snippets that are relevant to a query.")(search.search)
app.command("show", short_help="Print a whole snippet, its reference and its study.")(show_snippet.show_snippet)
app.command("serve", short_help="Serve a page and APIs over an index.")(serve.serve)
app.command("verify", short_help="Judge claims by the evidence of an index.")(verify.verify)
app.command("info", short_help="Show indexes, what one holds, or the settings.")(info.info)
app.add_typer(indexes.app, name="indexes", short_help="List, rename or delete indexes.")
app.command("delete", short_help="Remove snippets from an index.")(delete.delete)
app.command("fetch", short_help="Fetch the records of a PubMed query into a file.")(fetch.fetch)
app.add_typer(corpus.app, name="corpus", short_help="Export a corpus for many machines.")
app.command("embed", short_help="Encode an export, also on a Ray cluster.")(embed.embed)
app.command("plan", short_help="Compute what a large corpus will take.")(plan.plan)
app.command("models", short_help="List the models on this machine.")(models.models)
app.command("mcp", short_help="Serve an index to assistants by MCP.")(mcp.mcp)
app.add_typer(config.app, name="config", short_help="Keep the keys of servers.")
app.add_typer(snapshot.app, name="snapshot")
bench = Application(cls=Benchmarks, help="Measure retrieval and answers.")
bench.callback()(lambda: None)
app.add_typer(bench, name="bench")
app.command("tune", short_help="Choose a setting of retrieval on your questions.")(tune.tune)
app.command("tune abstention", short_help="Fit when 'ask' withholds an answer.")(tune_abstention.abstention)
app.command("tune prompt", short_help="Optimise the instruction before a query.")(tune_prompt.prompt)
app.command("ablate", short_help="Train and measure every cell of a grid.")(ablation.ablate)
app.command("reproduce", short_help="Run a paper's recipe beside its own figures.")(reproduce.reproduce)
app.command("run", short_help="Run a recipe of your own.")(reproduce.run)
app.add_typer(data.app, name="data", short_help="Convert and sample published data sets.")
generate = Application(help="Generate training rows with a model, and filter them.")
generate.command("negatives")(generate_negatives.negatives)
generate.command("pairs")(generate_pairs.pairs)
generate.command("queries")(generate_queries.queries)
generate.command("filter")(generate_filter.keep_consistent)
app.add_typer(generate, name="generate")
app.add_typer(graph.app, name="graph", short_help="Build and fill the graph of citations.")
app.command("mine", short_help="Mine negatives from an index for your pairs.")(mine.mine)
train = Application(help="Train retriever, rerankers and question generator on your own pairs.")
train.command("retriever")(train_retriever.retriever)
train.command("reranker")(train_reranker.reranker)
train.command("cross-encoder")(train_cross_encoder.cross_encoder)
train.command("question-generator")(train_question_generator.question_generator)
train.command("verifier")(train_verifier.verifier)
app.add_typer(train, name="train", short_help="Train retriever, rerankers and verifier.")
app.command("merge", short_help="Merge encoders of one base into one.")(merge.merge)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"biorag {version('biorag')}")
        raise typer.Exit


@app.callback()
def settings(
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file of settings. Default: BIORAG_CONFIG, or biorag.toml in BIORAG_HOME."),
    ] = None,
    offline: Annotated[
        bool | None,
        typer.Option("--offline", help="Connect only to hosts named on this command line."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show log messages and tracebacks.")] = False,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Set up logging and remember where the settings are."""
    ctx.obj = {"config": file, "offline": offline}
    secrets.forget()
    remember_credentials()
    restrict(() if offline else None)  # a command that has settings names its hosts later
    lines = show.ConsoleHandler()
    lines.setFormatter(
        show.ShowingFormatter("%(levelname)s %(name)s: %(message)s" if debug else "%(levelname)s: %(message)s")
    )
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[lines], force=True)
    if not debug:
        # What models take; where questions go; what is taken of folders; which columns of tables; how far a server is.
        for telling in (
            *("models.resources", "settings.services", "corpus.sources", "corpus.tables"),
            "indexes.bulk_load",
        ):
            logging.getLogger(f"biorag.{telling}").setLevel(logging.INFO)
        for noisy in ("httpx", "transformers", "sentence_transformers", "huggingface_hub"):
            logging.getLogger(noisy).setLevel(logging.ERROR)


def _trace(ctx: Any) -> None:
    """Show the traceback of the error at hand, with `--debug`."""
    if ctx.params.get("debug"):
        typer.echo(showable(traceback.format_exc()), err=True)


def _shown(*error: Any) -> None:
    """Show the traceback of a bug as all else is shown, where Python would write it as it is."""
    typer.echo(showable("".join(traceback.format_exception(*error))), err=True)


def _say(message: str) -> None:
    typer.echo(f"error: {showable(message)}", err=True)


def _refuse(error: Exception) -> NoReturn:
    """End a command whose line cannot be read; one without arguments has printed its help."""
    if type(error).__name__ == NO_ARGUMENTS:
        raise error
    _say(sentence(error, (*ANYWHERE, *ANYWHERE_WITH_VALUE)))
    raise typer.Exit(UsageError.exit_code) from None


def _terminated(number: int, frame: object) -> None:
    raise Terminated


def main() -> None:
    """Run the command line; any other exception is a bug and is reported without a traceback."""
    signal.signal(signal.SIGTERM, _terminated)
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that this one starts import nothing from the current folder
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv:
            sys.excepthook = _shown
            raise
        _say(f"internal error ({type(error).__name__}: {error}): run again as 'biorag --debug ...' and report it")
        sys.exit(INTERNAL)
