"""Retrieval scenarios, for which pairs are written: from a file, or listed by a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from biorag.engine import OpenGenerator
from biorag.errors import BadInputError, MissingError
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template
from biorag.training.rows import normalised
from biorag.training.synthesis.drafts import GenerationJob, on_one_line
from biorag.training.synthesis.writers import DraftForm, Draws, PromptedWriter, Writer
from biorag.types import Generation, OnProgress
from biorag.utils.runs import Rows
from biorag.utils.text import whole

LISTED = 10  # scenarios asked for at once; BMRetriever asks for about 20
LISTED_LONG = 20
LEAST_WORDS = 3
SCENARIO_TOKENS = 40
SCENARIO_TEMPERATURE = 0.7
ROUNDS = 3  # times as many lists as would suffice without repetitions


@dataclass(frozen=True, slots=True)
class Scenario:
    """A retrieval task in words."""

    id: str


@dataclass(frozen=True, slots=True)
class Listed:
    """The scenarios that a model listed, and the tokens that this took."""

    scenarios: list[Scenario]
    prompt_tokens: int = 0
    completion_tokens: int = 0


def read_scenarios(path: Path, limit: int | None = None) -> list[Scenario]:
    """Return the distinct scenarios of a text file, one a line, the first `limit`.

    Raises MissingError if the file is not there; BadInputError if it is not UTF-8, or has no scenario.
    """
    if not path.is_file():
        raise MissingError(f"{path} is not there: give a text file with a scenario on each line")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    scenarios = list(islice(_distinct(lines, set()), limit))
    if not scenarios:
        raise BadInputError(f"{path} has no scenario of {LEAST_WORDS} words or more: write one on each line")
    return scenarios


def fingerprint(scenarios: Sequence[Scenario]) -> str:
    """Return the SHA-256 of scenarios in their order, hex."""
    return hashlib.sha256("\n".join(scenario.id for scenario in scenarios).encode()).hexdigest()


def draft_form(template: Template, count: int = LISTED) -> DraftForm[Scenario]:
    """Return the form of a draft: a list of `count` scenarios."""
    return DraftForm(("scenarios",), lambda *_: iter([template.fill(count=count)]), listed=count)


def listed_scenarios(job: GenerationJob, count: int, opened: OpenGenerator, long: bool) -> Listed:
    """Return the scenarios that the model lists beside the job's rows, or has listed before; in `long` lists or short.

    Raises MismatchError if the file of scenarios is of other settings, or was changed since; BadInputError if the model
    lists none.
    """
    built_in, per_list = ("scenario_list", LISTED_LONG) if long else ("scenario", LISTED)
    template, seed = load_template(built_in, needed="count", known=("count",)), job.draws.seed
    identity = {"scenarios": count, "seed": seed, "generator": opened.identity, "prompt": template.sha256}
    file = Rows(job.out.with_name(f"{job.out.name}.scenarios.txt"), identity)
    if (counts := file.counts()) is not None:
        return Listed(read_scenarios(file.path), **counts)
    draws = Draws(1, SCENARIO_TOKENS, SCENARIO_TEMPERATURE, seed)
    writer = PromptedWriter(opened.generator, draft_form(template, per_list), draws, opened.at_a_time)
    with job.progress("Listing scenarios", count) as advance:
        listed = list_scenarios(count, writer, per_list, template.system, advance)
    tokens = {"prompt_tokens": listed.prompt_tokens, "completion_tokens": listed.completion_tokens}
    file.publish((f"{scenario.id}\n".encode() for scenario in listed.scenarios), tokens)
    return listed


def list_scenarios(
    limit: int, writer: Writer[Scenario], per_list: int, examples: str, on_progress: OnProgress
) -> Listed:
    """Ask for `limit` distinct scenarios that are not among the prompt's `examples`; fewer if the model repeats itself.

    Raises BadInputError if the model lists none.
    """
    scenarios: list[Scenario] = []
    seen: set[str] = set()
    prompt_tokens = completion_tokens = number = 0
    max_lists = ROUNDS * -(-limit // per_list)
    while len(scenarios) < limit and number < max_lists:
        missing = -(-(limit - len(scenarios)) // per_list)
        stop = min(number + min(missing, writer.batch), max_lists)
        requests = [Scenario(f"scenarios {index}") for index in range(number, stop)]
        number = stop
        for reply in (reply for replies in writer(requests) for reply in replies):
            new = list(islice(_distinct(_texts(reply), seen, examples), limit - len(scenarios)))
            scenarios += new
            prompt_tokens += reply.prompt_tokens
            completion_tokens += reply.completion_tokens
            on_progress(len(new))
    if not scenarios:
        raise BadInputError("the model listed no scenario: give --scenario-file, or another --llm")
    return Listed(scenarios, prompt_tokens, completion_tokens)


def _texts(reply: Generation) -> list[str]:
    texts = parse_reply(reply.text).fields.get("scenarios")
    return [whole(text) for text in texts if isinstance(text, str)] if isinstance(texts, list) else []


def _distinct(texts: Sequence[str], seen: set[str], examples: str = "") -> Iterator[Scenario]:
    """Yield the texts that are long enough, not an example and not yet seen, each on one line, as scenarios."""
    example_words = normalised(examples)
    for text in texts:
        words = normalised(text)
        if len(words.split()) >= LEAST_WORDS and words not in seen and words not in example_words:
            seen.add(words)
            yield Scenario(on_one_line(text))
