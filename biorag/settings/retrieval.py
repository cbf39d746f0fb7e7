"""How an index is searched, and the chain of rerankers: `STAGE[,STAGE...]`, each `NAME[@DEPTH]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from biorag.registries import FUSIONS, RERANKERS, RerankerKind, reranker_of
from biorag.settings.section import LARGEST, RETRIEVAL, Section, option, setting

DEEPEST = 10_000  # candidates that can be reranked
LATER = 10  # candidates that a stage after the first reranks, unless its @DEPTH says otherwise
_DEPTH = re.compile(r"(?P<name>.*)@(?P<depth>[0-9]+)", re.DOTALL)
_retrieval = partial(option, panel=RETRIEVAL)


@dataclass(frozen=True, slots=True)
class Stage:
    """One reranker of a chain by its name without the kind's prefix, and how many of the best candidates it orders."""

    name: str
    kind: RerankerKind
    depth: int


def parse_stages(text: str, k_init: int) -> tuple[Stage, ...]:
    """Return the stages of a chain: the first orders `k_init` candidates, each later one 10, or N if it ends in @N.

    Raises `ValueError` if a stage has no name, reranks nothing, or looks deeper than the one before it.
    """
    stages: list[Stage] = []
    for stage in map(str.strip, text.split(",")):
        with_depth = _DEPTH.fullmatch(stage)
        kind, name = reranker_of(with_depth["name"] if with_depth else stage)
        most = stages[-1].depth if stages else k_init
        depth = int(with_depth["depth"]) if with_depth else min(LATER, most) if stages else most
        if depth < 1:
            raise ValueError(f"stage {stage!r} reranks nothing: give it 1 or more")
        if depth > most:
            limit = f"stage {len(stages)} leaves it {most}" if stages else f"k_init is {most}"
            raise ValueError(
                f"stage {stage!r} cannot rerank {depth} candidates where {limit}: give it {most} at most, or "
                f"{'the stages before it' if stages else 'k_init'} {depth} or more"
            )
        if not name:
            raise ValueError(
                f"write STAGE[,STAGE...], a stage being {RERANKERS.names()}, e.g. encoder,cross:models/cross-encoder@10"
            )
        stages.append(Stage(name, kind, depth))
    return tuple(stages)


class FirstStageSettings(Section):
    """Settings that determine the candidates, before any of them is reranked."""

    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto", "Precision of encoders and rerankers: auto (bf16 if the hardware supports it), fp32 or bf16."
    )
    mode: Literal["bm25", "dense", "hybrid"] = _retrieval("hybrid", "First stage of retrieval.")
    fusion: str = _retrieval("linear", f"Hybrid: {FUSIONS.listed()}.", choices=FUSIONS)
    lambda_: float = _retrieval(
        0.03, "λ, the weight of BM25 in the linear fusion.", bounds=(0, LARGEST), alias="lambda"
    )
    rrf_k: int = setting(60, "k of reciprocal rank fusion.", bounds=(1, LARGEST))
    depth: int = setting(100, "Candidates of each side before fusion.", bounds=(1, 10_000))


class RetrievalSettings(FirstStageSettings):
    """Settings that determine a ranking over an index."""

    rerank: bool = _retrieval(True, "Rerank the candidates.")
    reranker: str = _retrieval(
        "encoder", f"STAGE[,STAGE...], in this order: {RERANKERS.listed()}, each with @N to rerank only the best N."
    )
    interpolation: float = _retrieval(
        0.5, "Weight of the first stage's score, added to the mean MaxSim.", bounds=(0, LARGEST)
    )
    cross_interpolation: float = _retrieval(
        10.0, "Weight of the previous stage's score, added to a cross-encoder's log-odds.", bounds=(0, LARGEST)
    )
    k_init: int = _retrieval(20, "Candidates to rerank.", bounds=(1, DEEPEST), validate_default=True)
    rerank_whole: bool = setting(False, "Rerank whole documents, each once, in place of the blocks that were found.")
    k: int = _retrieval(5, "Snippets to return.", short="-k", bounds=(1, 10_000))
    include_retracted: bool = _retrieval(False, "Also answer from retracted articles.")

    @field_validator("reranker")
    @classmethod
    def _is_chain(cls, value: str) -> str:
        parse_stages(value, DEEPEST)
        return value

    @field_validator("k_init")
    @classmethod
    def _holds_the_chain(cls, value: int, info: ValidationInfo) -> int:
        if chain := info.data.get("reranker"):
            parse_stages(chain, value)
        return value

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The rerankers in their order, which `rerank` switches on and off."""
        return parse_stages(self.reranker, self.k_init)

    def identity(self) -> dict[str, Any]:
        """Return the identity of a ranking; a cross-encoder's weight and `rerank_whole` only where they count."""
        values = super().identity()
        if not self.rerank_whole:
            del values["rerank_whole"]
        weights = {stage.kind.weight for stage in self.stages} if self.rerank else set()
        if "cross_interpolation" not in weights:
            del values["cross_interpolation"]
        return values

    def rerankers_hash(self) -> str | None:
        """Return the hashes of the rerankers' own weights; the encoder's token vectors have the index's."""
        stages = self.stages if self.rerank else ()
        return ",".join(filter(None, (stage.kind.weights_hash(stage.name) for stage in stages))) or None

    def first_stage(self) -> dict[str, Any]:
        """Return the identity of the candidates, for runs without reranking."""
        return self.model_dump(mode="json", by_alias=True, include=set(FirstStageSettings.model_fields))
