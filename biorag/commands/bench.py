"""`biorag bench`: measure retrieval and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.engine import open_index, require_generator
from biorag.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from biorag.benchmarks.retrieval import Comparison, Measured
    from biorag.corpus.datasets import Dataset

app = typer.Typer(no_args_is_help=True, help="Measure retrieval and answers.")

NO_RETRIEVAL = "none"
SHOWN = 5
# Parameters of `bench retrieval` that say how an index is searched, or keep what was found.
OF_AN_INDEX = (
    "name",
    "mode",
    "fusion",
    "lambda_",
    "rerank",
    "reranker",
    "interpolation",
    "cross_interpolation",
    "k_init",
    "where",
    "encoder",
    "qdrant",
    "run_file",
)


@app.command()
def retrieval(
    ctx: typer.Context,
    dataset: Annotated[
        Path | None, typer.Argument(help="Folder with queries.jsonl and qrels/test.tsv (BEIR layout).")
    ] = None,
    held_out: options.HeldOutPart = False,
    guard: options.PartGuards = None,
    train_validation: options.PartValidation = None,
    name: options.Name = None,
    mode: options.Mode = None,
    fusion: options.Fusion = None,
    lambda_: options.Lambda = None,
    rerank: options.Rerank = None,
    reranker: options.Reranker = None,
    interpolation: options.Interpolation = None,
    cross_interpolation: options.CrossInterpolation = None,
    k_init: options.KInit = None,
    where: options.Where = None,
    encoder: options.Encoder = None,
    qdrant: options.Qdrant = None,
    run: Annotated[Path | None, typer.Option(help="Score this TREC run file in place of an index.")] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Judgements for --run without DATASET: BEIR's tab-separated file or TREC's.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="TREC run file of another system: paired bootstrap and permutation test.")
    ] = None,
    seed: options.Seed = None,
    run_file: Annotated[Path | None, typer.Option(help="Write a TREC run file (top 100).")] = None,
    per_question: Annotated[Path | None, typer.Option(help="Write each question's measures as JSONL.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure retrieval on judged questions: nDCG@10, MAP@10, MRR@10, success@k, Recall@k.

    success@k, at least one relevant snippet in the top k, is what the M+C paper calls Recall@k.
    Run files are read to a depth of 100, in the order of their scores; equal scores in that of their ranks.

    Examples:

      biorag bench retrieval data/bioasq --name pubmed

      biorag bench retrieval data/bioasq --mode bm25 --no-rerank --run-file runs/bm25.trec --json

      biorag bench retrieval data/bioasq --compare runs/bm25.trec --held-out

      biorag bench retrieval --run runs/other.trec --qrels data/bioasq/qrels/test.tsv --compare runs/bm25.trec
    """
    from biorag.benchmarks import retrieval as bench

    _check_retrieval(ctx)
    settings = options.configured(ctx)
    data = _judged(dataset, qrels)
    part = options.question_part(held_out)
    data = options.held_out_split(settings, part, guard, train_validation, "--held-out").select(data)
    other = bench.score_run(data, compare) if compare else None
    if run:
        measured, how = bench.score_run(data, run), {"run": str(run)}
    else:
        with open_index(settings) as ready, show.progress("Questions", len(data.questions)) as advance:
            measured = bench.measure(data, ready.retriever, options.conditions(where, None), advance)
        how = settings.public()
    if run_file:
        bench.write_run(run_file, measured.run)
    if per_question:
        bench.write_per_question(per_question, measured)
    report = _retrieval_report(measured, how)
    if other:
        found = bench.compare(measured, other, settings.seed)
        report["comparison"] = {"run": str(compare), "seed": settings.seed, **_comparison_json(measured, other, found)}
    if as_json:
        show.print_json(report)
    else:
        _print_retrieval(report)


def _check_retrieval(ctx: typer.Context) -> None:
    """Refuse options of `bench retrieval` that do not go together, and files that cannot be written."""
    given = ctx.params
    for path in (given["run_file"], given["per_question"]):
        if path and path.is_dir():
            raise UsageError(f"{path} is a folder: name a file to write")
    if given["dataset"] and given["qrels"]:
        raise UsageError("DATASET and --qrels both give judgements: leave one of them out")
    if given["held_out"] and not given["dataset"]:
        raise UsageError("--held-out goes by the questions' texts, which judgements lack: give the folder of a DATASET")
    if not given["run"]:
        if not given["dataset"]:
            raise UsageError("give the folder of a DATASET, or --run FILE with --qrels FILE for another system's run")
        return
    if not given["dataset"] and not given["qrels"]:
        raise UsageError("--run needs judgements: give --qrels FILE or the folder of a DATASET")
    idle = [
        max(parameter.opts, key=len)
        for parameter in ctx.command.params
        if parameter.name in OF_AN_INDEX and given[parameter.name] not in (None, [], ())
    ]
    if idle:
        raise UsageError(f"--run scores a file, which {', '.join(idle)} cannot change: leave out one or the other")


def _judged(folder: Path | None, qrels: Path | None) -> Dataset:
    from biorag.corpus.datasets import load_dataset, load_qrels

    if folder:
        return load_dataset(folder)
    assert qrels, "checked before"
    return load_qrels(qrels)


def _retrieval_report(measured: Measured, how: Mapping[str, Any]) -> dict[str, Any]:
    report = {
        "dataset": measured.dataset.name,
        "questions": len(measured.dataset.questions),
        "config": dict(how),
        "metrics": _rounded(measured.metrics),
        "timings_ms": dict(measured.timings_ms),
    }
    return {**report, "unanswered": measured.unanswered} if "run" in how else report


def _comparison_json(ours: Measured, theirs: Measured, found: Comparison) -> dict[str, Any]:
    means = {name: {"ours": ours.metrics[name], "theirs": theirs.metrics[name]} for name in found.measures}
    return {
        "unanswered": theirs.unanswered,
        "measures": {name: _rounded({**means[name], **asdict(paired)}) for name, paired in found.measures.items()},
        "wins": [_rounded(asdict(row)) for row in found.wins],
        "losses": [_rounded(asdict(row)) for row in found.losses],
    }


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in values.items()}


def _print_retrieval(report: Mapping[str, Any]) -> None:
    title = f"{report['dataset']}: {report['questions']} questions"
    show.table(title, ["measure", "value"], [(name, f"{value:.4f}") for name, value in report["metrics"].items()])
    from biorag.retrieval.batches import BATCH

    if times := report["timings_ms"]:
        rows = [(stage, *(f"{value:.1f}" for value in found.values())) for stage, found in times.items()]
        show.table(f"Milliseconds a query, of {BATCH} at once", ["stage", "mean", "p50", "p95"], rows)
    if report.get("unanswered"):
        show.err.print(f"Questions without a ranking in the run, which count as zero: {report['unanswered']}")
    if comparison := report.get("comparison"):
        _print_comparison(comparison)


def _print_comparison(comparison: Mapping[str, Any]) -> None:
    measures = comparison["measures"]
    means = [
        (
            name,
            *(f"{found[key]:.4f}" for key in ("ours", "theirs")),
            f"{found['difference']:+.4f}",
            f"{found['low']:+.4f} to {found['high']:+.4f}",
            f"{found['p_value']:.4f}",
        )
        for name, found in measures.items()
    ]
    title = f"Against {comparison['run']}"
    show.table(title, ["measure", "ours", "theirs", "difference", "95 % interval", "p"], means)
    counts = ["wins", "losses", "ties"]
    rows = [(name, *(found[count] for count in counts)) for name, found in measures.items()]
    show.table("Questions", ["measure", *counts], rows)
    _print_furthest("Biggest wins", comparison["wins"])
    _print_furthest("Biggest losses", comparison["losses"])
    if comparison["unanswered"]:
        show.err.print(f"Questions without a ranking in the other run: {comparison['unanswered']}")


def _print_furthest(title: str, listed: Sequence[Mapping[str, Any]]) -> None:
    """Print the first questions of a list of wins or losses, if there are any."""
    from biorag.benchmarks.retrieval import LISTED

    rows = [
        (row["id"], row["text"], f"{row['ours']:.4f}", f"{row['theirs']:.4f}", f"{row['difference']:+.4f}")
        for row in listed[:SHOWN]
    ]
    if rows:
        columns = ["id", "question", "ours", "theirs", "difference"]
        show.table(f"{title} by {LISTED}: {len(rows)} of {len(listed)}", columns, rows)


@app.command()
def mirage(
    ctx: typer.Context,
    benchmark: Annotated[Path, typer.Option(help="MIRAGE's benchmark.json, or 'demo'.")],
    out: Annotated[Path, typer.Option(help="Folder of result files and report.json; an interrupted run resumes.")],
    name: options.Name = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task. Repeatable.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Questions of each task, drawn with --seed.")] = None,
    seed: options.Seed = None,
    answer: Annotated[
        str, typer.Option(help="generate (JSON reply), or score (compare log-likelihoods).")
    ] = "generate",
    mode: Annotated[
        str | None,
        typer.Option(help="none (closed book), bm25, dense or hybrid.", rich_help_panel=options.RETRIEVAL),
    ] = None,
    exclude_source: Annotated[
        bool, typer.Option("--exclude-source", help="Leave out the records a question was made from.")
    ] = False,
    compare: Annotated[Path | None, typer.Option(help="Output folder of another run: paired bootstrap.")] = None,
    fusion: options.Fusion = None,
    lambda_: options.Lambda = None,
    rerank: options.Rerank = None,
    reranker: options.Reranker = None,
    interpolation: options.Interpolation = None,
    cross_interpolation: options.CrossInterpolation = None,
    k_init: options.KInit = None,
    k: options.K = None,
    where: options.Where = None,
    include_retracted: options.IncludeRetracted = None,
    llm: options.Llm = None,
    llm_model: options.LlmModel = None,
    max_tokens: options.MaxTokens = None,
    prompt: options.PromptFile = None,
    concurrency: Annotated[
        int | None,
        options.option(
            "concurrency",
            "--concurrency",
            help="Questions that a server is asked at a time; a model in this process answers one.",
            panel=options.GENERATION,
        ),
    ] = None,
    cache: options.Cache = None,
    encoder: options.Encoder = None,
    qdrant: options.Qdrant = None,
    as_json: options.Json = False,
) -> None:
    """Answer MIRAGE's questions, zero-shot, and score them as MIRAGE's own script does.

    Result files are in MIRAGE's layout, so its evaluate.py gives the same accuracy on whole tasks.

    Examples:

      biorag bench mirage --benchmark benchmark.json --limit 20 --out runs/hybrid

      biorag bench mirage --benchmark benchmark.json --mode none --answer score --out runs/closed-book
    """
    from biorag.answering.answerer import METHODS, Answerer
    from biorag.benchmarks.mirage import questions, run
    from biorag.corpus.sources import DEMO, demo_file

    if answer not in METHODS:
        raise unknown_name("way to answer", answer, METHODS)
    settings = options.configured(ctx, mode=None if mode == NO_RETRIEVAL else mode)
    path = demo_file("benchmark.json") if str(benchmark) == DEMO and not benchmark.exists() else benchmark
    chosen = questions.select(questions.load_benchmark(path), task or (), limit, settings.seed)
    others = run.score_finished(chosen, compare) if compare else None
    total = sum(len(asked) for asked in chosen.values())
    with nullcontext(None) if mode == NO_RETRIEVAL else open_index(settings) as opened:
        generator = require_generator(settings, settings.generation.concurrency)
        asking = run.Asking(answer, exclude_source, options.conditions(where, None))
        plan = run.plan_run(settings, opened, generator, out, asking)
        answerer = opened.answerer(generator) if opened else Answerer(None, generator, settings)
        with show.progress("Questions", total) as advance:
            work = run.answer_all(chosen, answerer, plan, advance)
    shown = {**settings.public(), "mode": mode or settings.retrieval.mode}
    report, scorings = run.full_report(chosen, plan, shown, work)
    if others:
        report["comparison"] = asdict(run.compare(scorings, others, settings.seed))
    run.write_report(out, report)
    if as_json:
        show.print_json(report)
    else:
        _print_mirage(report)


def _print_mirage(report: Mapping[str, Any]) -> None:
    columns = ["task", "n", "accuracy", "± std", "strict accuracy", "parsed", "forced A"]
    rows = [
        (
            task,
            score["n"],
            f"{score['accuracy']:.4f}",
            f"{score['std']:.4f}",
            f"{score['strict_accuracy']:.4f}",
            f"{score['parsed']:.1%}",
            score["forced_A"],
        )
        for task, score in report["tasks"].items()
    ]
    show.table(f"MIRAGE, average accuracy {report['average']:.4f}", columns, rows)
    work = report["manifest"]
    counts = f"{work['answered']} answered now, {work['resumed']} before, {work['cached']} of them from the cache"
    show.err.print(f"{counts}; seconds: {work['seconds']}")
    if comparison := report.get("comparison"):
        show.out.print(
            f"Against the other run: {comparison['difference']:+.4f} "
            f"(95 % interval {comparison['low']:+.4f} to {comparison['high']:+.4f}, p = {comparison['p_value']:.3f})"
        )
