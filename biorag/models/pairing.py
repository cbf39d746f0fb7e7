"""Encoders put together: a pooling, a projection after it, or a query and a passage model (DPR, MedCPT)."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Router
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertModel, BertTokenizer, DPRContextEncoder, DPRQuestionEncoder

from biorag.errors import MissingError, UsageError, unknown_name
from biorag.models.finding import ModelFiles, find_encoder, first_line
from biorag.models.formats.directory import MODULE_LIST
from biorag.models.loading import has_towers, load_model
from biorag.utils.files import make_folder, sha256_of_json

# As `--pooling` names them, and the library: the first token's vector, the mean of all, the last token's.
POOLINGS = {"cls": "cls", "mean": "mean", "last": "lasttoken"}
DPR = "dpr"  # transformers' type of both of DPR's models
BERT_IN_DPR = "bert_model"
NOT_BERT = ("model_type", "architectures", "projection_dim", "_name_or_path", "transformers_version")


def write_pair(query: ModelFiles, passage: ModelFiles, pooling: str | None, home: Path) -> ModelFiles:
    """Write two models as a sentence-transformers Router into a folder of `home`, once; return it as an encoder.

    `pooling` is a name of `POOLINGS`; None keeps each model's own. The weights are copies, so that the pair's hash
    covers both.

    Raises `MissingError` if a model does not load, or their vectors differ in length; `UsageError` if a model has two
    towers itself, or does not say how it pools and no pooling is given.
    """
    folder = home / _folder_name(query, passage, pooling)
    if not folder.is_dir():
        make_folder(home)
        with tempfile.TemporaryDirectory(dir=home, prefix=".") as scratch:
            draft = Path(scratch) / "pair"
            _router(query, passage, pooling, Path(scratch)).save(str(draft), create_model_card=False)
            if not folder.is_dir():  # another process may have been faster
                draft.rename(folder)
    return find_encoder(str(folder))


def _folder_name(query: ModelFiles, passage: ModelFiles, pooling: str | None) -> str:
    """Return the names of both models, and a hash of everything that determines their vectors."""
    parts: list[Any] = [*((files.sha256, files.configuration()) for files in (query, passage)), pooling, {}]
    names = [re.sub(r"[^A-Za-z0-9._-]", "-", Path(files.id).name) for files in (query, passage)]
    return f"{'+'.join(names)[:150]}-{sha256_of_json(parts)[:12]}"


def _router(query: ModelFiles, passage: ModelFiles, pooling: str | None, scratch: Path) -> SentenceTransformer:
    asking = _tower(query, pooling, scratch / "query", "--query-encoder")
    reading = _tower(passage, pooling, scratch / "passage", "--passage-encoder")
    sizes = [model.get_embedding_dimension() for model in (asking, reading)]
    if sizes[0] != sizes[1]:
        raise MissingError(
            f"{query.id!r} has vectors of {sizes[0]} numbers and {passage.id!r} of {sizes[1]}: they cannot be compared"
        )
    router = Router.for_query_document(list(asking), list(reading))
    own = {"query": asking.prompts.get("query"), "document": reading.prompts.get("document")}
    prompts = {name: text for name, text in own.items() if text}
    return SentenceTransformer(modules=[router], device=str(asking.device), prompts=prompts)


def _tower(files: ModelFiles, pooling: str | None, scratch: Path, option: str) -> SentenceTransformer:
    if files.settings("config.json").get("model_type") == DPR:
        return _dpr(files, pooling or "cls", scratch)
    if pooling is None and not (files.path / MODULE_LIST).is_file():
        raise UsageError(
            f"{option} {files.id} does not specify its pooling: give --pooling cls (for MedCPT), mean or last"
        )
    model = load_model(SentenceTransformer, files, "fp32")
    if has_towers(model):
        raise UsageError(f"{option} {files.id} has two towers: give it as --encoder")
    return with_pooling(model, pooling) if pooling else model


def _dpr(files: ModelFiles, pooling: str, scratch: Path) -> SentenceTransformer:
    """Return a DPR question or context encoder as the BERT that it is.

    Its vector is [CLS]'s last hidden state, through a projection where it has one (Karpukhin et al. 2020, section 3.1,
    and transformers' `DPREncoder`).
    """
    config = files.settings("config.json")
    kinds = {kind.__name__: kind for kind in (DPRQuestionEncoder, DPRContextEncoder)}
    kind = next((kinds[name] for name in config.get("architectures") or () if name in kinds), None)
    if kind is None:
        raise MissingError(
            f"{files.id!r} is a DPR model of the kinds {config.get('architectures')}: take one of {', '.join(kinds)}"
        )
    try:
        whole: Any = kind.from_pretrained(str(files.path), use_safetensors=True, local_files_only=True)
        tokenizer = BertTokenizer.from_pretrained(str(files.path), local_files_only=True)
    except Exception as error:  # as `load_model`
        raise MissingError(f"model {files.id!r} cannot be loaded from {files.path}: {first_line(error)}") from error
    encoder = getattr(whole, whole.base_model_prefix)
    inner = getattr(encoder, BERT_IN_DPR)
    sizes = {name: value for name, value in whole.config.to_dict().items() if name not in NOT_BERT}
    bert = BertModel(BertConfig(**sizes), add_pooling_layer=False)
    bert.load_state_dict(inner.state_dict())
    bert.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    model = with_pooling(load_model(SentenceTransformer, replace(files, path=scratch), "fp32"), pooling)
    shutil.rmtree(scratch)
    if whole.config.projection_dim:
        linear = encoder.encode_proj
        initial = {"init_weight": linear.weight.detach(), "init_bias": linear.bias.detach()}
        model.append(Dense(linear.in_features, linear.out_features, activation_function=None, **initial))
    return model


def with_pooling(model: SentenceTransformer, pooling: str) -> SentenceTransformer:
    """Return a model with another pooling; a bare transformer gets one.

    Raises `UsageError` if the pooling is unknown, or the model has two towers.
    """
    if pooling not in POOLINGS:
        raise unknown_name("--pooling", pooling, POOLINGS)
    _require_one_tower(model, "--pooling")
    others = [module for module in list(model)[1:] if not isinstance(module, Pooling)]
    pool = Pooling(model[0].get_embedding_dimension(), POOLINGS[pooling])
    return _of_modules(model, [model[0], pool, *others])


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
    return _of_modules(model, [*modules[: position + 1], layer, *modules[position + 1 :]])


def _require_one_tower(model: SentenceTransformer, option: str) -> None:
    if has_towers(model):
        raise UsageError(f"{option} changes one transformer, and the base has two towers: leave it out")


def _of_modules(model: SentenceTransformer, modules: list[Any]) -> SentenceTransformer:
    return SentenceTransformer(modules=modules, device=str(model.device), prompts=dict(model.prompts))
