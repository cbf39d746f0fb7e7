"""A GGUF file as the source of a generator: found, its header checked, tried out, loaded by llama.cpp."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from biorag.generators.source import GeneratorSource
from biorag.models.finding import STARTER_GENERATOR, find_gguf, hash_of_file
from biorag.models.formats import gguf
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.types import Generator

logger = logging.getLogger(__name__)


class GgufSource(GeneratorSource):
    """`starter`, a path, or `hf:OWNER/REPO/FILE`."""

    def check(self) -> None:
        """Check the file's header against its size."""
        gguf.read_header(find_gguf(self.spec))

    def sha256(self) -> str:
        """Return the SHA-256 of the file."""
        return hash_of_file(find_gguf(self.spec))

    def identity(self) -> Mapping[str, Any]:
        """Return the starter's SHA-256, or a file's path, size and time of change."""
        path = find_gguf(self.spec)
        if self.spec == STARTER:
            return {"sha256": STARTER_GENERATOR.sha256}
        state = path.stat()
        return {"path": str(path.resolve()), "size": state.st_size, "modified_ns": state.st_mtime_ns}

    def open(self, settings: Settings, at_a_time: int) -> Generator:
        """Load the model; any but the starter is tried out in a process of its own first."""
        path, generation = find_gguf(self.spec), settings.generation
        from biorag.generators.llama import LlamaGenerator, check_memory

        check_memory(path, generation.context_window, generation.threads)
        if self.spec == STARTER:
            logger.warning("answers come from the 135M starter generator, which is not a medical model: see --llm")
        else:
            from biorag.generators.preflight import try_out

            try_out(path, settings.cache / "trials")
        return LlamaGenerator(path, generation.context_window, generation.threads)
