"""What the training commands share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.completion import bases, choices, completer
from biorag.commands.groups import Given, flag_of
from biorag.engine import open_passages
from biorag.errors import UsageError
from biorag.models.finding import ModelFiles
from biorag.registries import own_negatives
from biorag.settings.section import DATA
from biorag.settings.settings import Settings
from biorag.types import OnProgress

if TYPE_CHECKING:
    from biorag.training.memory import Work
    from biorag.training.preparation import Preparation

Train = Annotated[
    list[Path],
    typer.Argument(
        help="JSONL of query, positive[, negative_1 ...], or BEIR folders; with --pairs title-abstract a corpus.",
        show_default=False,
    ),
]
Base = Annotated[
    str, typer.Option("--base", help="'starter', a directory, or a Hugging Face id.", autocompletion=completer(bases))
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the model; an interrupted run resumes.")]
MaxPositives = Annotated[
    int | None,
    typer.Option(min=1, help="Maximum training rows of one question, drawn with --seed.", rich_help_panel=DATA),
]
Negatives = Annotated[
    str,
    typer.Option(
        help="in-batch (other rows' passages and the row's own mined ones), or only the mined ones: "
        f"{', '.join(own_negatives())}.",
        rich_help_panel=DATA,
        **choices(own_negatives()),
    ),
]


# Two ways to say one thing: a setting, and the one in whose place it stands.
INSTEAD = {
    "train_max_steps": "train_epochs",
    "train_warmup_steps": "train_warmup",
    "train_eval_steps": "train_evaluations",
}


def check(settings: Settings, given: Given) -> None:
    """Refuse an option that another setting would leave without effect.

    Raises
    ------
    UsageError
        Naming both.
    """
    values = settings.training.flat()
    for name, other in INSTEAD.items():
        if values[name] is not None and given.value(other) is not None:
            raise UsageError(
                f"{flag_of(name)} ({name} = {values[name]}) stands in the place of {flag_of(other)}: give one of them"
            )


@contextmanager
def preparation(
    settings: Settings, name: str | None, contamination: options.Contamination, max_positives: int | None
) -> Iterator[Preparation]:
    """Yield the preparation of a run's rows; passages of BEIR folders may come from the named index."""
    from biorag.training.preparation import Preparation

    policy = contamination.policy
    with open_passages(settings, name) as fetch:
        yield Preparation(policy, settings.training.validation, settings.seed, max_positives, fetch)


def tell(files: ModelFiles, work: Work, settings: Settings, lora: bool = False, asymmetric: bool = False) -> None:
    """Print what training takes, and refuse it if it does not fit into memory; only in the first process."""
    from biorag.training.distributed import is_first
    from biorag.training.memory import estimate

    if is_first():
        show.err.print(estimate(files, work, settings, lora, asymmetric).sentence())


@contextmanager
def steps(total: int) -> Iterator[OnProgress]:
    """Show the progress of training; only in the first of several processes."""
    from biorag.training.distributed import is_first

    if not is_first():
        yield lambda _: None
        return
    with show.progress("Steps", total) as advance:
        yield advance


def report(out: Path, manifest: Mapping[str, Any], as_json: bool) -> None:
    """Print the result of a run; only in the first of several processes."""
    from biorag.training.distributed import is_first

    if not is_first():
        return
    if as_json:
        show.print_json({"out": str(out), **manifest})
        return
    data, best = manifest["identity"]["data"], manifest["best"]
    rows = [
        ("rows", manifest["rows"]),
        ("held-out rows", data["validation_rows"]),
        ("dropped by the guard", len(manifest.get("guard", {}).get("dropped", ()))),
        ("steps", manifest["steps"]),
        ("stopped by", manifest.get("stopped_by", "-").replace("_", " ")),
        ("final loss", "-" if manifest["final_loss"] is None else f"{manifest['final_loss']:.4f}"),
        (f"best {best['metric']}", f"{best['value']:.4f} at step {best['step']}" if best["value"] is not None else "-"),
        ("seconds", manifest["seconds"]),
    ]
    show.table(f"{manifest['identity']['kind'].capitalize()} {out}", ["", ""], rows)
    show.err.print(f"curves: {out / 'curves.png'} and curves.csv; everything else: {out / 'training.json'}")
