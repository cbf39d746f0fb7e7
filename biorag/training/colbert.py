"""Late-interaction checkpoints in Stanford's layout, which colbert-ai and sentence-transformers both load.

One folder has the backbone's weights under its own prefix, the projection as `linear.weight` (dim, hidden) in the same
safetensors file, `config.json` with the class `HF_ColBERT`, the tokenizer, and `artifact.metadata` with ColBERT's
settings. Source: the ColBERT repository (Khattab & Zaharia 2020, Santhanam et al. 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles
from biorag.models.late_interaction import is_late_interaction
from biorag.models.loading import load_model
from biorag.utils.files import write_json

DIMENSION = 128
QUERY_MARKER, DOCUMENT_MARKER = "[unused0]", "[unused1]"  # ColBERT's; tokens that no text holds
ARCHITECTURE = "HF_ColBERT"
SAMPLE = 256  # passages whose token vectors the first projection is fitted to


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a query, padded with [MASK], and the maximum of a passage; markers included."""

    query: int
    passage: int

    def within(self, model: Any) -> Lengths:
        """Return these lengths, no longer than the model has positions."""
        positions = getattr(model[0].auto_model.config, "max_position_embeddings", None) or self.passage
        return Lengths(min(self.query, positions), min(self.passage, positions))


@dataclass(frozen=True, slots=True)
class Style:
    """ColBERT's settings besides lengths: the markers before a text, and which tokens count."""

    query_marker: str = QUERY_MARKER
    document_marker: str = DOCUMENT_MARKER
    mask_punctuation: bool = True
    attend: bool = False

    @classmethod
    def of(cls, model: MultiVectorEncoder) -> Style:
        """Return the style of a late-interaction model, ColBERT's where it has none.

        Raises MissingError if it puts more than one token before texts, which ColBERT's layout cannot express.
        """
        markers = [(model.prompts.get(name) or "").strip() for name in ("query", "document")]
        vocabulary = model.tokenizer.get_vocab()
        if not any(markers):
            markers = [QUERY_MARKER, DOCUMENT_MARKER]
        if any(marker not in vocabulary for marker in markers):
            raise MissingError(f"the base puts {markers} before texts, but only single tokens are ColBERT's markers")
        masks = [module for module in model if isinstance(module, MultiVectorMask)]
        expansion = getattr(model[0], "query_expansion", None) or {}
        masked = any(mask.skiplist_words for mask in masks)
        return cls(markers[0], markers[1], masked, bool(expansion.get("attend")))


def write_base(files: ModelFiles, folder: Path, lengths: Lengths, texts: Sequence[str], seed: int) -> None:
    """Write the checkpoint that training starts from: a ColBERT checkpoint, or a base with a new projection.

    Raises MissingError if the base does not load, is not an encoder transformer, or has a head that the layout cannot
    hold.
    """
    if is_late_interaction(files):
        save_model(folder, load_model(MultiVectorEncoder, files, "fp32"), lengths)
    else:
        _with_projection(files, folder, lengths, texts, seed)


def _with_projection(files: ModelFiles, folder: Path, lengths: Lengths, texts: Sequence[str], seed: int) -> None:
    """Write a checkpoint of an encoder transformer that has no projection yet.

    The projection starts as the principal components of the base's token vectors on some of `texts`, so that the first
    MaxSim is close to that of the whole vectors; with fewer than 128 dimensions it is a random orthogonal one, which
    preserves inner products.
    """
    base = load_model(SentenceTransformer, files, "fp32")
    backbone, tokenizer = getattr(base[0], "auto_model", None), base.tokenizer
    if backbone is None or backbone.config.is_encoder_decoder or tokenizer.mask_token_id is None:
        raise MissingError(f"base {files.id!r} is not a masked-language encoder (BERT, MiniLM, ModernBERT …)")
    missing = [token for token in (QUERY_MARKER, DOCUMENT_MARKER) if token not in tokenizer.get_vocab()]
    if missing:
        tokenizer.add_tokens(missing, special_tokens=True)
        backbone.resize_token_embeddings(len(tokenizer))
    _initialise_markers(backbone, tokenizer)
    lengths, longest = lengths.within(base), base.max_seq_length
    base.max_seq_length = lengths.passage
    projection = _projection(base, texts, seed)
    base.max_seq_length = longest  # the tokenizer's limit, which queries may need
    write_checkpoint(folder, backbone, tokenizer, projection, lengths, Style())


def _initialise_markers(backbone: Any, tokenizer: Any) -> None:
    """Start ColBERT's markers as [SEP]; and [MASK], which pads queries, as [CLS], so that it is near the whole query.

    The base's own vectors (untrained rows; the guess of a masked word) drown the query's tokens until long training
    corrects it.
    """
    rows = backbone.get_input_embeddings().weight.data
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    if cls is None or sep is None:
        return
    for marker in tokenizer.convert_tokens_to_ids([QUERY_MARKER, DOCUMENT_MARKER]):
        rows[marker] = rows[sep]
    rows[tokenizer.mask_token_id] = rows[cls]


def _projection(base: SentenceTransformer, texts: Sequence[str], seed: int) -> torch.Tensor:
    """Return the first projection, shape (128, hidden)."""
    hidden = int(base[0].get_embedding_dimension())
    if hidden < DIMENSION:
        weight = torch.empty(DIMENSION, hidden)
        torch.nn.init.orthogonal_(weight, generator=torch.Generator().manual_seed(seed))
        return weight
    sample = list(texts[:: max(1, len(texts) // SAMPLE)])[:SAMPLE]
    tokens = base.encode(sample, output_value="token_embeddings", show_progress_bar=False)
    vectors = torch.nn.functional.normalize(torch.cat([vectors.float().cpu() for vectors in tokens]), dim=-1)
    # Of the second moment, not the covariance: MaxSim takes inner products, not distances to a mean.
    _, components = torch.linalg.eigh(vectors.T @ vectors)
    projection: torch.Tensor = components.T.flip(0)[:DIMENSION].contiguous()
    return projection


def save_model(folder: Path, model: MultiVectorEncoder, lengths: Lengths) -> None:
    """Write a trained model as a checkpoint.

    Raises MissingError if it is not a transformer with one linear projection, all that the layout holds.
    """
    projections = [module for module in model if isinstance(module, Dense)]
    if len(projections) != 1 or projections[0].linear.bias is not None:
        raise MissingError(
            "the base does not have one linear projection without bias, which is what ColBERT's layout holds"
        )
    weight = projections[0].linear.weight.detach().cpu()
    lengths, style = lengths.within(model), Style.of(model)
    write_checkpoint(folder, model[0].auto_model, model.tokenizer, weight, lengths, style)


def write_checkpoint(
    folder: Path, backbone: Any, tokenizer: Any, projection: torch.Tensor, lengths: Lengths, style: Style
) -> None:
    """Write the checkpoint; `projection` has shape (dim, hidden)."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"{backbone.base_model_prefix}.{name}": value for name, value in backbone.state_dict().items()}
    weights["linear.weight"] = projection
    float32 = {name: value.detach().cpu().float().clone().contiguous() for name, value in weights.items()}
    save_file(float32, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", {**backbone.config.to_dict(), "architectures": [ARCHITECTURE]})
    tokenizer.save_pretrained(str(folder))
    metadata = {
        "query_maxlen": lengths.query,
        "doc_maxlen": lengths.passage,
        "dim": projection.shape[0],
        "similarity": "cosine",
        "mask_punctuation": style.mask_punctuation,
        "attend_to_mask_tokens": style.attend,
        "query_token": "[Q]",
        "doc_token": "[D]",
        "query_token_id": style.query_marker,
        "doc_token_id": style.document_marker,
    }
    write_json(folder / "artifact.metadata", metadata)
