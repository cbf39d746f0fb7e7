"""`biorag generate`: training rows that a model writes, and their filter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.synthetic import (
    ROWS,
    Out,
    check_draws,
    language_model,
    negatives,
    pairs,
    report_counts,
)
from biorag.engine import open_index, open_snippets
from biorag.errors import UsageError
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.training.synthesis.questions import QuestionCounts
    from biorag.training.synthesis.writers import Draws, Writer
    from biorag.types import Snippet

app = typer.Typer(no_args_is_help=True, help="Generate training rows with a model, and filter them.")

SEQ2SEQ = "seq2seq:"
LLM_TEMPERATURE, SEQ2SEQ_TEMPERATURE = 0.3, 1.0
SEQ2SEQ_BATCH = 16

app.command()(negatives)
app.command()(pairs)


@app.command()
def queries(
    ctx: typer.Context,
    out: Out,
    corpus: Annotated[
        list[str] | None,
        typer.Argument(help="Files or folders, as 'biorag index' reads them; else --name.", metavar="CORPUS"),
    ] = None,
    name: options.Name = None,
    per_snippet: Annotated[int, typer.Option(min=1, max=100, help="Questions of a snippet.", rich_help_panel=ROWS)] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Snippets to write of, drawn with the seed.", rich_help_panel=ROWS)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="seq2seq:ID, a doc2query-T5 by Hugging Face id or directory, in place of --llm.",
            rich_help_panel=options.GENERATION,
        ),
    ] = None,
    llm: options.Llm = None,
    llm_model: options.LlmModel = None,
    template: options.TemplateFile = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=2,
            help="Of sampling; 0 takes the likeliest.",
            show_default=f"{LLM_TEMPERATURE}, for seq2seq {SEQ2SEQ_TEMPERATURE}",
            rich_help_panel=options.GENERATION,
        ),
    ] = None,
    question_tokens: Annotated[
        int,
        typer.Option("--max-tokens", min=4, max=512, help="Cap on a question.", rich_help_panel=options.GENERATION),
    ] = 48,
    cache: options.Cache = None,
    seed: options.Seed = None,
    qdrant: options.Qdrant = None,
    as_json: options.Json = False,
) -> None:
    """Generate questions that snippets answer, as rows that 'biorag train' reads: each question with its snippet.

    The snippets are an index's (--name), or a corpus's. Left out and counted are questions of fewer than three words,
    cut ones, copies of a title or sentence, and those that came before in the file.

    Many questions of a small model are about something else: 'biorag generate filter' keeps those that find their
    snippet.

    Examples:

      biorag generate queries --name pubmed --limit 2000 --out queries.jsonl

      biorag generate queries pubmed/ --model seq2seq:models/doc2query-t5 --per-snippet 3 --out queries.jsonl --json

      biorag generate queries --name pubmed --llm http://localhost:8080 --prompt question.txt --out queries.jsonl
    """
    from biorag.training.synthesis.writers import Draws

    started = time.perf_counter()
    if model is not None and any(given is not None for given in (llm, llm_model, template)):
        raise UsageError("--model takes the place of --llm, --llm-model and --prompt: leave it out, or them")
    settings = options.configured(ctx)
    default = LLM_TEMPERATURE if model is None else SEQ2SEQ_TEMPERATURE
    draws = Draws(per_snippet, question_tokens, default if temperature is None else temperature, settings.seed)
    check_draws(out, draws, "--per-snippet")
    with open_snippets(settings, corpus or (), name) as (source, snippets):
        writer, wrote = _writer(settings, model, template, draws)
        identity = {**asdict(draws), "limit": limit, "source": source, **wrote}
        counts = _generated(out, identity, snippets, limit, writer)
    report_counts("Generated questions", out, counts, started, as_json)


@app.command("filter")
def keep_consistent(
    ctx: typer.Context,
    rows: Annotated[Path, typer.Argument(help="JSONL of query and positive (.gz too).", metavar="FILE")],
    out: Annotated[Path, typer.Option("--out", help="JSONL file to write, with the rows that are kept.")],
    name: options.Name = None,
    keep_top: Annotated[int, typer.Option(min=1, max=1000, help="Ranks among which the positive must be.")] = 3,
    mode: Annotated[str | None, typer.Option(help="dense or hybrid.", show_default=options.DENSE_MODES[0])] = None,
    encoder: options.Encoder = None,
    qdrant: options.Qdrant = None,
    as_json: options.Json = False,
) -> None:
    """Keep the rows whose positive is among the top 3 that the index's encoder retrieves for their query.

    The positive is known by its positive_id, or by its text. Rows stay as they are; those left out are counted: with
    the positive below these ranks, or absent from the index, or with an empty query.

    Examples:

      biorag generate filter queries.jsonl --name pubmed --out kept.jsonl

      biorag generate filter queries.jsonl --name pubmed --mode hybrid --keep-top 1 --out kept.jsonl --json
    """
    from biorag.training.synthesis import consistency

    started = time.perf_counter()
    if out.is_dir() or (out.exists() and rows.exists() and out.samefile(rows)):
        raise UsageError(f"{out} is a folder, or the file that is filtered: name another file to write")
    settings = options.configured(ctx, mode=options.dense_mode(mode), rerank=False)
    with open_index(settings) as ready, show.progress("Filtering", None) as advance:
        counts = consistency.keep_consistent(rows, out, ready.index, ready.retriever, keep_top, advance)
    share = round(counts.kept / counts.read, 4) if counts.read else 0.0
    seconds = round(time.perf_counter() - started, 3)
    report = {"out": str(out), "keep_top": keep_top, **asdict(counts), "share_kept": share, "seconds": seconds}
    if as_json:
        show.print_json(report)
    else:
        show.table("Consistency filter", ["", ""], list(report.items()))


def _writer(
    settings: Settings, model: str | None, template: Path | None, draws: Draws
) -> tuple[Writer[Snippet], dict[str, Any]]:
    """Load what writes the questions; and return what determines what it writes."""
    from biorag.training.synthesis.writers import Seq2SeqWriter
    from biorag.utils.versions import installed_versions

    if model is None:
        from biorag.prompts.template import load_template
        from biorag.training.synthesis.questions import request

        prompt = load_template("question", template, needed="documents")
        asked = language_model(settings)
        wrote: dict[str, Any] = {"generator": asked.identity, "prompt": prompt.sha256}
        return asked.writer(request(prompt), draws), wrote
    if not model.startswith(SEQ2SEQ):
        raise UsageError(f"--model {model!r} is none of a known kind: write {SEQ2SEQ}ID, or name a generator by --llm")
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
    """Generate what is not generated yet."""
    from biorag.training.synthesis.questions import QuestionCounts, QuestionFile, draw

    file = QuestionFile(out, identity)
    if counts := file.finished():
        return counts
    chosen, too_short = draw(snippets, limit, identity["seed"])
    with show.progress("Writing questions", len(chosen)) as advance:
        return file.generate(chosen, QuestionCounts(len(chosen), too_short), writer, advance)
