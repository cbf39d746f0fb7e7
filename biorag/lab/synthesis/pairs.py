"""Pairs that a model writes for retrieval scenarios: a query, a passage that answers it, and a hard negative.

BMRetriever's second kind of synthetic data (Xu et al. 2024, arXiv 2404.18443). The scenarios come from a file, or the
model lists them. For each pair, values of attributes may be drawn into its prompt, as in the paper's appendix A.2:
type, length and clarity of the query, words of the documents, difficulty of both. The attributes are the paper's, the
prompts restate its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from biorag.errors import BadInputError, MissingError
from biorag.generators.source import OpenGenerator, open_generator
from biorag.lab.synthesis.drafts import (
    DraftFilter,
    DraftForm,
    Draws,
    GenerationJob,
    PromptedWriter,
    Tally,
    free_texts,
    holds,
    on_one_line,
    passage_fault,
)
from biorag.lab.synthesis.questions import as_question
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template
from biorag.training.data import SYNTHETIC
from biorag.training.rows import normalised
from biorag.types import Generation, OnProgress, Prompt
from biorag.utils.parsing import parse_toml
from biorag.utils.runs import Rows
from biorag.utils.text import whole

TEXTS = ("query", "positive", "hard_negative")
LEAST_WORDS = 2  # of a query
LEAST_SCENARIO_WORDS = 3
LISTED = 10  # scenarios asked for at once; BMRetriever asks for about 20
LISTED_LONG = 20
SCENARIO_TOKENS = 40
SCENARIO_TEMPERATURE = 0.7
ROUNDS = 3  # times as many lists as would suffice without repetitions


@dataclass(frozen=True, slots=True)
class Scenario:
    """A retrieval task in words."""

    id: str


@dataclass(frozen=True, slots=True)
class Attributes:
    """The values that each attribute is drawn from, uniformly and by the seed."""

    values: Mapping[str, Sequence[str]]
    seed: int

    def draw(self, subject: str, number: int) -> dict[str, str]:
        """Return the attributes of a subject's draft with this number, whatever is drawn for others."""
        random = Random(json.dumps([self.seed, subject, number]))
        return {name: random.choice(values) for name, values in self.values.items()}


def read_attributes(seed: int) -> Attributes:
    """Return BMRetriever's attributes, to be drawn with the seed."""
    return Attributes(
        parse_toml((resources.files("biorag.prompts") / "attributes.toml").read_bytes(), "attributes"), seed
    )


def generate_pairs(
    job: GenerationJob, scenario_file: Path | None, count: int | None, attributes: Attributes | None = None
) -> Tally:
    """Generate pairs of the scenarios of a file, or else of those that the model lists.

    `count` is that of the scenarios, None for all of the file. The template has the `attributes` as fields.
    """
    job.check("--per-scenario")
    built_in, fields = ("pair_attributes", tuple(attributes.values)) if attributes else ("pair", ())
    template = load_template(built_in, job.template, "scenario", ("scenario", *fields))
    provided = None if scenario_file is None else read_scenarios(scenario_file, count)
    opened = open_generator(job.settings)
    identity = {
        "scenarios": _hash_of(provided) if provided else count,
        "generator": opened.identity,
        "prompt": template.sha256,
        **({"attributes": dict(attributes.values)} if attributes else {}),
    }

    def begin() -> tuple[list[Scenario], Tally, PromptedWriter]:
        scenarios, tokens = (provided, {}) if provided else listed_scenarios(job, count or 0, opened, bool(attributes))
        writer = PromptedWriter(opened.generator, draft_form(template, attributes), job.draws, opened.at_a_time)
        return scenarios, {"scenarios": len(scenarios), "near_copies": 0, **tokens}, writer

    make_rows = partial(pair_rows, examples=template.system, attributes=attributes)
    return job.generate("Writing pairs", identity, make_rows, begin)


def draft_form(template: Template, attributes: Attributes | None = None) -> DraftForm:
    """Return the form of a draft: a query with its two passages, of the attributes that are drawn."""

    def prompts(scenario: Scenario, number: int) -> Iterator[Prompt]:
        drawn = attributes.draw(scenario.id, number) if attributes else {}
        yield template.fill(scenario=scenario.id, **drawn)

    return DraftForm(free_texts(*TEXTS), prompts)


def pair_rows(
    subject: Scenario,
    drafts: Sequence[Generation],
    draft_filter: DraftFilter,
    examples: str,
    attributes: Attributes | None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each pair without a fault, under its scenario, with the `attributes` drawn for it."""
    for number, draft in enumerate(drafts):
        reply = parse_reply(draft.text)
        query, positive, negative = (on_one_line(reply.text(key)) for key in TEXTS)
        query = as_question(query)
        fault = _fault((query, positive, negative), draft.capped, subject, examples)
        if draft_filter.accepts(fault, query, positive):
            row = {"query": query, "positive": positive, "negative_1": negative, "kind": SYNTHETIC}
            drawn = {"attributes": attributes.draw(subject.id, number)} if attributes else {}
            yield {**row, "instruction": subject.id, **drawn}


def _fault(texts: tuple[str, str, str], capped: bool, scenario: Scenario, examples: str) -> str | None:
    """Return the name of the count of a pair's fault; None if it has none."""
    query, positive, negative = texts
    words = normalised(query)
    if not words:
        return "cut" if capped else "empty"
    if len(words.split()) < LEAST_WORDS:
        return "short"
    if words == normalised(scenario.id) or holds(normalised(examples), words):
        return "copied"
    return passage_fault(positive, capped, (query, examples)) or passage_fault(
        negative, capped, (query, positive, examples)
    )


# --- scenarios ---


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
        raise BadInputError(f"{path} has no scenario of {LEAST_SCENARIO_WORDS} words or more: write one on each line")
    return scenarios


def _hash_of(scenarios: Sequence[Scenario]) -> str:
    return hashlib.sha256("\n".join(scenario.id for scenario in scenarios).encode()).hexdigest()


def scenario_form(template: Template, count: int = LISTED) -> DraftForm:
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
    writer = PromptedWriter(opened.generator, scenario_form(template, per_list), draws, opened.at_a_time)
    with job.progress("Listing scenarios", count) as advance:
        scenarios, tokens = list_scenarios(count, writer, per_list, template.system, advance)
    file.publish((f"{scenario.id}\n".encode() for scenario in scenarios), tokens)
    return scenarios, tokens


def list_scenarios(
    limit: int, writer: PromptedWriter, per_list: int, examples: str, on_progress: OnProgress
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
        if len(words.split()) >= LEAST_SCENARIO_WORDS and words not in seen and words not in example_words:
            seen.add(words)
            yield Scenario(on_one_line(text))
