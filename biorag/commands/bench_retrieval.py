"""`biorag bench retrieval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.engine import open_index
from biorag.errors import UsageError
from biorag.settings.settings import Settings
from biorag.utils.files import check_replaceable
from biorag.utils.outputs import is_per_question, is_run

if TYPE_CHECKING:
    from biorag.benchmarks.retrieval import RetrievalResult
    from biorag.corpus.datasets import Dataset

SHOWN = 5
MEANS = {"ours": "{ours:.4f}", "theirs": "{theirs:.4f}", "difference": "{difference:+.4f}"}


@dataclass(frozen=True, slots=True)
class _Judged:
    """The judgements, and another system's run."""

    dataset: Annotated[Path | None, Argument(help="Folder with queries.jsonl and qrels/test.tsv (BEIR layout).")] = None
    run: Annotated[Path | None, Option(help="Score this TREC run file in place of an index.")] = None
    qrels: Annotated[Path | None, Option(help="Judgements for --run without DATASET: BEIR's or TREC's file.")] = None

    def check(self, held_out: bool) -> None:
        """Refuse options that exclude each other."""
        if held_out and not self.dataset:
            raise UsageError("--held-out needs the questions' texts, which --qrels lacks: name the folder of a DATASET")
        if self.dataset and self.qrels:
            raise UsageError("DATASET and --qrels both contain judgements: use one of them")
        if not self.run and not self.dataset:
            raise UsageError("name the folder of a DATASET, or another system's run by --run FILE and --qrels FILE")
        if self.run and not self.dataset and not self.qrels:
            raise UsageError("--run needs judgements: add --qrels FILE or the folder of a DATASET")

    def files(self) -> list[Path | None]:
        """Return the input files."""
        of_dataset = [path for path in self.dataset.rglob("*") if path.is_file()] if self.dataset else []
        return [*of_dataset, self.run, self.qrels]

    def load(self) -> Dataset:
        """Read the questions and their judgements."""
        from biorag.corpus.datasets import load_dataset, load_qrels

        if self.dataset:
            return load_dataset(self.dataset)
        assert self.qrels
        return load_qrels(self.qrels)


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Output files."""

    run_file: Annotated[Path | None, Option(help="Write a TREC run file (top 100).")] = None
    per_question: Annotated[Path | None, Option(help="Write each question's measures as JSONL.")] = None
    force: options.Force = False

    def check(self, inputs: Sequence[Path]) -> None:
        """Refuse folders, inputs, and files that biorag did not write."""
        if self.run_file:
            check_replaceable(self.run_file, "run file", is_run, inputs, self.force)
        if self.per_question:
            check_replaceable(self.per_question, "file of measures", is_per_question, inputs, self.force)

    def write(self, measured: RetrievalResult) -> None:
        """Write the files that are asked for."""
        from biorag.benchmarks.retrieval import write_per_question, write_run

        if self.per_question:
            write_per_question(self.per_question, measured)
        if self.run_file:
            write_run(self.run_file, measured.run)


@expanded
def retrieval(
    judged: _Judged,
    settings: Annotated[
        Settings, options.INDEX, options.RANKING_OF_ALL, Flags("seed"), Flags("train_validation", panel=None)
    ],
    line: CommandLine,
    development: options.Development,
    filters: options.Filters,
    written: _Outputs,
    compare: Annotated[
        Path | None, Option(help="TREC run file of another system: paired bootstrap and permutation test.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Measure retrieval on judged questions: nDCG@10, nDCG@20, MAP@10, MRR@10, success@k, Recall@k.

    success@k, at least one relevant snippet in the top k, is the M+C paper's Recall@k. Run files are read to a depth of
    100, ordered by score; ties keep the order of their ranks.

    Examples:

      biorag bench retrieval data/bioasq --name pubmed
      biorag bench retrieval data/bioasq --mode bm25 --no-rerank --run-file runs/bm25.trec --json
      biorag bench retrieval data/bioasq --compare runs/bm25.trec --held-out
      biorag bench retrieval --run runs/other.trec --qrels data/bioasq/qrels/test.tsv --compare runs/bm25.trec
    """
    from biorag.benchmarks import retrieval as bench

    judged.check(development.part != "all")
    inputs = [*judged.files(), compare, line.configuration, settings.indexes]
    written.check([path for path in inputs if path])
    if judged.run:
        _check_nothing_is_searched(line, filters, written)
    data = development.split(settings, line).select(judged.load())
    if written.run_file:  # before hours of searching
        bench.check_run_ids(id for question, judged_ids in data.qrels.items() for id in (question, *judged_ids))
    other = bench.score_run(data, compare) if compare else None
    if judged.run:
        measured, how = bench.score_run(data, judged.run), {"run": str(judged.run)}
    else:
        measured, how = _measured(settings, data, filters), settings.public()
    written.write(measured)
    report = bench.report(measured, how)
    if other:
        report["comparison"] = {"run": str(compare), **bench.compare(measured, other, settings.seed)}
    show.result(report, as_json, _print)


def _measured(settings: Settings, data: Dataset, filters: options.Filters) -> RetrievalResult:
    from biorag.benchmarks import retrieval as bench

    with open_index(settings) as ready, show.progress("Questions", len(data.questions)) as advance:
        return bench.measure_index(data, ready, filters.conditions, advance)


def _check_nothing_is_searched(line: CommandLine, filters: options.Filters, written: _Outputs) -> None:
    """Refuse options that change how an index is searched or save its results."""
    idle = [flag for flag in line.options if flag not in ("--seed", "--validation")]
    idle += ["--filter"] if filters.where else []
    idle += ["--run-file"] if written.run_file else []
    if idle:
        raise UsageError(f"{', '.join(idle)} has no effect with --run, which scores a file: leave out one or the other")


def _print(report: Mapping[str, Any]) -> None:
    title = f"{report['dataset']}: {report['questions']} questions"
    show.table(title, ["measure", "value"], [(name, f"{value:.4f}") for name, value in report["metrics"].items()])
    from biorag.retrieval.batches import BATCH

    if times := report["timings_ms"]:
        rows = [(stage, *(f"{value:.1f}" for value in values.values())) for stage, values in times.items()]
        show.table(f"Milliseconds a query, of {BATCH} at once", ["stage", "mean", "p50", "p95"], rows)
    if report.get("unanswered"):
        show.err.print(f"Questions without a ranking in the run, which count as zero: {report['unanswered']}")
    if comparison := report.get("comparison"):
        _print_comparison(comparison)


def _print_comparison(comparison: Mapping[str, Any]) -> None:
    tests = [{"measure": name, **test} for name, test in comparison["measures"].items()]
    interval = {"95 % interval": "{low:+.4f} to {high:+.4f}", "p": "{p_value:.4f}"}
    show.listing(f"Against {comparison['run']}", {"measure": "measure", **MEANS, **interval}, tests)
    show.listing("Questions", {name: name for name in ("measure", "wins", "losses", "ties")}, tests)
    _print_furthest("Biggest wins", comparison["wins"])
    _print_furthest("Biggest losses", comparison["losses"])
    if comparison["unanswered"]:
        show.err.print(f"Questions without a ranking in the other run: {comparison['unanswered']}")


def _print_furthest(title: str, listed: Sequence[Mapping[str, Any]]) -> None:
    from biorag.benchmarks.retrieval import LISTED

    if rows := listed[:SHOWN]:
        columns = {"id": "id", "question": "text", **MEANS}
        show.listing(f"{title} by {LISTED}: {len(rows)} of {len(listed)}", columns, rows)
