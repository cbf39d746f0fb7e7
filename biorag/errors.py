"""Errors shown to users: one sentence each, with its exit code, and the nearest right name for a wrong one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

CUTOFF = 0.6  # of difflib's ratio: below, words are not alike
LONGEST = 2000  # characters of a sentence, which quotes files and servers: its beginning and its end, the next step
SHORTEST = 3  # letters of a word that another may begin with

# Other words for a name; each counts only where the name is known.
SYNONYMS = {
    "index": "add build ingest",
    "ask": "answer question",
    "bench": "benchmark eval evaluate",
    "k_init": "candidates",
    "name": "collection index index_name",
    "search": "find query retrieve",
    "train": "finetune",
    "llm": "generator model",
    "encoder": "model",
    "base": "model",
    "delete": "del drop erase remove rm",
    "indexes": "list ls",
    "learning_rate": "lr",
    "bm25": "lexical sparse",
    "dense": "semantic vector",
    "k": "max_results n top top_k topk",
    "out": "output output_dir",
    "filter": "where",
}


class BioragError(Exception):
    """Base of every error a user may see: a sentence with the value at fault and the next step, after `details`."""

    exit_code = 1
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return bounded(super().__str__())

    @property
    def public(self) -> str:
        """The sentence for those who have no command line: without its commands, and what a service behind it said."""
        return without_commands(str(self))


class UsageError(BioragError):
    """An option or configuration value that cannot be used."""

    exit_code = 2


class BadInputError(BioragError):
    """Input data that cannot be read: a corpus line, a benchmark file, a prompt template."""

    exit_code = 3


class MissingError(BioragError):
    """An index, model, file or optional package that is not there."""

    exit_code = 4


class MismatchError(BioragError):
    """An index that does not fit the model, or results that do not fit the configuration."""

    exit_code = 5


class ServiceError(BioragError):
    """A server, model or index that failed or is busy; `said` is the part of its sentence that the server wrote."""

    exit_code = 6

    def __init__(self, sentence: str, said: str = "") -> None:
        super().__init__(sentence)
        self._said = said

    @property
    def public(self) -> str:
        """The sentence without commands and what the server wrote."""
        return without_commands(bounded(Exception.__str__(self).replace(self._said, "", 1)))


class OfflineError(ServiceError):
    """A connection that offline mode refuses."""


class UnsupportedError(BioragError):
    """No supported answer, and a script asked to fail then."""

    exit_code = 7


def bounded(sentence: str) -> str:
    """Return a sentence, or the beginning and the end of one that is too long."""
    half = LONGEST // 2
    return sentence if len(sentence) <= LONGEST else f"{sentence[:half]} … {sentence[-half:]}"


_COMMANDS = re.compile(r" ?\([^()]*--[^()]*\)| of --[a-z-]+|, as --[a-z-]+ asks|[;:] [^;:]*'biorag [^']*'[^;:]*")


def without_commands(sentence: str) -> str:
    """Return a note or a fault without the options and commands that it names, for readers who have no command line."""
    return _COMMANDS.sub("", sentence)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is not among the keys of a registry; the nearest of them stands last."""
    names = sorted(known)
    return UsageError(f"unknown {kind} {name!r}: use one of {', '.join(names)}{suggestion(name, names)}")


def check_name(kind: str, name: str, known: Collection[str]) -> None:
    """Raise the error of `unknown_name` for a name that is not among the known ones."""
    if name not in known:
        raise unknown_name(kind, name, known)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that a user most likely meant, whatever its case, dashes and `_`; None if none is alike."""
    from difflib import get_close_matches

    names = {_plain(name): name for name in known}
    plain = _plain(word)
    if not plain:
        return None
    alike = [plain, *(name for name, words in SYNONYMS.items() if plain in words.split())]
    alike += [name for name in sorted(names, key=len) if len(plain) >= SHORTEST and name.startswith(plain)]
    alike += get_close_matches(plain, names, 1, CUTOFF)
    return next((names[name] for name in alike if name in names), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for the end of a message; empty if no known name is alike."""
    name = nearest(word, known)
    return f" (did you mean {name}?)" if name else ""


def _plain(name: str) -> str:
    return name.lstrip("-").casefold().replace("-", "_")
