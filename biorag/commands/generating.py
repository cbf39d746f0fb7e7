"""What the generating commands share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from biorag.commands import show
from biorag.engine import generator_identity, require_generator
from biorag.errors import UsageError
from biorag.registries import generator_of
from biorag.settings.section import GENERATION
from biorag.settings.settings import Settings
from biorag.utils.files import check_is_no_folder

if TYPE_CHECKING:
    from biorag.training.synthesis.drafts import GeneratedRowCounts
    from biorag.training.synthesis.writers import DraftForm, Draws, PromptedWriter, Subject
    from biorag.types import Generator

S = TypeVar("S", bound="Subject")
ROWS = "Rows"  # a panel
TEMPERATURE = 0.7

Out = Annotated[Path, typer.Option("--out", help="JSONL file to write; an interrupted run resumes.")]
PassageTokens = Annotated[
    int, typer.Option("--max-tokens", min=16, max=1024, help="Cap on each text.", rich_help_panel=GENERATION)
]


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A generator, how many requests it takes at a time, and what determines its replies besides the request."""

    generator: Generator
    at_a_time: int
    identity: Mapping[str, Any]

    def writer(self, form: DraftForm[S], draws: Draws) -> PromptedWriter[S]:
        """Return a writer with this model."""
        from biorag.training.synthesis.writers import PromptedWriter

        return PromptedWriter(self.generator, form, draws, self.at_a_time)


def language_model(settings: Settings) -> LanguageModel:
    """Load the configured generator, or reach its server."""
    at_a_time = generator_of(settings.generation.llm).at_a_time(settings.generation.concurrency)
    generator = require_generator(settings, at_a_time)
    return LanguageModel(generator, at_a_time, generator_identity(settings, generator))


def check_draws(out: Path, draws: Draws, option: str) -> None:
    """Refuse an output that is a folder, and several draws that would all be the same."""
    check_is_no_folder(out)
    if draws.each > 1 and draws.temperature == 0:
        raise UsageError(f"--temperature 0 writes the same every time: give {option} 1")


def report_counts(title: str, out: Path, counts: GeneratedRowCounts, started: float, as_json: bool) -> None:
    """Print the counts of a run, and its seconds since `started`."""
    values = {"out": str(out), **asdict(counts), "seconds": round(time.perf_counter() - started, 3)}
    if as_json:
        show.print_json(values)
    else:
        show.table(title, ["", ""], list(values.items()))
