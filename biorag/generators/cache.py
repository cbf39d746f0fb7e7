"""Replies kept under a hash of everything that determines them, so that no model is asked twice for the same."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt

from biorag.errors import BioragError
from biorag.prompts.parse import parse_reply
from biorag.settings.settings import Settings
from biorag.types import Generation, GenerationRequest, Generator, Prompt, Scores
from biorag.utils.files import is_old, write_text
from biorag.utils.parsing import parsed, read_regular

logger = logging.getLogger(__name__)

LARGEST = 16 << 20  # bytes of an entry
REPLIES = "replies"  # the folder of the entries


@dataclass(frozen=True, slots=True)
class _CachedReply:
    text: str
    capped: bool
    tokens: tuple[NonNegativeInt, NonNegativeInt]


@dataclass(frozen=True, slots=True)
class _CachedScores:
    logprobs: dict[str, float]


class CachedGenerator:
    """A generator whose replies are cached as files, one each; processes and threads may share the folder.

    `identity` is the JSON of everything that determines the replies, besides the request. An entry that cannot be read
    is replaced; one that cannot be written gives a warning. A reply without a JSON object or a score is not cached.
    """

    def __init__(self, generator: Generator, folder: Path, identity: Mapping[str, Any]) -> None:
        self.name = generator.name
        self.context_window = generator.context_window
        self._generator = generator
        self._folder = folder
        self._identity = identity
        _close(folder)

    @property
    def controls(self) -> Sequence[str]:
        """Return the control strings of the generator."""
        return self._generator.controls

    def count_tokens(self, prompt: Prompt) -> int:
        """Return the number of tokens the prompt takes in the context window."""
        return self._generator.count_tokens(prompt)

    def generate(self, request: GenerationRequest, on_text: Callable[[str], None] | None = None) -> Generation:
        """Reply as the request says; `on_text` sees a cached reply at once."""
        free = () if request.constrained else ("free",)
        entry = self._entry("generate", request.prompt, request.schema, request.max_tokens, request.sampling, *free)
        if cached := _read(entry, _CachedReply):
            if on_text:
                on_text(cached.text)
            return Generation(cached.text, cached.capped, True, *cached.tokens)
        reply = self._generator.generate(request, on_text)
        if parse_reply(reply.text).fields:
            _write(entry, _CachedReply(reply.text, reply.capped, (reply.prompt_tokens, reply.completion_tokens)))
        return reply

    def score(self, prompt: Prompt, choices: Sequence[str]) -> Scores:
        """Return each choice's log-probability as the first text of the reply."""
        entry = self._entry("score", prompt, list(choices))
        if cached := _read(entry, _CachedScores):
            return Scores(cached.logprobs, True)
        scores = self._generator.score(prompt, choices)
        if scores.logprobs:
            _write(entry, _CachedScores(dict(scores.logprobs)))
        return scores

    def _entry(self, method: str, prompt: Prompt, *details: Any) -> Path:
        """Return the file of a reply; the order of a schema's fields counts, since replies follow it."""
        determining = [self._identity, method, prompt.system, prompt.user, *details]
        key = hashlib.sha256(json.dumps(determining).encode()).hexdigest()
        return self._folder / key[:2] / f"{key}.json"


def _read(entry: Path, kind: type[Any]) -> Any:
    """Return the content of an entry; None if it is missing or damaged."""
    try:
        cached = parsed(kind, read_regular(entry, LARGEST))
    except FileNotFoundError:
        return None
    except (BioragError, OSError, ValueError) as error:
        logger.warning("the cached reply %s cannot be read (%s): the model is asked again", entry, error)
        return None
    with suppress(OSError):
        os.utime(entry)  # by which `old_replies` tells that it is in use
    return cached


def old_replies(settings: Settings) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the folder of the replies, and those for which nobody has asked for `OLD_DAYS`."""
    folder = settings.cache / REPLIES
    if old := [path for path in sorted(folder.glob("*/*.json")) if is_old(path)]:
        yield folder, old


def _close(folder: Path) -> None:
    """Keep others from the replies in a folder, also from those that an earlier version left open."""
    with suppress(OSError):
        if folder.is_dir() and folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
            for path in folder.rglob("*"):
                if not path.is_symlink():
                    path.chmod(0o700 if path.is_dir() else 0o600)


def _write(entry: Path, content: _CachedReply | _CachedScores) -> None:
    """Write an entry, readable by the user alone, as ASCII, since a reply may hold half a surrogate pair."""
    try:
        entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close(entry.parent.parent)
        if entry.exists() and not entry.is_file():
            entry.unlink()  # a pipe or a device would be written to, not replaced
        write_text(entry, json.dumps(asdict(content)))
        entry.chmod(0o600)
    except OSError as error:
        logger.warning("the reply cannot be cached (%s): give --no-cache, or free some space", error)
