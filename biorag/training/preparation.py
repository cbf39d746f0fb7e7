"""From files to the rows of a run: read, checked for contamination, split and capped."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biorag.corpus.sources import find_sources
from biorag.errors import UsageError, unknown_name
from biorag.training.contamination import ContaminationPolicy
from biorag.training.data import Split, TrainingSet, mixed
from biorag.training.instructions import Instructions
from biorag.training.mixture import instructions_of, is_mixture, load_mixture
from biorag.training.rows import cap_positives, read_rows, read_title_abstract, split
from biorag.types import Fetch, TrainingRow

QUESTIONS, TITLE_ABSTRACT, TITLE_PASSAGES = PAIRS = ("questions", "title-abstract", "title-passages")


@dataclass(frozen=True, slots=True)
class Preparation:
    """How the rows that were read become those of a run.

    The `contamination` policy refuses or drops rows of benchmark questions, a share `validation` of the questions is
    held out with the seed, and at most `max_positives` rows of each other question are trained on. `fetch` gives the
    passages of BEIR folders that have no corpus.
    """

    contamination: ContaminationPolicy
    validation: float
    seed: int
    max_positives: int | None = None
    fetch: Fetch | None = None

    def read(self, train: Sequence[Path], pairs: str = QUESTIONS) -> tuple[Split, dict[str, Any]]:
        """Return the rows of files, folders or (other `pairs`) a corpus, and the facts of the manifest.

        Raises UsageError if a file is a mixture, or the kind of pairs is unknown. As `read_rows` and
        `ContaminationPolicy.apply` do.
        """
        if is_mixture(train):
            raise UsageError(f"{train[0]} is a mixture, which 'biorag train retriever' takes: give files of rows here")
        if pairs not in PAIRS:
            raise unknown_name("--pairs", pairs, PAIRS)
        if pairs != QUESTIONS:
            with tempfile.TemporaryDirectory(prefix="biorag-") as spool:
                sources = find_sources([str(path) for path in train], Path(spool) / "standard-input")
                rows, cleaning = read_title_abstract(sources, self.seed if pairs == TITLE_PASSAGES else None)
        else:
            rows, cleaning = read_rows(train, self.fetch)
        clean, matches = self.contamination.apply(rows)
        data = {"files": [str(path) for path in train], "pairs": pairs, **asdict(cleaning)}
        return self._split(clean), {"data": data, **self.contamination.facts(matches)}

    def read_mixture(
        self, path: Path, instruct: str | None, task: str | None, drawn: Sequence[str]
    ) -> tuple[Split, dict[str, Any], Instructions | None]:
        """Return the rows of a mixture, the facts of the manifest, and the instructions that the model keeps.

        Parameters
        ----------
        instruct, task, drawn : the run's template, task, and tasks to draw from, see `instructions_of`
        """
        mixture = load_mixture(path)
        kept, instructions = instructions_of(mixture, instruct, task, drawn)
        read = [read_rows(listed.rows, self.fetch) for listed in mixture.sets]
        clean, matches = self.contamination.apply([row for rows, _ in read for row in rows])
        allowed = set(clean)
        sets, facts = [], []
        for listed, (rows, cleaning), own in zip(mixture.sets, read, instructions, strict=True):
            clean_rows = [row for row in rows if row in allowed]
            part = self._split(clean_rows)
            how = (listed.weight, listed.temperature, own, listed.share)
            sets.append(TrainingSet(listed.name, part.training, part.validation, *how))
            files, dropped = [str(file) for file in listed.rows], len(rows) - len(clean_rows)
            facts.append({"name": listed.name, "files": files, **asdict(cleaning), "dropped": dropped})
        data = {"files": [str(path)], "pairs": QUESTIONS, "sets": facts}
        return mixed(sets), {"data": data, **self.contamination.facts(matches)}, kept

    def _split(self, rows: Sequence[TrainingRow]) -> Split:
        """Return the rows with some questions held out and the rows of the others capped."""
        training, validation = split(rows, self.validation, self.seed)
        if self.max_positives:
            training = cap_positives(training, self.max_positives, self.seed)
        return Split(training, validation)
