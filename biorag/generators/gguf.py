"""A GGUF file as the source of a generator: found, held against its format, tried out, loaded by llama.cpp."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from biorag.models.finding import STARTER_GENERATOR, find_gguf, hash_of_file
from biorag.models.formats import gguf
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.types import Generator

logger = logging.getLogger(__name__)


class GgufSource:
    """`starter`, a path, or `hf:OWNER/REPO/FILE`; see `GeneratorSource`."""

    def __init__(self, spec: str) -> None:
        self._spec = spec

    def check(self) -> None:
        """Hold the file's header against it."""
        gguf.read_header(find_gguf(self._spec))

    def sha256(self) -> str:
        """Return the SHA-256 of the file."""
        return hash_of_file(find_gguf(self._spec))

    def identity(self) -> Mapping[str, Any]:
        """Return the starter's SHA-256, or a file's path, size and time of change."""
        path = find_gguf(self._spec)
        if self._spec == STARTER:
            return {"sha256": STARTER_GENERATOR.sha256}
        state = path.stat()
        return {"path": str(path.resolve()), "size": state.st_size, "modified_ns": state.st_mtime_ns}

    def open(self, settings: Settings, at_a_time: int) -> Generator:
        """Load the model; one that is not the starter is tried out in a process of its own first."""
        path, chosen = find_gguf(self._spec), settings.generation
        from biorag.generators.llama import LlamaGenerator, check_memory, computation
        from biorag.generators.prefixes import PrefixStates

        check_memory(path, chosen.context_window, chosen.threads)
        if self._spec == STARTER:
            logger.warning("answers come from the 135M starter generator, which is not a medical model: see --llm")
        else:
            from biorag.generators.preflight import try_out

            try_out(path, settings.trials)
        prefixes = PrefixStates(settings.prefixes, {**self.identity(), **computation(chosen.context_window)})
        return LlamaGenerator(path, chosen.context_window, chosen.threads, prefixes)
