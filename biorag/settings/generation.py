"""The generator that writes answers, its limits, and when an answer is withheld."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import field_validator

from biorag.registries import EVIDENCE_READERS, GENERATORS
from biorag.settings.section import (
    GENERATION,
    RETRIEVAL,
    STARTER,
    Effect,
    Section,
    check_plain,
    expanded,
    option,
    setting,
)
from biorag.types import AnswerKind

_generation = partial(option, panel=GENERATION)


class GenerationSettings(Section):
    """The generator, its prompt and its limits."""

    llm: str | None = _generation(
        None,
        f"{GENERATORS.listed()}. Default: 'ask' extracts sentences, and other commands take 'starter'.",
        effect=Effect.NAMES,
    )
    llm_model: str | None = _generation(
        None, "Model name on a server. Default: the server's first.", effect=Effect.NAMES
    )
    kind: AnswerKind | None = setting(
        None,
        "What an open question asks for: yesno, factoid, list or summary. Default: by its words.",
        effect=Effect.NAMES,
    )
    max_tokens: int = _generation(256, "Maximum tokens of the model's text.", bounds=(1, 32_768))
    json_mode: Literal["constrained", "free"] = _generation(
        "constrained", "constrained: decoding follows the JSON schema; free: the prompt alone asks for JSON."
    )
    context_window: int = setting(8192, "Tokens of context, at most what the model supports.", bounds=(256, 16_777_216))
    prompt: Path | None = _generation(None, "Prompt template that replaces the built-in one.", effect=Effect.NAMES)
    reader: str = option(
        STARTER,
        f"Reads evidence beside claims and questions: {EVIDENCE_READERS.listed()}.",
        effect=Effect.NAMES,
    )
    reader_model: str | None = option(
        None, "Model name on the reader's server. Default: the server's first.", effect=Effect.NAMES
    )
    read_again: bool = option(
        True, "Let the packaged Llama, where biorag[starter] is installed, read the best sentences again: a second."
    )
    threads: int | None = setting(
        None, "CPU threads of the generator. Default: all cores.", bounds=(1, 1024), effect=Effect.NONE
    )
    concurrency: int = _generation(4, "Questions sent to a server at a time.", bounds=(1, 64), effect=Effect.NONE)
    cache: bool = _generation(
        True, "Keep the model's replies in cache/replies under BIORAG_HOME, and reuse them.", effect=Effect.NONE
    )

    _plain = field_validator("llm", "reader")(check_plain)

    @property
    def generator(self) -> str:
        """The generator of a command that needs one, by default the starter."""
        return self.llm or STARTER

    @field_validator("prompt")
    @classmethod
    def _expanded(cls, value: Path | None) -> Path | None:
        return expanded(value) if value else value


class AbstentionSettings(Section):
    """How an open question is worded for the search, and when `ask` says that the index has no answer."""

    vocabulary: str = option(
        "packaged",
        "What the literature calls everyday words and brands: packaged, a FILE of 'phrase<TAB>names' to add, or none.",
        panel=RETRIEVAL,
    )
    evidence_threshold: float | None = setting(
        None,
        "Minimum probability that the hits hold an answer for it to be given as one. Default: the packaged threshold.",
        bounds=(0, 1),
    )
    answer_anyway: bool = option(False, "Answer even if the index seems to hold no answer.", panel=RETRIEVAL)
