"""`biorag bench retrieval` and `biorag bench similarity`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.outputs import Writes
from biorag.engine import open_index
from biorag.errors import UsageError
from biorag.retrieval.filters import parse_filters
from biorag.settings.settings import Settings

SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Files:
    """Runs of other systems, and output files."""

    run: Annotated[Path | None, Option(help="Score this TREC run file in place of an index.")] = None
    compare: Annotated[
        Path | None, Option(help="TREC run file of another system: paired bootstrap and permutation test.")
    ] = None
    run_file: Annotated[
        Path | None, Option(help="Write a TREC run file (top 100)."), Writes("run file", ".utils.outputs:is_run")
    ] = None
    per_question: Annotated[
        Path | None,
        Option(help="Write each question's measures as JSONL."),
        Writes("file of measures", ".utils.outputs:is_per_question"),
    ] = None
    force: options.Force = False


@expanded
def retrieval(
    dataset: Annotated[Path, Argument(help="Folder with queries.jsonl and qrels/test.tsv (BEIR layout).")],
    settings: Annotated[Settings, options.INDEX, options.RANKING_OF_ALL, Flags("seed", "train_validation")],
    line: CommandLine,
    development: options.Development,
    files: _Files,
    filter: options.Filters = None,
    plot: options.Plot = None,
    as_json: options.Json = False,
) -> None:
    """Measure retrieval on judged questions: nDCG@10, nDCG@20, MAP@10, MRR@10, success@k, Recall@k.

    success@k, at least one relevant snippet in the top k, is the M+C paper's Recall@k. Run files are read to a depth of
    100, ordered by score; ties keep the order of their ranks.

    Examples:

      biorag bench retrieval data/bioasq --name pubmed
      biorag bench retrieval data/bioasq --mode bm25 --no-rerank --run-file runs/bm25.trec --json
      biorag bench retrieval data/bioasq --compare runs/bm25.trec --held-out
      biorag bench retrieval data/bioasq --run runs/other.trec --compare runs/bm25.trec
    """
    from biorag.benchmarks import retrieval as bench
    from biorag.corpus.datasets import load_dataset
    from biorag.training.contamination import TRAINING, learnt_note

    if files.run:
        _check_nothing_is_searched(line, filter, files)
    whole = load_dataset(dataset)
    data = development.split(settings, line).select(whole)
    if files.run_file:  # before hours of searching
        bench.check_run_ids(id for question, judged_ids in data.qrels.items() for id in (question, *judged_ids))
    other = bench.score_run(data, files.compare) if files.compare else None
    if files.run:
        measured, how = bench.score_run(data, files.run), {"run": str(files.run)}
    else:
        with open_index(settings) as ready, show.progress("Questions", len(data.questions)) as advance:
            measured, how = bench.measure_index(data, ready, parse_filters(filter or ()), advance), settings.public()
            learnt = ready.encoder and development.part != TRAINING and learnt_note(ready.manifest.encoder.id, data)
        if learnt:
            show.err.print(learnt, soft_wrap=True)
    if files.per_question:
        bench.write_per_question(files.per_question, measured)
    if files.run_file:
        bench.write_run(files.run_file, measured.run)
    report = {**bench.report(measured, how), "of": len(whole.questions), "part": development.part}
    if other:
        report["comparison"] = {"run": str(files.compare), **bench.compare(measured, other, settings.seed)}
    show.result(report, as_json, _print)
    show.pictures("retrieval", report, plot)


def _check_nothing_is_searched(line: CommandLine, filter: Sequence[str] | None, files: _Files) -> None:
    """Refuse options that change how an index is searched or save its results."""
    idle = [flag for flag in line.options if flag not in ("--seed", "--validation")]
    idle += ["--filter"] if filter else []
    idle += ["--run-file"] if files.run_file else []
    if idle:
        raise UsageError(f"{', '.join(idle)} has no effect with --run, which scores a file: leave out one or the other")


def _print(report: Mapping[str, Any]) -> None:
    from biorag.retrieval.batches import BATCH

    metrics = [{"measure": name, "value": value} for name, value in report["metrics"].items()]
    columns = {"measure": "measure", "value": "{value:.4f}"}
    selected = "" if report["questions"] == report["of"] else f" of {report['of']}, {report['part']}"
    show.listing(f"{report['dataset']}: {report['questions']} questions{selected}", columns, metrics)
    if times := report["timings_ms"]:
        columns = {"stage": "stage", **{name: f"{{{name}:.1f}}" for name in ("mean", "p50", "p95")}}
        stages = [{"stage": stage, **values} for stage, values in times.items()]
        show.listing(f"Milliseconds a query, of {BATCH} at once", columns, stages)
    if report.get("unanswered"):
        show.err.print(f"Questions without a ranking in the run, which count as zero: {report['unanswered']}")
    if comparison := report.get("comparison"):
        _print_comparison(comparison)


def _print_comparison(comparison: Mapping[str, Any]) -> None:
    from biorag.benchmarks.retrieval import LISTED

    means = {"ours": "{ours:.4f}", "theirs": "{theirs:.4f}", "difference": "{difference:+.4f}"}
    tests = {"95 % interval": "{low:+.4f} to {high:+.4f}", "p": "{p_value:.4f}", "won, lost": "{wins}, {losses}"}
    measures = [{"measure": name, **test} for name, test in comparison["measures"].items()]
    show.listing(f"Against {comparison['run']}", {"measure": "measure", **means, **tests}, measures)
    for which in ("wins", "losses"):
        if rows := comparison[which][:SHOWN]:
            title = f"Biggest {which} by {LISTED}: {len(rows)} of {len(comparison[which])}"
            show.listing(title, {"id": "id", "question": "text", **means}, rows)
    if comparison["unanswered"]:
        show.err.print(f"Questions without a ranking in the other run, which count as zero: {comparison['unanswered']}")


@expanded
def similarity(
    dataset: Annotated[Path, Argument(help="Folder with queries.jsonl and qrels/test.tsv (BEIR layout).")],
    settings: Annotated[Settings, options.INDEX, Flags("seed", "precision")],
    plot: options.Plot = None,
    as_json: options.Json = False,
) -> None:
    """Compare the cosines of questions with relevant snippets to those with others, drawn at random.

    The further apart both are, the better the encoder of the index tells what is relevant.

    Examples:

      biorag bench similarity data/scifact --name scifact
      biorag bench similarity data/scifact --name scifact --plot runs/plots --json
    """
    from biorag.benchmarks.similarity import measure_similarity
    from biorag.corpus.datasets import load_dataset

    data = load_dataset(dataset)
    searching = settings.replace(mode="dense", rerank=False)
    with open_index(searching) as opened, show.progress("Pairs", None) as advance:
        report = measure_similarity(data, opened.index, opened.load_encoder(), settings.seed, advance)
    show.result(report, as_json, _print_similarity)
    show.pictures("similarity", report, plot)


def _print_similarity(report: Mapping[str, Any]) -> None:
    columns = {"pair": "pair", "pairs": "pairs", **{name: f"{{{name}:.3f}}" for name in ("mean", "std", "p5", "p95")}}
    rows = [{"pair": kind, **report[kind]} for kind in ("positive", "negative")]
    show.listing(f"{report['dataset']}: cosines", columns, rows)
    show.err.print(f"Apart by {report['separation']:.3f}; a relevant one is larger in {report['auc']:.1%} of all pairs")
