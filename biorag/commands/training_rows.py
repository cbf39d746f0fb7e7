"""The rows that a training command reads: from files, a corpus or a mixture, guarded and split."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biorag.errors import UsageError, unknown_name
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.training.data import Split
    from biorag.training.instructions import Instructions
    from biorag.training.rows import Fetch
    from biorag.types import TrainingRow

PAIRS = ("questions", "title-abstract")


def data_of(
    settings: Settings,
    train: Sequence[Path],
    pairs: str,
    name: str | None,
    guards: Sequence[Path] | None,
    drop: bool,
    max_positives: int | None,
) -> tuple[Split, dict[str, Any]]:
    """Return the rows to train and validate on, and what the manifest says of them."""
    from biorag.training.rows import read_rows, read_title_abstract

    if is_mixture(train):
        raise UsageError(f"{train[0]} is a mixture, which 'biorag train retriever' takes: name rows here")
    if pairs not in PAIRS:
        raise unknown_name("--pairs", pairs, PAIRS)
    if pairs == PAIRS[1]:
        from biorag.corpus.sources import find_sources

        with tempfile.TemporaryDirectory(prefix="biorag-") as spool:
            sources = find_sources([str(path) for path in train], Path(spool) / "standard-input")
            rows, cleaning = read_title_abstract(sources)
    else:
        with _passages(settings, name) as fetch:
            rows, cleaning = read_rows(train, fetch)
    data = {"files": [str(path) for path in train], "pairs": pairs, **asdict(cleaning)}
    rows, guard = _guarded(rows, guards, drop)
    return _split(settings, rows, max_positives), {"data": data, **guard}


def is_mixture(train: Sequence[Path]) -> bool:
    """Return whether the data is a mixture's file.

    Raises
    ------
    UsageError
        If there are other paths beside it.
    """
    files = [path for path in train if path.suffix == ".toml"]
    if files and len(train) > 1:
        raise UsageError(f"{files[0]} is a mixture: name its sets in it and nothing beside it")
    return bool(files)


def mixture_of(
    settings: Settings,
    train: Sequence[Path],
    name: str | None,
    guards: Sequence[Path] | None,
    drop: bool,
    max_positives: int | None,
    said: tuple[str | None, str | None, Sequence[str]],
) -> tuple[Split, dict[str, Any], Instructions | None]:
    """Return a mixture's rows, what the manifest says of them, and the instructions that the model keeps.

    `said` are the run's template, task, and tasks to draw from.
    """
    from biorag.training.data import TrainingSet, mixed
    from biorag.training.mixture import instructions_of, load_mixture
    from biorag.training.rows import read_rows

    mixture = load_mixture(train[0])
    kept, instructions = instructions_of(mixture, *said)
    with _passages(settings, name) as fetch:
        read = [read_rows(each.rows, fetch) for each in mixture.sets]
    clean, guard = _guarded([row for rows, _ in read for row in rows], guards, drop)
    left = set(clean)
    sets, facts = [], []
    for each, (rows, cleaning), own in zip(mixture.sets, read, instructions, strict=True):
        guarded = [row for row in rows if row in left]
        part = _split(settings, guarded, max_positives)
        sets.append(TrainingSet(each.name, part.training, part.validation, each.weight, each.temperature, own))
        files, dropped = [str(path) for path in each.rows], len(rows) - len(guarded)
        facts.append({"name": each.name, "files": files, **asdict(cleaning), "dropped": dropped})
    return mixed(sets), {"data": {"files": [str(train[0])], "pairs": PAIRS[0], "sets": facts}, **guard}, kept


def _guarded(
    rows: Sequence[TrainingRow], guards: Sequence[Path] | None, drop: bool
) -> tuple[list[TrainingRow], dict[str, Any]]:
    """Return the rows without questions of the benchmarks, and what the manifest says of that."""
    if not guards and not drop:
        return list(rows), {}
    from biorag.commands.mining import kept_out

    kept, matches = kept_out(rows, guards, drop)
    files = [str(path) for path in guards or ()]
    return kept, {"guard": {"benchmarks": files, "dropped": [asdict(match) for match in matches]}}


def _split(settings: Settings, rows: Sequence[TrainingRow], max_positives: int | None) -> Split:
    """Return the rows with some questions held out, and of the others at most so many rows."""
    from biorag.training.data import Split
    from biorag.training.rows import cap_positives, split

    training, validation = split(rows, settings.training.validation, settings.seed)
    if max_positives:
        training = cap_positives(training, max_positives, settings.seed)
    return Split(training, validation)


@contextmanager
def _passages(settings: Settings, name: str | None) -> Iterator[Fetch | None]:
    """Open the named index for its passages alone."""
    if name is None:
        yield None
        return
    from biorag.engine import open_stored

    with open_stored(settings) as (_, index):
        yield index.fetch
