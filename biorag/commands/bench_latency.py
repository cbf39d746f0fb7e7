"""`biorag bench latency`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.outputs import Writes
from biorag.errors import UsageError
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.utils.files import write_json

if TYPE_CHECKING:
    from biorag.benchmarks.latency.run import LatencyRequest

NAME = "latency.json"
REPORT = Writes("report", ".benchmarks.latency.run:is_report", is_folder=True, names=(NAME,))
WARM_UP = 3  # untimed calls before the timed ones


@dataclass(frozen=True, slots=True)
class _Timed:
    """Questions, batches and repetitions."""

    questions: Annotated[
        Path | None, Option(help="Questions (BEIR layout). Default: titles of the index's snippets.")
    ] = None
    limit: Annotated[int | None, Option(min=2, help="Maximum number of questions; of snippets: --index-limit.")] = None
    index_limit: Annotated[
        int, Option(min=1, help="Maximum number of snippets to encode and index again, drawn with --seed.")
    ] = 2000
    batch_sizes: Annotated[str, Option(help="Batch sizes for encoding and searching questions.")] = "1,10,2000"
    repetitions: Annotated[int, Option(min=1, help="Calls timed for each figure.")] = 100
    seconds: Annotated[float, Option(min=0, help="Seconds to time a figure for; at least three calls.")] = 20.0
    exact: Annotated[
        bool, Option("--exact", help="Also time encoding with an exact dense search, which compares with all vectors.")
    ] = False
    baseline: Annotated[
        bool, Option("--baseline", help="Also time rank_bm25, and colbert-ai where --reranker is a ColBERT checkpoint.")
    ] = False

    def request(self) -> LatencyRequest:
        """Return the request; UsageError for batch sizes that are not numbers."""
        from biorag.benchmarks.latency.run import LatencyRequest
        from biorag.benchmarks.latency.stages import Repetition

        repetition = Repetition(self.repetitions, WARM_UP, self.seconds)
        sizes = _batch_sizes(self.batch_sizes)
        return LatencyRequest(
            self.questions, self.limit, self.index_limit, sizes, repetition, self.exact, self.baseline
        )


@expanded
def latency(
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "include_retracted", "interpolation", "cross_interpolation")),
        Flags("llm", "llm_model", "max_tokens", "precision", "seed"),
    ],
    measured: _Timed,
    line: CommandLine,
    out: Annotated[Path | None, Option(help="Folder for latency.json."), REPORT] = None,
    plot: options.Plot = None,
    as_json: options.Json = False,
) -> None:
    """Measure each stage on this machine: indexing, encoding, search, reranking, generation, memory.

    Stages are timed alone and, with --mode, together; the first stage is timed in all modes.

    Examples:

      biorag bench latency --name pubmed --questions data/bioasq --out runs/latency
      biorag bench latency --name pubmed --llm starter --json
    """
    from biorag.benchmarks.latency.run import measure_latency

    request = measured.request()
    llm = line.value("llm") or "none"  # a generator takes long, so that one of the settings file is not timed
    report = measure_latency(settings.replace(llm=llm, cache=False), request, show.progress)
    if out:
        write_json(out / NAME, report)
    show.result(report, as_json, _print)
    show.pictures("latency", report, plot)
    if out:
        show.err.print(f"{NAME}: {out}")


def _print(report: Mapping[str, Any]) -> None:
    from biorag.benchmarks.latency.run import tables

    for table in tables(report):
        show.table(*table)


def _batch_sizes(text: str) -> list[int]:
    """Return the whole numbers above 0 of a comma-separated list, each once."""
    sizes = [size.strip() for size in text.split(",") if size.strip()]
    if not sizes or not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise UsageError(f"--batch-sizes {text!r} is not a list of whole numbers above 0: write for example 1,10,2000")
    return list(dict.fromkeys(map(int, sizes)))
