"""Encoders put together: a pooling, a projection after it, or a query and a passage model, such as MedCPT's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Router
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers.processors import TemplateProcessing

from biorag.errors import MissingError, UsageError, unknown_name
from biorag.models.finding import ModelFiles
from biorag.models.formats.directory import MODULE_LIST
from biorag.models.loading import has_towers, load_model
from biorag.models.prompted import written_once

# As `--pooling` names them, and the library: the first token's vector, the mean of all, the last token's.
POOLINGS = {"cls": "cls", "mean": "mean", "last": "lasttoken"}
DPR = "dpr"  # transformers' type of DPR's models, which sentence-transformers does not load


def write_pair(query: ModelFiles, passage: ModelFiles, pooling: str | None, home: Path) -> ModelFiles:
    """Write two models as a sentence-transformers Router into a folder of `home`, once; return it as an encoder.

    `pooling` is a name of `POOLINGS`; None keeps each model's own. The weights are copies, so that the pair's hash
    covers both.

    Raises `MissingError` if a model does not load, or their vectors differ in length; `UsageError` if a model has two
    towers itself, or does not say how it pools and no pooling is given.
    """
    identity: list[Any] = [*((files.sha256, files.configuration()) for files in (query, passage)), pooling, {}]
    return written_once(
        home,
        [query, passage],
        identity,
        lambda folder: _router(query, passage, pooling).save(str(folder), create_model_card=False),
    )


def _router(query: ModelFiles, passage: ModelFiles, pooling: str | None) -> SentenceTransformer:
    asking, reading = _tower(query, pooling, "--query-encoder"), _tower(passage, pooling, "--passage-encoder")
    sizes = [model.get_embedding_dimension() for model in (asking, reading)]
    if sizes[0] != sizes[1]:
        raise MissingError(
            f"{query.id!r} has vectors of {sizes[0]} numbers and {passage.id!r} of {sizes[1]}: they cannot be compared"
        )
    router = Router.for_query_document(list(asking), list(reading))
    own = {"query": asking.prompts.get("query"), "document": reading.prompts.get("document")}
    prompts = {name: text for name, text in own.items() if text}
    return SentenceTransformer(modules=[router], device=str(asking.device), prompts=prompts)


def _tower(files: ModelFiles, pooling: str | None, option: str) -> SentenceTransformer:
    if files.settings("config.json").get("model_type") == DPR:
        raise UsageError(
            f"{option} {files.id} is DPR as transformers saves it: name its copy for sentence-transformers, such as "
            "sentence-transformers/facebook-dpr-ctx_encoder-single-nq-base"
        )
    if pooling is None and not (files.path / MODULE_LIST).is_file():
        raise UsageError(
            f"{option} {files.id} does not specify its pooling: give --pooling cls (for MedCPT), mean or last"
        )
    model = load_model(SentenceTransformer, files, "fp32")
    if has_towers(model):
        raise UsageError(f"{option} {files.id} has two towers: give it as --encoder")
    return with_pooling(model, pooling) if pooling else model


def with_pooling(model: SentenceTransformer, pooling: str) -> SentenceTransformer:
    """Return a model with another pooling; a bare transformer gets one.

    Raises `UsageError` if the pooling is unknown, or the model has two towers.
    """
    if pooling not in POOLINGS:
        raise unknown_name("--pooling", pooling, POOLINGS)
    _require_one_tower(model, "--pooling")
    others = [module for module in list(model)[1:] if not isinstance(module, Pooling)]
    pool = Pooling(model[0].get_embedding_dimension(), POOLINGS[pooling])
    return of_modules(model, [model[0], pool, *others])


def append_eos(tokenizer: Any) -> None:
    """Let a tokenizer append EOS to every text, also a cut one, and pad on the right; leading special tokens stay.

    Raises MissingError if it cannot.
    """
    if tokenizer.eos_token is None or not tokenizer.is_fast:
        raise MissingError("the base's tokenizer has no end-of-sequence token, or no tokenizer.json to keep it in")
    plain = tokenizer("a", add_special_tokens=False).input_ids
    marked = tokenizer("a").input_ids
    start = next(start for start in range(len(marked)) if marked[start : start + len(plain)] == plain)
    before = tokenizer.convert_ids_to_tokens(marked[:start])
    first, eos = " ".join(before), tokenizer.eos_token
    specials = [(token, tokenizer.convert_tokens_to_ids(token)) for token in {*before, eos}]
    tokenizer.add_bos_token = tokenizer.bos_token in before  # where set, it wins over tokenizer.json
    tokenizer.add_eos_token = True
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {eos}".strip(), pair=f"{first} $A $B:1 {eos}:1".strip(), special_tokens=specials
    )
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = eos


def with_projection(model: SentenceTransformer, dimension: int, seed: int) -> SentenceTransformer:
    """Return a model with a linear layer after the pooling, drawn with the seed, to `dimension` numbers.

    As the BioASQ 8 hybrid system projects [CLS] to 768 dimensions (section 2.1).

    Raises `UsageError` if the model has a projection already, two towers, or no pooling.
    """
    _require_one_tower(model, "--projection")
    modules = list(model)
    if any(isinstance(module, Dense) for module in modules):
        raise UsageError("--projection: the base has a projection, which is trained further: leave the option out")
    position = next((number for number, module in enumerate(modules) if isinstance(module, Pooling)), None)
    if position is None:
        raise UsageError("--projection: the base has no pooling whose vector could be projected: name a transformer")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = Dense(modules[position].get_embedding_dimension(), dimension, activation_function=None)
    return of_modules(model, [*modules[: position + 1], layer, *modules[position + 1 :]])


def _require_one_tower(model: SentenceTransformer, option: str) -> None:
    if has_towers(model):
        raise UsageError(f"{option} changes one transformer, and the base has two towers: leave it out")


def of_modules(model: SentenceTransformer, modules: list[Any]) -> SentenceTransformer:
    """Return a model of these modules, with the device and the prompts of another."""
    return SentenceTransformer(modules=modules, device=str(model.device), prompts=dict(model.prompts))
