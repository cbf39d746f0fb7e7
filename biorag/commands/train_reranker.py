"""`biorag train reranker`."""

from __future__ import annotations

from typing import Annotated

import typer

from biorag.commands import options, training
from biorag.commands.groups import Flags, Given, Panel, expanded
from biorag.models.finding import find_encoder
from biorag.settings.section import DATA, RUN
from biorag.settings.settings import Settings
from biorag.settings.training import RERANKER, TrainingSettings


@expanded
def reranker(
    train: training.Train,
    out: training.Out,
    settings: Annotated[
        Settings,
        Flags(TrainingSettings, model=RERANKER),
        Flags("precision", panel=RUN),
        Flags("seed"),
        Flags("name", panel=DATA, shows_default=False),
    ],
    given: Given,
    contamination: Annotated[options.Contamination, Panel(DATA)],
    base: training.Base = "starter",
    negatives: training.Negatives = "in-batch",
    distill: Annotated[
        bool,
        typer.Option("--distill", help="Learn from the rows' 'scores' (of a cross-encoder).", rich_help_panel=DATA),
    ] = False,
    max_positives: training.MaxPositives = None,
    as_json: options.Json = False,
) -> None:
    """Train a late-interaction reranker (ColBERT), which --reranker DIR, colbert-ai and others load.

    Train it on what your own retriever gets wrong: 'biorag mine --negatives retriever' on its index.

    Examples:

      biorag train reranker triplets.jsonl --base models/retriever --out models/reranker

      biorag train reranker triplets.jsonl --base colbert-ir/colbertv2.0 --epochs 2 --out models/colbert
    """
    training.check(settings, given)
    files = find_encoder(base)
    with training.preparation(settings, given.value("name"), contamination, max_positives) as prepare:
        split, facts = prepare.read(train)
    from biorag.training.distributed import share
    from biorag.training.loop import steps_of
    from biorag.training.memory import columns_of
    from biorag.training.reranker import train_reranker

    training.tell(files, columns_of(share(split.training), settings.training, settings.training.query_tokens), settings)
    with training.steps(steps_of(len(split.training), settings.training)) as advance:
        manifest = train_reranker(files, split, settings, out, facts, advance, negatives, distill)
    training.report(out, manifest, as_json)
