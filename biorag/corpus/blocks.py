"""Long documents as overlapping blocks, cut where sentences end if they can be."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from biorag.corpus.sentences import sentence_starts
from biorag.types import Change, Snippet, block_id

TokenStarts = Callable[[str], Sequence[int]]
_BLOCK_ID = re.compile(r"#[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class Splitter:
    """Splits contents of more than `tokens` tokens (0 for none) into blocks that share up to `overlap` of them.

    `starts` returns the positions where the tokens of a text begin. Each block also has the title.
    """

    tokens: int = 0
    overlap: int = 0
    starts: TokenStarts = lambda text: ()

    def check(self, document: Change) -> None:
        """Raise `ValueError` if the document's id could be a block's."""
        if self.tokens and _BLOCK_ID.search(document.id):
            raise ValueError(f"id {document.id!r} ends as a block's does: leave --block-tokens out, or rename it")

    def __call__(self, document: Snippet) -> list[Snippet]:
        """Return a document's blocks, in order; itself where it is short enough."""
        if not self.tokens:
            return [document]
        content = document.content
        spans = cut(content, self.starts(content), self.tokens, self.overlap)
        if len(spans) == 1:
            return [document]
        return [
            replace(
                document,
                id=block_id(document.id, number),
                content=content[start:end].strip(),
                metadata={**document.metadata, "document": document.id, "block": number, "blocks": len(spans)},
            )
            for number, (start, end) in enumerate(spans)
        ]


WHOLE = Splitter()
_OF_BLOCKS = ("document", "block", "blocks")  # what a block's metadata has besides its document's


def ids_of_blocks(snippet: Snippet) -> list[str]:
    """Return the ids of all blocks of the document that a snippet is a block of; its own where it is whole."""
    if snippet.document == snippet.id:
        return [snippet.id]
    return [block_id(snippet.document, number) for number in range(int(snippet.metadata.get("blocks", 1)))]


def joined(blocks: Sequence[Snippet]) -> Snippet:
    """Return the document of its blocks, in order, with the words that two of them share once."""
    content = ""
    for block in blocks:
        content = _continued(content, block.content)
    metadata = {name: value for name, value in blocks[0].metadata.items() if name not in _OF_BLOCKS}
    return replace(blocks[0], id=blocks[0].document, content=content, metadata=metadata)


def _continued(text: str, block: str) -> str:
    """Return a text and the block after it, which may begin with the words that the text ends with."""
    for shared in range(min(len(text), len(block)), 0, -1):
        if text.endswith(block[:shared]):
            return text + block[shared:]
    return f"{text} {block}".strip()


def cut(text: str, starts: Sequence[int], most: int, overlap: int) -> list[tuple[int, int]]:
    """Return the spans (start, end) of a text's blocks, of at most `most` tokens; the whole text if it is no longer.

    A block ends where a sentence of its second half does, else where a word does, else between any tokens; the next
    one begins, within the `overlap` tokens (at most half of `most`) before that, at a sentence, else at a word, else
    right there. `starts` holds where each token begins, ascending.
    """
    sentences = sorted({bisect_left(starts, position) for position in sentence_starts(text)})
    words = [token for token, start in enumerate(starts) if start and text[start - 1].isspace()]
    spans: list[tuple[int, int]] = []
    first = begin = 0
    while first + most < len(starts):
        last, middle = first + most, first + most // 2
        end = _latest(sentences, middle, last) or _latest(words, middle, last) or last
        spans.append((begin, starts[end]))
        first = _earliest(sentences, end - overlap, end) or _earliest(words, end - overlap, end) or end
        begin = starts[first]
    return [*spans, (begin, len(text))]


def _latest(points: Sequence[int], low: int, high: int) -> int | None:
    """Return the largest point above `low` and up to `high`."""
    index = bisect_right(points, high) - 1
    return points[index] if index >= 0 and points[index] > low else None


def _earliest(points: Sequence[int], low: int, high: int) -> int | None:
    """Return the smallest point from `low` to below `high`."""
    index = bisect_left(points, low)
    return points[index] if index < len(points) and points[index] < high else None
