"""`biorag index`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, Given, expanded
from biorag.engine import encoder_files, snippet_encoders, splitter, token_files
from biorag.errors import BadInputError, UsageError, unknown_name
from biorag.indexes.store import Store, check_settings, similarity_of
from biorag.registries import READERS
from biorag.settings.index import IndexSettings
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.indexes.estimating import Estimate
    from biorag.indexes.surveying import RejectsFile

BAD_LINE = ("stop", "skip")


@expanded
def index(
    corpus: Annotated[
        list[str],
        typer.Argument(help=f"Files or folders of {READERS.names()} (.gz too), 'demo', or - for standard input."),
    ],
    settings: Annotated[
        Settings,
        Flags(IndexSettings, "qdrant"),
        Flags("reranker", panel=None),
        Flags("precision", shows_default=False),
    ],
    given: Given,
    on_bad_line: Annotated[str, typer.Option(help="stop, or skip: go on and write a rejects file.")] = "stop",
    rejects: Annotated[Path | None, typer.Option(help="Rejects file; else rejects.jsonl in the index.")] = None,
    estimate_only: Annotated[
        bool, typer.Option("--estimate", help="Say what time, disk and memory a new index takes; write nothing.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Index a corpus, or bring an index up to date with it.

    What the index holds unchanged is skipped, so a run that was interrupted goes on where it stopped. Of PubMed's
    files the later ones replace and delete what the earlier ones brought; one that went in before changes nothing.

    Examples:

      biorag index demo

      biorag index pubmed/ --name pubmed --on-bad-line skip

      biorag index pubmed/ --name pubmed --store-tokens --token-pooling 2 --estimate

      biorag index baseline/ updatefiles/ --name pubmed --block-tokens 300

      zcat corpus.jsonl.gz | biorag index - --name mine --json
    """
    from biorag.corpus.sources import find_sources
    from biorag.indexes.estimating import estimate
    from biorag.indexes.surveying import RejectsFile, survey
    from biorag.indexes.writing import write_index

    if on_bad_line not in BAD_LINE:
        raise unknown_name("--on-bad-line", on_bad_line, BAD_LINE)
    store = Store(settings)
    manifest = store.manifest()
    if manifest:
        check_settings(manifest, settings)
    files = encoder_files(settings, manifest)
    token_model = token_files(settings, manifest, files)
    if given.first("reranker", "token_pooling") and token_model is None:
        raise UsageError("--reranker and --token-pooling say what --store-tokens stores: give that too")
    if manifest is None and settings.index.similarity is None:
        store = Store(settings := settings.replace(similarity=files.similarity()))
    with tempfile.TemporaryDirectory(prefix="biorag-") as spool:
        sources = find_sources(corpus, Path(spool) / "standard-input")
        place = Path(spool) / "rejects.jsonl" if estimate_only else rejects or store.folder / "rejects.jsonl"
        rejected = RejectsFile(place) if on_bad_line == "skip" else None
        split = splitter(settings, files, manifest)
        with show.progress("Checking", None) as advance:
            found = survey(sources, rejected, advance, split, manifest.sources if manifest else ())
        held = similarity_of(settings, manifest)
        encoders = cache(partial(snippet_encoders, settings, files, token_model, held, manifest))
        if manifest is None:
            manifest = store.new_manifest(encoders().encoder.identity, found.avg_len, encoders().parameters)
        if estimate_only:
            _print_estimate(estimate(manifest, found, encoders(), settings.index.batch_size), as_json)
            _tell(rejected, "not read")
            return
        passed = (lambda _: None) if rejected else None
        with show.progress("Indexing", found.changes) as advance:
            report = write_index(store, manifest, sources, found, encoders, advance, passed, split)
    if as_json:
        show.print_json(asdict(report))
    else:
        show.table(f"Index {report.name}", ["", ""], [(key, value) for key, value in asdict(report).items()])
    _tell(rejected, f"skipped; they are in {place} with their reasons")


def _tell(rejected: RejectsFile | None, what: str) -> None:
    """Say what became of bad lines; a file that could not be read to its end is an error all the same."""
    if rejected and rejected.count:
        show.err.print(f"{rejected.count} bad lines were {what}")
    if rejected and rejected.damaged:
        raise BadInputError(f"what could be read is taken in, but not all could: {'; '.join(rejected.damaged)}")


def _print_estimate(found: Estimate, as_json: bool) -> None:
    if as_json:
        show.print_json(asdict(found))
        return
    rows = [
        ("snippets", f"{found.snippets:,}"),
        ("time", str(timedelta(seconds=round(found.seconds)))),
        ("disk", f"{found.bytes / 1e6:,.0f} MB, twice that while segments are merged"),
        ("bytes a snippet", f"{found.bytes_per_snippet:,}"),
        ("memory", f"{found.memory_bytes / 1e6:,.0f} MB"),
    ]
    show.table(f"Index {found.name}, by a sample of {found.sample}", ["", ""], rows)
