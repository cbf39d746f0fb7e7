"""Prompts of one beginning in one batch of llama.cpp: a sequence each, with a stream of the KV cache of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import llama_cpp
import numpy as np

from biorag.types import Vectors

CELLS = 256  # llama.cpp's caches are multiples of so many
BATCH = 512  # tokens evaluated together
STEP = 8  # tokens; see `steps`


class Piece(NamedTuple):
    """Tokens of a sequence from a position on."""

    sequence: int
    start: int
    tokens: Sequence[int]


def state_after(context: Any, sequence: int = 0) -> bytes:
    """Return the state of a sequence: what was computed of its tokens, without the last one's logits."""
    buffer = (ctypes.c_uint8 * llama_cpp.llama_state_seq_get_size(context, sequence))()
    return bytes(buffer[: llama_cpp.llama_state_seq_get_data(context, buffer, len(buffer), sequence)])


def restore(context: Any, state: bytes, sequence: int = 0) -> bool:
    """Bring a sequence to a state of the same model and kind of context; return whether it was taken."""
    buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
    return bool(llama_cpp.llama_state_seq_set_data(context, buffer, len(state), sequence) == len(state))


class Sequences:
    """A context for prompts side by side; the logits of one do not depend on which others there are.

    Parameters
    ----------
    model : llama.cpp's
    parameters : of the model's own context, from which this one differs in its size alone
    count : prompts at a time
    length : tokens of a prompt at most, `STEP` among them for padding; a multiple of `CELLS`

    Raises
    ------
    RuntimeError
        If llama.cpp cannot make the context.
    """

    def __init__(self, model: Any, parameters: Any, count: int, length: int) -> None:
        self.count, self.length = count, length
        sized = type(parameters).from_buffer_copy(parameters)
        sized.n_ctx, sized.n_batch, sized.n_ubatch = count * length, BATCH, BATCH
        sized.n_seq_max = count
        sized.kv_unified = False  # else each prompt's attention runs over the others' cells
        self._context = llama_cpp.llama_init_from_model(model, sized)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context of {count} sequences of {length} tokens")
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._prefix: Sequence[int] = ()
        self._state = b""

    def logits(self, prefix: Sequence[int], rests: Sequence[Sequence[int]]) -> Vectors:
        """Return the logits after each prompt, (prompts, vocabulary); the prefix is evaluated when it is another.

        Raises
        ------
        RuntimeError
            If llama.cpp cannot evaluate them.
        """
        if prefix != self._prefix:
            self._prefix = ()
            self._clear()
            for start in range(0, len(prefix), BATCH):
                self._decode([Piece(0, start, prefix[start : start + BATCH])], [])
            self._prefix, self._state = prefix, state_after(self._context)
        self._clear()
        if prefix and not all(restore(self._context, self._state, sequence) for sequence in range(len(rests))):
            raise RuntimeError("llama.cpp does not take its own state back")
        ends = [len(prefix) + len(rest) - 1 for rest in rests]
        logits = np.empty((len(rests), self._vocabulary), np.float32)
        for pieces in steps(len(prefix), rests):
            for sequence, row in self._decode(pieces, ends):
                logits[sequence] = row
        return logits

    def close(self) -> None:
        """Free the context; the model must still be there."""
        if self._context:
            llama_cpp.llama_free(self._context)
            self._context = None

    def _clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)

    def _decode(self, pieces: Sequence[Piece], ends: Sequence[int]) -> list[tuple[int, Vectors]]:
        """Evaluate a piece of each of some sequences; return the logits of those whose end is in it."""
        batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        wanted = []
        try:
            for sequence, start, tokens in pieces:
                for position, token in enumerate(tokens, start):
                    place = batch.n_tokens
                    batch.token[place], batch.pos[place] = token, position
                    batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                    batch.logits[place] = is_end = bool(ends) and position == ends[sequence]
                    wanted += [(sequence, place)] if is_end else []
                    batch.n_tokens += 1
            if status := llama_cpp.llama_decode(self._context, batch):
                raise RuntimeError(f"llama.cpp cannot evaluate the batch (status {status})")
        finally:
            llama_cpp.llama_batch_free(batch)
        return [(sequence, self._logits_at(place)) for sequence, place in wanted]

    def _logits_at(self, place: int) -> Vectors:
        pointer = llama_cpp.llama_get_logits_ith(self._context, place)
        return np.ctypeslib.as_array(pointer, shape=(self._vocabulary,)).copy()


def steps(start: int, rests: Sequence[Sequence[int]]) -> Iterator[list[Piece]]:
    """Yield equally long pieces of the unfinished sequences, evaluated together by llama.cpp, until all have ended.

    Every piece has a multiple of `STEP` tokens: at fewer, above all at one, llama.cpp takes other kernels, whose
    logits differ by as much as 0.1. What follows a sequence's end is its last token again, which nothing looks at.
    """
    padded = [[*rest, *[rest[-1]] * (-len(rest) % STEP)] for rest in rests]
    done = 0
    while going := [sequence for sequence, tokens in enumerate(padded) if len(tokens) > done]:
        length = min(BATCH // len(going) // STEP * STEP, min(len(padded[sequence]) for sequence in going) - done)
        yield [Piece(sequence, start + done, padded[sequence][done : done + length]) for sequence in going]
        done += length
