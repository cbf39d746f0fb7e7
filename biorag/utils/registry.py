"""A registry: kinds by name, imported when they are used, with facts that their users need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, TypeVar

from biorag.errors import MissingError, UsageError, check_name


@dataclass(frozen=True)
class Kind:
    """One entry of a registry; a subclass has fields for further facts that its users need."""

    name: str
    target: str  # "package.module:name" of the implementation, which `load` imports; ".module:name" is biorag's
    summary: str  # a few words for help texts
    # the extra of biorag that installs the packages it needs; None where they are always installed
    extra: str | None = field(default=None, kw_only=True)

    @property
    def syntax(self) -> str:
        """How users write it, for help texts and messages."""
        return self.name

    def load(self) -> Any:
        """Import the target; see `imported`."""
        return self.imported(self.target)

    def imported(self, target: str) -> Any:
        """Import "package.module:name", or ".module:name" of biorag; raise `MissingError` if a package is missing."""
        module, _, name = target.partition(":")
        try:
            return getattr(import_module(module, "biorag"), name)
        except ModuleNotFoundError as error:
            if self.extra is None:
                raise
            raise MissingError(
                f"{self.name!r} needs the package {error.name!r}: run pip install 'biorag[{self.extra}]'"
            ) from error


K = TypeVar("K", bound=Kind)


class Registry(Mapping[str, K], Generic[K]):
    """The kinds of one thing by name, in the order in which they were registered; messages call it `what`."""

    def __init__(self, what: str, *kinds: K) -> None:
        self.what = what
        self._kinds: dict[str, K] = {}
        for kind in kinds:
            self.register(kind)

    def register(self, kind: K) -> None:
        """Add a kind for help texts, checks, sweeps and tuning; raise `UsageError` if there is one of that name."""
        if kind.name in self._kinds:
            raise UsageError(f"the {self.what} {kind.name!r} is registered twice: choose another name")
        self._kinds[kind.name] = kind

    def named(self, name: str) -> K:
        """Return the kind that a user asked for; raise `UsageError` naming all if there is none."""
        check_name(self.what, name, self._kinds)
        return self._kinds[name]

    def listed(self) -> str:
        """Return the syntax and the summary of each, for help texts: `linear (dense + λ·BM25) or rrf (…)`."""
        return or_list(f"{kind.syntax} ({kind.summary})" for kind in self._kinds.values())

    def names(self) -> str:
        """Return how each is written, for messages: `linear or rrf`."""
        return or_list(kind.syntax for kind in self._kinds.values())

    def __getitem__(self, name: str) -> K:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


def or_list(items: Iterable[str]) -> str:
    """Return "a, b or c"."""
    *others, last = items
    return f"{', '.join(others)} or {last}" if others else last
