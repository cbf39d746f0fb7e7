"""The sources of `--llm`: a file to check and hash before it is loaded, a server, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biorag.registries import generator_of
from biorag.settings.settings import Settings
from biorag.types import Generator


class GeneratorSource:
    """A source of a generator, made from the name that `--llm` gives; this one is `--llm none`."""

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def check(self) -> None:
        """Raise `MissingError` for a fault that shows before an index or an encoder is loaded."""

    def sha256(self) -> str:
        """Return the hash of its weights; empty if they are not known."""
        return ""

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of its weights on this machine, without reading a large file."""
        return {}

    def open(self, settings: Settings, at_a_time: int) -> Generator | None:
        """Load or reach it, to be asked for `at_a_time` replies at a time; None for none."""
        return None


def generator_source(spec: str) -> GeneratorSource:
    """Return where the generator that `--llm` names comes from."""
    source: GeneratorSource = generator_of(spec).load()(spec)
    return source
