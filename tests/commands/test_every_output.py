"""Every output of every command: none replaces an input, another output, another's file, or part of the home."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from typer.main import get_command
from typer.models import ArgumentInfo

from biorag.benchmarks.pictures import PICTURES
from biorag.cli import app
from biorag.commands.outputs import Writes, mark_of
from tests.cli import failed, invoke

# Paths that commands read, by the names of their parameters. One that is written is marked where it is declared.
READ = {
    *(
        "benchmark",
        "claims",
        "compare",
        "data",
        "dataset",
        "evaluate",
        "exclude",
        "file",
        "golden",
        "guard",
        "held_out",
    ),
    *("init", "keep", "local", "machine", "mirage", "pairs", "prompt", "questions", "recipe", "recommendation"),
    *("references", "rows", "run", "scenario_file", "search", "sets", "snippets", "sources", "template", "test_ids"),
    *("train", "vectors"),
    "sweep",  # `ablate --init` writes it only if it is not there
}
# Folders that a run's manifest, or the command itself, keeps: their files are not known before it runs.
KEPT = {
    *("ablate", "reproduce", "run", "train pipeline", "merge", "tune", "tune prompt"),
    *("corpus export", "embed", "index"),
    *("data get", "data convert", "data sample", "models convert"),
    *(f"bench {name}" for name in ("answers", "bioasq", "mirage", "mteb", "verification")),
    *(f"train {name}" for name in ("retriever", "reranker", "cross-encoder", "question-generator")),
    *(f"train {name}" for name in ("reader", "generator", "language-model")),
}


class Taken(NamedTuple):
    """A parameter of a command: its words on a command line come before its value."""

    command: tuple[str, ...]
    parameter: inspect.Parameter
    words: tuple[str, ...]
    mark: Writes | None

    @property
    def kind(self) -> str:
        return str(get_args(self.parameter.annotation)[:1] or self.parameter.annotation)

    @property
    def is_path(self) -> bool:
        return "Path" in self.kind


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[list[Taken]]:
    command = command or get_command(app)
    for name in getattr(command, "commands", ()):
        yield from commands(command.commands[name], (*path, name))
    if not hasattr(command, "commands"):
        yield [
            Taken(path, parameter, () if is_argument(parameter) else tuple(option.opts[:1]), mark_of(parameter))
            for parameter in inspect.signature(command.callback, eval_str=True).parameters.values()
            for option in command.params
            if option.name == parameter.name
        ]


def is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(mark, ArgumentInfo) for mark in getattr(parameter.annotation, "__metadata__", ()))


COMMANDS = {" ".join(taken[0].command): taken for taken in commands() if taken}
OUTPUTS = [(name, one) for name, taken in COMMANDS.items() for one in taken if one.mark]


def test_each_path_that_a_command_takes_is_read_or_marked_as_written():
    unmarked = {(name, one.parameter.name) for name, taken in COMMANDS.items() for one in taken if one.is_path}
    unmarked -= {(name, one.parameter.name) for name, one in OUTPUTS}
    assert {(command, name) for command, name in unmarked if name not in READ} == set()
    assert {one.parameter.name for _, one in OUTPUTS} & READ == {"data", "file"}
    assert len(OUTPUTS) > 40


def test_each_folder_names_its_files_or_is_kept_by_its_run():
    folders = [(name, one) for name, one in OUTPUTS if one.mark.is_folder]
    assert {name for name, one in folders if not one.mark.names} == KEPT
    assert {name.removeprefix("bench ") for name, one in folders if one.words == ("--plot",)} == set(PICTURES)


VALUES = [(name, one) for name, taken in COMMANDS.items() for one in taken if "bool" not in one.kind]


@pytest.mark.parametrize(("name", "value"), VALUES, ids=lambda one: one if isinstance(one, str) else one.parameter.name)
def test_no_value_may_be_empty(name, value, tmp_path, monkeypatch):
    """Of a path or a model it would be the current folder."""
    monkeypatch.chdir(tmp_path)
    failed(run(name, tmp_path / "home", {value.parameter.name: ""}), 2, "is empty: give it a value")
    assert list(tmp_path.iterdir()) == []


def run(name: str, home: Path, values: dict[str, str]) -> Any:
    """Run a command with these values of parameters, and any of those that it requires besides."""
    words: list[str] = []
    for one in COMMANDS[name]:
        required = one.parameter.default is inspect.Parameter.empty
        if one.parameter.name in values or required:
            words += [*one.words, values.get(one.parameter.name, "new" if one.mark else "given.jsonl")]
    return invoke(*name.split(" "), *words, home=home)


@pytest.mark.parametrize(("name", "output"), OUTPUTS, ids=lambda one: one if isinstance(one, str) else one.words[:1])
def test_no_output_is_an_input_another_output_or_part_of_the_home(name, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("given.jsonl").write_text("{}\n")
    Path("mine.docx").write_text("a chapter\n")
    Path("link.docx").symlink_to("mine.docx")
    own = [tmp_path / "home" / "biorag.toml", *(tmp_path / "home" / part for part in ("indexes", "graphs/new"))]
    for path in own:
        failed(run(name, tmp_path / "home", {output.parameter.name: str(path)}), 2, "is biorag's own")
    is_folder = output.mark.is_folder
    dash = run(name, tmp_path / "home", {output.parameter.name: "-"})
    failed(dash, 2, f"standard output: name a {'folder' if is_folder else 'file'} to write")
    for other in COMMANDS[name]:
        if other.parameter.name == output.parameter.name or not other.is_path:
            continue
        if other.mark and (is_folder or other.mark.is_folder):
            continue
        for path in ("mine.docx", "./link.docx", str(tmp_path / "mine.docx")):
            given = {output.parameter.name: path, other.parameter.name: "mine.docx"}
            failed(run(name, tmp_path / "home", given), 2, "named for two outputs" if other.mark else "is read by")
    for path in output.mark.files(Path("mine"), name.split()[-1]) if is_folder else ():
        path.parent.mkdir(exist_ok=True)
        path.write_text("a thesis\n")
        failed(run(name, tmp_path / "home", {output.parameter.name: "mine"}), 2, path, "that biorag wrote")
        assert path.read_text() == "a thesis\n"
        path.unlink()
    if is_folder:
        failed(run(name, tmp_path / "home", {output.parameter.name: "mine.docx"}), 2, "is a file: name a folder")
    elif output.mark.kind:
        failed(run(name, tmp_path / "home", {output.parameter.name: "mine.docx"}), 2, "that biorag wrote")
    failed(run(name, tmp_path / "home", {output.parameter.name: "mine.docx/a\nb"}), 4, r"docx/a\nb: Not a directory")
    monkeypatch.setattr("os.access", lambda _, mode: mode == os.R_OK)
    failed(run(name, tmp_path / "home", {output.parameter.name: "mine/new"}), 4, "new: Permission denied")
    assert Path("mine.docx").read_text() == "a chapter\n"
    assert not any(path.exists() for path in own)
