"""`biorag generate queries`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, Given, expanded, is_named, with_index
from biorag.errors import UsageError
from biorag.settings.section import GENERATION
from biorag.settings.settings import Settings

LLM_TEMPERATURE, SEQ2SEQ_TEMPERATURE = 0.3, 1.0


@expanded
def queries(
    out: options.GeneratedOut,
    settings: Annotated[Settings, Flags("name", "seed", "qdrant"), options.GENERATOR],
    given: Given,
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files or folders, as 'biorag index' reads them; by default the index --name.", metavar="CORPUS"
        ),
    ] = None,
    per_snippet: Annotated[
        int, typer.Option(min=1, max=100, help="Questions of a snippet.", rich_help_panel=options.ROWS)
    ] = 1,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Number of snippets, drawn with --seed.", rich_help_panel=options.ROWS),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="seq2seq:ID, a doc2query-T5 by Hugging Face id or directory, instead of --llm.",
            rich_help_panel=GENERATION,
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Name of the snippets' source, put into the prompt as BMRetriever does.", rich_help_panel=options.ROWS
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
    from biorag.training.synthesis.run import GenerationJob, generate_questions
    from biorag.training.synthesis.writers import Draws

    if model is not None and (given.first("llm", "llm_model") or template is not None or dataset):
        raise UsageError("--model replaces --llm, --llm-model, --prompt and --dataset: leave out one or the other")
    default = LLM_TEMPERATURE if model is None else SEQ2SEQ_TEMPERATURE
    draws = Draws(per_snippet, question_tokens, default if temperature is None else temperature, settings.seed)
    if not corpus and not is_named(settings):
        settings = with_index(settings)
    job = GenerationJob(settings, out, draws, template, show.progress)
    show.outcome(
        "Generated questions",
        out,
        lambda: asdict(generate_questions(job, corpus or (), given.value("name"), limit, model, dataset)),
        as_json,
    )
