"""A mining run: pairs read and checked for contamination, their negatives mined from an open index into a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biorag.citation_graph.graph import open_graph
from biorag.engine import OpenIndex
from biorag.registries import NEGATIVES
from biorag.training.contamination import ContaminationPolicy, Match
from biorag.training.negatives.citation import CitedPapers, Reach
from biorag.training.negatives.kinds import Collaborators
from biorag.training.negatives.mining import Miner, MiningPlan, MiningReport, mine, mined_file
from biorag.training.negatives.retriever import require_positives
from biorag.training.rows import Cleaning, read_rows, sha256_of
from biorag.types import Progress, TrainingRow
from biorag.utils.versions import installed_versions


@dataclass(frozen=True, slots=True)
class Mined:
    """The result of a run; `reach` is for the kind citation, `contaminated` rows of the `matches` were dropped."""

    kind: str
    counts: MiningReport
    reach: Reach | None
    contaminated: int
    matches: Sequence[Match]
    cleaning: Cleaning

    def to_json(self) -> dict[str, Any]:
        """Return the run as `biorag mine --json` prints it."""
        counts = self.counts
        return {
            "kind": self.kind,
            **asdict(counts),
            "per_row_mean": round(counts.negatives / counts.rows, 2) if counts.rows else 0.0,
            **({"reach": asdict(self.reach)} if self.reach else {}),
            "contaminated": self.contaminated,
            "matches": [asdict(match) for match in self.matches],
            "input": asdict(self.cleaning),
        }


def mine_pairs(
    pairs: Sequence[Path],
    plan: MiningPlan,
    opened: OpenIndex,
    policy: ContaminationPolicy,
    out: Path,
    progress: Progress,
) -> Mined:
    """Mine negatives of pairs into the file `out`, resuming an interrupted run; a finished run's counts are read.

    Raises
    ------
    ContaminationError
        If pairs match benchmark questions and the policy does not drop them.
    BadInputError
        If the pairs cannot be read, or a positive whose score is needed is not in the index.
    MismatchError
        If the file is of other pairs or settings.
    """
    rows, cleaning = read_rows(pairs, opened.index.fetch)
    clean, matches = policy.apply(rows)
    papers = None
    if plan.walk is not None:
        papers = CitedPapers(open_graph(opened.settings), opened.index, clean, plan.walk.exclude_citing)
    counts = _mined(clean, plan, opened, papers, out, progress)
    reach = papers.reach(clean) if papers else None
    return Mined(plan.kind, counts, reach, len(rows) - len(clean), matches, cleaning)


def _mined(
    rows: Sequence[TrainingRow],
    plan: MiningPlan,
    opened: OpenIndex,
    papers: CitedPapers | None,
    out: Path,
    progress: Progress,
) -> MiningReport:
    """Mine what is not mined yet."""
    file = mined_file(out, identity(rows, plan, opened, papers))
    if plan.margin is not None and file.finished() is None:
        require_positives(opened.index, rows)

    def load_miner() -> Miner:
        inputs = Collaborators(opened.index, opened.retriever, rows, opened.load_encoder, papers)
        miner: Miner = NEGATIVES[plan.kind].load()(plan, inputs)
        return miner

    with progress("Mining", len(rows)) as advance:
        return mine(rows, load_miner, plan, file, advance)


def identity(
    rows: Sequence[TrainingRow], plan: MiningPlan, opened: OpenIndex, papers: CitedPapers | None
) -> dict[str, Any]:
    """Return what determines the mined file."""
    return {
        **asdict(plan),
        **opened.settings.retrieval.first_stage(),
        "index": opened.fingerprint(),
        "graph": papers and papers.graph.sha256,
        "pairs": sha256_of([row.query, row.positive, row.query_id, row.positive_id] for row in rows),
        "versions": installed_versions(),
    }
