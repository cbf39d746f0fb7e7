"""The chain of rerankers as a setting writes it: `STAGE[,STAGE...]`, each `NAME[@DEPTH]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from biorag.registries import RERANKERS, RerankerKind, reranker_of

LATER = 10  # candidates that a stage after the first reranks, unless its @DEPTH says otherwise
_DEPTH = re.compile(r"(?P<name>.*)@(?P<depth>[0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Stage:
    """One reranker of a chain, and how many of the best candidates it orders.

    `name` is "encoder", or what the prefix of its kind stood before: a directory or Hugging Face id.
    """

    name: str
    kind: RerankerKind
    depth: int


def parse_stages(text: str, k_init: int) -> tuple[Stage, ...]:
    """Return the stages of a chain: the first orders `k_init` candidates, each later one 10, or N where it ends in @N.

    Raises
    ------
    ValueError
        If a stage has no name, reranks nothing, or looks deeper than the one before it or than `k_init`.
    """
    stages: list[Stage] = []
    for part in text.split(","):
        name, depth = _split(part.strip())
        most = stages[-1].depth if stages else k_init
        if depth is None:
            depth = min(LATER, most) if stages else most
        if depth < 1:
            raise ValueError(f"stage {part.strip()!r} reranks nothing: give it 1 or more")
        if depth > most:
            limit = f"stage {len(stages)} leaves it {most}" if stages else f"k_init is {most}"
            raise ValueError(
                f"stage {part.strip()!r} cannot rerank {depth} candidates where {limit}: give it {most} at most, or "
                f"{'the stages before it' if stages else 'k_init'} {depth} or more"
            )
        kind, name = reranker_of(name)
        if not name:
            raise ValueError(
                f"write STAGE[,STAGE...], a stage being {RERANKERS.names()}, e.g. encoder,cross:models/cross-encoder@10"
            )
        stages.append(Stage(name, kind, depth))
    return tuple(stages)


def _split(part: str) -> tuple[str, int | None]:
    found = _DEPTH.fullmatch(part)
    return (found["name"], int(found["depth"])) if found else (part, None)
