"""`biorag info`, `biorag models` and `biorag doctor`."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.errors import BioragError
from biorag.models.finding import STARTER_ENCODER, STARTER_GENERATOR
from biorag.settings.section import STARTER
from biorag.settings.settings import PLACES, Settings
from biorag.utils.cores import usable_cores
from biorag.utils.files import disk_bytes, sha256_of


def info(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of an index; without it all are listed.")] = None,
    qdrant: options.Qdrant = None,
    list_settings: Annotated[bool, typer.Option("--settings", help="List all settings and their values.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show what an index holds and what it was made with, or list the indexes, or the settings.

    Examples:

      biorag info

      biorag info demo --json

      biorag info --settings
    """
    settings = options.configured(ctx)
    if list_settings:
        _show_settings(settings, as_json)
    elif name is None:
        _show_indexes(settings, as_json)
    else:
        _show_index(settings, as_json)


def _show_settings(settings: Settings, as_json: bool) -> None:
    values = settings.flat_json()
    if as_json:
        show.print_json(values)
        return
    rows = [(name, str(values[name]), place.field.description or "") for name, place in PLACES.items()]
    show.table("Settings (biorag.toml, or BIORAG_NAME in the environment)", ["setting", "value", "meaning"], rows)


def _show_indexes(settings: Settings, as_json: bool) -> None:
    from biorag.indexes.manifest import read_manifest
    from biorag.indexes.store import index_names

    found = [read_manifest(settings.indexes / name / "manifest.json") for name in index_names(settings)]
    if as_json:
        show.print_json({"home": str(settings.home), "indexes": [manifest.to_json() for manifest in found]})
    elif found:
        columns = ["name", "snippets", "encoder", "similarity", "store", "updated", "complete"]
        rows = [
            (
                m.name,
                m.snippets,
                m.encoder.id,
                m.similarity,
                m.store.get("url", "edge"),
                m.updated,
                m.complete,
            )
            for m in found
        ]
        show.table(f"Indexes in {settings.indexes}", columns, rows)
    else:
        show.err.print(f"There is no index in {settings.indexes} yet: try 'biorag index demo'.")


def _show_index(settings: Settings, as_json: bool) -> None:
    from biorag.indexes.store import Store

    store = Store(settings)
    manifest = store.require_manifest()
    index = store.open(manifest)
    try:
        values = {**manifest.to_json(), "snippets": index.count(), "bytes": disk_bytes(store.folder)}
    finally:
        index.close()
    if as_json:
        show.print_json(values)
        return
    rows = [(key, value) for key, value in values.items() if key not in ("sources", "encoder", "bm25", "versions")]
    rows += [
        (f"{part}.{key}", value) for part in ("encoder", "bm25", "versions") for key, value in values[part].items()
    ]
    show.table(f"Index {manifest.name}", ["", ""], [(key, str(value)) for key, value in rows])
    sources = [
        (source["name"], source["snippets"], source["bytes"], source["sha256"][:12]) for source in values["sources"]
    ]
    show.table("Sources", ["file", "snippets", "bytes", "sha256"], sources)


def models(ctx: typer.Context, as_json: options.Json = False) -> None:
    """List the models that are on this machine, and how to name others.

    Examples:

      biorag models

      biorag models --json
    """
    found = _starters() + _cached()
    if as_json:
        show.print_json(found)
        return
    show.table(
        "Models on this machine",
        ["name", "role", "where"],
        [(m["name"], m["role"], m["path"]) for m in found],
    )
    show.out.print(
        "--encoder, --reranker: 'starter', a directory, or a Hugging Face id; --reranker cross:ID for a cross-encoder\n"
        "--llm: 'starter', a .gguf path, hf:OWNER/REPO/FILE.gguf, a server's URL, or 'none'"
    )


def _starters() -> list[dict[str, Any]]:
    return [
        {
            "name": f"starter ({model.title})",
            "role": model.role,
            "path": str(model.folder() or "not installed"),
        }
        for model in (STARTER_ENCODER, STARTER_GENERATOR)
    ]


def _cached() -> list[dict[str, Any]]:
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        return []
    return [
        {"name": repo.repo_id, "role": "cached", "path": str(repo.repo_path)}
        for repo in sorted(repos, key=lambda repo: repo.repo_id)
        if repo.repo_type == "model"
    ]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing the doctor looked at."""

    name: str
    ok: bool
    detail: str


def doctor(ctx: typer.Context, as_json: options.Json = False) -> None:
    """Check what is installed, which models are found, and whether a question works from end to end.

    Examples:

      biorag doctor

      biorag doctor --json
    """
    settings = options.configured(ctx)
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
