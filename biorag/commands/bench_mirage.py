"""`biorag bench mirage` and `biorag bench show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded, overridden
from biorag.commands.outputs import FOLDER, Writes
from biorag.corpus.sources import DEMO, demo_file
from biorag.engine import load_checker, open_index
from biorag.errors import UsageError, check_name
from biorag.generators.source import require_generator
from biorag.retrieval.filters import parse_filters
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.section import RETRIEVAL
from biorag.settings.settings import Settings
from biorag.types import Question, Where
from biorag.utils.files import write_text

NO_RETRIEVAL = "none"
COLUMNS = {
    "task": "task",
    "n": "n",
    "accuracy": "{accuracy:.4f}",
    "chance": "{chance:.4f}",
    "95 %": "{interval[0]:.3f} to {interval[1]:.3f}",
    "letters": "shares",
    "strict accuracy": "{strict_accuracy:.4f}",
    "parsed": "{parsed:.1%}",
    "forced A": "forced_A",
}
OF_FREE_REPLIES = {"retries": "retries", "malformed": "malformed"}  # columns where replies were retried


@dataclass(frozen=True, slots=True)
class QuestionChoice:
    """Which questions to ask."""

    benchmark: Annotated[Path, Option(help="MIRAGE's benchmark.json, or 'demo'.")]
    task: Annotated[list[str] | None, Option(help="Only this task. Repeatable.")] = None
    limit: Annotated[int | None, Option(min=1, help="Questions of each task, not of all; drawn with --seed.")] = None

    def questions(self, seed: int) -> Mapping[str, Sequence[Question]]:
        """Return the questions of each task."""
        from biorag.benchmarks.mirage import questions

        is_demo = str(self.benchmark) == DEMO and not self.benchmark.exists()
        path = demo_file("benchmark.json") if is_demo else self.benchmark
        return questions.select(questions.load_benchmark(path), self.task or (), self.limit, seed)


@dataclass(frozen=True, slots=True)
class HowAnswered:
    """How the questions are answered, and which run to compare with."""

    answer: Annotated[
        str,
        Option(help="generate (JSON reply), score (compare log-likelihoods), or evidence (no language model)."),
    ] = "generate"
    mode: Annotated[
        str | None, Option(help="none (closed book), bm25, dense or hybrid.", rich_help_panel=RETRIEVAL)
    ] = None
    exclude_source: Annotated[
        bool, Option("--exclude-source", help="Exclude the records that a question was made from.")
    ] = False
    compare: Annotated[
        Path | None, Option(help="Output folder of another run: paired bootstrap and permutation test.")
    ] = None

    def check(self) -> None:
        """Refuse what does not go together."""
        from biorag.answering.answerer import METHODS, WITHOUT_GENERATOR

        check_name("way to answer", self.answer, METHODS)
        if self.answer in WITHOUT_GENERATOR and self.mode == NO_RETRIEVAL:
            raise UsageError(f"--answer {self.answer} answers from the evidence: leave --mode none out")


@expanded
def mirage(
    asked: QuestionChoice,
    out: Annotated[Path, Option(help="Folder for result files and report.json; an interrupted run resumes."), FOLDER],
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "mode")),
        options.GENERATOR,
        options.READER,
        Flags("max_tokens", "json_mode", "prompt", "concurrency", "seed"),
    ],
    how: HowAnswered,
    filter: options.Filters = None,
    plot: options.Plot = None,
    as_json: options.Json = False,
) -> None:
    """Answer MIRAGE's questions, zero-shot, and score them as MIRAGE's own script does.

    Result files are in MIRAGE's layout, so its evaluate.py gives the same accuracy on whole tasks.

    Examples:

      biorag bench mirage --benchmark benchmark.json --limit 20 --out runs/hybrid
      biorag bench mirage --benchmark benchmark.json --mode none --answer score --out runs/closed-book
      biorag bench mirage --benchmark benchmark.json --limit 20 --answer evidence --out runs/evidence
    """
    how.check()
    mode = None if how.mode == NO_RETRIEVAL else how.mode
    settings = overridden(settings, mode=mode, llm=settings.generation.generator)
    report = _answered(asked, out, settings, parse_filters(filter or ()), how)
    show.result(report, as_json, _print)
    show.pictures("mirage", report, plot)


def _answered(asked: QuestionChoice, out: Path, settings: Settings, where: Where, how: HowAnswered) -> dict[str, Any]:
    from biorag.answering.answerer import SCORE, WITHOUT_GENERATOR, Answerer
    from biorag.benchmarks.mirage import run
    from biorag.benchmarks.mirage.questions import described

    chosen = asked.questions(settings.seed)
    show.err.print(described(chosen), soft_wrap=True)
    others = run.score_finished(chosen, how.compare) if how.compare else None
    total = sum(len(questions) for questions in chosen.values())
    with nullcontext(None) if how.mode == NO_RETRIEVAL else open_index(settings) as opened:
        generator = None
        if how.answer not in WITHOUT_GENERATOR:
            generator = require_generator(settings, settings.generation.concurrency)
        where = opened.checked(where) if opened else where
        checker = load_checker(settings, opened.load_encoder if opened else None)
        judge = checker.identity() if opened and how.answer != SCORE else None  # what is not judged needs none
        method = run.MirageMethod(how.answer, how.exclude_source, where, judge)
        planned = run.plan_run(settings, opened, generator, out, method)
        answerer = opened.answerer(generator, checker) if opened else Answerer(None, generator, settings)
        with show.progress("Questions", total) as advance:
            work = run.answer_all(chosen, answerer, planned, advance)
    shown = {**settings.public(), "mode": how.mode or settings.retrieval.mode}
    return run.write_report(chosen, planned, shown, work, others)


def _print(report: Mapping[str, Any]) -> None:
    scores = [{"task": task, **score, "shares": _shares(score)} for task, score in report["tasks"].items()]
    columns = COLUMNS | OF_FREE_REPLIES if any(score["retries"] for score in scores) else COLUMNS
    title = f"MIRAGE, average accuracy {report['average']:.4f}, of guessing {report['chance']:.4f}"
    show.listing(title, columns, scores)
    work = report["manifest"]
    counts = f"{work['answered']} answered now, {work['resumed']} before, {work['cached']} of them from the cache"
    show.err.print(f"{counts}; seconds: {work['seconds']}")
    if comparison := report.get("comparison"):
        test = "{difference:+.4f} (95 % interval {low:+.4f} to {high:+.4f}, p = {p_value:.3f})".format_map(comparison)
        show.out.print(f"Against the other run: {test}")


def _shares(score: Mapping[str, Any]) -> str:
    return ", ".join(f"{letter} {count / score['n']:.0%}" for letter, count in score["letters"].items())


@expanded
def show_run(
    run: Annotated[Path, Argument(help="Output folder of 'biorag bench mirage', or its questions.jsonl.")],
    task: Annotated[list[str] | None, Option(help="Only this task. Repeatable.")] = None,
    wrong: Annotated[bool, Option("--wrong", help="Only questions answered wrong.")] = False,
    html: Annotated[
        Path | None,
        Option(help="Write one page with filters and search, to open offline."),
        Writes("page", ".benchmarks.mirage.page:is_page"),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """List the questions of a run; as a page or JSON with their options, evidence, replies and verdicts.

    Examples:

      biorag bench show runs/hybrid --wrong
      biorag bench show runs/hybrid --html hybrid.html
      biorag bench show runs/hybrid --task bioasq --json
    """
    from biorag.benchmarks.mirage.page import html_page
    from biorag.benchmarks.mirage.records import chosen_rows, counts, read_questions

    asked = chosen_rows(read_questions(run), task or ())
    rows = [row for row in asked if not (wrong and row["right"])]
    if html:
        write_text(html, html_page(f"Questions of {run}", rows))
    if as_json:
        show.print_json({"run": str(run), "tasks": counts(rows), "questions": rows})
    elif html:
        show.err.print(f"{len(rows)} questions are in {html}", soft_wrap=True)
    else:
        shown = [(row["task"], row["id"], row["choice"] or "none", row["gold"], row["question"]) for row in rows]
        heading = f"{sum(row['right'] for row in asked)} of {len(asked)} right" + f"; shown: {len(rows)} wrong" * wrong
        show.table(heading, ["task", "id", "answered", "right is", "question"], shown)
        show.err.print("evidence, replies and verdicts: --html FILE, or --json")
