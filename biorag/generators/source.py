"""What a generator's name stands for: a file to check and hash before it is loaded, a server, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from biorag.registries import generator_of
from biorag.settings.settings import Settings
from biorag.types import Generator


class GeneratorSource(Protocol):
    """Where one kind of generator comes from, made from what `--llm` names."""

    def __init__(self, spec: str) -> None:
        """Take the name, and look nowhere yet."""

    def check(self) -> None:
        """Look at what can be seen to be wrong before an index or an encoder is loaded; raise `MissingError`."""

    def sha256(self) -> str:
        """Return the hash of its weights; empty where they are not seen."""

    def identity(self) -> Mapping[str, Any]:
        """Return what its weights are known by on this machine, without reading a large file of the user's."""

    def open(self, settings: Settings, at_a_time: int) -> Generator | None:
        """Load or reach it, to be asked for `at_a_time` replies at a time; None for none."""


class NoGenerator:
    """No generator: the answer is the evidence."""

    def __init__(self, spec: str) -> None:
        pass

    def check(self) -> None:
        """Do nothing."""

    def sha256(self) -> str:
        """Return no hash."""
        return ""

    def identity(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def open(self, settings: Settings, at_a_time: int) -> None:
        """Return None."""


def generator_source(spec: str) -> GeneratorSource:
    """Return where the generator that `--llm` names comes from."""
    source: GeneratorSource = generator_of(spec).load()(spec)
    return source
