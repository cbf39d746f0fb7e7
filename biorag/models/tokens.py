"""Where the tokens of an encoder's own tokenizer begin in a text, without loading the encoder."""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import Tokenizer

from biorag.errors import MissingError
from biorag.models.finding import ModelFiles

FILE = "tokenizer.json"


def token_starts(files: ModelFiles) -> Callable[[str], list[int]]:
    """Return a function from a passage to the positions where its tokens begin, ascending; special tokens are left out.

    Raises
    ------
    MissingError
        If the model has no tokenizer.json, or none that can be read.
    """
    path = files.reads_passages() / FILE
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the binding raises bare exceptions
        raise MissingError(
            f"{path}, by which blocks are counted, cannot be read ({error}): save the model with its fast tokenizer, "
            "or leave --block-tokens out"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: [start for start, _ in tokenizer.encode(text, add_special_tokens=False).offsets]
