"""A tiny ColBERT checkpoint in the layout of colbert-ir/colbertv2.0, with random weights."""

from __future__ import annotations

import json
from pathlib import Path

# The keys of its artifact.metadata, with those of the machine that made it; passages of 120 tokens in place of 180.
METADATA = {
    **{"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_token": "[Q]", "doc_token": "[D]"},
    **{"ncells": None, "centroid_score_threshold": None, "ndocs": None, "index_path": None, "nbits": 1},
    **{"kmeans_niters": 20, "similarity": "cosine", "bsize": 32, "accumsteps": 1, "lr": 1e-05, "maxsteps": 400000},
    **{"save_every": None, "resume": False, "warmup": 20000, "warmup_bert": None, "relu": False, "nway": 64},
    **{"use_ib_negatives": True, "reranker": False, "distillation_alpha": 1.0, "ignore_scores": False},
    **{"query_maxlen": 32, "attend_to_mask_tokens": False, "interaction": "colbert", "dim": 128, "doc_maxlen": 120},
    **{
        "mask_punctuation": True,
        "checkpoint": "/future/u/x.dnn",
        "triples": "/future/u/t.json",
        "collection": "/c.tsv",
    },
    **{"queries": "/q.tsv", "overwrite": False, "root": "/future/u/experiments", "experiment": "default"},
    **{"index_root": None, "name": "kldR2.nway64.ib", "rank": 0, "nranks": 4, "amp": True, "gpus": 8},
    "meta": {"hostname": "future", "git_branch": "main", "version": "colbert-v0.4"},
}


def write_published(folder: Path, bert: Path) -> Path:
    """Write a checkpoint of a BERT's weights, its pooler and buffers included, with a projection of its own."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoTokenizer, BertModel

    folder.mkdir()
    model = BertModel.from_pretrained(bert)
    weights = {f"bert.{name}": value.contiguous() for name, value in model.state_dict().items()}
    weights["bert.embeddings.position_ids"] = torch.arange(model.config.max_position_embeddings)[None]
    torch.manual_seed(5)
    weights["linear.weight"] = torch.randn(METADATA["dim"], model.config.hidden_size) / 8
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {**model.config.to_dict(), "architectures": ["HF_ColBERT"], "_name_or_path": "/future/u/x"}
    (folder / "config.json").write_text(json.dumps(config))
    AutoTokenizer.from_pretrained(bert).save_pretrained(folder)
    (folder / "artifact.metadata").write_text(json.dumps(METADATA))
    return folder
