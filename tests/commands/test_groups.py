"""Groups of options: what Typer sees, and what the command gets."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.utils import network
from tests.cli import failed, invoke

MOST = 12


@dataclass(frozen=True)
class Inner:
    word: Annotated[str, typer.Option(help="A word.")] = "none"


@dataclass(frozen=True)
class Outer:
    inner: Inner
    number: Annotated[int, typer.Option(help="A number.")]
    loud: Annotated[bool, typer.Option("--loud", rich_help_panel="Elsewhere")] = False


@pytest.fixture
def got():
    return {}


@pytest.fixture
def run(got):
    """Run a command that takes one of everything; what it got is in `got`."""

    @expanded
    def command(
        what: Annotated[str, typer.Argument()],
        settings: Annotated[Settings, Flags(RetrievalSettings, "name", but=("k",)), Flags("llm")],
        outer: Annotated[Outer, "Shown"],
        given: CommandLine,
        plain: Annotated[bool, typer.Option("--plain")] = False,
    ) -> None:
        """Do it."""
        got.update(what=what, settings=settings, outer=outer, given=given, plain=plain, command=command)

    app = typer.Typer()
    app.command()(command)

    def invoke(*words, config=None, offline=None):
        obj = {"config": config, "offline": offline}
        return CliRunner().invoke(app, [str(word) for word in words], obj=obj)

    invoke.command = typer.main.get_command(app)
    return invoke


def option(command, flag):
    return next(parameter for parameter in command.params if flag in parameter.opts)


def test_the_command_gets_settings_groups_and_its_own_options(run, got):
    assert (
        run("x", "--number", 3, "--k-init", 7, "--lambda", 0.5, "--no-rerank", "--word", "w", "--plain").exit_code == 0
    )
    assert (got["what"], got["plain"], got["outer"]) == ("x", True, Outer(Inner("w"), 3, False))
    assert got["settings"] == Settings.of(
        home=got["settings"].home, k_init=7, lambda_=0.5, rerank=False, seed=0, read_again=False
    )


def test_options_take_precedence_over_the_file(run, got, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('k_init = 9\ndepth = 30\nllm = "starter"\n')
    assert run("x", "--number", 1, "--k-init", 8, config=file).exit_code == 0
    settings = got["settings"]
    assert (settings.retrieval.k_init, settings.retrieval.depth, settings.generation.llm) == (8, 30, "starter")
    assert (got["given"].file, got["given"].value("k_init"), got["given"].value("depth")) == (file, 8, None)


def test_a_command_knows_which_settings_were_given_and_by_which_option(run, got):
    run("x", "--number", 1, "--k-init", 8, "--no-rerank", "-n", "other")
    given = got["given"]
    assert given.options == ["--rerank", "--k-init", "--name"]
    assert given.first("depth", "k_init") == "--k-init"
    assert given.first("mode") is None


def test_help_shows_the_settings_own_words_defaults_and_panels(run):
    k_init, number, loud = (option(run.command, flag) for flag in ("--k-init", "--number", "--loud"))
    field = RetrievalSettings.model_fields["k_init"]
    assert (k_init.help, k_init.show_default, k_init.rich_help_panel) == (field.description, "20", "Retrieval")
    assert k_init.default is None, "not given"
    assert (number.rich_help_panel, loud.rich_help_panel) == ("Shown", "Shown")
    assert not any("-k" in parameter.opts for parameter in run.command.params), "k was left out"


def test_offline_lets_through_the_hosts_that_the_command_line_names(run, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('qdrant = "http://filed.test:1"\n')
    assert run("x", "--number", 1, "--llm", "http://named.test:1", config=file, offline=True).exit_code == 0
    assert network._named is not None
    assert set(network._named) == {"named.test"}
    network.restrict(None)  # which takes the variable for child processes back too
    assert run("x", "--number", 1, "--llm", "http://named.test:1", config=file).exit_code == 0
    assert network._named is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("search", "x", "--lambda", "nan"), "--lambda nan is not a finite number"),
        (("search", "x", "--interpolation", "inf"), "--interpolation inf is not"),
        (("search", "x", "-k", str(2**63)), f"--k {2**63} is beyond 64 bits"),
    ],
)
def test_numbers_of_options_are_finite_and_fit_64_bits(words, said):
    failed(invoke(*words), 2, said)
