"""The sides of the questions that training splits: those it saw, and those it held out or dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options
from biorag.errors import BadInputError, UsageError
from biorag.settings.settings import Settings

if TYPE_CHECKING:
    from biorag.corpus.datasets import Dataset

HeldOut = Annotated[
    bool,
    typer.Option("--held-out", help="Only the questions that training with --validation and --seed left out."),
]
Training = Annotated[
    bool,
    typer.Option("--training", help="Only the questions that --held-out leaves out: those that training saw."),
]
Dropped = Annotated[
    bool,
    typer.Option(
        "--dropped",
        help="Only the questions that --guard dropped, without those held out: neither trained nor measured on.",
    ),
]
Guards = Annotated[
    list[Path] | None,
    typer.Option("--guard", help="Questions that training with this --guard dropped are left out too. Repeatable."),
]
Validation = Annotated[
    float | None, options.option("train_validation", "--validation", help="Share of questions held out.")
]


def check_needed(given: Mapping[str, Any], needed: str) -> None:
    """Refuse options that say how training parted the questions, where no side of them is asked for by `needed`."""
    for name, flag in (("guard", "--guard"), ("train_validation", "--validation")):
        if given[name] not in (None, [], ()):
            raise UsageError(f"{flag} says what training left out: give {needed} with it")


def check_dropped(given: Mapping[str, Any]) -> None:
    """Refuse dropped questions that are asked for without what dropped them."""
    if given["dropped"] and not given["guard"]:
        raise UsageError("--dropped takes the questions that --guard FILE dropped: give the benchmark")


def held_out(data: Dataset, settings: Settings, guards: Sequence[Path]) -> Dataset:
    """Return the questions that training did not see: held out, or dropped as a benchmark's."""
    return _only(data, _unseen(data, settings, guards), f"is held out by --validation {settings.training.validation}")


def training(data: Dataset, settings: Settings, guards: Sequence[Path]) -> Dataset:
    """Return the questions that training saw."""
    seen = {each.id for each in data.questions} - _unseen(data, settings, guards)
    return _only(data, seen, f"is left for training by --validation {settings.training.validation}")


def dropped(data: Dataset, settings: Settings, guards: Sequence[Path]) -> Dataset:
    """Return the questions that the guard kept from training, without those held out."""
    return _only(data, _unseen(data, settings, guards) - _held_out(data, settings), "was dropped by --guard")


def _unseen(data: Dataset, settings: Settings, guards: Sequence[Path]) -> set[str]:
    """Return the ids of the questions that training did not see."""
    from biorag.training.contamination import Guard

    matches = Guard(guards).matches(each.text for each in data.questions) if guards else ()
    texts = {match.query for match in matches}
    return _held_out(data, settings) | {each.id for each in data.questions if each.text in texts}


def _held_out(data: Dataset, settings: Settings) -> set[str]:
    from biorag.training.rows import is_held_out

    return {each.id for each in data.questions if is_held_out(each.text, settings.training.validation, settings.seed)}


def _only(data: Dataset, ids: set[str], what: str) -> Dataset:
    chosen = [each for each in data.questions if each.id in ids]
    if not chosen:
        raise BadInputError(f"no question of {data.name} {what}")
    return replace(data, questions=chosen, qrels={each.id: data.qrels[each.id] for each in chosen})
