"""`biorag bench latency`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.errors import UsageError
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.utils.files import write_json
from biorag.utils.outputs import begins_with_key, is_plot, results_folder

UNFINISHED = "latency.unfinished.json"  # what a run has measured so far


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is measured, and on what."""

    questions: Annotated[
        Path | None, typer.Option(help="Folder of questions (BEIR layout); by default titles of the index's snippets.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=2, help="Maximum number of questions.")] = None
    index_limit: Annotated[
        int, typer.Option(min=1, help="Snippets to index again, drawn from the index with --seed.")
    ] = 2000
    batch_sizes: Annotated[str, typer.Option(help="Batch sizes for encoding and searching questions.")] = "1,10,2000"
    baseline: Annotated[
        str | None, typer.Option(help="Compare with: rank_bm25, bm25s, sentence-transformers, qdrant-local.")
    ] = None
    peer_limit: Annotated[
        int, typer.Option(min=0, help="Maximum number of snippets for rank_bm25 and qdrant-local.")
    ] = 100_000
    sizes: Annotated[str | None, typer.Option(help="Index sizes, in synthetic snippets, to measure growth at.")] = None
    quantize: Annotated[bool, typer.Option("--quantize", help="Growth: measure an index with int8 vectors too.")] = (
        False
    )

    encoded: Annotated[
        int, typer.Option(min=2, help="Growth: synthetic snippets that are encoded; the others' vectors are drawn.")
    ] = 40_000
    vectors_alone: Annotated[
        bool, typer.Option("--vectors-alone", help="Growth: snippets without texts, and dense search alone.")
    ] = False

    @property
    def baselines(self) -> list[str]:
        """The names of the packages to compare with."""
        return [part.strip() for part in (self.baseline or "").split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class Repetition:
    """How often a call is timed."""

    repetitions: Annotated[int, typer.Option(min=1, help="Calls timed for each figure.")] = 100
    warm_up: Annotated[int, typer.Option(min=0, help="Untimed calls before the timed ones.")] = 3
    seconds: Annotated[
        float, typer.Option(min=0, help="Stop timing a figure after this many seconds (but at least three calls).")
    ] = 20.0


@expanded
def latency(
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "include_retracted", "interpolation", "cross_interpolation")),
        Flags("llm", defaults={"llm": "none"}),
        Flags("llm_model", "max_tokens", "precision", "seed"),
    ],
    wanted: Wanted,
    repetition: Repetition,
    out: Annotated[Path | None, typer.Option(help="Folder for latency.json and plots.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure what each stage takes on this machine: indexing, encoding, search, reranking, generation, memory.

    Whole: all stages of --mode together; the first stage is measured in all modes. Baselines run in the same process
    on the same data, interleaved with biorag. Growth is measured on synthetic snippets in TMPDIR; until it is at
    its end, --out has what is measured so far in latency.unfinished.json.

    Examples:

      biorag bench latency --name pubmed --questions data/bioasq --out runs/latency

      biorag bench latency --name pubmed --llm starter --json

      biorag bench latency --baseline rank_bm25,bm25s,sentence-transformers,qdrant-local

      biorag bench latency --sizes 1000,10000,100000,1000000 --quantize --baseline bm25s --out runs/growth

      biorag bench latency --sizes 3000000,10000000 --vectors-alone --out runs/vectors
    """
    from biorag.benchmarks.latency.baselines import Terms
    from biorag.benchmarks.latency.peers import require_peers
    from biorag.benchmarks.latency.report import facts, tables, write_report
    from biorag.benchmarks.latency.run import LatencyRequest, measure_latency
    from biorag.benchmarks.latency.timing import Effort

    request = LatencyRequest(
        questions=wanted.questions,
        limit=wanted.limit,
        index_limit=wanted.index_limit,
        batch_sizes=_numbers("--batch-sizes", wanted.batch_sizes),
        sizes=sorted(_numbers("--sizes", wanted.sizes)) if wanted.sizes else [],
        quantize=wanted.quantize,
        encoded=wanted.encoded,
        texts=not wanted.vectors_alone,
        terms=Terms(
            wanted.baselines,
            Effort(repetition.repetitions, repetition.warm_up, repetition.seconds),
            wanted.peer_limit,
        ),
    )
    require_peers(wanted.baselines)
    with _held(out):
        for report in measure_latency(settings.replace(cache=False), request, show.progress):
            if out:
                write_json(out / UNFINISHED, report.to_json())
        if out:
            write_report(out, report)
            (out / UNFINISHED).unlink()
    if report.settings["growth"]:
        show.err.print(report.settings["growth"], soft_wrap=True)
    if as_json:
        show.print_json(report.to_json())
        return
    for line in facts(report):
        show.out.print(line, soft_wrap=True)
    for table in tables(report):
        show.table(table.title, table.columns, table.rows)
    if out:
        show.err.print(f"latency.json and plots: {out}")


def _held(out: Path | None) -> AbstractContextManager[None]:
    """Hold the results folder, if there is to be one, and check that plots can be drawn, before hours of measuring."""
    from biorag.utils.plots import require_matplotlib

    if out is None:
        return nullcontext()
    require_matplotlib()
    plots = dict.fromkeys(("latency.png", "growth.png"), is_plot)
    reports = dict.fromkeys(("latency.json", UNFINISHED), begins_with_key("machine"))
    return results_folder(out, {**reports, **plots})


def _numbers(option: str, text: str) -> list[int]:
    """Return the whole numbers above 0 of a list with commas, each once."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} {text!r} is not a list of whole numbers above 0: write for example 1,10,2000")
    return list(dict.fromkeys(map(int, parts)))
