"""When an answer is withheld."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from biorag.settings.section import RETRIEVAL, Flag, Section


class AbstentionSettings(Section):
    """When `ask` says that the index holds nothing that answers a question."""

    evidence_threshold: Annotated[float | None, Flag("--evidence-threshold", panel=RETRIEVAL)] = Field(
        default=None,
        ge=0,
        le=1,
        description="Withhold the answer where the index holds one with less than this probability; by default the "
        "threshold that 'biorag tune abstention' chose.",
    )
    answer_anyway: Annotated[bool, Flag("--answer-anyway", panel=RETRIEVAL)] = Field(
        default=False, description="Answer even where the index seems to hold no answer."
    )
