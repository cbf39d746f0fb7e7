"""`biorag bench answers`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.examining import Answering, print_report
from biorag.commands.groups import Flags, expanded
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings


@expanded
def answers(
    dataset: Annotated[
        Path, typer.Argument(help="Folder with queries.jsonl, qrels/test.tsv and answers.jsonl, plain or gzipped.")
    ],
    out: Annotated[
        Path, typer.Option(help="Folder to write the answers and report.json to; an interrupted run resumes.")
    ],
    settings: Annotated[
        Settings,
        options.INDEX,
        Flags(RetrievalSettings, but=("precision", "include_retracted")),
        options.GENERATOR,
        Flags("max_tokens", "prompt", "evidence_threshold", "seed"),
    ],
    answer: Answering = "extract",
    limit: Annotated[int | None, typer.Option(min=1, help="Number of questions, drawn with --seed.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure answers on questions that experts answered: BioASQ's measures, citations, abstention.

    Exact answers: accuracy and macro F1 of yes/no, accuracy and MRR of factoids, F1 of lists. Ideal answers: ROUGE-2
    and ROUGE-SU4. Sentences: the share that the evidence supports, and ALCE's citation recall and precision.
    Abstention: how well the estimate tells a question from the same one without its gold documents. No answer is
    withheld here.

    Examples:

      biorag bench answers data/bioasq --name pubmed --out runs/extract

      biorag bench answers data/bioasq --answer generate --llm starter --limit 200 --out runs/starter --json
    """
    from biorag.benchmarks.answers import questions, run, systems
    from biorag.engine import open_index
    from biorag.utils.files import write_json

    systems.check_method(answer)
    data = questions.sample(questions.load_answers(dataset), limit, settings.seed)
    with open_index(settings) as opened, show.progress("Questions", len(data.questions)) as advance:
        report = run.examine(data, opened, answer, out, advance)
    write_json(out / "report.json", report)
    if as_json:
        show.print_json(report)
    else:
        print_report(report)
