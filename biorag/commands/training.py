"""`biorag train`: the retriever and the rerankers on one's own pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.engine import open_passages
from biorag.errors import UsageError
from biorag.models.finding import ModelFiles, find_base, find_encoder
from biorag.settings.settings import Settings
from biorag.types import OnProgress

if TYPE_CHECKING:
    from biorag.training.memory import Work
    from biorag.training.preparation import Preparation

app = typer.Typer(no_args_is_help=True, help="Train the retriever and the rerankers on your own pairs.")

GENERIC_TASKS = 100
DATA, RUN = "Data", "Run"

Train = Annotated[
    list[Path],
    typer.Argument(
        help="JSONL of query, positive[, negative_1 ...], or BEIR folders; with --pairs title-abstract a corpus.",
        show_default=False,
    ),
]
TrainOrMixture = Annotated[
    list[Path],
    typer.Argument(
        help="JSONL of query, positive[, negative_1 ...], or BEIR folders; or one TOML file of a mixture of such sets; "
        "with --pairs title-abstract a corpus.",
        show_default=False,
    ),
]
Base = Annotated[str, typer.Option("--base", help="'starter', a directory, or a Hugging Face id.")]
Out = Annotated[Path, typer.Option("--out", help="Folder of the model; an interrupted run goes on there.")]
Name = Annotated[
    str | None, typer.Option("--name", "-n", help="Index that holds a BEIR folder's passages.", rich_help_panel=DATA)
]
Guards = Annotated[
    list[Path] | None,
    typer.Option(
        "--guard",
        help="Benchmark (MIRAGE's benchmark.json, BEIR, BioASQ) whose questions must not be trained on. Repeatable.",
        rich_help_panel=DATA,
    ),
]
Drop = Annotated[
    bool,
    typer.Option("--drop-contaminated", help="Leave those questions out instead of stopping.", rich_help_panel=DATA),
]
MaxPositives = Annotated[
    int | None,
    typer.Option(min=1, help="Training rows of one question at most, drawn with --seed.", rich_help_panel=DATA),
]
Validation = Annotated[
    float | None, options.option("train_validation", "--validation", help="Share of questions held out.", panel=DATA)
]
HardNegatives = Annotated[
    int | None,
    options.option("train_hard_negatives", "--hard-negatives", help="Mined negatives used of each row.", panel=DATA),
]
Negatives = Annotated[
    str,
    typer.Option(
        help="in-batch (other rows' passages and the row's own mined ones), or the mined ones alone: "
        "bm25, citation, random, retriever, synthetic.",
        rich_help_panel=DATA,
    ),
]
Epochs = Annotated[float | None, options.option("train_epochs", "--epochs", help="Passes over the rows.", panel=RUN)]
BatchSize = Annotated[
    int | None, options.option("train_batch_size", "--batch-size", help="Rows of one step.", panel=RUN)
]
LearningRate = Annotated[
    float | None, options.option("train_learning_rate", "--learning-rate", help="Peak learning rate.", panel=RUN)
]
Warmup = Annotated[
    float | None, options.option("train_warmup", "--warmup", help="Share of steps the rate rises in.", panel=RUN)
]
MaxTokens = Annotated[
    int | None, options.option("train_max_tokens", "--max-tokens", help="Tokens kept of a passage.", panel=RUN)
]
MiniBatch = Annotated[
    int | None,
    options.option(
        "train_mini_batch_size",
        "--mini-batch-size",
        help="Cached gradients: rows encoded at a time, for large batches in little memory.",
        panel=RUN,
    ),
]
Checkpointing = Annotated[
    bool | None,
    options.option(
        "train_gradient_checkpointing",
        "--gradient-checkpointing",
        help="Less memory, a third more time.",
        panel=RUN,
    ),
]
Evaluations = Annotated[
    int | None,
    options.option("train_evaluations", "--evaluations", help="Evaluations and checkpoints of a run.", panel=RUN),
]
Precision = Annotated[str | None, options.option("precision", "--precision", help="auto, fp32 or bf16.", panel=RUN)]


@app.command()
def retriever(
    ctx: typer.Context,
    train: TrainOrMixture,
    out: Out,
    base: Annotated[
        str,
        typer.Option("--base", help="'starter', 'starter-llm', a directory, a Hugging Face id, or a decoder's .gguf."),
    ] = "starter",
    negatives: Negatives = "in-batch",
    attention: Annotated[
        str | None, typer.Option(help="Of a decoder: causal, or bidirectional. None: as the base has it.")
    ] = None,
    instruct: Annotated[
        str | None,
        typer.Option(
            help="Before queries and passages: bmretriever, none, or a TOML file. None: the base's own, of a new "
            "decoder bmretriever."
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(help="The instruction's {task}, a sentence.")] = None,
    random_prompts: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=GENERIC_TASKS,
            help="Before each training query one of N generic tasks, drawn at random, in place of --task.",
        ),
    ] = None,
    lora: Annotated[bool, typer.Option("--lora", help="Train LoRA matrices on all linear layers alone.")] = False,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="Train two copies of the base: one for queries, one for passages.")
    ] = False,
    similarity: Annotated[
        str | None, typer.Option(help="cosine (scaled by 20) or dot (as it is), in loss and index.")
    ] = None,
    pairs: Annotated[
        str,
        typer.Option(
            help="questions, or title-abstract: pre-training pairs of a corpus, of untitled texts both halves.",
            rich_help_panel=DATA,
        ),
    ] = "questions",
    sample_negatives: Annotated[
        bool,
        typer.Option(
            "--sample-negatives",
            help="Draw each row's --hard-negatives from all its mined ones, with --seed; without, its first.",
            rich_help_panel=DATA,
        ),
    ] = False,
    name: Name = None,
    guard: Guards = None,
    drop_contaminated: Drop = False,
    max_positives: MaxPositives = None,
    train_validation: Validation = None,
    train_hard_negatives: HardNegatives = None,
    train_epochs: Epochs = None,
    train_batch_size: BatchSize = None,
    train_learning_rate: LearningRate = None,
    train_warmup: Warmup = None,
    train_max_tokens: MaxTokens = None,
    train_mini_batch_size: MiniBatch = None,
    train_gradient_checkpointing: Checkpointing = None,
    train_lora_rank: Annotated[
        int | None, options.option("train_lora_rank", "--lora-rank", help="Rank of LoRA's matrices.", panel=RUN)
    ] = None,
    train_lora_alpha: Annotated[
        float | None,
        options.option("train_lora_alpha", "--lora-alpha", help="LoRA's α: it counts α / rank times.", panel=RUN),
    ] = None,
    train_evaluations: Evaluations = None,
    precision: Precision = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Train a bi-encoder, which 'biorag index --encoder DIR' and sentence-transformers load.

    Two phases are two runs: title-abstract pairs of a corpus first, then questions on that as the base.

    Examples:

      biorag train retriever pairs.jsonl --out models/retriever

      biorag train retriever pubmed/ --pairs title-abstract --out models/pretrained

      biorag train retriever data/bioasq --name pubmed --base models/pretrained --out models/retriever

      biorag train retriever pairs.jsonl --base starter-llm --lora --out models/decoder

      biorag train retriever mix.toml --base starter-llm --lora --instruct bmretriever --out models/mixed

      biorag train retriever pairs.jsonl --asymmetric --out models/towers
    """
    settings = options.configured(ctx)
    from biorag.training.data import sampled_split
    from biorag.training.instructions import TASK, generic_tasks, read_instructions
    from biorag.training.mixture import is_mixture
    from biorag.training.preparation import QUESTIONS

    for option, value in (("--task", task), ("--random-prompts", random_prompts)):
        if value is not None and instruct is None:
            raise UsageError(f"{option} stands in an instruction: give --instruct bmretriever or a file too")
    drawn = generic_tasks(random_prompts, settings.seed) if random_prompts else ()
    files = find_base(base)
    mixture = is_mixture(train)
    if mixture and pairs != QUESTIONS:
        raise UsageError(f"a mixture is of questions: leave --pairs {pairs} out")
    instructions = None if mixture or instruct is None else read_instructions(instruct, task or TASK, drawn)
    with _preparation(
        settings, name if pairs == QUESTIONS else None, guard, drop_contaminated, max_positives
    ) as prepare:
        if mixture:
            split, facts, instructions = prepare.read_mixture(train[0], instruct, task, drawn)
        else:
            split, facts = prepare.read(train, pairs)
    if sample_negatives:
        split = sampled_split(split, settings.training.hard_negatives, settings.seed)
    from biorag.training.distributed import share
    from biorag.training.loop import steps_of
    from biorag.training.memory import columns_of
    from biorag.training.retriever import Form, train_retriever

    passes = split.passes(settings.seed)
    rows = share([row for part in passes for row in part])
    _tell(files, columns_of(rows, settings), settings, lora, asymmetric)
    form = Form(attention, instructions, lora, asymmetric)
    with _steps(steps_of([len(rows) for rows in passes], settings)) as advance:
        manifest = train_retriever(files, split, settings, out, facts, advance, negatives, form)
    _print(out, manifest, as_json)


@app.command()
def reranker(
    ctx: typer.Context,
    train: Train,
    out: Out,
    base: Base = "starter",
    negatives: Negatives = "in-batch",
    distill: Annotated[
        bool, typer.Option("--distill", help="Learn from the rows' 'scores', a cross-encoder's.", rich_help_panel=DATA)
    ] = False,
    name: Name = None,
    guard: Guards = None,
    drop_contaminated: Drop = False,
    max_positives: MaxPositives = None,
    train_validation: Validation = None,
    train_hard_negatives: HardNegatives = None,
    train_epochs: Epochs = None,
    train_batch_size: BatchSize = None,
    train_learning_rate: LearningRate = None,
    train_warmup: Warmup = None,
    train_max_tokens: MaxTokens = None,
    train_query_tokens: Annotated[
        int | None,
        options.option("train_query_tokens", "--query-tokens", help="Length queries are padded to.", panel=RUN),
    ] = None,
    train_mini_batch_size: MiniBatch = None,
    train_gradient_checkpointing: Checkpointing = None,
    train_evaluations: Evaluations = None,
    precision: Precision = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Train a late-interaction reranker (ColBERT), which --reranker DIR, colbert-ai and others load.

    Train it on what your own retriever gets wrong: 'biorag mine --negatives retriever' on its index.

    Examples:

      biorag train reranker triplets.jsonl --base models/retriever --out models/reranker

      biorag train reranker triplets.jsonl --base colbert-ir/colbertv2.0 --epochs 2 --out models/colbert
    """
    settings = options.configured(ctx)
    files = find_encoder(base)
    with _preparation(settings, name, guard, drop_contaminated, max_positives) as prepare:
        split, facts = prepare.read(train)
    from biorag.training.distributed import share
    from biorag.training.loop import steps_of
    from biorag.training.memory import columns_of
    from biorag.training.reranker import train_reranker

    _tell(files, columns_of(share(split.training), settings, settings.training.query_tokens), settings)
    with _steps(steps_of(len(split.training), settings)) as advance:
        manifest = train_reranker(files, split, settings, out, facts, advance, negatives, distill)
    _print(out, manifest, as_json)


@app.command("cross-encoder")
def cross_encoder(
    ctx: typer.Context,
    train: Train,
    out: Out,
    base: Base = "starter",
    negatives: Annotated[
        str,
        typer.Option(
            help="Kind of the mined negatives: bm25, citation, random, retriever, synthetic.", rich_help_panel=DATA
        ),
    ] = "bm25",
    name: Name = None,
    guard: Guards = None,
    drop_contaminated: Drop = False,
    max_positives: MaxPositives = None,
    train_validation: Validation = None,
    train_hard_negatives: HardNegatives = None,
    train_epochs: Epochs = None,
    train_batch_size: Annotated[
        int | None, options.option("train_batch_size", "--batch-size", help="Pairs of one step.", panel=RUN)
    ] = None,
    train_learning_rate: LearningRate = None,
    train_warmup: Warmup = None,
    train_max_tokens: Annotated[
        int | None, options.option("train_max_tokens", "--max-tokens", help="Tokens kept of a pair.", panel=RUN)
    ] = None,
    train_gradient_checkpointing: Checkpointing = None,
    train_evaluations: Evaluations = None,
    precision: Precision = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Train a cross-encoder, which --reranker cross:DIR and sentence-transformers load.

    It reads a question and a passage together: slow, so let it rerank few candidates of a stage before.

    Examples:

      biorag train cross-encoder triplets.jsonl --out models/cross-encoder

      biorag train cross-encoder triplets.jsonl --negatives retriever --hard-negatives 4 --out models/cross-encoder
    """
    settings = options.configured(ctx)
    files = find_encoder(base)
    with _preparation(settings, name, guard, drop_contaminated, max_positives) as prepare:
        split, facts = prepare.read(train)
    from biorag.training.cross_encoder import train_cross_encoder
    from biorag.training.data import pairs_in
    from biorag.training.loop import steps_of
    from biorag.training.memory import pairs_of

    _tell(files, pairs_of(split.training, settings), settings)
    steps = steps_of(pairs_in(split.training, settings.training.hard_negatives), settings)
    with _steps(steps) as advance:
        manifest = train_cross_encoder(files, split, settings, out, facts, advance, negatives)
    _print(out, manifest, as_json)


@contextmanager
def _preparation(
    settings: Settings, name: str | None, guards: Sequence[Path] | None, drop: bool, max_positives: int | None
) -> Iterator[Preparation]:
    """Return what prepares the rows of a run; BEIR folders' passages may come from the named index."""
    from biorag.training.contamination import ContaminationPolicy
    from biorag.training.preparation import Preparation

    policy = ContaminationPolicy(tuple(guards or ()), drop)
    with open_passages(settings, name) as fetch:
        yield Preparation(policy, settings.training.validation, settings.seed, max_positives, fetch)


def _tell(files: ModelFiles, work: Work, settings: Settings, lora: bool = False, asymmetric: bool = False) -> None:
    """Tell what training takes, and refuse it where memory does not do; of several processes the first one does."""
    from biorag.training.distributed import is_first
    from biorag.training.memory import estimate

    if is_first():
        show.err.print(estimate(files, work, settings, lora, asymmetric).sentence())


@contextmanager
def _steps(total: int) -> Iterator[OnProgress]:
    """Show the progress of training; of several processes the first one's."""
    from biorag.training.distributed import is_first

    if not is_first():
        yield lambda _: None
        return
    with show.progress("Steps", total) as advance:
        yield advance


def _print(out: Path, manifest: Mapping[str, Any], as_json: bool) -> None:
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
        ("final loss", f"{manifest['final_loss']:.4f}"),
        (f"best {best['metric']}", f"{best['value']:.4f} at step {best['step']}" if best["value"] is not None else "-"),
        ("seconds", manifest["seconds"]),
    ]
    show.table(f"{manifest['identity']['kind'].capitalize()} {out}", ["", ""], rows)
    show.err.print(f"curves: {out / 'curves.png'} and curves.csv; everything else: {out / 'training.json'}")
