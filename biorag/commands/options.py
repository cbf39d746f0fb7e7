"""Options that several commands share; their defaults come from `biorag.settings`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands.groups import Flags
from biorag.errors import UsageError, unknown_name
from biorag.registries import FUSIONS, RERANKERS
from biorag.retrieval.filters import exclude_pmids, parse_filter
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import PLACES, URLS, Settings
from biorag.settings.sources import load_settings
from biorag.types import FieldFilter
from biorag.utils.network import is_server, restrict

if TYPE_CHECKING:
    from biorag.training.held_out import HeldOutSplit


def option(setting: str, *flags: str, help: str, panel: str | None = None) -> Any:
    """Return the option of one setting, its help showing the default that the configuration has."""
    default = PLACES[setting.removesuffix("_")].field.default
    shown = default if isinstance(default, str) else str(default).lower() if isinstance(default, bool) else str(default)
    return typer.Option(*flags, help=help, show_default=False if default is None else shown, rich_help_panel=panel)


RETRIEVAL, GENERATION = "Retrieval", "Generation"
DENSE_MODES = ("dense", "hybrid")

INDEX = Flags("name", "encoder", "qdrant")  # which index, and what a query is encoded with
RANKING = Flags(RetrievalSettings, but=("precision", "include_retracted"))
GENERATOR = Flags("llm", "llm_model", "max_tokens", "prompt", "cache")

Name = Annotated[str | None, option("name", "--name", "-n", help="Name of the index.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Qdrant = Annotated[
    str | None,
    option("qdrant", "--qdrant", help="URL of a Qdrant server that holds the index (key: QDRANT_API_KEY)."),
]
Encoder = Annotated[
    str | None,
    option("encoder", "--encoder", help="Bi-encoder: 'starter', a directory, or a Hugging Face id."),
]
Mode = Annotated[str | None, option("mode", "--mode", help="First stage: bm25, dense or hybrid.", panel=RETRIEVAL)]
Fusion = Annotated[
    str | None,
    option("fusion", "--fusion", help=f"Hybrid: {FUSIONS.listed()}.", panel=RETRIEVAL),
]
Lambda = Annotated[
    float | None,
    option("lambda_", "--lambda", help="λ, the weight of BM25 in the linear fusion.", panel=RETRIEVAL),
]
Rerank = Annotated[
    bool | None, option("rerank", "--rerank/--no-rerank", help="Reranking of the candidates.", panel=RETRIEVAL)
]
Reranker = Annotated[
    str | None,
    option(
        "reranker",
        "--reranker",
        help=f"STAGE[,STAGE...], in turn: {RERANKERS.listed()}, each with @N to rerank the best N alone.",
        panel=RETRIEVAL,
    ),
]
Interpolation = Annotated[
    float | None,
    option("interpolation", "--interpolation", help="Weight of the first stage beside MaxSim.", panel=RETRIEVAL),
]
CrossInterpolation = Annotated[
    float | None,
    option(
        "cross_interpolation",
        "--cross-interpolation",
        help="Weight of the score before beside a cross-encoder's log-odds.",
        panel=RETRIEVAL,
    ),
]
KInit = Annotated[int | None, option("k_init", "--k-init", help="Candidates that are reranked.", panel=RETRIEVAL)]
K = Annotated[int | None, option("k", "--k", "-k", help="Snippets that are kept.", panel=RETRIEVAL)]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="Condition on snippet fields, case as stored: 'year>=2015 and mesh:Asthma and not retracted'. Repeatable.",
        rich_help_panel=RETRIEVAL,
    ),
]
ExcludePmid = Annotated[
    list[int] | None,
    typer.Option("--exclude-pmid", help="Leave this PubMed record out. Repeatable.", rich_help_panel=RETRIEVAL),
]
IncludeRetracted = Annotated[
    bool | None,
    option("include_retracted", "--include-retracted", help="Answer from retracted articles too.", panel=RETRIEVAL),
]
Llm = Annotated[
    str | None,
    option(
        "llm",
        "--llm",
        help="'starter', 'none' (evidence only), a GGUF path, hf:OWNER/REPO/FILE, or the URL of an "
        "OpenAI-compatible server (key: BIORAG_LLM_API_KEY).",
        panel=GENERATION,
    ),
]
LlmModel = Annotated[str | None, option("llm_model", "--llm-model", help="Model asked of a server.", panel=GENERATION)]
MaxTokens = Annotated[
    int | None, option("max_tokens", "--max-tokens", help="Cap on the model's text.", panel=GENERATION)
]
PromptFile = Annotated[
    Path | None,
    option("prompt", "--prompt", help="Prompt template in place of the built-in one.", panel=GENERATION),
]
TemplateFile = Annotated[
    Path | None,
    typer.Option("--prompt", help="Prompt template in place of the built-in one.", rich_help_panel=GENERATION),
]
Temperature = Annotated[
    float,
    typer.Option(min=0, max=2, help="Of sampling; 0 takes the likeliest.", rich_help_panel=GENERATION),
]
Cache = Annotated[
    bool | None,
    option(
        "cache",
        "--cache/--no-cache",
        help="Keep the model's replies in cache/replies under BIORAG_HOME, and use those kept there.",
        panel=GENERATION,
    ),
]
GraphName = Annotated[str | None, option("graph", "--graph", help="Name of the citation graph.")]
Seed = Annotated[int | None, option("seed", "--seed", help="Seed of whatever is drawn.")]

# Which part of the questions, as training divided them, is tuned or measured on.
HeldOutPart = Annotated[
    bool,
    typer.Option("--held-out", help="Only the questions that training with --validation and --seed left out."),
]
TrainingPart = Annotated[
    bool,
    typer.Option("--training", help="Only the questions that --held-out leaves out: those that training saw."),
]
DroppedPart = Annotated[
    bool,
    typer.Option(
        "--dropped",
        help="Only the questions that --guard dropped, without those held out: neither trained nor measured on.",
    ),
]
PartGuards = Annotated[
    list[Path] | None,
    typer.Option("--guard", help="Questions that training with this --guard dropped are left out too. Repeatable."),
]
PartValidation = Annotated[
    float | None, option("train_validation", "--validation", help="Share of questions held out.")
]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on the snippets that are searched."""

    where: Where = None

    @property
    def conditions(self) -> tuple[FieldFilter, ...]:
        """Return what snippets must fulfil, all of it."""
        return conditions(self.where, None)


@dataclass(frozen=True, slots=True)
class RecordFilters(Filters):
    """Conditions on the snippets that are searched, and PubMed records that are left out."""

    exclude_pmid: ExcludePmid = None

    @property
    def conditions(self) -> tuple[FieldFilter, ...]:
        """Return what snippets must fulfil, all of it."""
        return conditions(self.where, self.exclude_pmid)


def configured(ctx: typer.Context, **changes: Any) -> Settings:
    """Return the configuration of a command: its options over variables, file and defaults.

    An option whose parameter has a setting's name sets it, so commands need not pass them on one by one;
    `changes` take the place of some. From here on offline mode holds, if it is set.
    """
    flags = {name: value for name, value in ctx.params.items() if name.removesuffix("_") in PLACES}
    settings = load_settings({"offline": ctx.obj["offline"], **flags, **changes}, ctx.obj["config"])
    named = [flags[name] for name in URLS if is_server(flags.get(name) or "")]
    restrict(named if settings.services.offline else None)
    return settings


def conditions(filters: list[str] | None, excluded: list[int] | None) -> tuple[FieldFilter, ...]:
    """Return the conditions of `--filter` and `--exclude-pmid` options."""
    parsed = tuple(condition for text in filters or () for condition in parse_filter(text))
    return parsed + exclude_pmids(tuple(excluded or ()))


def dense_mode(mode: str | None) -> str:
    """Return the first stage of a command whose encoder takes part, dense unless told.

    Raises
    ------
    UsageError
        If it is another.
    """
    if mode is not None and mode not in DENSE_MODES:
        raise unknown_name("--mode", mode, DENSE_MODES)
    return mode or DENSE_MODES[0]


def question_part(held_out: bool = False, training: bool = False, dropped: bool = False) -> str:
    """Return which part of the questions is asked for.

    Raises
    ------
    UsageError
        If it is more than one.
    """
    from biorag.training.held_out import ALL, DROPPED, HELD_OUT, TRAINING

    asked = [part for part, named in ((HELD_OUT, held_out), (TRAINING, training), (DROPPED, dropped)) if named]
    if len(asked) > 1:
        raise UsageError("--held-out, --training and --dropped are parts of the questions: give one of them")
    return asked[0] if asked else ALL


def held_out_split(
    settings: Settings, part: str, guards: list[Path] | None, share: float | None, needed: str
) -> HeldOutSplit:
    """Return how training divided the questions, and which part is wanted.

    Raises
    ------
    UsageError
        If `--guard` or `--validation` (`share`) says how, and no part is wanted: `needed` names the flags to give.
    """
    from biorag.training.held_out import ALL, HeldOutSplit

    for flag, value in (("--guard", guards), ("--validation", share)):
        if part == ALL and value not in (None, [], ()):
            raise UsageError(f"{flag} says what training left out: give {needed} with it")
    return HeldOutSplit(settings.training.validation, settings.seed, tuple(guards or ()), part)
