"""`biorag train cross-encoder`."""

from __future__ import annotations

from typing import Annotated

import typer

from biorag.commands import options, training
from biorag.commands.groups import Flags, Given, Panel, expanded
from biorag.models.finding import find_encoder
from biorag.registries import own_negatives
from biorag.settings.section import DATA, RUN
from biorag.settings.settings import Settings
from biorag.settings.training import CROSS_ENCODER, TrainingSettings


@expanded
def cross_encoder(
    train: training.Train,
    out: training.Out,
    settings: Annotated[
        Settings,
        Flags(TrainingSettings, model=CROSS_ENCODER),
        Flags("precision", panel=RUN),
        Flags("seed"),
        Flags("name", panel=DATA, shows_default=False),
    ],
    given: Given,
    contamination: Annotated[options.Contamination, Panel(DATA)],
    base: training.Base = "starter",
    negatives: Annotated[
        str,
        typer.Option(help=f"Kind of the mined negatives: {', '.join(own_negatives())}.", rich_help_panel=DATA),
    ] = "bm25",
    max_positives: training.MaxPositives = None,
    as_json: options.Json = False,
) -> None:
    """Train a cross-encoder, which --reranker cross:DIR and sentence-transformers load.

    It reads a question and a passage together, which is slow: let it rerank the best few of an earlier stage.

    Examples:

      biorag train cross-encoder triplets.jsonl --out models/cross-encoder

      biorag train cross-encoder triplets.jsonl --negatives retriever --hard-negatives 4 --out models/cross-encoder
    """
    training.check(settings, given)
    files = find_encoder(base)
    with training.preparation(settings, given.value("name"), contamination, max_positives) as prepare:
        split, facts = prepare.read(train)
    from biorag.training.cross_encoder import train_cross_encoder
    from biorag.training.data import pairs_in
    from biorag.training.loop import steps_of
    from biorag.training.memory import pairs_of

    training.tell(files, pairs_of(split.training, settings.training), settings)
    steps = steps_of(pairs_in(split.training, settings.training.hard_negatives), settings.training)
    with training.steps(steps) as advance:
        manifest = train_cross_encoder(files, split, settings, out, facts, advance, negatives)
    training.report(out, manifest, as_json)
