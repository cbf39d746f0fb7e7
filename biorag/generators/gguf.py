"""A GGUF file as the source of a generator: found, its header checked, tried out, loaded by llama.cpp."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biorag.generators.source import GeneratorSource
from biorag.models.finding import STARTER_GENERATOR, find_llama, hash_of_file
from biorag.models.formats import gguf
from biorag.settings.section import STARTER
from biorag.settings.settings import Settings
from biorag.types import Generator
from biorag.utils.files import sha256_of_json

logger = logging.getLogger(__name__)


class GgufSource(GeneratorSource):
    """`starter`, a path, `hf:OWNER/REPO/FILE`, or a folder of `biorag train generator` with its adapter."""

    def check(self) -> None:
        """Check the file's header against its size."""
        gguf.read_header(find_llama(self.spec)[0])

    def sha256(self) -> str:
        """Return the SHA-256 of the file, or of the list of its and the adapter's."""
        model, *adapter = filter(None, find_llama(self.spec))
        return sha256_of_json([*map(hash_of_file, (model, *adapter))]) if adapter else hash_of_file(model)

    def identity(self) -> Mapping[str, Any]:
        """Return the starter's SHA-256, or the path, size and time of change of the model and its adapter."""
        if self.spec == STARTER:
            return {"sha256": STARTER_GENERATOR.sha256}
        model, *adapter = (_state(path) for path in find_llama(self.spec) if path)
        return {**model, **({"adapter": adapter[0]} if adapter else {})}

    def open(self, settings: Settings, at_a_time: int) -> Generator:
        """Load the model; any but the starter is tried out in a process of its own first."""
        generation = settings.generation
        path, adapter = find_llama(self.spec)
        from biorag.generators.llama import LlamaGenerator, check_memory

        check_memory(path, generation.context_window)
        if self.spec == STARTER:
            logger.warning("answers come from the 135M starter generator, which is not a medical model: see --llm")
        else:
            from biorag.generators.preflight import try_out

            try_out(path, settings.cache / "trials", adapter)
        return LlamaGenerator(path, generation.context_window, generation.threads, adapter)


def _state(path: Path) -> dict[str, Any]:
    state = path.stat()
    return {"path": str(path.resolve()), "size": state.st_size, "modified_ns": state.st_mtime_ns}
