"""Retrieval scenarios, for which pairs are written: from a file, or listed by a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from biorag.errors import BadInputError, MissingError
from biorag.generators.source import OpenGenerator
from biorag.lab.synthesis.drafts import GenerationJob, Tally, on_one_line
from biorag.lab.synthesis.writers import DraftForm, Draws, PromptedWriter, Writer, free_texts
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template
from biorag.training.rows import normalised
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
    return DraftForm(free_texts("scenarios", listed=count), lambda *_: iter([template.fill(count=count)]))


def listed_scenarios(job: GenerationJob, count: int, opened: OpenGenerator, long: bool) -> tuple[list[Scenario], Tally]:
    """Return the scenarios that the model lists beside the job's rows, or has listed before, and the tokens it took.

    They are listed 20 at a time if `long`, else 10.

    Raises MismatchError if the file of scenarios is of other settings, or was changed since; BadInputError if the model
    lists none.
    """
    built_in, per_list = ("scenario_list", LISTED_LONG) if long else ("scenario", LISTED)
    template, seed = load_template(built_in, needed="count", known=("count",)), job.draws.seed
    identity = {"scenarios": count, "seed": seed, "generator": opened.identity, "prompt": template.sha256}
    file = Rows(job.out.with_name(f"{job.out.name}.scenarios.txt"), identity)
    if (counts := file.counts()) is not None:
        return read_scenarios(file.path), counts
    draws = Draws(1, SCENARIO_TOKENS, SCENARIO_TEMPERATURE, seed)
    writer = PromptedWriter(opened.generator, draft_form(template, per_list), draws, opened.at_a_time)
    with job.progress("Listing scenarios", count) as advance:
        scenarios, tokens = list_scenarios(count, writer, per_list, template.system, advance)
    file.publish((f"{scenario.id}\n".encode() for scenario in scenarios), tokens)
    return scenarios, tokens


def list_scenarios(
    limit: int, writer: Writer[Scenario], per_list: int, examples: str, on_progress: OnProgress
) -> tuple[list[Scenario], Tally]:
    """Ask for `limit` distinct scenarios that are not among the prompt's `examples`; fewer if the model repeats itself.

    Returns them and the tokens that they took. Raises BadInputError if the model lists none.
    """
    scenarios: list[Scenario] = []
    seen: set[str] = set()
    tokens = {"prompt_tokens": 0, "completion_tokens": 0}
    number, max_lists = 0, ROUNDS * -(-limit // per_list)
    while len(scenarios) < limit and number < max_lists:
        missing = -(-(limit - len(scenarios)) // per_list)
        stop = min(number + min(missing, writer.batch), max_lists)
        requests = [Scenario(f"scenarios {index}") for index in range(number, stop)]
        number = stop
        for reply in (reply for replies in writer(requests) for reply in replies):
            new = list(islice(_distinct(_texts(reply), seen, examples), limit - len(scenarios)))
            scenarios += new
            tokens["prompt_tokens"] += reply.prompt_tokens
            tokens["completion_tokens"] += reply.completion_tokens
            on_progress(len(new))
    if not scenarios:
        raise BadInputError("the model listed no scenario: give --scenario-file, or another --llm")
    return scenarios, tokens


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
