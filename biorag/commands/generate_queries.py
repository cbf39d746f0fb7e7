"""`biorag generate queries`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import generating, options, show
from biorag.commands.generating import ROWS
from biorag.commands.groups import Flags, Given, expanded
from biorag.engine import open_snippets
from biorag.errors import UsageError
from biorag.models.finding import find_encoder
from biorag.settings.section import GENERATION
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.training.synthesis.questions import QuestionCounts
    from biorag.training.synthesis.writers import Draws, Writer
    from biorag.types import Snippet

SEQ2SEQ = "seq2seq:"
LLM_TEMPERATURE, SEQ2SEQ_TEMPERATURE = 0.3, 1.0
SEQ2SEQ_BATCH = 16


@expanded
def queries(
    out: generating.Out,
    settings: Annotated[Settings, Flags("name", "seed", "qdrant"), options.GENERATOR],
    given: Given,
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files or folders, as 'biorag index' reads them; by default the index --name.", metavar="CORPUS"
        ),
    ] = None,
    per_snippet: Annotated[int, typer.Option(min=1, max=100, help="Questions of a snippet.", rich_help_panel=ROWS)] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of snippets, drawn with --seed.", rich_help_panel=ROWS)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="seq2seq:ID, a doc2query-T5 by Hugging Face id or directory, instead of --llm.",
            rich_help_panel=GENERATION,
        ),
    ] = None,
    template: options.TemplateFile = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=2,
            help="Sampling temperature; 0 is greedy.",
            show_default=f"{LLM_TEMPERATURE}, for seq2seq {SEQ2SEQ_TEMPERATURE}",
            rich_help_panel=GENERATION,
        ),
    ] = None,
    question_tokens: Annotated[
        int,
        typer.Option("--max-tokens", min=4, max=512, help="Cap on a question.", rich_help_panel=GENERATION),
    ] = 48,
    as_json: options.Json = False,
) -> None:
    """Generate questions that snippets answer, as rows that 'biorag train' reads: each question with its snippet.

    The snippets come from an index (--name) or a corpus. Left out and counted are questions of fewer than three words,
    cut ones, copies of a title or sentence, and duplicates in the file.

    Many questions of a small model are about something else: 'biorag generate filter' keeps those that find their
    snippet.

    Examples:

      biorag generate queries --name pubmed --limit 2000 --out queries.jsonl

      biorag generate queries pubmed/ --model seq2seq:models/doc2query-t5 --per-snippet 3 --out queries.jsonl --json

      biorag generate queries --name pubmed --llm http://localhost:8080 --prompt question.txt --out queries.jsonl
    """
    from biorag.training.synthesis.writers import Draws

    started = time.perf_counter()
    if model is not None and (given.first("llm", "llm_model") or template is not None):
        raise UsageError("--model replaces --llm, --llm-model and --prompt: leave out one or the other")
    default = LLM_TEMPERATURE if model is None else SEQ2SEQ_TEMPERATURE
    draws = Draws(per_snippet, question_tokens, default if temperature is None else temperature, settings.seed)
    generating.check_draws(out, draws, "--per-snippet")
    with open_snippets(settings, corpus or (), given.value("name")) as (source, snippets):
        writer, wrote = _writer(settings, model, template, draws)
        identity = {**asdict(draws), "limit": limit, "source": source, **wrote}
        counts = _generated(out, identity, snippets, limit, writer)
    generating.report_counts("Generated questions", out, counts, started, as_json)


def _writer(
    settings: Settings, model: str | None, template: Path | None, draws: Draws
) -> tuple[Writer[Snippet], dict[str, Any]]:
    """Load the writer of the questions, and return what determines its output."""
    from biorag.training.synthesis.writers import Seq2SeqWriter
    from biorag.utils.versions import installed_versions

    if model is None:
        from biorag.prompts.template import load_template
        from biorag.training.synthesis.questions import draft_form

        prompt = load_template("question", template, needed="documents")
        asked = generating.language_model(settings)
        wrote: dict[str, Any] = {"generator": asked.identity, "prompt": prompt.sha256}
        return asked.writer(draft_form(prompt), draws), wrote
    if not model.startswith(SEQ2SEQ):
        raise UsageError(f"--model {model!r} is not of a known kind: write {SEQ2SEQ}ID, or name a generator with --llm")
    from biorag.generators.seq2seq import Seq2SeqGenerator

    files = find_encoder(model.removeprefix(SEQ2SEQ))
    wrote = {
        "generator": {"name": files.id, "sha256": files.sha256, "precision": settings.retrieval.precision},
        "batch": SEQ2SEQ_BATCH,
        "versions": installed_versions(),
    }
    return Seq2SeqWriter(Seq2SeqGenerator(files, settings.retrieval.precision), draws, SEQ2SEQ_BATCH), wrote


def _generated(
    out: Path, identity: dict[str, Any], snippets: Iterator[Snippet], limit: int | None, writer: Writer[Snippet]
) -> QuestionCounts:
    """Generate the questions that are still missing."""
    from biorag.training.synthesis.questions import QuestionCounts, QuestionFile, draw

    file = QuestionFile(out, identity)
    if counts := file.finished():
        return counts
    chosen, too_short = draw(snippets, limit, identity["seed"])
    with show.progress("Writing questions", len(chosen)) as advance:
        return file.generate(chosen, QuestionCounts(len(chosen), too_short), writer, advance)
