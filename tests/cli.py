"""The command line as tests use it: in this process unless signals, locks, imports or start-up are what is tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from biorag.cli import app

BIORAG = [sys.executable, "-m", "biorag"]
SECONDS = 240


def environment(home: Path | None, variables: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a command, with its home among them."""
    return ({} if home is None else {"BIORAG_HOME": str(home)}) | {
        name: str(value) for name, value in variables.items()
    }


def invoke(
    *arguments: object, home: Path | None = None, input: str | bytes | None = None, **variables: object
) -> Result:
    """Run `biorag ARGUMENTS` in this process."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, words, env=environment(home, variables), input=input)


def succeeded(result: Result) -> Result:
    """Hold that a command ended well."""
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def done(result: Result) -> Any:
    """Return the one JSON document that a command's stdout is."""
    return json.loads(succeeded(result).stdout)


def failed(result: Result, code: int, *parts: object) -> str:
    """Hold that a command failed with a code and one sentence, last on stderr, that has these parts; return it."""
    assert (result.exit_code, result.stdout) == (code, ""), (result.output, result.exception)
    assert "Traceback" not in result.stderr
    (sentence,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.stderr.rstrip().endswith(sentence), "the sentence is one line, and the last"
    assert "internal error" not in sentence
    assert [str(part) for part in parts if str(part) not in sentence] == [], sentence
    return sentence


def run(
    *arguments: object, code: int = 0, home: Path | None = None, input: str | None = None, **variables: object
) -> subprocess.CompletedProcess[str]:
    """Run `biorag ARGUMENTS` in a process of its own and hold its exit code."""
    ended = subprocess.run(
        [*BIORAG, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | environment(home, variables),
        timeout=SECONDS,
        input=input,
        check=False,
    )
    assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
    assert "Traceback" not in ended.stderr
    return ended


def start(*arguments: object, home: Path | None = None, **variables: object) -> subprocess.Popen[str]:
    """Start `biorag ARGUMENTS` in a process of its own, whose output is read through pipes."""
    return subprocess.Popen(
        [*BIORAG, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment(home, variables),
    )
