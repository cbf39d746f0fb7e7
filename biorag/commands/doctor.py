"""`biorag doctor`: checks of the machine, the packages, the models, and a question from end to end."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from biorag.api.session import Session
from biorag.commands import options, show
from biorag.commands.groups import CommandLine, expanded
from biorag.corpus.sources import DEMO
from biorag.engine import fault_of
from biorag.errors import BioragError, ServiceError
from biorag.indexes.catalogue import WRITTEN, summaries
from biorag.indexing import index_corpus
from biorag.models.finding import STARTER_ENCODER, STARTER_GENERATOR, TRAINED_STARTER
from biorag.references.reference import reference_of
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.utils.cores import usable_cores
from biorag.utils.files import scratch_folder, sha256_of
from biorag.utils.versions import installed_versions


@expanded
def doctor(settings: Settings, line: CommandLine, as_json: options.Json = False) -> None:
    """Check the installation, the models and each index, and that a question works from end to end.

    Examples:

      biorag doctor
      biorag doctor --json
    """
    checks = [{"name": name, **_result(check, settings)} for name, check in _checks(settings, line)]
    all_ok = all(check["ok"] for check in checks)
    if as_json:
        show.print_json({"ok": all_ok, "checks": checks})
    else:
        rows = [("ok" if check["ok"] else "FAILS", check["name"], check["detail"]) for check in checks]
        show.table("Doctor", ["", "what", "found"], rows)
    if not all_ok:
        raise typer.Exit(4)


def _checks(settings: Settings, line: CommandLine) -> Iterator[tuple[str, Callable[[Settings], str]]]:
    yield "python and machine", _machine
    yield "packages", lambda _: ", ".join(f"{package} {number}" for package, number in installed_versions().items())
    yield "home", _home
    there = "" if line.configuration.is_file() else " (does not exist)"
    yield "configuration file", lambda _: f"{line.configuration}{there}"
    if not settings.index.encoder:
        yield "starter encoder", lambda _: "; ".join(_starter(m.path()) for m in (STARTER_ENCODER, TRAINED_STARTER))
    if settings.generation.generator == STARTER:
        yield "starter generator", lambda _: _starter(STARTER_GENERATOR.path())
    yield "indexes", _indexes
    yield "a question, end to end", _question


def _result(check: Callable[[Settings], str], settings: Settings) -> dict[str, object]:
    """Return whether a check passes, and its detail; an exception makes it fail."""
    try:
        return {"ok": True, "detail": check(settings)}
    except (BioragError, OSError) as error:
        return {"ok": False, "detail": str(error)}


def _machine(settings: Settings) -> str:
    machine = f"{platform.platform(terse=True)}, {usable_cores()} cores"
    return f"Python {platform.python_version()} on {machine} ({sys.executable})"


def _home(settings: Settings) -> str:
    settings.home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=settings.home):
        return f"{settings.home} can be written"


def _starter(path: Path) -> str:
    return f"{path} (sha256 {sha256_of(path)[:12]}, as published)"


def _indexes(settings: Settings) -> str:
    """Open each index, but for one that is just being written; raise `ServiceError` with the faults of all."""
    listed = [one for one in summaries(settings) if one.state != WRITTEN]
    if faults := [str(fault) for one in listed if (fault := fault_of(settings, one.name))]:
        raise ServiceError("; ".join(faults))
    return ", ".join(f"{one.name} ({one.snippets} snippets)" for one in listed) or "none yet: try 'biorag index demo'"


def _question(settings: Settings) -> str:
    """Index the demonstration corpus in a scratch home and ask it a question."""
    started = time.perf_counter()
    with scratch_folder() as home:
        changes = {"name": "doctor", "qdrant": None, "store_tokens": "none", "max_tokens": 32}
        scratch = settings.replace(home=home, **changes)
        report = index_corpus(scratch, [DEMO])
        with Session(scratch) as session:
            answer = session.ask("Why is pyridoxine given together with isoniazid?", answer_anyway=True)
    top = reference_of(answer.hits[0].snippet).heading if answer.hits else "nothing"
    return f"found “{top}” in {report.snippets} snippets, answered in {time.perf_counter() - started:.1f} s"
