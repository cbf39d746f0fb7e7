"""Tiny readers of claims, of random weights."""

from __future__ import annotations

from pathlib import Path

from biorag.models.finding import ModelFiles, find_encoder

LABELS = ("entailment", "neutral", "contradiction")


def save_reader(base: Path, folder: Path, labels: tuple[str, ...] = LABELS, scale=6, head=6) -> ModelFiles:
    """Save a cross-encoder over a base with a random head; larger weights than libraries draw spread its scores."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.manual_seed(3)
    model = CrossEncoder(str(base), num_labels=len(labels), device="cpu")
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.mul_(head if module is model[0].model.classifier else scale)
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: number for number, label in enumerate(labels)}
    model.save(str(folder))
    return find_encoder(str(folder))
