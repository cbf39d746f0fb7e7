"""The generator that writes answers, and its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from biorag.registries import GENERATORS
from biorag.settings.section import GENERATION, STARTER, Effect, Flag, Section, expanded
from biorag.settings.servers import check_plain


class GenerationSettings(Section):
    """The generator, its prompt and its limits."""

    llm: Annotated[str | None, Flag("--llm", panel=GENERATION), Effect.NAMES] = Field(
        default=None,
        description=f"{GENERATORS.listed()}. Where none is named, 'ask' extracts sentences, and other commands take "
        "'starter'.",
    )
    llm_model: Annotated[str | None, Flag("--llm-model", panel=GENERATION), Effect.NAMES] = Field(
        default=None, description="Model name on a server; none: its first."
    )
    max_tokens: Annotated[int, Flag("--max-tokens", panel=GENERATION)] = Field(
        default=256, ge=1, le=32_768, description="Cap on the model's text, in tokens."
    )
    context_window: int = Field(
        default=8192, ge=256, le=16_777_216, description="Tokens of context, at most what the model supports."
    )
    prompt: Annotated[Path | None, Flag("--prompt", panel=GENERATION), Effect.NAMES] = Field(
        default=None, description="Prompt template that replaces the built-in one."
    )
    threads: Annotated[int | None, Effect.NONE] = Field(
        default=None, ge=1, le=1024, description="CPU threads of the generator; none: all cores."
    )
    concurrency: Annotated[int, Flag("--concurrency", panel=GENERATION), Effect.NONE] = Field(
        default=4,
        ge=1,
        le=64,
        description="Questions sent to a server at a time; a model in this process answers one.",
    )
    cache: Annotated[bool, Flag("--cache/--no-cache", panel=GENERATION), Effect.NONE] = Field(
        default=True,
        description="Keep the model's replies in cache/replies under BIORAG_HOME, and reuse them.",
    )

    _plain = field_validator("llm")(check_plain)

    @property
    def generator(self) -> str:
        """The generator of a command that needs one: the starter where none is named."""
        return self.llm or STARTER

    @field_validator("prompt")
    @classmethod
    def _expanded(cls, value: Path | None) -> Path | None:
        return expanded(value) if value else value
