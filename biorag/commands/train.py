"""`biorag train`: a command for each kind of model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.completion import choices
from biorag.commands.groups import CommandLine, Flags, expanded
from biorag.commands.outputs import FOLDER
from biorag.corpus.sources import STDIN_FILE, find_sources
from biorag.engine import open_passages
from biorag.errors import UsageError
from biorag.models.finding import find_base, find_encoder
from biorag.registries import own_negatives
from biorag.settings.section import DATA
from biorag.settings.settings import Settings
from biorag.settings.training import (
    CROSS_ENCODER,
    GENERATOR,
    LANGUAGE_MODEL,
    QUESTION_GENERATOR,
    READER,
    RERANKER,
    RETRIEVER,
    TrainingSettings,
)
from biorag.utils.files import disk_bytes, scratch_folder
from biorag.utils.versions import require

if TYPE_CHECKING:
    from biorag.training.data import Preparation, Split
    from biorag.training.loop import Training

QUESTIONS = "questions"

Rows = Annotated[
    list[Path],
    typer.Argument(
        help="JSONL of query, positive[, negative_1 ...], or BEIR folders; with other --pairs a corpus. For a "
        "retriever also one TOML file of a mixture of such sets.",
        metavar="TRAIN...",
        show_default=False,
    ),
]
PACKAGED = (
    "'starter' (a retriever trained on biomedical questions), 'minilm' (all-MiniLM-L6-v2, which it was made of), "
)
Base = Annotated[str, typer.Option("--base", help=f"{PACKAGED}a directory, or a Hugging Face id.")]
Negatives = Annotated[
    str,
    typer.Option(
        help="in-batch (other rows' passages and the row's own mined ones), or only the mined ones: "
        f"{', '.join(own_negatives())}.",
        rich_help_panel=DATA,
        **choices(own_negatives()),
    ),
]
Pairs = Annotated[
    str,
    typer.Option(
        help="questions; or pre-training pairs from a corpus: title-abstract, of untitled texts two disjoint passages, "
        "or cropping, of all texts two such passages.",
        rich_help_panel=DATA,
    ),
]
Evidence = Annotated[
    list[Path],
    typer.Argument(
        help="JSONL, gzipped or not: inference pairs, claims with text and label, questions with passages and answers, "
        "for a reader judged sentences, for a generator follow-ups and what they mean.",
        metavar="ROWS...",
    ),
]
Machine = Annotated[Settings, Flags("precision", "seed")]
Common = Annotated[Machine, Flags("name")]


@dataclass(frozen=True, slots=True)
class Result:
    """Where the model goes, and how the run is reported."""

    out: Annotated[Path, typer.Option("--out", help="Folder of the model; an interrupted run resumes."), FOLDER]
    as_json: options.Json = False

    def __post_init__(self) -> None:
        """Raise `MissingError` without the packages of training, before anything is read."""
        require("train")


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Which rows are left out."""

    contamination: Annotated[options.Contamination, DATA]
    max_positives: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum training rows of one question, drawn with --seed.", rich_help_panel=DATA),
    ] = None

    @contextmanager
    def preparation(self, settings: Settings, line: CommandLine, pairs: str = QUESTIONS) -> Iterator[Preparation]:
        """Yield the preparation of a run's rows; passages of BEIR folders may come from the named index."""
        from biorag.training.data import Preparation

        policy, validation = self.contamination.policy, settings.training.validation
        with open_passages(settings, line.value("name") if pairs == QUESTIONS else None) as fetch:
            yield Preparation(policy, validation, settings.seed, self.max_positives, fetch)

    def read(
        self, train: Sequence[Path], settings: Settings, line: CommandLine, pairs: str = QUESTIONS
    ) -> tuple[Split, dict[str, Any]]:
        """Return the rows, and the facts of the manifest."""
        with self.preparation(settings, line, pairs) as prepare:
            return prepare.read(train, pairs)


@dataclass(frozen=True, slots=True)
class Form:
    """How the base becomes a bi-encoder."""

    attention: Annotated[
        str | None,
        typer.Option(help="Decoders: causal or bidirectional; by default as in the base."),
    ] = None
    instruct: Annotated[
        str | None,
        typer.Option(
            help="Text before queries and passages: bmretriever, e5, none, or a TOML file; by default the base's own, "
            "for a new decoder bmretriever."
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            help="Sentence for {task} in the instruction; bmretriever:DATASET; or tuned:DIR of 'tune prompt'."
        ),
    ] = None
    random_prompts: Annotated[
        int | None,
        typer.Option(
            min=1, help="Put one of N generic tasks, drawn at random, before each training query instead of --task."
        ),
    ] = None
    prompt: Annotated[
        Path | None, typer.Option(help="File of generic tasks, one a line, in place of biorag's hundred.")
    ] = None
    lora: Annotated[bool, typer.Option("--lora", help="Train only LoRA matrices, on all linear layers.")] = False
    pooling: Annotated[
        str | None,
        typer.Option(help="The text's vector: cls (the first token's), mean or last; by default the base's own."),
    ] = None
    projection: Annotated[
        int | None,
        typer.Option(min=1, max=65_536, help="Dimensions of a new linear layer after the pooling; by default none."),
    ] = None
    window: Annotated[
        int | None,
        typer.Option(min=8, max=100_000, help="Tokens of a text that the trained model reads; by default the base's."),
    ] = None

    def drawn(self, seed: int) -> tuple[str, ...]:
        """Return the generic tasks to draw from; refuse parts of an instruction without an instruction."""
        from biorag.training.instructions import generic_tasks

        for option, value in (("--task", self.task), ("--random-prompts", self.random_prompts)):
            if value is not None and self.instruct is None:
                raise UsageError(f"{option} is part of an instruction: add --instruct bmretriever or a file")
        if self.prompt and not self.random_prompts:
            raise UsageError("--prompt has generic tasks, of which --random-prompts N draws some: give both")
        return generic_tasks(self.random_prompts, seed, self.prompt) if self.random_prompts else ()


@dataclass(frozen=True, slots=True)
class RowKind:
    """What a row of a retriever is, and what it is compared with."""

    negatives: Negatives = "in-batch"
    pairs: Pairs = QUESTIONS


@expanded
def retriever(
    train: Rows,
    result: Result,
    settings: Annotated[Common, Flags(TrainingSettings, model=RETRIEVER), Flags("similarity")],
    line: CommandLine,
    limits: RowLimits,
    form: Form,
    rows: RowKind,
    base: Annotated[
        str,
        typer.Option("--base", help=f"{PACKAGED}'starter-llm', a directory, a Hugging Face id, or a decoder's .gguf."),
    ] = "starter",
) -> None:
    """Train a bi-encoder, which 'biorag index --encoder DIR' and sentence-transformers load.

    Two phases are two runs: first title-abstract pairs of a corpus, then questions with that model as the base.

    Examples:

      biorag train retriever pubmed/ --pairs title-abstract --out models/pretrained
      biorag train retriever data/bioasq --name pubmed --base models/pretrained --out models/retriever
      biorag train retriever mix.toml --base starter-llm --lora --instruct bmretriever --out models/mixed
    """
    drawn = form.drawn(settings.seed)
    if form.lora:
        require("decoders")
    files = find_base(base)
    with limits.preparation(settings, line, rows.pairs) as prepare:
        split, facts, instructions = prepare.read_instructed(train, rows.pairs, form.instruct, form.task, drawn)
    from biorag.training.bi_encoder import EncoderForm
    from biorag.training.retriever import RetrieverTraining

    made = EncoderForm(form.attention, instructions, form.lora, form.pooling, form.projection, form.window)
    _run(RetrieverTraining(files, split, settings, rows.negatives, made), facts, result)


@expanded
def reranker(
    train: Rows,
    result: Result,
    settings: Annotated[Common, Flags(TrainingSettings, model=RERANKER)],
    line: CommandLine,
    limits: RowLimits,
    base: Base = "starter",
    negatives: Negatives = "in-batch",
) -> None:
    """Train a late-interaction reranker (ColBERT), which --reranker DIR, colbert-ai and others load.

    Train it on your own retriever's mistakes: 'biorag mine --negatives retriever' on its index.

    Examples:

      biorag train reranker triplets.jsonl --base models/retriever --out models/reranker
      biorag train reranker triplets.jsonl --base colbert-ir/colbertv2.0 --epochs 2 --out models/colbert
    """
    files = find_encoder(base)
    split, facts = limits.read(train, settings, line)
    from biorag.training.reranker import RerankerTraining

    _run(RerankerTraining(files, split, settings, negatives), facts, result)


@expanded
def cross_encoder(
    train: Rows,
    result: Result,
    settings: Annotated[Common, Flags(TrainingSettings, model=CROSS_ENCODER)],
    line: CommandLine,
    limits: RowLimits,
    base: Base = "starter",
    negatives: Annotated[
        str, typer.Option(help=f"Kind of the mined negatives: {', '.join(own_negatives())}.", rich_help_panel=DATA)
    ] = "bm25",
) -> None:
    """Train a cross-encoder, which --reranker cross:DIR and sentence-transformers load.

    It reads a question and a passage together, which is slow: let it rerank the best few of an earlier stage.

    Examples:

      biorag train cross-encoder triplets.jsonl --out models/cross-encoder
      biorag train cross-encoder triplets.jsonl --negatives retriever --hard-negatives 4 --out models/cross-encoder
    """
    files = find_encoder(base)
    split, facts = limits.read(train, settings, line)
    from biorag.training.cross_encoder import CrossEncoderTraining

    _run(CrossEncoderTraining(files, split, settings, negatives), facts, result)


@expanded
def question_generator(
    train: Rows,
    result: Result,
    settings: Annotated[Common, Flags(TrainingSettings, model=QUESTION_GENERATOR)],
    line: CommandLine,
    limits: RowLimits,
    base: Annotated[
        str, typer.Option("--base", help="Sequence-to-sequence model: a directory, or a Hugging Face id such as T5's.")
    ],
    pairs: Pairs = QUESTIONS,
    layers: Annotated[
        int | None,
        typer.Option(min=1, help="Make both sides of the first N layers of an encoder, the base, with shared weights."),
    ] = None,
) -> None:
    """Train a question generator, which 'generate queries --model seq2seq:DIR' writes questions with.

    It learns to write a row's query from its positive passage; negatives are not used.

    Examples:

      biorag train question-generator data/bioasq --name pubmed --base google-t5/t5-small --epochs 3 --out models/asker
      biorag train question-generator pubmed/ --pairs title-abstract --base google-t5/t5-small --out models/titles
      biorag train question-generator answers.jsonl --base FacebookAI/roberta-base --layers 3 --out models/small
    """
    files = find_encoder(base)
    split, facts = limits.read(train, settings, line, pairs)
    from biorag.training.question_generator import QuestionGeneratorTraining

    _run(QuestionGeneratorTraining(files, split, settings, layers), facts, result)


@expanded
def reader(
    rows: Evidence,
    result: Result,
    settings: Annotated[Machine, Flags(TrainingSettings, model=READER)],
    contamination: Annotated[options.Contamination, DATA],
    base: Base = "starter",
    held_out: Annotated[
        list[Path] | None,
        typer.Option(
            help="Rows to choose the best checkpoint by, kept out of training, in place of --validation. Repeatable.",
            rich_help_panel=DATA,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum rows of one file, drawn with --seed.", rich_help_panel=DATA)
    ] = None,
    claim_only: Annotated[
        bool, typer.Option("--claim-only", help="Leave out the evidence, to see how far claims give their label away.")
    ] = False,
) -> None:
    """Train a reader: it says what evidence does to a claim, and whether it answers a question; --reader DIR loads it.

    A window of one to four sentences supports a claim, contradicts it or neither; yes/no questions are claims too.

    Examples:

      biorag train reader nli/*.jsonl.gz claims/*.jsonl.gz qa/assel_*.jsonl.gz --base minilm --out models/reader
      biorag train reader claims/*.jsonl.gz --base models/reader --epochs 2 --out models/claims
      biorag train reader claims/*.jsonl.gz --claim-only --out models/claim-only
    """
    from biorag.training.cross_encoder import ReaderTraining
    from biorag.training.reading import ReaderRows

    files = find_encoder(base)
    split, facts = ReaderRows(contamination.policy, settings, limit, claim_only).read(rows, held_out or ())
    _run(ReaderTraining(files, split, settings), facts, result)


@expanded
def generator(
    rows: Evidence,
    result: Result,
    settings: Annotated[Machine, Flags(TrainingSettings, model=GENERATOR)],
    contamination: Annotated[options.Contamination, DATA],
    base: Annotated[
        str,
        typer.Option("--base", help="'starter-llm' (SmolLM2-135M), a GGUF file, a directory, or a Hugging Face id."),
    ] = "starter-llm",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum claims and yes/no questions of a file.", rich_help_panel=DATA)
    ] = None,
    answers: Annotated[
        int,
        typer.Option(
            min=0,
            help="Maximum questions of a file that are answered from documents, openly or by options.",
            rich_help_panel=DATA,
        ),
    ] = 0,
) -> None:
    """Train a generator: a small adapter of a Llama that reads evidence and answers by it; --llm and --reader load it.

    It learns in the prompts of 'ask', 'verify' and 'bench mirage': yes, no or maybe beside evidence, answers with
    citations, and options.

    Examples:

      biorag train generator nli/*.jsonl.gz claims/*.jsonl.gz --out models/generator
      biorag train generator qa/bioasq_1_6.jsonl.gz --answers 2000 --max-tokens 1024 --out models/generator
    """
    from biorag.training.exchanges import Exchanges
    from biorag.training.generator import GeneratorTraining

    require("decoders")
    split, facts = Exchanges(contamination.policy, settings, limit, answers).read(rows)
    _run(GeneratorTraining(find_base(base), split, settings), facts, result)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a BERT; by default those of BERT's base model."""

    word_pieces: Annotated[
        int, typer.Option("--vocabulary", min=100, help="Word pieces of the vocabulary, at most.")
    ] = 30_522
    hidden: Annotated[int, typer.Option(min=8, help="Width: numbers of a token's vector.")] = 768
    layers: Annotated[int, typer.Option(min=1, help="Layers.")] = 12
    heads: Annotated[int, typer.Option(min=1, help="Heads of attention in each layer.")] = 12


@expanded
def language_model(
    corpus: Annotated[
        list[str], typer.Argument(help="Files or folders that 'biorag index' reads.", metavar="CORPUS...")
    ],
    result: Result,
    settings: Annotated[Machine, Flags(TrainingSettings, model=LANGUAGE_MODEL)],
    sizes: Sizes,
) -> None:
    """Pre-train a BERT and a vocabulary of its own on a corpus, for 'train retriever --base DIR' to start from.

    It restores masked tokens and tells which of a batch's segments follows another, as in the BioASQ 8 hybrid system.
    Both segments of a text together have --max-tokens at most.

    Examples:

      biorag train language-model pubmed/ --max-tokens 512 --batch-size 256 --max-steps 300000 --out models/bert
      biorag train language-model corpus.jsonl --vocabulary 8000 --hidden 128 --layers 2 --heads 2 --out models/small
    """
    from biorag.training.language_model import Architecture, LanguageModelTraining, read_segments

    architecture = Architecture(sizes.word_pieces, sizes.hidden, sizes.layers, sizes.heads)
    with scratch_folder() as spool:
        sources = find_sources(corpus, spool / STDIN_FILE)
        split, counts = read_segments(sources, settings.training.validation, settings.seed)
    facts = {"data": {"files": corpus, **counts}}
    _run(LanguageModelTraining(architecture, split, settings), facts, result)


def _shares(counts: Mapping[str, int], rows: int) -> str:
    """Return a source's share of the rows, and how many of them have each label."""
    labels = ", ".join(f"{label} {count}" for label, count in counts.items())
    return f"{sum(counts.values()) / rows:.0%}: {labels}"


def _run(training: Training, facts: Mapping[str, Any], result: Result) -> None:
    """Print what the run starts from and takes, train, and report; only the first of several processes prints."""
    from biorag.training.run_directory import is_first_process

    if not is_first_process():
        training.run(result.out, facts, lambda _: None)
        return
    show.err.print(f"from {training.described()}: {training.estimate().sentence()}", soft_wrap=True)
    with show.progress("Steps", training.steps) as advance:
        manifest = training.run(result.out, facts, advance)
    size = disk_bytes(result.out)
    if result.as_json:
        show.print_json({"out": str(result.out), "bytes": size, **manifest})
        return
    best, final_loss, sources = manifest["best"], manifest["final_loss"], manifest.get("data", {}).get("sources", {})
    rows = [
        ("rows", manifest["rows"]),
        *((f"  {source}", _shares(counts, manifest["rows"])) for source, counts in sources.items()),
        ("held-out rows", manifest["identity"]["data"]["validation_rows"]),
        ("dropped by the guard", len(manifest.get("guard", {}).get("dropped", ()))),
        ("steps", manifest["steps"]),
        ("stopped by", manifest.get("stopped_by", "-").replace("_", " ")),
        ("final loss", "-" if final_loss is None else f"{final_loss:.4f}"),
        (f"best {best['metric']}", f"{best['value']:.4f} at step {best['step']}" if best["value"] is not None else "-"),
        ("seconds", manifest["seconds"]),
        ("MB on disk", f"{size / 1e6:,.1f}"),
    ]
    show.table(f"{manifest['identity']['kind'].capitalize()} {result.out}", ["", ""], rows)
    show.err.print(f"curves: {result.out / 'curves.png'} and curves.csv; the rest: {result.out / 'training.json'}")
