"""Instructions: the text before a query and before a passage, kept in the model as its prompts."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from random import Random

from biorag.errors import BadInputError, MissingError, UsageError

TASK = "Given a biomedical question, retrieve passages that answer it"
QUERY, PASSAGE = "{query}", "{passage}"


@dataclass(frozen=True, slots=True)
class Instructions:
    """The text before a query and the text before a passage; empty for none.

    Where there are texts in `drawn`, training puts one of them before each query in place of `query`.
    """

    query: str = ""
    passage: str = ""
    drawn: tuple[str, ...] = ()

    def prompts(self) -> dict[str, str]:
        """Return them by the names that sentence-transformers gives queries and passages."""
        return {"query": self.query, "document": self.passage}


# BMRetriever: Xu et al. 2024, arXiv:2404.18443.
TEMPLATES = {
    "bmretriever": ("{task}\nQuery: {query}", "Represent this passage\npassage: {passage}"),
    "none": (QUERY, PASSAGE),
}


def generic_tasks(number: int, seed: int) -> tuple[str, ...]:
    """Return `number` of the 100 tasks that fit any search, drawn with the seed, in the order of the list.

    Source: the random generic prompts of Synthesize-Train-Merge (10, 20, 50 or 100).
    """
    tasks = resources.files("biorag.prompts").joinpath("generic_tasks.txt").read_text(encoding="utf-8").splitlines()
    return tuple(tasks[index] for index in sorted(Random(seed).sample(range(len(tasks)), number)))


def read_instructions(spec: str, task: str = TASK, drawn: Sequence[str] = ()) -> Instructions:
    """Return the instructions of a template by its name, or of a TOML file that sets `query` and `passage`.

    `{task}` becomes the task, in `Instructions.drawn` each of the tasks `drawn`; the templates end with `{query}` and
    `{passage}`, since a model keeps prefixes.

    Raises
    ------
    MissingError
        If it is neither a name nor a file.
    BadInputError
        If the file is not such a template.
    UsageError
        If there are tasks to draw from and the template does not have `{task}`.
    """
    query, passage = TEMPLATES[spec] if spec in TEMPLATES else _read(spec)
    if drawn and "{task}" not in query:
        raise UsageError(
            f"--random-prompts fill {{task}}, which the query of template {spec!r} does not have: give another"
        )
    return Instructions(
        _before(query, QUERY, spec, task),
        _before(passage, PASSAGE, spec, task),
        tuple(_before(query, QUERY, spec, other) for other in drawn),
    )


def _read(spec: str) -> tuple[str, str]:
    """Return the two templates of a TOML file."""
    path = Path(spec)
    if not path.is_file():
        raise MissingError(f"--instruct {spec!r} is not a file: name one, or use one of {', '.join(TEMPLATES)}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"template {path} is not valid TOML: {error}") from None
    if values.keys() != {"query", "passage"} or not all(isinstance(value, str) for value in values.values()):
        raise BadInputError(f"template {path} must set the texts query and passage, and nothing else")
    return values["query"], values["passage"]


def _before(template: str, placeholder: str, name: str, task: str) -> str:
    """Return what a template puts before its placeholder."""
    if template.count(placeholder) != 1 or not template.endswith(placeholder):
        raise BadInputError(
            f"template {name} must end with {placeholder}, once: a model keeps only what stands before a text"
        )
    return template.removesuffix(placeholder).replace("{task}", task)
