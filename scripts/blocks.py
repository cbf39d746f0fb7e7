"""Blocks of a page that a script writes: what stands between `<!-- KIND: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable


def with_blocks(page: str, kind: str, write: Callable[[str], str | None]) -> str:
    """Return a page with what `write` returns for the name of each block of a kind; None leaves one as it is."""

    def written(block: re.Match[str]) -> str:
        text = write(block[2])
        return block[0] if text is None else f"{block[1]}{text}\n{block[3]}"

    return re.sub(rf"(<!-- {kind}: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", written, page, flags=re.DOTALL)
