"""`biorag train retriever`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from biorag.commands import options, training
from biorag.commands.completion import bases, choices_in, completer
from biorag.commands.groups import Flags, Given, Panel, expanded
from biorag.errors import UsageError
from biorag.models.finding import find_base
from biorag.settings.section import DATA, RUN
from biorag.settings.settings import Settings
from biorag.settings.training import RETRIEVER, TrainingSettings

GENERIC_TASKS = 100

TrainOrMixture = Annotated[
    list[Path],
    typer.Argument(
        help="JSONL of query, positive[, negative_1 ...], or BEIR folders; or one TOML file of a mixture of such sets; "
        "with --pairs title-abstract a corpus.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Form:
    """How the base becomes a bi-encoder."""

    attention: Annotated[
        str | None,
        typer.Option(
            help="Decoders: causal or bidirectional; by default as in the base.",
            **choices_in("biorag.training.decoder:ATTENTIONS"),
        ),
    ] = None
    instruct: Annotated[
        str | None,
        typer.Option(
            help="Text before queries and passages: bmretriever, none, or a TOML file; by default the base's own, "
            "for a new decoder bmretriever."
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            help="Sentence for {task} in the instruction; bmretriever:DATASET; or tuned:DIR, what tune prompt chose."
        ),
    ] = None
    random_prompts: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=GENERIC_TASKS,
            help="Put one of N generic tasks, drawn at random, before each training query instead of --task.",
        ),
    ] = None
    lora: Annotated[bool, typer.Option("--lora", help="Train only LoRA matrices, on all linear layers.")] = False
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="Train two copies of the base: one for queries, one for passages.")
    ] = False
    pooling: Annotated[
        str | None,
        typer.Option(
            help="The text's vector: cls (the first token's), mean or last; by default the base's own.",
            **choices_in("biorag.models.pooling:POOLINGS"),
        ),
    ] = None
    projection: Annotated[
        int | None,
        typer.Option(min=1, max=65_536, help="Dimensions of a new linear layer after the pooling; by default none."),
    ] = None

    def check(self) -> None:
        """Refuse parts of an instruction without an instruction."""
        for option, value in (("--task", self.task), ("--random-prompts", self.random_prompts)):
            if value is not None and self.instruct is None:
                raise UsageError(f"{option} is part of an instruction: add --instruct bmretriever or a file")


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows to train on."""

    pairs: Annotated[
        str,
        typer.Option(
            help="questions; or title-abstract, pre-training pairs from a corpus, both halves of untitled texts; or "
            "title-passages, of untitled texts two disjoint passages, drawn with --seed.",
            **choices_in("biorag.training.preparation:PAIRS"),
        ),
    ] = "questions"
    sample_negatives: Annotated[
        bool,
        typer.Option(
            "--sample-negatives",
            help="Draw each row's --hard-negatives from all its mined ones with --seed, instead of the first.",
        ),
    ] = False
    max_positives: training.MaxPositives = None


@expanded
def retriever(
    train: TrainOrMixture,
    out: training.Out,
    settings: Annotated[
        Settings,
        Flags(TrainingSettings, model=RETRIEVER),
        Flags("precision", panel=RUN),
        Flags("seed", "similarity"),
        Flags("name", panel=DATA, shows_default=False),
    ],
    given: Given,
    contamination: Annotated[options.Contamination, Panel(DATA)],
    rows: Annotated[Rows, Panel(DATA)],
    form: Form,
    base: Annotated[
        str,
        typer.Option(
            "--base",
            help="'starter', 'starter-llm', a directory, a Hugging Face id, or a decoder's .gguf.",
            autocompletion=completer(bases),
        ),
    ] = "starter",
    negatives: training.Negatives = "in-batch",
    as_json: options.Json = False,
) -> None:
    """Train a bi-encoder, which 'biorag index --encoder DIR' and sentence-transformers load.

    Two phases are two runs: first title-abstract pairs of a corpus, then questions with that model as the base.

    Examples:

      biorag train retriever pairs.jsonl --out models/retriever

      biorag train retriever pubmed/ --pairs title-abstract --out models/pretrained

      biorag train retriever data/bioasq --name pubmed --base models/pretrained --out models/retriever

      biorag train retriever pairs.jsonl --base starter-llm --lora --out models/decoder

      biorag train retriever mix.toml --base starter-llm --lora --instruct bmretriever --out models/mixed

      biorag train retriever pairs.jsonl --asymmetric --out models/towers

      biorag train retriever pairs.jsonl --base bert --pooling cls --projection 768 --similarity dot --out models/de
    """
    from biorag.training.data import sampled_split
    from biorag.training.instructions import TASK, generic_tasks, read_instructions
    from biorag.training.mixture import is_mixture
    from biorag.training.preparation import QUESTIONS

    form.check()
    training.check(settings, given)
    drawn = generic_tasks(form.random_prompts, settings.seed) if form.random_prompts else ()
    files = find_base(base)
    mixture = is_mixture(train)
    if mixture and rows.pairs != QUESTIONS:
        raise UsageError(f"a mixture consists of questions: leave out --pairs {rows.pairs}")
    instructions = None
    if form.instruct is not None and not mixture:
        instructions = read_instructions(form.instruct, form.task or TASK, drawn)
    name = given.value("name") if rows.pairs == QUESTIONS else None
    with training.preparation(settings, name, contamination, rows.max_positives) as prepare:
        if mixture:
            split, facts, instructions = prepare.read_mixture(train[0], form.instruct, form.task, drawn)
        else:
            split, facts = prepare.read(train, rows.pairs)
    if rows.sample_negatives:
        split = sampled_split(split, settings.training.hard_negatives, settings.seed)
    from biorag.training import retriever as trained
    from biorag.training.distributed import share
    from biorag.training.loop import steps_of
    from biorag.training.memory import columns_of

    passes = split.passes(settings.seed)
    columns = columns_of(share([row for part in passes for row in part]), settings.training)
    training.tell(files, columns, settings, form.lora, form.asymmetric)
    made = trained.EncoderForm(form.attention, instructions, form.lora, form.asymmetric, form.pooling, form.projection)
    with training.steps(steps_of([len(part) for part in passes], settings.training)) as advance:
        manifest = trained.train_retriever(files, split, settings, out, facts, advance, negatives, made)
    training.report(out, manifest, as_json)
