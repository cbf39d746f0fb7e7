"""Published models that are worth their size, with the command that takes each: `recommended.toml`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from biorag.utils.parsing import parse_toml

FILE = Path(__file__).with_name("recommended.toml")


class RecommendedModel(BaseModel):
    """A model: millions of parameters, a published figure where one was found, and what it takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    parameters: int
    published: str = "-"
    source: str
    needs: str
    command: str


def recommended() -> list[RecommendedModel]:
    """Return the models of the file, in its order."""
    listed: list[RecommendedModel] = TypeAdapter(list[RecommendedModel]).validate_python(
        parse_toml(FILE.read_bytes(), str(FILE))["models"]
    )
    return listed
