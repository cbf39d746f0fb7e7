"""`biorag bench bioasq`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.completion import choices
from biorag.commands.examining import Answering, print_report
from biorag.commands.groups import Flags, expanded
from biorag.engine import open_index
from biorag.errors import UsageError, unknown_name
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.utils.outputs import begins_with_key, results_folder

PHASES = ("a", "b")


@expanded
def bioasq(
    golden: Annotated[list[Path], typer.Argument(help="Golden files of test batches, JSON, plain or gzipped.")],
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "include_retracted", "mode", "rerank", "k")),
        options.GENERATOR,
        Flags("max_tokens", "seed"),
    ],
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="bm25, dense, hybrid, hybrid+rerank, all four by default; or hybrid+cross, a cross-encoder alone over "
            "the best 10. Repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the submissions or answers, and report.json.")] = None,
    phase: Annotated[
        str, typer.Option(help="a: documents and snippets; b: exact and ideal answers.", **choices(PHASES))
    ] = "a",
    answer: Answering = "extract",
    whole_records: Annotated[
        bool,
        typer.Option(
            "--whole-records",
            help="The index's texts are whole titles and abstracts, so offsets are known; implied by PubMed's XML.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Measure retrieval, or answers, on BioASQ's test batches, as BioASQ's evaluator does (task B, phases A and B).

    Phase A: documents are PubMed records, compared by PMID: MAP@10, GMAP, mean precision, recall and F1. Phase B: what
    'bench answers' measures, answered from what this index finds, not from the golden snippets.

    Examples:

      biorag bench bioasq 8B1_golden.json 8B2_golden.json --name pubmed

      biorag bench bioasq golden/8B1_golden.json.gz --system hybrid --system hybrid+rerank --out runs/bioasq --json

      biorag bench bioasq 8B1_golden.json --system hybrid --system hybrid+cross --reranker cross:models/cross-encoder

      biorag bench bioasq 8B1_golden.json --phase b --answer extract --name pubmed --out runs/phase-b
    """
    if phase not in PHASES:
        raise unknown_name("phase", phase, PHASES)
    if phase == "b":
        _answers(golden, settings, answer, out, as_json)
        return
    from biorag.benchmarks.bioasq.golden import read_batches
    from biorag.benchmarks.bioasq.run import answer as answered
    from biorag.benchmarks.bioasq.run import check_coverage, chosen_systems, coverage, report, settings_of
    from biorag.benchmarks.bioasq.submission import write_submission
    from biorag.utils.files import write_json

    systems = chosen_systems(system or ())
    batches = read_batches(golden)
    changes = {each: settings_of(each, settings.retrieval) for each in systems}
    rerank = any(change["rerank"] for change in changes.values())
    modes = {change["mode"] for change in changes.values()}
    settings = settings.replace(rerank=rerank, mode="bm25" if modes == {"bm25"} else "hybrid")
    questions = sum(len(batch.questions) for batch in batches)
    runs = []
    written = {f"{each}/{batch.name}.json": begins_with_key("questions") for each in systems for batch in batches}
    with (
        _held(out, {"report.json": begins_with_key("index"), **written}, golden),
        open_index(settings) as ready,
        show.progress("Questions", questions * len(systems)) as advance,
    ):
        covered = coverage(batches, ready)
        check_coverage(covered, ready)
        retriever = ready.retriever.with_cache()
        for each in systems:
            runs.append(answered(each, batches, retriever.variant(**changes[each]), whole_records, advance))
            if out:
                for batch in batches:
                    write_submission(out / each / f"{batch.name}.json", batch, runs[-1].responses[batch.name])
        index = ready.fingerprint()
    determining = {key: value for key, value in settings.public().items() if key not in ("mode", "rerank")}
    found = {
        "index": index,
        "questions": questions,
        "coverage": covered,
        "config": determining,
        **report(batches, runs, settings.seed),
    }
    if out:
        write_json(out / "report.json", found)
    if as_json:
        show.print_json(found)
    else:
        _print(found)


def _held(
    out: Path | None, files: Mapping[str, Callable[[bytes], bool]], golden: Sequence[Path]
) -> AbstractContextManager[None]:
    """Hold the results folder, if there is to be one."""
    return results_folder(out, files, golden) if out else nullcontext()


def _answers(golden: Sequence[Path], settings: Settings, answer: str, out: Path | None, as_json: bool) -> None:
    """Measure phase B, batch by batch."""
    from biorag.benchmarks.answers.questions import read_golden_answers
    from biorag.benchmarks.answers.run import examine
    from biorag.benchmarks.answers.systems import check_method
    from biorag.utils.files import write_json

    check_method(answer)
    if out is None:
        raise UsageError("--phase b keeps the answers, so that an interrupted run resumes: give --out FOLDER")
    batches = read_golden_answers(golden)
    questions = sum(len(batch.questions) for batch in batches)
    with (
        _held(out, {"report.json": begins_with_key("phase")}, golden),
        open_index(settings) as ready,
        show.progress("Questions", questions) as advance,
    ):
        reports = [examine(batch, ready, answer, out / batch.name, advance) for batch in batches]
        found = {"phase": "b", "batches": reports}
        write_json(out / "report.json", found)
    if as_json:
        show.print_json(found)
    else:
        for report in reports:
            print_report(report)


def _print(report: Mapping[str, Any]) -> None:
    names = [row["batch"] for row in report["coverage"]]
    for kind, measure in (("documents", "MAP"), ("documents", "GMAP"), ("snippets", "F1")):
        _print_measure(report, names, kind, measure)
    for row in report["comparisons"]:
        show.out.print(
            f"{row['ours']} against {row['theirs']}, MAP: {row['difference']:+.4f} "
            f"(95 % interval {row['low']:+.4f} to {row['high']:+.4f}, p = {row['p_value']:.4f})"
        )
    for row in report["coverage"]:
        lacking = row["documents"] - row["documents_in_index"]
        if lacking:
            show.err.print(f"{row['batch']}: the index lacks {lacking} of {row['documents']} golden documents")
    for system, found in report["systems"].items():
        if found["offsets_unknown"]:
            show.err.print(
                f"{system}: {found['offsets_unknown']} of {found['returned_snippets']} snippets are not submitted: "
                "their texts may not be whole records, so they have no offsets"
            )


def _print_measure(report: Mapping[str, Any], batches: Sequence[str], kind: str, measure: str) -> None:
    from biorag.benchmarks.bioasq.run import TITLES

    rows = [
        (TITLES[system], *(f"{each[kind][measure]:.4f}" for each in (*found["batches"], found["mean"])))
        for system, found in report["systems"].items()
        if found["mean"][kind]
    ]
    if rows:
        show.table(f"{kind.capitalize()}, {measure}", ["system", *batches, "mean"], rows)
