"""How an index is searched."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from biorag.registries import FUSIONS, RERANKERS
from biorag.settings.reranker_chain import Stage, parse_stages
from biorag.settings.section import LARGEST, RETRIEVAL, Flag, Section

DEEPEST = 10_000  # candidates that can be reranked


class FirstStageSettings(Section):
    """What determines the candidates, before any of them is reranked."""

    precision: Annotated[Literal["auto", "fp32", "bf16"], Flag("--precision")] = Field(
        default="auto",
        description="Precision of encoders and rerankers: auto (bf16 where the hardware supports it), fp32 or bf16.",
    )
    mode: Annotated[Literal["bm25", "dense", "hybrid"], Flag("--mode", panel=RETRIEVAL)] = Field(
        default="hybrid", description="First stage of retrieval."
    )
    fusion: Annotated[str, Flag("--fusion", panel=RETRIEVAL, choices=FUSIONS)] = Field(
        default="linear", description=f"Hybrid: {FUSIONS.listed()}."
    )
    lambda_: Annotated[float, Flag("--lambda", panel=RETRIEVAL)] = Field(
        default=0.03, ge=0, le=LARGEST, alias="lambda", description="λ, the weight of BM25 in the linear fusion."
    )
    rrf_k: int = Field(default=60, ge=1, le=LARGEST, description="k of reciprocal rank fusion.")
    depth: int = Field(default=100, ge=1, le=10_000, description="Candidates of each side before fusion.")

    @field_validator("fusion")
    @classmethod
    def _is_registered(cls, value: str) -> str:
        if value not in FUSIONS:
            raise ValueError(f"use {FUSIONS.names()}")
        return value


class RetrievalSettings(FirstStageSettings):
    """What determines a ranking over an index."""

    rerank: Annotated[bool, Flag("--rerank/--no-rerank", panel=RETRIEVAL)] = Field(
        default=True, description="Rerank the candidates."
    )
    reranker: Annotated[str, Flag("--reranker", panel=RETRIEVAL)] = Field(
        default="encoder",
        description=f"STAGE[,STAGE...], in this order: {RERANKERS.listed()}, each with @N to rerank only the best N.",
    )
    interpolation: Annotated[float, Flag("--interpolation", panel=RETRIEVAL)] = Field(
        default=0.5, ge=0, le=LARGEST, description="Weight of the first stage's score, added to the mean MaxSim."
    )
    cross_interpolation: Annotated[float, Flag("--cross-interpolation", panel=RETRIEVAL)] = Field(
        default=10.0,
        ge=0,
        le=LARGEST,
        description="Weight of the score before it, added to a cross-encoder's log-odds.",
    )
    k_init: Annotated[int, Flag("--k-init", panel=RETRIEVAL)] = Field(
        default=20, ge=1, le=DEEPEST, description="Candidates to rerank.", validate_default=True
    )
    k: Annotated[int, Flag("--k", "-k", panel=RETRIEVAL)] = Field(
        default=5, ge=1, le=10_000, description="Snippets to return."
    )
    include_retracted: Annotated[bool, Flag("--include-retracted", panel=RETRIEVAL)] = Field(
        default=False, description="Also answer from retracted articles."
    )

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
        """Return what determines a ranking; the weight of a cross-encoder only where there is one."""
        values = super().identity()
        weights = {stage.kind.weight for stage in self.stages} if self.rerank else set()
        if "cross_interpolation" not in weights:
            del values["cross_interpolation"]
        return values

    def rerankers_hash(self) -> str | None:
        """Return the hashes of the rerankers' own weights; the encoder's token vectors have the index's."""
        stages = self.stages if self.rerank else ()
        return ",".join(filter(None, (stage.kind.weights_hash(stage.name) for stage in stages))) or None

    def first_stage(self) -> dict[str, Any]:
        """Return what determines the candidates, for the identity of a run without reranking."""
        return self.model_dump(mode="json", by_alias=True, include=set(FirstStageSettings.model_fields))
