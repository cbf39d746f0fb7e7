"""`biorag train verifier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, training
from biorag.commands.groups import Flags, Given, expanded
from biorag.engine import open_stored
from biorag.models.finding import find_encoder
from biorag.settings.section import RUN
from biorag.settings.settings import Settings
from biorag.settings.training import CROSS_ENCODER, TrainingSettings


@expanded
def verifier(
    dataset: Annotated[Path, typer.Argument(help="Folder with queries.jsonl, qrels/ and answers.jsonl[.gz].")],
    out: training.Out,
    settings: Annotated[
        Settings,
        Flags("name", "qdrant", finds_index=True),
        Flags(TrainingSettings, model=CROSS_ENCODER),
        Flags("precision", panel=RUN),
        Flags("seed"),
    ],
    given: Given,
    base: training.Base = "starter",
    half: Annotated[
        str, typer.Option(help="Questions to train on: all, development or test, as 'bench verification' divides them.")
    ] = "development",
    as_json: options.Json = False,
) -> None:
    """Train a verifier, a cross-encoder that reads evidence and a claim, which --verifier DIR loads.

    The positives are sentences of the snippets that the ideal answers repeat, and their rewordings; the negatives are
    the same with negation, direction, numbers or names changed, and true sentences of other questions.

    Examples:

      biorag train verifier data/bioasq --name pubmed --out models/verifier

      biorag train verifier data/bioasq --name pubmed --base models/cross-encoder --epochs 2 --out models/verifier
    """
    from biorag.benchmarks.verification.claims import check_half, make_claims, passages, read_ideal_answers
    from biorag.benchmarks.verification.training_rows import KIND, training_rows
    from biorag.corpus.datasets import load_dataset

    training.check(settings, given)
    check_half(half)
    files, data, answers = find_encoder(base), load_dataset(dataset), read_ideal_answers(dataset)
    with open_stored(settings) as (_, index):
        made = list(passages(data, answers, index.fetch, settings.seed, half))
    from biorag.training.cross_encoder import train_cross_encoder
    from biorag.training.data import Split, pairs_in
    from biorag.training.loop import steps_of
    from biorag.training.memory import pairs_of
    from biorag.training.rows import split

    rows = list(training_rows(make_claims(made, settings.seed)))
    parts = Split(*split(rows, settings.training.validation, settings.seed))
    training.tell(files, pairs_of(parts.training, settings.training), settings)
    steps = steps_of(pairs_in(parts.training, settings.training.hard_negatives), settings.training)
    facts = {"data": {"files": [str(dataset)], "half": half}}
    with training.steps(steps) as advance:
        manifest = train_cross_encoder(files, parts, settings, out, facts, advance, KIND)
    training.report(out, manifest, as_json)
