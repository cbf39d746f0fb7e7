"""`biorag bench bioasq`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.groups import Flags, expanded
from biorag.commands.outputs import FOLDER
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.utils.files import write_json
from biorag.utils.outputs import begins_with_key, check_results, is_per_question


@expanded
def bioasq(
    golden: Annotated[list[Path], Argument(help="Golden files of test batches, JSON, plain or gzipped.")],
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "include_retracted", "mode", "rerank", "k")),
        Flags("seed"),
    ],
    system: Annotated[
        list[str] | None,
        Option(help="bm25, dense, hybrid, hybrid+rerank (default: all four), or hybrid+cross (best 10). Repeatable."),
    ] = None,
    out: Annotated[Path | None, Option(help="Folder for the submissions, and report.json."), FOLDER] = None,
    as_json: options.Json = False,
) -> None:
    """Measure retrieval on BioASQ's test batches, as BioASQ's evaluator does (task B, phase A).

    Documents are compared by PMID: MAP@10, GMAP, mean precision, recall and F1. 'bench answers' takes the same files.

    Examples:

      biorag bench bioasq 8B1_golden.json 8B2_golden.json --name pubmed
      biorag bench bioasq golden/8B1_golden.json.gz --system hybrid --system hybrid+rerank --out runs/bioasq --json
      biorag bench bioasq 8B1_golden.json --system hybrid --system hybrid+cross --reranker cross:models/cross-encoder
    """
    from biorag.benchmarks.bioasq import chosen_systems, measure_documents
    from biorag.benchmarks.golden import read_batches
    from biorag.benchmarks.per_question import PER_QUESTION

    systems = chosen_systems(system or ())
    batches = read_batches(golden)
    files = {f"{name}/{batch.name}.json": begins_with_key("questions") for name in systems for batch in batches}
    files |= {"report.json": begins_with_key("index"), PER_QUESTION: is_per_question}
    if out:
        check_results(out, files, golden)
    document = measure_documents(batches, systems, settings, out, show.progress)
    if out:
        write_json(out / "report.json", document)
    show.result(document, as_json, _print)


def _print(report: Mapping[str, Any]) -> None:
    names = [row["batch"] for row in report["coverage"]]
    for measure in ("MAP", "GMAP"):
        rows = [
            (system, *(f"{row['documents'][measure]:.4f}" for row in (*values["batches"], values["mean"])))
            for system, values in report["systems"].items()
        ]
        show.table(f"Documents, {measure}", ["system", *names, "mean"], rows)
    for row in report["comparisons"]:
        test = "{difference:+.4f} (95 % interval {low:+.4f} to {high:+.4f}, p = {p_value:.4f})".format_map(row)
        show.out.print(f"{row['ours']} against {row['theirs']}, MAP: {test}")
    for row in report["coverage"]:
        lacking = row["documents"] - row["documents_in_index"]
        if lacking:
            show.err.print(f"{row['batch']}: the index lacks {lacking} of {row['documents']} golden documents")
