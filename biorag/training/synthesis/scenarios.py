"""Retrieval scenarios, for which pairs are written: from a file, or listed by a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from biorag.errors import BadInputError, MissingError
from biorag.prompts.parse import parse_reply
from biorag.prompts.template import Template
from biorag.training.rows import normalised
from biorag.training.synthesis.passages import on_one_line
from biorag.training.synthesis.writers import DraftForm, Writer
from biorag.types import Generation, OnProgress
from biorag.utils.runs import Rows
from biorag.utils.text import whole

LISTED = 10  # scenarios asked for at once; BMRetriever asks for about 20
LISTED_LONG = 20
LEAST_WORDS = 3
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


@dataclass(frozen=True, slots=True)
class Round:
    """One request for a list."""

    number: int

    @property
    def id(self) -> str:
        """Name of the round."""
        return f"scenarios {self.number}"


def read_scenarios(path: Path, limit: int | None = None) -> list[Scenario]:
    """Return the distinct scenarios of a text file, one a line, the first `limit`.

    Raises
    ------
    MissingError
        If the file is not there.
    BadInputError
        If it is not UTF-8, or has no scenario.
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


def draft_form(template: Template, count: int = LISTED) -> DraftForm[Round]:
    """Return what a language model is asked for: a list of `count` scenarios."""
    return DraftForm(("scenarios",), lambda *_: iter([template.fill(count=count)]), listed=count)


@dataclass(frozen=True)
class ScenarioFile:
    """A text file of the scenarios that a model listed, one a line, written at once, without the `examples`."""

    path: Path
    identity: Mapping[str, Any]
    examples: str = ""
    per_list: int = LISTED

    def listed(self, limit: int, writer: Writer[Round], on_progress: OnProgress) -> Listed:
        """Return `limit` distinct scenarios, asking for them unless they are there; fewer if the model repeats itself.

        Raises
        ------
        MismatchError
            If the file is of other settings, or was changed since.
        BadInputError
            If the model lists none.
        """
        file = Rows(self.path, self.identity)
        if (counts := file.finished()) is not None:
            return Listed(read_scenarios(self.path), **counts)
        scenarios: list[Scenario] = []
        seen: set[str] = set()
        tokens = {"prompt_tokens": 0, "completion_tokens": 0}
        max_rounds = ROUNDS * -(-limit // self.per_list)
        number = 0
        while len(scenarios) < limit and number < max_rounds:
            missing = -(-(limit - len(scenarios)) // self.per_list)
            stop = min(number + min(missing, writer.batch), max_rounds)
            rounds = [Round(index) for index in range(number, stop)]
            number = stop
            for reply in (reply for replies in writer(rounds) for reply in replies):
                new = list(islice(_distinct(_texts(reply), seen, self.examples), limit - len(scenarios)))
                scenarios += new
                tokens["prompt_tokens"] += reply.prompt_tokens
                tokens["completion_tokens"] += reply.completion_tokens
                on_progress(len(new))
        if not scenarios:
            raise BadInputError("the model listed no scenario: give --scenario-file, or another --llm")
        file.publish((f"{scenario.id}\n".encode() for scenario in scenarios), tokens)
        return Listed(scenarios, **tokens)


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
