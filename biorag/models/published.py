"""Published models by name: those that are worth their size, and encoders as their authors search with them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from biorag.errors import MissingError
from biorag.models.finding import PICKLED_PATTERNS, ModelFiles, find_encoder, find_pickled
from biorag.models.formats.directory import MAX_TOKENS, MODULE_LIST, READING
from biorag.models.prompted import copy_prompted, written_once
from biorag.utils.files import write_json
from biorag.utils.parsing import parse_json, parse_toml

FILE = Path(__file__).with_name("recommended.toml")
WINDOW = 512  # tokens of a text, of models whose files do not say
LAST = "last"
POOLING_FILE = Path("1_Pooling") / "config.json"


class RecommendedModel(BaseModel):
    """A model: millions of parameters, a published figure where one was found, and what it takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    parameters: int
    published: str = "-"
    source: str
    needs: str
    command: str


class PublishedEncoder(BaseModel):
    """An encoder's model, or its models of queries and passages, and how its authors search with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = ""
    query: str = ""
    passage: str = ""
    pooling: Literal["cls", "mean", "last"] | None = None
    similarity: Literal["cosine", "dot"] = "cosine"
    prompts: tuple[str, str] | None = None
    pools_prompt: bool = True

    @property
    def models(self) -> list[str]:
        """The ids of its models."""
        return [self.model] if self.model else [self.query, self.passage]


class _Listed(BaseModel):
    models: list[RecommendedModel]
    encoders: Mapping[str, PublishedEncoder]


@cache
def _listed() -> _Listed:
    return _Listed.model_validate(parse_toml(FILE.read_bytes(), str(FILE)))


def recommended() -> list[RecommendedModel]:
    """Return the models that are worth their size, in the file's order."""
    return _listed().models


def published() -> Mapping[str, PublishedEncoder]:
    """Return the encoders by their names."""
    return _listed().encoders


def find_published(name: str, home: Path) -> ModelFiles:
    """Return an encoder by its name as its authors search with it, written into a folder of `home` where that differs.

    Pickled weights are converted there. Raises as `find_encoder`, and what loading a model raises.
    """
    encoder = published()[name]
    files = [_safe(id, home) for id in encoder.models]
    if len(files) == 2:
        from biorag.models.pairing import write_pair

        return write_pair(files[0], files[1], encoder.pooling, home)
    (one,) = files
    whole = (one.path / MODULE_LIST).is_file()
    if (whole or not encoder.pooling) and encoder.prompts is None:
        return one
    changes = [one.sha256, one.configuration(), encoder.model_dump()]
    return written_once(home, files, changes, partial(_write, encoder, one))


def _safe(id: str, home: Path) -> ModelFiles:
    """Return the files of a model, converted in `home` if its weights are published as pickles alone."""
    try:
        return find_encoder(id)
    except MissingError:
        folder = home / id.replace("/", "--")
        if not folder.is_dir():
            source = find_pickled(id)
            if not any(file.match(PICKLED_PATTERNS[-1]) for file in source.rglob("*")):
                raise
            from biorag.models.conversion import convert

            convert(id, folder, lambda files: None)
        return find_encoder(str(folder))


def _write(encoder: PublishedEncoder, files: ModelFiles, folder: Path) -> None:
    """Write a copy of an encoder with its pooling and its prompts, as sentence-transformers reads them."""
    copy_prompted(files, folder, dict(zip(("query", "document"), encoder.prompts or (), strict=False)))
    if not (folder / MODULE_LIST).is_file():
        _write_modules(files, str(encoder.pooling), folder)
    if not encoder.pools_prompt:
        pooling = folder / POOLING_FILE
        write_json(pooling, {**parse_json(pooling.read_bytes()), "include_prompt": False})


def _write_modules(files: ModelFiles, pooling: str, folder: Path) -> None:
    """Write the files that make a folder of transformers one of sentence-transformers, with a pooling."""
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import AutoConfig, AutoTokenizer

    from biorag.models.pairing import POOLINGS, append_eos

    config = AutoConfig.from_pretrained(str(files.path), local_files_only=True).get_text_config()
    (folder / POOLING_FILE).parent.mkdir()
    Pooling(config.hidden_size, POOLINGS[pooling]).save(str((folder / POOLING_FILE).parent))
    kinds = {"": "Transformer", POOLING_FILE.parts[0]: "Pooling"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds.items())
    ]
    write_json(folder / MODULE_LIST, modules)
    write_json(folder / READING, {MAX_TOKENS: WINDOW, "do_lower_case": False})
    if pooling == LAST:
        tokenizer = AutoTokenizer.from_pretrained(str(files.path), local_files_only=True)
        append_eos(tokenizer)
        tokenizer.save_pretrained(str(folder))
