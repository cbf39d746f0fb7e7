"""Tokens by an encoder's own tokenizer, and their spans in a text, without loading the encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles, first_line
from biorag.utils.panics import panics_raised

FILE = "tokenizer.json"


def token_starts(files: ModelFiles) -> Callable[[str], list[int]]:
    """Return a function from a passage to the positions where its tokens begin, ascending; special tokens are left out.

    Raises `MissingError` if the model has no tokenizer.json, or none that can be read.
    """
    tokenizer = _tokenizer(files, "by which blocks are counted", ", or leave --block-tokens out")
    return lambda text: [start for start, _ in tokenizer.encode(text, add_special_tokens=False).offsets]


def token_texts(files: ModelFiles) -> Callable[[str], list[str]]:
    """Return a function from a text to its tokens as the vocabulary writes them; special tokens are left out.

    Raises `MissingError` as `token_starts` does.
    """
    tokenizer = _tokenizer(files, "whose word pieces BM25 is to take")
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).tokens)


def token_spans(files: ModelFiles) -> Callable[[str], list[tuple[int, int]]]:
    """Return a function from a passage to the (start, end) of each token that the encoder makes a vector of, in order.

    Special tokens are among them, with an empty span. A passage longer than the encoder's window has more spans than
    vectors, the first of which belong together. Raises `MissingError` as `token_starts` does.
    """
    tokenizer = _tokenizer(files, "by which sentences are found")
    return lambda text: list(tokenizer.encode(text).offsets)


def read_tokenizer(path: Path) -> Tokenizer:
    """Return a tokenizer that neither cuts nor pads texts; raise `ValueError` if the file is none."""
    try:
        with panics_raised():
            tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the binding raises bare exceptions
        raise ValueError(first_line(error)) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _tokenizer(files: ModelFiles, use: str, otherwise: str = "") -> Tokenizer:
    path = files.reads_passages() / FILE
    try:
        return read_tokenizer(path)
    except ValueError as error:
        advice = f"save the model with its fast tokenizer{otherwise}"
        raise MissingError(f"{path}, {use}, cannot be read ({error}): {advice}") from None
