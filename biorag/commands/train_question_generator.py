"""`biorag train question-generator`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from biorag.commands import options, training
from biorag.commands.groups import Flags, Given, Panel, expanded
from biorag.models.finding import find_encoder
from biorag.settings.section import DATA, RUN
from biorag.settings.settings import Settings
from biorag.settings.training import QUESTION_GENERATOR, TrainingSettings


@expanded
def question_generator(
    train: training.Train,
    out: training.Out,
    settings: Annotated[
        Settings,
        Flags(TrainingSettings, model=QUESTION_GENERATOR),
        Flags("precision", panel=RUN),
        Flags("seed"),
        Flags("name", panel=DATA, shows_default=False),
    ],
    given: Given,
    contamination: Annotated[options.Contamination, Panel(DATA)],
    base: Annotated[
        str, typer.Option("--base", help="Sequence-to-sequence model: a directory, or a Hugging Face id such as T5's.")
    ],
    pairs: Annotated[
        str,
        typer.Option(help="What a row is: questions, or title-abstract of a corpus.", rich_help_panel=DATA),
    ] = "questions",
    max_positives: training.MaxPositives = None,
    as_json: options.Json = False,
) -> None:
    """Train a question generator, which 'generate queries --model seq2seq:DIR' writes questions with.

    It learns to write a row's query from its positive passage; negatives are not used.

    Examples:

      biorag train question-generator data/bioasq --name pubmed --base google-t5/t5-small --epochs 3 --out models/asker

      biorag train question-generator pubmed/ --pairs title-abstract --base google-t5/t5-small --out models/titles
    """
    files = find_encoder(base)
    with training.preparation(settings, given.value("name"), contamination, max_positives) as prepare:
        split, facts = prepare.read(train, pairs)
    from biorag.training.loop import steps_of
    from biorag.training.memory import columns_of
    from biorag.training.question_generator import train_question_generator

    rows = [replace(row, negatives=()) for row in split.training]
    training.tell(files, columns_of(rows, settings.training), settings)
    with training.steps(steps_of(len(rows), settings.training)) as advance:
        manifest = train_question_generator(files, split, settings, out, facts, advance)
    training.report(out, manifest, as_json)
