"""A GGUF file tried out in a child process: llama.cpp ends its process at some damaged or crafted files.

The header's values are checked against the file, but not all against each other: llama.cpp aborts at some (a vocabulary
with a duplicate token), reads beyond its memory at others, and cannot read weights that are NaN.
"""

from __future__ import annotations

import logging
import resource
import signal
from importlib.metadata import version
from pathlib import Path

from biorag.errors import BioragError, MissingError
from biorag.models.formats import gguf
from biorag.prompts.template import schema_for
from biorag.types import GenerationRequest, Prompt, Question
from biorag.utils.apart import ApartError, limit_data, run_in_subprocess
from biorag.utils.files import write_text

logger = logging.getLogger(__name__)

TRIAL_SECONDS = 600  # of a model whose weights come from a slow disk
TEMPLATE_SECONDS = 2
TEMPLATE_BYTES = 256 * 2**20
WINDOW = 256
PROMPT = Prompt("You answer in JSON.", "Is fever a symptom?")
QUESTION = Question("trial", PROMPT.user, {"A": "yes", "B": "no"})


def try_out(path: Path, records: Path, adapter: Path | None = None) -> None:
    """Load a model, score and write a few tokens in a child process; once, until a file changes.

    `adapter` is put on the model; `records` is the folder of the files that passed. Raises `MissingError` if the model
    does not load, or its process fails.
    """
    files = [path, adapter] if adapter else [path]
    states = [file.stat() for file in files]
    record = records / "+".join(f"{one.st_dev}-{one.st_ino}-{one.st_size}-{one.st_mtime_ns}" for one in states)
    tried = "".join(f"{file.resolve()}\n" for file in files) + f"{version('llama-cpp-python')}\n"
    if record.is_file() and record.read_text(encoding="utf-8") == tried:
        return
    _run(path, adapter)
    try:
        write_text(record, tried)
    except OSError as error:
        logger.warning("that %s loads cannot be recorded (%s): it is tried again next time", path, error)


def _run(path: Path, adapter: Path | None) -> None:
    named = adapter or path
    try:
        fault = run_in_subprocess(_trial, (path, adapter), TRIAL_SECONDS)
    except ApartError as error:
        if error.slow:
            raise MissingError(f"{named} did not load within {TRIAL_SECONDS} seconds: name another GGUF file") from None
        raise MissingError(f"llama.cpp fails at {named} ({error}), so it is not loaded: fetch the file again") from None
    if fault:
        raise MissingError(fault)


def _trial(path: Path, adapter: Path | None) -> str:
    """Return an empty text if the model loads and writes, else the reason; runs in the child process."""
    from biorag.generators.llama import LlamaGenerator

    try:
        _render(path)
        generator = LlamaGenerator(path, WINDOW, adapter=adapter)
        generator.score(PROMPT, tuple(QUESTION.options))
        generator.generate(GenerationRequest(PROMPT, schema_for(QUESTION, 0), 4))
    except BioragError as error:
        return str(error)
    except Exception as error:  # whatever a library raises at a damaged model
        return f"{path} is not a usable GGUF model ({type(error).__name__}: {error}): fetch the file again"
    return ""


def _render(path: Path) -> None:
    """Render the chat template, a program, within limits of time and memory that end its process."""
    from biorag.generators.llama import CHAT_TEMPLATE, PLAIN_TEMPLATE, chat_pieces

    template = gguf.read_header(path).metadata.get(CHAT_TEMPLATE, PLAIN_TEMPLATE)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_data(TEMPLATE_BYTES)
    signal.alarm(TEMPLATE_SECONDS)
    try:
        chat_pieces(str(template), "", "")
    except Exception as error:  # templates are programs, which raise what they like
        reason = str(error) or type(error).__name__
        raise MissingError(f"the chat template of {path} cannot be rendered ({reason})") from error
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_DATA, before)
