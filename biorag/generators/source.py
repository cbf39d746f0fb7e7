"""The generator that `--llm` names: a file to check and hash before it is loaded, a server, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from biorag.errors import MissingError, UsageError
from biorag.models.finding import STARTER_GENERATOR
from biorag.registries import generator_of
from biorag.settings.settings import Settings
from biorag.types import Generator
from biorag.utils.versions import installed_versions

T = TypeVar("T")


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


def load_generator(settings: Settings, at_a_time: int = 1) -> Generator | None:
    """Load or reach the generator, by default the starter; None for `--llm none`.

    `at_a_time` is the number of concurrent requests to a server.
    """
    generator = generator_source(settings.generation.generator).open(settings, at_a_time)
    return generator and cached(generator, settings)


def cached(generator: Generator, settings: Settings) -> Generator:
    """Return a generator whose replies are kept, unless the settings say otherwise."""
    if not settings.generation.cache:
        return generator
    from biorag.generators.cache import REPLIES, CachedGenerator

    return CachedGenerator(generator, settings.cache / REPLIES, generator_identity(settings, generator))


def generator_identity(settings: Settings, generator: Generator) -> dict[str, Any]:
    """Return the identity of a generator's replies, besides the request."""
    return {
        "name": generator.name,
        **generator_source(settings.generation.generator).identity(),
        "context_window": generator.context_window,
        "versions": {package: installed_versions().get(package) for package in ("biorag", "llama-cpp-python")},
    }


def on_starter(load: Callable[[Path], T], cache: Path) -> T | None:
    """Return what is loaded of the starter's Llama in 8 bits; None where that, llama.cpp or a file of it is missing."""
    if STARTER_GENERATOR.folder() is None:
        return None
    try:
        from biorag.generators.llama import in_8_bits

        return load(in_8_bits(STARTER_GENERATOR.path(), cache))
    except MissingError:
        return None


def require_generator(settings: Settings, at_a_time: int = 1) -> Generator:
    """Load the generator where one is needed; raise `UsageError` for `--llm none`."""
    generator = load_generator(settings, at_a_time)
    if generator is None:
        raise UsageError("this command needs a generator: give --llm something other than 'none'")
    return generator


@dataclass(frozen=True, slots=True)
class OpenGenerator:
    """A generator, the number of concurrent requests that it takes, and the identity of its replies."""

    generator: Generator
    at_a_time: int
    identity: Mapping[str, Any]


def open_generator(settings: Settings) -> OpenGenerator:
    """Load the configured generator, or reach its server; raise `UsageError` for `--llm none`."""
    at_a_time = generator_of(settings.generation.generator).at_a_time(settings.generation.concurrency)
    generator = require_generator(settings, at_a_time)
    return OpenGenerator(generator, at_a_time, generator_identity(settings, generator))
