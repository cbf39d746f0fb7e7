"""Training a generator: LoRA matrices of a causal language model, as peft and as llama.cpp load them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from biorag.errors import BadInputError
from biorag.models.finding import GGUF_ADAPTER, ModelFiles
from biorag.models.loading import load_language_model
from biorag.settings.settings import Settings
from biorag.training.bi_encoder import LoraLayers, write_base
from biorag.training.data import Split
from biorag.training.estimating import TrainingBatch, batch_of_texts
from biorag.training.exchanges import Exchange
from biorag.training.loop import LIKELIHOOD, ReportsLikelihood, TrainerJob, Training
from biorag.training.run_directory import TrainingRun
from biorag.training.sampling import SimilarLengthRows
from biorag.types import Vectors
from biorag.utils.parsing import parse_json, read_regular
from biorag.utils.versions import require

MULTIPLE = 32  # tokens that batches are padded to a multiple of: oneDNN compiles its products for each new shape
CAUSAL = "ForCausalLM"
IGNORED = -100  # of tokens that are read and not learnt
FAMILY = ("llama", "mistral")  # architectures that llama.cpp reads as Llama's
ROTATED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}  # whose rows llama.cpp orders otherwise


class GeneratorTraining(Training):
    """LoRA matrices on the linear layers of a causal language model, saved for peft and, as `adapter.gguf`, llama.cpp.

    The loss is the mean cross-entropy of the replies' tokens; logits are made for these alone. The best checkpoint is
    that of the largest log-likelihood of the held-out replies. `max_tokens` are those of prompt and reply; longer
    exchanges are left out. A base with an adapter is gone on from, by matrices of the same rank and α.
    """

    kind = "generator"

    def __init__(self, files: ModelFiles, split: Split[Exchange], settings: Settings) -> None:
        kinds = files.settings("config.json").get("architectures") or [] if files.path.is_dir() else [CAUSAL]
        if not any(str(kind).endswith(CAUSAL) for kind in kinds):
            raise BadInputError(f"{files.id} is no language model that writes: name a Llama with --base")
        if files.adapter:
            made = parse_json(read_regular(files.adapter.with_name("adapter_config.json")))
            if (made["r"], made["lora_alpha"]) != (settings.training.lora_rank, settings.training.lora_alpha):
                wanted = f"--lora-rank {made['r']} --lora-alpha {made['lora_alpha']}"
                raise BadInputError(f"{files.adapter.parent} is gone on from by its own matrices: add {wanted}")
        super().__init__(files, split, settings, split.training)
        self.facts = {"rows": len(self.rows)}

    def batch(self) -> TrainingBatch:
        """Return a batch of exchanges."""
        return batch_of_texts([row.text for row in self.rows], self.settings.training, lora=True)

    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Load the base, and return its job."""
        causal = AutoModelForCausalLM
        files = write_base(self.files, folder.base, causal) if self.files.path.is_file() else self.files
        model, tokenizer = load_language_model(causal, files, "fp32", "a causal language model")
        if not tokenizer.chat_template:
            raise BadInputError(
                f"{self.files.id} has no chat template, which a generator answers by: name one that has"
            )
        adapter = LoraLayers(model, self.settings)
        if self.files.adapter:
            adapter.load(self.files.adapter.parent)
        adapter_names(model)  # before hours of training
        encode = ExchangeEncoder(tokenizer, self.settings.training.max_tokens)
        held_out = encode.columns(self.split.validation)

        def save(out: Path) -> dict[str, Any]:
            adapter.save(out, self.files.id)
            write_adapter(model, self.settings.training.lora_alpha, out / GGUF_ADAPTER)
            return {"base_file": str(self.files.path)}

        return TrainerJob(
            trainer=adapter.trainer(GeneratorTrainer, self.files.id),
            arguments=TrainingArguments,
            model=model,
            loss=None,
            columns=encode.columns(self.rows),
            evaluator=held_out if held_out["input_ids"] else None,
            metric=LIKELIHOOD,
            save=save,
            extra_arguments={"remove_unused_columns": False},
            collator=lambda _: encode.batch,
        )


class ExchangeEncoder:
    """Turns exchanges into token ids in the chat format of a tokenizer; the prompt's tokens are read, not learnt."""

    def __init__(self, tokenizer: Any, most: int) -> None:
        self._tokenizer, self._most = tokenizer, most

    def columns(self, rows: Sequence[Exchange]) -> dict[str, list[list[int]]]:
        """Return the ids of exchanges that are not too long, and those that are learnt."""
        encoded = [pair for pair in map(self._encoded, rows) if len(pair[0]) <= self._most]
        return {"input_ids": [ids for ids, _ in encoded], "labels": [labels for _, labels in encoded]}

    def _encoded(self, row: Exchange) -> tuple[list[int], list[int]]:
        turns = [{"role": "system", "content": row.system}, {"role": "user", "content": row.user}]
        text = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        prompt, reply = (self._tokenizer(turn, add_special_tokens=False).input_ids for turn in (text, row.reply))
        reply.append(self._tokenizer.eos_token_id)
        return prompt + reply, [IGNORED] * len(prompt) + reply

    def batch(self, rows: Sequence[Mapping[str, list[int]]]) -> dict[str, torch.Tensor]:
        """Return a batch, padded on the right to a multiple of `MULTIPLE`."""
        longest = -(-max(len(row["input_ids"]) for row in rows) // MULTIPLE) * MULTIPLE
        pad = self._tokenizer.pad_token_id or 0

        def padded(name: str, value: int) -> torch.Tensor:
            return torch.tensor([list(row[name]) + [value] * (longest - len(row[name])) for row in rows])

        return {
            "input_ids": padded("input_ids", pad),
            "labels": padded("labels", IGNORED),
        }


class GeneratorTrainer(ReportsLikelihood, Trainer):  # type: ignore[misc]
    """Makes logits where a token is learnt."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the mean cross-entropy of the replies' tokens."""
        learnt = inputs["labels"][:, 1:] != IGNORED
        # Padding stands on the right, where a causal model does not look from what is before.
        hidden = model.base_model(input_ids=inputs["input_ids"]).last_hidden_state[:, :-1][learnt]
        logits = model.get_output_embeddings()(hidden).float()
        loss = torch.nn.functional.cross_entropy(logits, inputs["labels"][:, 1:][learnt])
        return (loss, {"logits": torch.zeros(1)}) if return_outputs else loss

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        lengths = [len(ids) for ids in self.train_dataset["input_ids"]]
        return SimilarLengthRows(lengths, self.args.train_batch_size, self.args.data_seed)


def adapter_names(model: Any) -> Mapping[str, str]:
    """Return llama.cpp's names of the layers on which peft put matrices; to be asked before they are trained.

    Raises `MissingError` if the package gguf is not installed; `BadInputError` if llama.cpp has no name for a layer, or
    the model is not of the Llama family.
    """
    require("decoders")
    import gguf

    if model.config.model_type not in FAMILY:
        raise BadInputError(
            f"a generator is trained from a Llama, and the base is a {model.config.model_type}: name one"
        )
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    layers = [name for name, layer in model.named_modules() if hasattr(layer, "lora_A")]
    names = {layer: known.get_name(f"{layer}.weight", try_suffixes=(".weight",)) for layer in layers}
    if unknown := [layer for layer, name in names.items() if name is None]:
        raise BadInputError(f"llama.cpp has no name for the layer {unknown[0]}: take another base")
    return {layer: str(name) for layer, name in names.items()}


def write_adapter(model: Any, alpha: float, out: Path) -> None:
    """Write the matrices that peft put on a model, in float16; raises as `adapter_names`.

    The rows of queries and keys are stored as llama.cpp rotates them: the halves of a head's dimensions alternate.
    """
    names = adapter_names(model)
    import gguf

    writer = gguf.GGUFWriter(str(out), "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, target in names.items():
        layer = model.get_submodule(name)
        first, second = (
            matrix["default"].weight.detach().float().cpu().numpy() for matrix in (layer.lora_A, layer.lora_B)
        )
        if heads := ROTATED.get(name.rpartition(".")[2]):
            second = _rotated(second, getattr(model.config, heads))
        writer.add_tensor(f"{target}.lora_a", first.astype(np.float16))
        writer.add_tensor(f"{target}.lora_b", second.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _rotated(rows: Vectors, heads: int) -> Vectors:
    """Return rows (heads · dimension, rank), of each head those of the two halves of its dimension in turn."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
