"""Texts through a sentence-transformers model: batches of about equal work, on a CPU one thread a core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch

from biorag.errors import MissingError
from biorag.models.acceleration import reads_unpadded, unpadded
from biorag.models.batches import CPU_CHARACTERS, FETCH, Task, Text, balanced, by_length, in_batches, size
from biorag.models.formats.configuration import PASSAGE_PROMPTS
from biorag.types import Vectors

Features = Mapping[str, Any]
T = TypeVar("T")

UNPADDED_CHARACTERS = 8_000  # the products of many tokens at once are faster: the weights are read once
GPU_CHARACTERS = 400_000  # of a batch, padding counted
SHORT = 2_000  # a question: a second thread saves it less than waiting for that thread may cost
TOKENIZING = Lock()  # a fast tokenizer serves one thread at a time


def prompt_of(model: Any, task: Task | None) -> str | None:
    """Return the prompt of a text of this task, or of a pair for None, by the library's rule."""
    names = {"query": ("query",), "document": PASSAGE_PROMPTS, None: ()}[task]
    named = next((name for name in names if name in model.prompts), model.default_prompt_name)
    return model.prompts.get(named) if named else None


def run(model: Any, texts: Sequence[Text], task: Task | None, rows: Callable[[Features], Sequence[T]]) -> list[T]:
    """Return the result of `rows` for each text, in the order of the texts.

    On a CPU batches run in parallel, each on one thread: a small model spends much of its time between matrix products,
    where a second thread of the same batch is idle. Passages are not padded there, if the architecture allows it.

    `rows` takes the model's features for a batch, tensors of shape (batch, …), and returns one result per text. `task`
    is None for pairs.
    """
    if not texts:
        return []
    cpu = model.device.type == "cpu"
    workers = torch.get_num_threads() if cpu else 1
    without_padding = task == "document" and reads_unpadded(model)

    def work(batch: Sequence[int]) -> Sequence[T]:
        features = _features(model, [texts[index] for index in batch], task)
        with torch.inference_mode():
            features = unpadded(features) if without_padding else features
            return rows(_finite(model(features, task=task)))[: len(batch)]

    lengths = [size(text) for text in texts]
    if without_padding:
        batches = balanced(lengths, UNPADDED_CHARACTERS, workers)
    else:
        batches = by_length(lengths, CPU_CHARACTERS if cpu else GPU_CHARACTERS, workers)
    model.eval()
    if workers == 1 or (len(batches) == 1 and sum(lengths) > SHORT):
        return in_batches(batches, work, 1)
    results = in_batches(batches, work, workers, initializer=torch.set_num_threads, initargs=(1,))
    torch.set_num_threads(workers)  # threads started later take over the last number set, in whatever thread
    return results


def _features(model: Any, texts: Sequence[Text], task: Task | None) -> dict[str, Any]:
    """Return the model's inputs for a batch, on its device."""
    with TOKENIZING:
        features = model.preprocess(list(texts), prompt=prompt_of(model, task), task=task)
    return {
        name: value.to(model.device) if isinstance(value, torch.Tensor) else value for name, value in features.items()
    }


def _finite(features: Features) -> Features:
    """Refuse vectors and scores that are not finite: they would be ranked at random, and stored."""
    for name in ("sentence_embedding", "scores"):
        if name in features and not bool(torch.isfinite(features[name]).all()):
            raise MissingError(
                f"the model gives numbers that are not finite ({name}): its weights are damaged, so {FETCH}"
            )
    return features


def token_vectors(features: Features) -> list[Vectors]:
    """Return each text's token vectors, (tokens, dim) float32, without padding and masked tokens."""
    tokens = features["token_embeddings"].float()
    if "cu_seq_lens_q" in features:
        vectors = np.split(tokens[0].numpy(force=True), features["cu_seq_lens_q"][1:-1].tolist())
    else:
        masks = features["attention_mask"].bool()
        vectors = [text[mask].numpy(force=True) for text, mask in zip(tokens, masks, strict=True)]
    if not all(np.isfinite(text).all() for text in vectors):  # masked tokens may be anything
        raise MissingError(f"the model's token vectors are not finite: its weights are damaged, so {FETCH}")
    return vectors
