"""Hard negatives that a model writes: passages of a query's topic and words that do not answer it.

Synthesize-Train-Merge (2026, section 3.1.1) writes them from a query, its positive and a mined negative. The prompt is
ours; the paper's is in its appendix B.1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from biorag.engine import open_passages
from biorag.generators.source import open_generator
from biorag.lab.synthesis.drafts import (
    DraftFilter,
    DraftForm,
    GenerationJob,
    PromptedWriter,
    Tally,
    about,
    free_texts,
    on_one_line,
    passage_fault,
)
from biorag.prompts.template import FIELDS, Template, load_template
from biorag.training.data import SYNTHETIC
from biorag.training.mining import kept_fields
from biorag.training.rows import read_rows, sha256_of
from biorag.types import Generation, Prompt, Snippet, TrainingRow


@dataclass(frozen=True, slots=True)
class MinedPair:
    """A training row to write negatives for."""

    row: TrainingRow

    @property
    def id(self) -> str:
        """A hash of the row's texts."""
        texts = json.dumps([self.row.query, self.row.positive, *self.row.negatives])
        return hashlib.blake2b(texts.encode(), digest_size=16).hexdigest()


def generate_negatives(job: GenerationJob, paths: Sequence[Path], name: str | None) -> Tally:
    """Generate hard negatives of training rows; BEIR folders' passages may come from the named index."""
    job.check("--per-row")
    with open_passages(job.settings, name) as fetch:
        rows, _ = read_rows(paths, fetch)
    pairs = list(map(MinedPair, rows))
    template = load_template("negative", job.template, known=(*FIELDS, "instruction"))
    opened = open_generator(job.settings)
    identity = {
        "rows": sha256_of([pair.id, *_ids(pair.row)] for pair in pairs),
        "generator": opened.identity,
        "prompt": template.sha256,
    }

    def begin() -> tuple[list[MinedPair], Tally, PromptedWriter]:
        unmined = sum(not pair.row.negatives for pair in pairs)
        counts = {"pairs": len(pairs), "unmined": unmined, "negatives": 0, "without": 0, "near_copies": 0}
        return pairs, counts, PromptedWriter(opened.generator, draft_form(template), job.draws, opened.at_a_time)

    return job.generate("Writing negatives", identity, partial(negative_rows, examples=template.system), begin)


def _ids(row: TrainingRow) -> list[str]:
    return [row.query_id, row.positive_id, *filter(None, [row.instruction])]


def draft_form(template: Template) -> DraftForm:
    """Return the form of a draft: a passage, written from the positive and the mined negatives in turn."""

    def prompts(pair: MinedPair, number: int) -> Iterator[Prompt]:
        mined, filled = pair.row.negatives, template.bound("instruction", pair.row.instruction)
        shown = [pair.row.positive, *([mined[number % len(mined)]] if mined else [])]
        return about(filled, pair.row.query, [Snippet(str(number), "", text) for number, text in enumerate(shown)])

    return DraftForm(free_texts("passage"), prompts, "passage")


def negative_rows(
    subject: MinedPair, drafts: Sequence[Generation], draft_filter: DraftFilter, examples: str
) -> Iterator[dict[str, Any]]:
    """Yield the subject's row with the negatives that were written for it, if there is one.

    Copies of the prompt's `examples` are dropped.
    """
    row = subject.row
    others = (row.query, row.positive, *row.negatives, examples)
    passages = [(on_one_line(draft.text), draft.capped) for draft in drafts]
    negatives = [text for text, capped in passages if draft_filter.accepts(passage_fault(text, capped, others), text)]
    draft_filter.tally["negatives"] += len(negatives)
    draft_filter.tally["without"] += not negatives
    if negatives:
        numbered = {f"negative_{number}": text for number, text in enumerate(negatives, 1)}
        yield {"query": row.query, "positive": row.positive, **numbered, "kind": SYNTHETIC, **kept_fields(row)}
