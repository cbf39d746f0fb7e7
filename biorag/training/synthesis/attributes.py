"""Attributes of generated pairs: for each pair one value of each is drawn, and put into its prompt.

BMRetriever, Appendix A.2 (Xu et al. 2024, arXiv 2404.18443): type, length and clarity of the query, words of the
documents, difficulty of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from random import Random

from biorag.errors import BadInputError, MissingError
from biorag.utils.parsing import parse_toml

BMRETRIEVER = "bmretriever"


@dataclass(frozen=True, slots=True)
class Attributes:
    """The values that each attribute is drawn from, uniformly and by the seed."""

    values: Mapping[str, Sequence[str]]
    seed: int

    def draw(self, subject: str, number: int) -> dict[str, str]:
        """Return the attributes of a subject's draft with this number, whatever is drawn for others."""
        random = Random(json.dumps([self.seed, subject, number]))
        return {name: random.choice(values) for name, values in self.values.items()}


def read_attributes(spec: str, seed: int) -> Attributes:
    """Return BMRetriever's attributes, or those of a TOML file of lists: `clarity = ["clear", "ambiguous"]`.

    Raises
    ------
    MissingError
        If it is neither `bmretriever` nor a file.
    BadInputError
        If the file is not of such lists.
    """
    path = Path(spec)
    if spec != BMRETRIEVER and not path.is_file():
        raise MissingError(f"--attributes {spec!r} is not a file: name one, or use {BMRETRIEVER}")
    source = resources.files("biorag.prompts") / "attributes.toml" if spec == BMRETRIEVER else path
    values = parse_toml(source.read_bytes(), spec)
    if not values or not all(_is_list(listed) for listed in values.values()):
        raise BadInputError(f"{path} must give each attribute a list of texts, and nothing else")
    if "scenario" in values:
        raise BadInputError(f"{path}: {{scenario}} is the retrieval task in a template: rename the attribute")
    return Attributes(values, seed)


def _is_list(values: object) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)
