"""Instructions: what stands before a query and before a passage, kept in the model as its prompts."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from biorag.errors import BadInputError, MissingError

TASK = "Given a biomedical question, retrieve passages that answer it"
QUERY, PASSAGE = "{query}", "{passage}"


@dataclass(frozen=True, slots=True)
class Instructions:
    """The text before a query and the text before a passage; empty for none."""

    query: str = ""
    passage: str = ""

    def prompts(self) -> dict[str, str]:
        """Return them by the names that sentence-transformers gives queries and passages."""
        return {"query": self.query, "document": self.passage}


# BMRetriever: Xu et al. 2024, arXiv:2404.18443.
TEMPLATES = {
    "bmretriever": ("{task}\nQuery: {query}", "Represent this passage\npassage: {passage}"),
    "none": (QUERY, PASSAGE),
}


def read_instructions(spec: str, task: str = TASK) -> Instructions:
    """Return the instructions of a template by its name, or of a TOML file that sets `query` and `passage`.

    `{task}` becomes the task; the templates end with `{query}` and `{passage}`, for a model keeps prefixes.

    Raises
    ------
    MissingError
        If it is neither a name nor a file.
    BadInputError
        If the file is no such template.
    """
    if spec in TEMPLATES:
        query, passage = TEMPLATES[spec]
        return Instructions(_before(query, QUERY, spec, task), _before(passage, PASSAGE, spec, task))
    path = Path(spec)
    if not path.is_file():
        raise MissingError(f"--instruct {spec!r} is no file: name one, or use one of {', '.join(TEMPLATES)}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"template {path} is no TOML: {error}") from None
    if values.keys() != {"query", "passage"} or not all(isinstance(value, str) for value in values.values()):
        raise BadInputError(f"template {path} has to set the texts query and passage, and nothing else")
    return Instructions(
        _before(values["query"], QUERY, str(path), task), _before(values["passage"], PASSAGE, str(path), task)
    )


def _before(template: str, place: str, name: str, task: str) -> str:
    """Return what a template puts before its place."""
    if template.count(place) != 1 or not template.endswith(place):
        raise BadInputError(
            f"template {name} has to end with {place}, once: what a model keeps stands before a text, never after it"
        )
    return template.removesuffix(place).replace("{task}", task)
