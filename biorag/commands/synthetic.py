"""`biorag generate negatives` and `biorag generate pairs`, and what they share with `biorag generate queries`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from biorag.commands import options, show
from biorag.engine import generator_identity, open_stored, require_generator
from biorag.errors import UsageError
from biorag.registries import generator_of
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.training.synthesis.drafts import GeneratedRowCounts
    from biorag.training.synthesis.negatives import Pair
    from biorag.training.synthesis.scenarios import Listed
    from biorag.training.synthesis.writers import Draws, PromptedWriter, Request, Subject
    from biorag.types import Generator

S = TypeVar("S", bound="Subject")
ROWS = "Rows"
SCENARIOS = 100
SCENARIO_TOKENS = 40
TEMPERATURE = 0.7

Out = Annotated[Path, typer.Option("--out", help="JSONL file to write; an interrupted run resumes.")]
PassageTokens = Annotated[
    int, typer.Option("--max-tokens", min=16, max=1024, help="Cap on each text.", rich_help_panel=options.GENERATION)
]


def negatives(
    ctx: typer.Context,
    rows: Annotated[
        list[Path], typer.Argument(help="JSONL as 'biorag mine' writes it (.gz too), or folders in BEIR layout.")
    ],
    out: Out,
    name: options.Name = None,
    per_row: Annotated[int, typer.Option(min=1, max=100, help="Negatives of a row.", rich_help_panel=ROWS)] = 1,
    keep_mined: Annotated[
        bool,
        typer.Option("--keep-mined", help="Keep a row's own negatives, after those written.", rich_help_panel=ROWS),
    ] = False,
    llm: options.Llm = None,
    llm_model: options.LlmModel = None,
    template: options.TemplateFile = None,
    temperature: options.Temperature = TEMPERATURE,
    passage_tokens: PassageTokens = 128,
    cache: options.Cache = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Generate hard negatives: passages of a query's topic and words that do not answer it, for 'biorag train'.

    The model is shown each row's query, its positive and, where the row has any, one of its mined negatives in turn.
    Rows of kind 'synthetic' come out. Left out and counted are passages cut or of fewer than eight words, copies and
    near-copies of the positive or of a mined negative, and those that came before in the file.

    --name is needed only for a BEIR folder without a corpus, whose passages that index has.

    Examples:

      biorag generate negatives hard.jsonl --out synthetic.jsonl

      biorag generate negatives hard.jsonl --llm http://localhost:8080 --per-row 4 --out synthetic.jsonl --json
    """
    from biorag.prompts.template import load_template
    from biorag.training.synthesis import negatives as written
    from biorag.training.synthesis.writers import Draws

    started = time.perf_counter()
    settings = options.configured(ctx)
    draws = Draws(per_row, passage_tokens, temperature, settings.seed)
    check_draws(out, draws, "--per-row")
    read = _pairs(settings, rows, name)
    prompt = load_template("negative", template)
    model = language_model(settings)
    identity = {
        **asdict(draws),
        "keep_mined": keep_mined,
        "rows": written.fingerprint(read),
        "generator": model.identity,
        "prompt": prompt.sha256,
    }
    file = written.NegativeFile(out, identity, prompt.system)
    counts = file.finished()
    if counts is None:
        unmined = sum(not pair.row.negatives for pair in read)
        with show.progress("Writing negatives", len(read)) as advance:
            writer = model.writer(written.request(prompt), draws)
            counts = file.generate(read, written.NegativeCounts(len(read), unmined), writer, advance)
    report_counts("Generated negatives", out, counts, started, as_json)


def pairs(
    ctx: typer.Context,
    out: Out,
    count: Annotated[
        int | None,
        typer.Option(
            "--scenarios",
            min=1,
            max=100_000,
            help="Scenarios to write of.",
            show_default=f"{SCENARIOS}; with --scenario-file all",
            rich_help_panel=ROWS,
        ),
    ] = None,
    scenario_file: Annotated[
        Path | None,
        typer.Option(help="Text file with a scenario on each line, in place of the model's.", rich_help_panel=ROWS),
    ] = None,
    per_scenario: Annotated[int, typer.Option(min=1, max=1000, help="Pairs of a scenario.", rich_help_panel=ROWS)] = 1,
    llm: options.Llm = None,
    llm_model: options.LlmModel = None,
    template: options.TemplateFile = None,
    temperature: options.Temperature = TEMPERATURE,
    passage_tokens: PassageTokens = 128,
    cache: options.Cache = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Generate pairs from retrieval scenarios: of each a query, a passage that answers it and a hard negative.

    The model lists the scenarios first, into OUT.scenarios.txt; or they come from --scenario-file. Rows of kind
    'synthetic' come out. Left out and counted are pairs with a text that is empty, cut or short, passages that are
    copies or near-copies of each other, and queries or positives that came before in the file.

    Examples:

      biorag generate pairs --scenarios 100 --per-scenario 5 --out pairs.jsonl

      biorag generate pairs --scenario-file tasks.txt --llm http://localhost:8080 --out pairs.jsonl --json
    """
    from biorag.prompts.template import load_template
    from biorag.training.synthesis import pairs as written
    from biorag.training.synthesis import scenarios
    from biorag.training.synthesis.writers import Draws

    started = time.perf_counter()
    settings = options.configured(ctx)
    draws = Draws(per_scenario, passage_tokens, temperature, settings.seed)
    check_draws(out, draws, "--per-scenario")
    prompt = load_template("pair", template, "scenario", ("scenario",))
    given = None if scenario_file is None else scenarios.read_scenarios(scenario_file, count)
    wanted: str | int = scenarios.fingerprint(given) if given else count or SCENARIOS
    model = language_model(settings)
    identity = {**asdict(draws), "scenarios": wanted, "generator": model.identity, "prompt": prompt.sha256}
    file = written.PairFile(out, identity, prompt.system)
    counts = file.finished()
    if counts is None:
        source = scenarios.Listed(given) if given else _listed(out, count or SCENARIOS, model, settings.seed)
        tokens = {"prompt_tokens": source.prompt_tokens, "completion_tokens": source.completion_tokens}
        with show.progress("Writing pairs", len(source.scenarios)) as advance:
            writer = model.writer(written.request(prompt), draws)
            counts = file.generate(
                source.scenarios, written.PairCounts(len(source.scenarios), **tokens), writer, advance
            )
    report_counts("Generated pairs", out, counts, started, as_json)


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A generator, how many replies it is asked for at a time, and all that determines them besides what is asked."""

    generator: Generator
    at_a_time: int
    identity: Mapping[str, Any]

    def writer(self, request: Request[S], draws: Draws) -> PromptedWriter[S]:
        """Return what writes with this model."""
        from biorag.training.synthesis.writers import PromptedWriter

        return PromptedWriter(self.generator, request, draws, self.at_a_time)


def language_model(settings: Settings) -> LanguageModel:
    """Load the configured generator, or reach its server."""
    at_a_time = generator_of(settings.generation.llm).at_a_time(settings.generation.concurrency)
    generator = require_generator(settings, at_a_time)
    return LanguageModel(generator, at_a_time, generator_identity(settings, generator))


def check_draws(out: Path, draws: Draws, option: str) -> None:
    """Refuse an output that is a folder, and several texts of which each would be the same."""
    if out.is_dir():
        raise UsageError(f"{out} is a folder: name a file to write")
    if draws.each > 1 and draws.temperature == 0:
        raise UsageError(f"--temperature 0 writes the same every time: give {option} 1")


def report_counts(title: str, out: Path, counts: GeneratedRowCounts, started: float, as_json: bool) -> None:
    """Print what a run came to, and its seconds since `started`."""
    values = {"out": str(out), **asdict(counts), "seconds": round(time.perf_counter() - started, 3)}
    if as_json:
        show.print_json(values)
    else:
        show.table(title, ["", ""], list(values.items()))


def _listed(out: Path, count: int, model: LanguageModel, seed: int) -> Listed:
    """Return the scenarios that the model lists for pairs in `out`, or those that it has."""
    from biorag.prompts.template import load_template
    from biorag.training.synthesis.scenarios import ScenarioFile, request
    from biorag.training.synthesis.writers import Draws

    prompt = load_template("scenario", needed="count", known=("count",))
    identity = {"scenarios": count, "seed": seed, "generator": model.identity, "prompt": prompt.sha256}
    file = ScenarioFile(out.with_name(f"{out.name}.scenarios.txt"), identity, prompt.system)
    with show.progress("Listing scenarios", count) as advance:
        writer = model.writer(request(prompt), Draws(1, SCENARIO_TOKENS, TEMPERATURE, seed))
        return file.listed(count, writer, advance)


def _pairs(settings: Settings, paths: Sequence[Path], name: str | None) -> list[Pair]:
    """Return the rows to write negatives of; with a name the index may have their passages."""
    from biorag.training.rows import read_rows
    from biorag.training.synthesis.negatives import Pair

    if name is None:
        rows, _ = read_rows(paths)
    else:
        with open_stored(settings) as (_, index):
            rows, _ = read_rows(paths, index.fetch)
    return [Pair(row) for row in rows]
