"""`biorag generate`: training rows that a model writes, and the filter of those that a retriever finds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import CommandLine, Flags, expanded, is_named, with_index
from biorag.commands.outputs import RESUMED, Writes
from biorag.engine import open_index
from biorag.errors import UsageError
from biorag.settings.section import GENERATION
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.lab.synthesis.drafts import GenerationJob

SCENARIOS = 100
PASSAGE, LONG_PASSAGE = 128, 768  # tokens; BMRetriever's passages have up to 400 words
TEMPERATURE = 0.7

_rows, _generation = (partial(typer.Option, rich_help_panel=panel) for panel in ("Rows", GENERATION))
Limit = Annotated[int | None, _rows(min=1, help="Number of snippets, drawn with --seed.")]
SnippetSource = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files or folders, as 'biorag index' reads them; by default the index --name.", metavar="CORPUS"
    ),
]
PassageTokens = Annotated[int, _generation("--max-tokens", min=16, max=1024, help="Cap on each text.")]


@dataclass(frozen=True, slots=True)
class GeneratedOutput:
    """Where the rows go, which prompt is used, and how the run is reported."""

    out: Annotated[Path, typer.Option("--out", help="JSONL file to write; an interrupted run resumes."), RESUMED]
    template: options.TemplateFile = None
    as_json: options.Json = False

    def job(self, settings: Settings, texts: int, max_tokens: int, temperature: float) -> GenerationJob:
        """Return the run that draws so many texts of a subject."""
        from biorag.lab.synthesis.drafts import Draws, GenerationJob

        draws = Draws(texts, max_tokens, temperature, settings.seed)
        return GenerationJob(settings, self.out, draws, self.template, show.progress)


@expanded
def negatives(
    rows: Annotated[
        list[Path], typer.Argument(help="JSONL as 'biorag mine' writes it (.gz too), or folders in BEIR layout.")
    ],
    output: GeneratedOutput,
    settings: Annotated[Settings, Flags("name", "seed"), options.GENERATOR],
    line: CommandLine,
    per_row: Annotated[int, _rows(min=1, max=100, help="Negatives of a row.")] = 1,
    temperature: options.Temperature = TEMPERATURE,
    passage_tokens: PassageTokens = PASSAGE,
) -> None:
    """Generate hard negatives: passages of a query's topic and words that do not answer it, for 'biorag train'.

    The model sees each row's query, its positive and, one after the other, its mined negatives, if it has any. The rows
    are of kind 'synthetic'. Passages that are cut or have fewer than eight words, copies and near-copies of the
    positive or of a mined negative, and duplicates in the file are dropped and counted.

    --name is needed only for a BEIR folder without a corpus: that index holds its passages.

    Examples:

      biorag generate negatives hard.jsonl --out synthetic.jsonl
      biorag generate negatives hard.jsonl --llm http://localhost:8080 --per-row 4 --out synthetic.jsonl
    """
    from biorag.lab.synthesis.negatives import generate_negatives

    job = output.job(settings, per_row, passage_tokens, temperature)
    work = partial(generate_negatives, job, rows, line.value("name"))
    show.outcome("Generated negatives", output.out, work, output.as_json)


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """Which scenarios pairs are generated for, and how many."""

    scenarios: Annotated[
        int | None,
        _rows(min=1, max=100_000, help="Number of scenarios.", show_default=f"{SCENARIOS}; with --scenario-file all"),
    ] = None
    scenario_file: Annotated[
        Path | None, _rows(help="Text file with one scenario a line, instead of asking the model.")
    ] = None
    per_scenario: Annotated[int, _rows(min=1, max=1000, help="Pairs of a scenario.")] = 1
    attributes: Annotated[
        bool, _rows("--attributes", help="Draw BMRetriever's attributes of each pair into its prompt.")
    ] = False


@expanded
def pairs(
    output: GeneratedOutput,
    settings: Annotated[Settings, Flags("seed"), options.GENERATOR],
    line: CommandLine,
    chosen: ScenarioOptions,
    temperature: options.Temperature = TEMPERATURE,
    passage_tokens: PassageTokens = PASSAGE,
) -> None:
    """Generate pairs from retrieval scenarios: a query, a passage that answers it, and a hard negative.

    The model lists the scenarios first, into OUT.scenarios.txt; or they come from --scenario-file. The rows are of
    kind 'synthetic'. Pairs with a text that is empty, cut or short, passages that are copies or near-copies of each
    other, and duplicate queries or positives in the file are dropped and counted.

    --attributes draws type, length and clarity of the query, words of the passages, difficulty of both; --max-tokens is
    then 768 by default.

    Examples:

      biorag generate pairs --scenarios 100 --per-scenario 5 --out pairs.jsonl
      biorag generate pairs --attributes --llm http://localhost:8080 --out pairs.jsonl
    """
    from biorag.lab.synthesis.pairs import generate_pairs, read_attributes

    longer = chosen.attributes and "passage_tokens" not in line.parameters
    job = output.job(settings, chosen.per_scenario, LONG_PASSAGE if longer else passage_tokens, temperature)
    drawn = read_attributes(settings.seed) if chosen.attributes else None
    count = chosen.scenarios or (None if chosen.scenario_file else SCENARIOS)
    work = partial(generate_pairs, job, chosen.scenario_file, count, drawn)
    show.outcome("Generated pairs", output.out, work, output.as_json)


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """Which model writes questions, how many, and from which source."""

    per_snippet: Annotated[int, _rows(min=1, max=100, help="Questions of a snippet.")] = 1
    limit: Limit = None
    model: Annotated[
        str | None,
        _generation(
            help="seq2seq:ID, a doc2query-T5 by Hugging Face id or directory, instead of --llm; its temperature is 1."
        ),
    ] = None
    dataset: Annotated[
        str | None, _rows(help="Name of the snippets' source, put into the prompt as BMRetriever does.")
    ] = None
    temperature: options.Temperature = 0.3
    question_tokens: Annotated[int, _generation("--max-tokens", min=4, max=512, help="Cap on a question.")] = 48


@expanded
def queries(
    output: GeneratedOutput,
    settings: Annotated[Settings, Flags("name", "seed", "qdrant"), options.GENERATOR],
    line: CommandLine,
    chosen: QuestionOptions,
    corpus: SnippetSource = None,
) -> None:
    """Generate questions that snippets answer, as rows that 'biorag train' reads: each question with its snippet.

    The snippets come from an index (--name) or a corpus. Questions of fewer than three words, cut ones, copies of a
    title or sentence, and duplicates are dropped and counted. 'biorag generate filter' keeps those that find their
    snippet: many questions of a small model are about something else.

    Examples:

      biorag generate queries --name pubmed --limit 2000 --out queries.jsonl
      biorag generate queries pubmed/ --model seq2seq:models/doc2query-t5 --per-snippet 3 --out queries.jsonl --json
    """
    from biorag.lab.synthesis.questions import generate_questions

    model, dataset = chosen.model, chosen.dataset
    if model is not None and (line.first("llm", "llm_model") or output.template is not None or dataset):
        raise UsageError("--model replaces --llm, --llm-model, --prompt and --dataset: leave out one or the other")
    temperature = chosen.temperature if model is None or "temperature" in line.parameters else 1.0
    settings = settings if corpus or is_named(settings) else with_index(settings)  # the only one
    job, name = output.job(settings, chosen.per_snippet, chosen.question_tokens, temperature), line.value("name")
    work = partial(generate_questions, job, corpus or (), name, chosen.limit, model, dataset)
    show.outcome("Generated questions", output.out, work, output.as_json)


@expanded
def keep_consistent(
    rows: Annotated[Path, typer.Argument(help="JSONL of query and positive (.gz too).", metavar="FILE")],
    # Rows are kept as they were, so that no beginning shows that biorag wrote the file.
    out: Annotated[
        Path,
        typer.Option("--out", help="JSONL file to write the kept rows to."),
        Writes("file of training rows"),
    ],
    settings: Annotated[Settings, options.INDEX],
    keep_top: Annotated[int, typer.Option(min=1, max=1000, help="Rank within which the positive must be found.")] = 3,
    mode: Annotated[str | None, typer.Option(help="dense or hybrid.", show_default=options.DENSE_MODES[0])] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Keep the rows whose positive is among the top 3 that the index's encoder retrieves for their query.

    The positive is recognised by its positive_id, or by its text. Rows are kept unchanged. Dropped rows are counted:
    with the positive below these ranks, absent from the index, or with an empty query.

    Examples:

      biorag generate filter queries.jsonl --name pubmed --out kept.jsonl
      biorag generate filter queries.jsonl --name pubmed --mode hybrid --keep-top 1 --out kept.jsonl
    """
    from biorag.lab.synthesis.consistency import keep_consistent as filtered

    searched = settings.replace(mode=options.dense_mode(mode), rerank=False)

    def work() -> dict[str, Any]:
        with open_index(searched) as ready, show.progress("Filtering", None) as advance:
            return {"keep_top": keep_top, **filtered(rows, out, ready, keep_top, advance)}

    show.outcome("Consistency filter", out, work, as_json)
