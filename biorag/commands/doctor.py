"""`biorag doctor`."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from biorag.commands import options, show
from biorag.commands.groups import expanded
from biorag.errors import BioragError
from biorag.models.finding import STARTER_ENCODER, STARTER_GENERATOR
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.utils.cores import usable_cores
from biorag.utils.files import sha256_of


@dataclass(frozen=True, slots=True)
class Check:
    """One thing the doctor looked at."""

    name: str
    ok: bool
    detail: str


@expanded
def doctor(settings: Settings, as_json: options.Json = False) -> None:
    """Check what is installed, which models are found, and whether a question works from end to end.

    Examples:

      biorag doctor

      biorag doctor --json
    """
    looks: list[tuple[str, Callable[[Settings], str]]] = [
        ("python and machine", lambda _: _machine()),
        ("packages", lambda _: _packages()),
        ("home", _home),
        *([("starter encoder", lambda _: _starter(STARTER_ENCODER.path()))] if not settings.index.encoder else []),
        *(
            [("starter generator", lambda _: _starter(STARTER_GENERATOR.path()))]
            if settings.generation.llm == STARTER
            else []
        ),
        ("indexes", _indexes),
        ("a question, end to end", _question),
    ]
    checks = [_look(name, look, settings) for name, look in looks]
    if as_json:
        show.print_json({"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]})
    else:
        rows = [("ok" if check.ok else "FAILS", check.name, check.detail) for check in checks]
        show.table("Doctor", ["", "what", "found"], rows)
    if not all(check.ok for check in checks):
        raise typer.Exit(4)


def _look(name: str, look: Callable[[Settings], str], settings: Settings) -> Check:
    try:
        return Check(name, True, look(settings))
    except (BioragError, OSError) as error:
        return Check(name, False, str(error))


def _machine() -> str:
    place = f"{platform.platform(terse=True)}, {usable_cores()} cores"
    return f"Python {platform.python_version()} on {place} ({sys.executable})"


def _packages() -> str:
    from biorag.utils.versions import installed_versions

    return ", ".join(f"{package} {number}" for package, number in installed_versions().items())


def _home(settings: Settings) -> str:
    settings.home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=settings.home):
        return f"{settings.home} can be written"


def _starter(path: Path) -> str:
    return f"{path} (sha256 {sha256_of(path)[:12]}, as published)"


def _indexes(settings: Settings) -> str:
    from biorag.indexes.store import Store, index_names

    names = index_names(settings)
    manifests = [Store(settings.replace(name=name)).require_manifest() for name in names]
    return ", ".join(f"{m.name} ({m.snippets} snippets)" for m in manifests) or "none yet: try 'biorag index demo'"


def _question(settings: Settings) -> str:
    """Index the demonstration corpus in a scratch home and ask it a question."""
    from biorag.answering.answerer import Answerer
    from biorag.corpus.sources import DEMO, find_sources
    from biorag.engine import encoder_files, load_generator, open_index, snippet_encoders
    from biorag.indexes.store import Store, similarity_of
    from biorag.indexes.surveying import survey
    from biorag.indexes.writing import write_index
    from biorag.types import Question

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="biorag-doctor-") as home:
        scratch = settings.replace(home=Path(home), name="doctor", qdrant=None, max_tokens=32)
        store, sources = Store(scratch), find_sources([DEMO], Path(home) / "spool")
        found = survey(sources, None, lambda _: None)
        encoders = snippet_encoders(scratch, encoder_files(scratch, None), None, similarity_of(scratch, None), None)
        manifest = store.new_manifest(encoders.encoder.identity, found.avg_len, encoders.parameters)
        write_index(store, manifest, sources, found, lambda: encoders, lambda _: None)
        with open_index(scratch) as ready:
            answerer = Answerer(ready.retriever, load_generator(scratch), scratch)
            answer = answerer.answer(Question("doctor", "Why is pyridoxine given together with isoniazid?"))
    top = answer.hits[0].snippet.title if answer.hits else "nothing"
    return f"found “{top}” in {found.snippets} snippets, answered in {time.perf_counter() - started:.1f} s"
