"""A sequence-to-sequence model that writes queries for passages, such as doc2query-T5."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from biorag.models.finding import ModelFiles
from biorag.models.loading import load_seq2seq
from biorag.types import Generation, Sampling

LONGEST_INPUT = 512  # tokens of a passage, as docTTTTTquery was trained with
TOP_K = 10  # most likely tokens that one is drawn of (Nogueira & Lin 2019, docTTTTTquery)


class Seq2SeqGenerator:
    """Samples short texts for passages; equal batches with equal seeds give equal texts.

    Raises `MissingError` if the files are not a sequence-to-sequence model with a tokenizer.
    """

    def __init__(self, files: ModelFiles, precision: str) -> None:
        self._model, self._tokenizer = load_seq2seq(files, precision)

    def sample(self, texts: Sequence[str], count: int, max_tokens: int, sampling: Sampling) -> list[list[Generation]]:
        """Return `count` texts of at most `max_tokens` tokens for each passage, which is read once, for the first."""
        features = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=LONGEST_INPUT, return_tensors="pt"
        ).to(self._model.device)
        drawn = {"do_sample": True, "top_k": TOP_K, "temperature": sampling.temperature}
        torch.manual_seed(sampling.seed)
        with torch.inference_mode():
            written = self._model.generate(
                input_ids=features["input_ids"],
                attention_mask=features["attention_mask"],
                max_new_tokens=max_tokens,
                num_beams=1,
                num_return_sequences=count,
                **(drawn if sampling.temperature else {"do_sample": False}),
            )
        ended = (written[:, 1:] == self._tokenizer.eos_token_id).cumsum(1)
        drafts = [
            Generation(text, not ends, completion_tokens=tokens + ends)
            for text, ends, tokens in zip(
                self._tokenizer.batch_decode(written, skip_special_tokens=True),
                (ended > 0).any(1).tolist(),
                (ended == 0).sum(1).tolist(),
                strict=True,
            )
        ]
        for passage, tokens in enumerate(features["attention_mask"].sum(1).tolist()):
            drafts[passage * count] = drafts[passage * count]._replace(prompt_tokens=tokens)
        return [drafts[start : start + count] for start in range(0, len(drafts), count)]
