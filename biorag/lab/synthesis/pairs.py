"""Pairs that a model writes for retrieval scenarios: a query, a passage that answers it, and a hard negative.

BMRetriever's second kind of synthetic data (Xu et al. 2024, arXiv 2404.18443). For each pair, values of attributes may
be drawn into its prompt, as in its appendix A.2: type, length and clarity of the query, words of the documents,
difficulty of both. The attributes are the paper's, the prompts restate its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

from biorag.generators.source import open_generator
from biorag.lab.synthesis.drafts import GenerationJob, Tally, holds, on_one_line, passage_fault
from biorag.lab.synthesis.questions import as_question
from biorag.lab.synthesis.scenarios import Scenario, fingerprint, listed_scenarios, read_scenarios
from biorag.lab.synthesis.writers import DraftForm, PromptedWriter, free_texts
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template, load_template
from biorag.training.data import SYNTHETIC
from biorag.training.rows import normalised
from biorag.types import Generation, Prompt
from biorag.utils.parsing import parse_toml

TEXTS = ("query", "positive", "hard_negative")
LEAST_WORDS = 2  # of a query


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


def draft_form(template: Template, attributes: Attributes | None = None) -> DraftForm[Scenario]:
    """Return the form of a draft: a query with its two passages, of the attributes that are drawn."""

    def prompts(scenario: Scenario, number: int) -> Iterator[Prompt]:
        drawn = attributes.draw(scenario.id, number) if attributes else {}
        yield template.fill(scenario=scenario.id, **drawn)

    return DraftForm(free_texts(*TEXTS), prompts)


def pair_rows(
    subject: Scenario,
    drafts: Sequence[Generation],
    tally: Tally,
    seen: set[str],
    examples: str,
    attributes: Attributes | None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each pair without a fault, under its scenario, with the `attributes` drawn for it."""
    for number, draft in enumerate(drafts):
        reply = parse_reply(draft.text)
        query, positive, negative = (on_one_line(reply.text(key)) for key in TEXTS)
        query = as_question(query)
        fault = _fault((query, positive, negative), draft.capped, subject, examples)
        if not fault and not seen.isdisjoint((normalised(query), normalised(positive))):
            fault = "duplicates"
        if fault:
            tally[fault] += 1
            continue
        seen.update((normalised(query), normalised(positive)))
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
        "scenarios": fingerprint(provided) if provided else count,
        "generator": opened.identity,
        "prompt": template.sha256,
        **({"attributes": dict(attributes.values)} if attributes else {}),
    }

    def begin() -> tuple[list[Scenario], Tally, PromptedWriter[Scenario]]:
        scenarios: list[Scenario] = provided or []
        tokens: Tally = {}
        if not provided:
            assert count, "a model is asked for a number of scenarios"
            scenarios, tokens = listed_scenarios(job, count, opened, long=attributes is not None)
        writer = PromptedWriter(opened.generator, draft_form(template, attributes), job.draws, opened.at_a_time)
        return scenarios, {"scenarios": len(scenarios), "near_copies": 0, **tokens}, writer

    make_rows = partial(pair_rows, examples=template.system, attributes=attributes)
    return job.generate("Writing pairs", identity, make_rows, begin)
