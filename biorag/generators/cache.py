"""Replies kept by a hash of all that determines them, so that no model is asked twice for the same."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from biorag.errors import BioragError
from biorag.prompts.parse import parse_reply
from biorag.types import Generation, GenerationRequest, Generator, Prompt, Scores
from biorag.utils.files import write_text
from biorag.utils.parsing import parsed, read_regular

logger = logging.getLogger(__name__)

CODE = ("generators", "prompts")  # the packages of biorag whose code determines replies
LARGEST = 16 << 20  # bytes of an entry
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    capped: bool
    tokens: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


@dataclass(frozen=True, slots=True)
class _Scored:
    logprobs: dict[str, float]


class CachedGenerator:
    """A generator whose replies are kept as files, one each; several processes and threads may share the folder.

    An entry that cannot be read is made again, and one that cannot be written is only warned of. A reply without a
    JSON object, or without a score, is not kept, so that it is asked for again.

    Parameters
    ----------
    identity : all that determines the replies besides what is asked: JSON values
    """

    def __init__(self, generator: Generator, folder: Path, identity: Mapping[str, Any]) -> None:
        self.name = generator.name
        self.context_window = generator.context_window
        self._generator = generator
        self._folder = folder
        self._identity = identity

    @property
    def controls(self) -> Sequence[str]:
        """Return what a document must not write for the model."""
        return self._generator.controls

    def count_tokens(self, prompt: Prompt) -> int:
        """Return the number of tokens the prompt takes in the context window."""
        return self._generator.count_tokens(prompt)

    def generate(self, request: GenerationRequest, on_text: Callable[[str], None] | None = None) -> Generation:
        """Reply with a JSON object of the schema; `on_text` sees a kept reply at once."""
        entry = self._entry("generate", request.prompt, request.schema, request.max_tokens, request.sampling)
        if kept := _read(entry, _Reply):
            if on_text:
                on_text(kept.text)
            return Generation(kept.text, kept.capped, True, *kept.tokens)
        generation = self._generator.generate(request, on_text)
        if parse_reply(generation.text).fields:
            tokens = [generation.prompt_tokens, generation.completion_tokens]
            _write(entry, {"text": generation.text, "capped": generation.capped, "tokens": tokens})
        return generation

    def score(self, prompt: Prompt, choices: Sequence[str]) -> Scores:
        """Return each choice's log-probability as the first text of the reply."""
        return self.score_all([(prompt, choices)])[0]

    def score_all(self, asked: Sequence[tuple[Prompt, Sequence[str]]]) -> list[Scores]:
        """Return what `score` does for each prompt and its choices; those without a kept reply go in one batch."""
        entries = [self._entry("score", prompt, list(choices)) for prompt, choices in asked]
        kept = [_read(entry, _Scored) for entry in entries]
        missing = [place for place, scored in enumerate(kept) if scored is None]
        made = dict(zip(missing, self._generator.score_all([asked[place] for place in missing]), strict=True))
        for place, scores in made.items():
            if scores.logprobs:
                _write(entries[place], {"logprobs": dict(scores.logprobs)})
        return [made[place] if scored is None else Scores(scored.logprobs, True) for place, scored in enumerate(kept)]

    def _entry(self, method: str, prompt: Prompt, *asked: Any) -> Path:
        """Return the file of a reply; the order of a schema's fields counts, since replies follow it."""
        determining = [self._identity, method, prompt.system, prompt.user, *asked]
        key = hashlib.sha256(json.dumps(determining).encode()).hexdigest()
        return self._folder / key[:2] / f"{key}.json"


@cache
def code_hash() -> str:
    """Return the SHA-256 of the source of the modules in `CODE`."""
    folders = (resources.files("biorag") / package for package in CODE)
    files = [(folder.name, file) for folder in folders for file in folder.iterdir() if file.name.endswith(".py")]
    listing = sorted(f"{folder}/{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for folder, file in files)
    return hashlib.sha256("\n".join(listing).encode()).hexdigest()


def _read(entry: Path, kind: type[Kept]) -> Kept | None:
    """Return what an entry holds; None where there is none, or none that is whole."""
    try:
        kept: Kept = parsed(kind, read_regular(entry, LARGEST))
        return kept
    except FileNotFoundError:
        return None
    except (BioragError, OSError, ValueError) as error:
        logger.warning("the kept reply %s cannot be read (%s): the model is asked again", entry, error)
        return None


def _write(entry: Path, values: Mapping[str, Any]) -> None:
    """Keep a reply; as ASCII, since a reply may hold half a surrogate pair.

    Replies tell what was asked, so others on the machine may not enter their folder.
    """
    try:
        entry.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if entry.exists() and not entry.is_file():
            entry.unlink()  # a pipe or a device would be written to, not replaced
        write_text(entry, json.dumps(values))
    except OSError as error:
        logger.warning("the reply cannot be kept (%s): give --no-cache, or free some space", error)
