"""Estimates of training's memory against the peaks of real steps, of small random models of several architectures.

    python -m scripts.measure.training [KIND]...

Each training runs in a process of its own, which counts the bytes of all tensors and reads its resident memory.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModel, AutoModelForSeq2SeqLM, BertTokenizer

from biorag.benchmarks.latency.machine import PROC, kilobytes
from biorag.models.finding import find_base
from biorag.settings.settings import Settings
from biorag.training import loop
from biorag.training.bi_encoder import EncoderForm
from biorag.training.cross_encoder import CrossEncoderTraining
from biorag.training.data import Split
from biorag.training.loop import Training
from biorag.training.question_generator import QuestionGeneratorTraining
from biorag.training.reranker import RerankerTraining
from biorag.training.retriever import RetrieverTraining
from biorag.types import TrainingRow

STATUS = PROC / "self" / "status"
HIDDEN, LAYERS, VOCABULARY, HEADS = 256, 6, 2000, 8
SYLLABLES = [first + vowel + last for first in "bcdfglmn" for vowel in "aeiou" for last in "prst"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
QUESTION, PASSAGE = 14, 120  # words, each a token
STEPS = 3

PLAIN = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
MARKS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "bert": {**PLAIN, "intermediate_size": 4 * HIDDEN},
    "modernbert": {**PLAIN, "intermediate_size": HIDDEN * 3 // 2, "cls_token_id": 2, "sep_token_id": 3, **MARKS},
    "llama": {**PLAIN, "intermediate_size": HIDDEN * 8 // 3, "num_key_value_heads": HEADS // 2, **MARKS},
    "qwen3": {**PLAIN, "intermediate_size": 3 * HIDDEN, "num_key_value_heads": HEADS // 2, "head_dim": 64, **MARKS},
    "gemma": {**PLAIN, "intermediate_size": 8 * HIDDEN, "num_key_value_heads": 1, "head_dim": 32, **MARKS},
    "gpt_neox": {**PLAIN, "intermediate_size": 4 * HIDDEN, **MARKS},
    "t5": {
        **{"vocab_size": VOCABULARY, "d_model": HIDDEN, "d_ff": 4 * HIDDEN, "d_kv": HIDDEN // HEADS},
        **{"num_layers": LAYERS, "num_heads": HEADS, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 3},
    },
}
# The kind of training, its base, the negatives of a row, whether LoRA, and settings.
KINDS: Mapping[str, tuple[str, str, int, bool, Mapping[str, Any]]] = {
    "in-batch": ("retriever", "bert", 0, False, {}),
    "hard negatives": ("retriever", "modernbert", 4, False, {"train_batch_size": 8}),
    "float32": ("retriever", "modernbert", 4, False, {"train_batch_size": 8, "precision": "fp32"}),
    "checkpointing": ("retriever", "modernbert", 4, False, {"train_gradient_checkpointing": True}),
    "cached": ("retriever", "bert", 0, False, {"train_batch_size": 128, "train_mini_batch_size": 16}),
    "cached, checkpointing": (
        *("retriever", "gpt_neox", 1, False),
        {"train_batch_size": 64, "train_mini_batch_size": 16, "train_gradient_checkpointing": True},
    ),
    "accumulated": ("retriever", "gemma", 1, False, {"train_gradient_accumulation": 2}),
    "LoRA": ("retriever", "llama", 1, True, {}),
    "LoRA, checkpointing": ("retriever", "qwen3", 1, True, {"train_gradient_checkpointing": True}),
    "reranker": ("reranker", "modernbert", 3, False, {"train_batch_size": 8}),
    "reranker, cached": ("reranker", "bert", 3, False, {"train_batch_size": 32, "train_mini_batch_size": 8}),
    "cross-encoder": ("cross-encoder", "bert", 3, False, {}),
    "question generator": ("question-generator", "t5", 0, False, {"precision": "fp32"}),
}


def write_model(folder: Path, architecture: str, **sizes: Any) -> Path:
    """Write a random model of an architecture, whose tokenizer knows one syllable a token."""
    from transformers import AutoConfig

    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *SYLLABLES]), encoding="utf-8")
    names = {"eos_token": "[SEP]", "bos_token": "[CLS]"}
    BertTokenizer(str(folder / "vocab.txt"), **names).save_pretrained(folder)
    torch.manual_seed(0)
    kind = AutoModelForSeq2SeqLM if architecture == "t5" else AutoModel
    configuration = AutoConfig.for_model(architecture, **{**ARCHITECTURES[architecture], **sizes})
    kind.from_config(configuration).save_pretrained(folder)
    return folder


def training_of(name: str, model: Path) -> Training:
    """Return the training of a kind from a model: a few steps of rows of random syllables."""
    kind, _, negatives, lora, changes = KINDS[name]
    common = {"train_batch_size": 16, "train_max_tokens": 128, "train_validation": 0.0, "precision": "bf16"}
    settings = Settings.of(
        **{**common, "train_evaluations": 1, "train_max_steps": STEPS, "train_hard_negatives": negatives, **changes}
    )
    draw = random.Random(0)

    def text(words: int) -> str:
        return " ".join(draw.choice(SYLLABLES) for _ in range(words))

    rows = [
        TrainingRow(text(QUESTION), text(PASSAGE), tuple(text(PASSAGE) for _ in range(negatives)), kind="bm25")
        for _ in range(4 * settings.training.batch_size)
    ]
    files, split = find_base(str(model)), Split(rows, [])
    if kind == "retriever":
        return RetrieverTraining(files, split, settings, form=EncoderForm(lora=lora))
    if kind == "reranker":
        return RerankerTraining(files, split, settings)
    if kind == "cross-encoder":
        return CrossEncoderTraining(files, split, settings)
    return QuestionGeneratorTraining(files, split, settings)


class AllocatedBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that are made within it and not yet freed; `peak` is the most."""

    def __init__(self, before: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._storages: dict[int, weakref.ref[Any]] = {}
        self.now = self.peak = 0
        for tensor in before:  # whose views and changes in place are no new tensors
            self._count(tensor.untyped_storage())

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        made = function(*arguments, **(options or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._storages:
            return

        def free(_: Any) -> None:
            self.now -= size
            del self._storages[key]

        self._storages[key] = weakref.ref(storage, free)
        self.now += size
        self.peak = max(self.peak, self.now)


@contextmanager
def counted_steps() -> Iterator[dict[str, int]]:
    """Count, for the trainings within, the bytes of weights and of all tensors at a step's peak, and resident ones."""
    counts: dict[str, int] = {}
    trainer_of = loop._trainer

    def counting(*arguments: Any, **options: Any) -> Any:
        trainer = trainer_of(*arguments, **options)
        train = trainer.train

        def counted(**how: Any) -> Any:
            before = kilobytes(STATUS, "VmRSS") or 0
            # proc(5): the peak starts again from the memory in use now.
            (PROC / "self" / "clear_refs").write_text("5", encoding="ascii")
            with AllocatedBytes([*trainer.model.parameters(), *trainer.model.buffers()]) as allocated:
                weights = allocated.now
                result = train(**how)
            resident = kilobytes(STATUS, "VmHWM") or 0
            counts.update(tensors=allocated.peak, resident=weights + resident - before)
            return result

        trainer.train = counted
        return trainer

    loop._trainer = counting
    try:
        yield counts
    finally:
        loop._trainer = trainer_of


def measure(name: str) -> dict[str, Any]:
    """Train, and return the estimated and the measured bytes."""
    with tempfile.TemporaryDirectory() as folder, counted_steps() as counts:
        training = training_of(name, write_model(Path(folder) / "base", KINDS[name][1]))
        estimated = training.estimate()
        training.run(Path(folder) / "out", {}, lambda _: None)
    return {"name": name, "base": KINDS[name][1], "estimate": estimated.peak, **counts}


def main(names: list[str]) -> None:
    """Measure each kind in a process of its own and print a table."""
    sys.stdout.write(
        "| training | base | estimate, MB | tensors, MB | ratio | resident, MB |\n|---|---|--:|--:|--:|--:|\n"
    )
    for name in names or KINDS:
        code = f"import json; from scripts.measure.training import measure; print(json.dumps(measure({name!r})))"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        row = json.loads(run.stdout.splitlines()[-1])
        sizes = [f"{row[key] / 1e6:,.0f}" for key in ("estimate", "tensors", "resident")]
        ratio = f"{row['estimate'] / row['tensors']:.2f}"
        sys.stdout.write(f"| {name} | {row['base']} | {sizes[0]} | {sizes[1]} | {ratio} | {sizes[2]} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
