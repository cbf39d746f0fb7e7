"""Options that several commands share; those of settings stand with the settings, in `biorag.settings`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands.completion import choices
from biorag.commands.groups import CommandLine, Flags
from biorag.commands.outputs import Writes
from biorag.errors import UsageError, check_name, unknown_name
from biorag.registries import OUTPUTS, PARTS, TERMINAL, OutputKind, library_of
from biorag.settings.generation import AbstentionSettings
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.section import GENERATION, RETRIEVAL
from biorag.settings.settings import Settings
from biorag.utils.registry import Registry
from biorag.utils.text import showable
from biorag.utils.versions import require

if TYPE_CHECKING:
    from biorag.corpus.rejects import RejectsFile
    from biorag.training.contamination import ContaminationPolicy, HeldOutSplit

DENSE_MODES = ("dense", "hybrid")
BAD_LINE = ("stop", "skip")

INDEX = Flags("name", "encoder", "qdrant", finds_index=True)  # which index, and what a query is encoded with
RANKING = Flags("mode", "rerank", "reranker", "k_init", "k")
WEIGHTS = Flags("fusion", "lambda", "interpolation", "cross_interpolation")
RANKING_OF_ALL = Flags(RetrievalSettings, but=("precision", "include_retracted", "k"))
GENERATOR = Flags("llm", "llm_model", "cache")
ANSWER = Flags(
    "include_retracted", "max_tokens", "prompt", AbstentionSettings, "reader", "reader_model", "read_again"
)  # how one is made
READER = Flags("reader", "reader_model")
NAMED_INDEX = Flags("name")  # an index that takes part only if it is named

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Output = Annotated[str, typer.Option("--format", help=f"{OUTPUTS.listed()}.", **choices(OUTPUTS))]


def _drawable(folder: Path | None) -> Path | None:
    """Return the folder of plots; a missing package is told before hours of measuring, not after."""
    if folder:
        from biorag.utils.plots import require_matplotlib

        require_matplotlib()
    return folder


Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Folder for a plot of the figures, as PNG and SVG.", callback=_drawable),
    Writes("plot", ".utils.plots:is_plot", is_folder=True, names=("{}.png", "{}.svg")),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Overwrite even what biorag did not write; never a file that is read."),
]
TemplateFile = Annotated[
    Path | None,
    typer.Option("--prompt", help="Prompt template in place of the built-in one.", rich_help_panel=GENERATION),
]
Instruct = Annotated[
    str | None,
    typer.Option(
        "--instruct",
        help="Text before queries and passages that --encoder lacks: e5, bmretriever, none, or a TOML file.",
    ),
]
Temperature = Annotated[
    float, typer.Option(min=0, max=2, help="Sampling temperature; 0 is greedy.", rich_help_panel=GENERATION)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns of CSV and TSV files, as in id=PMID,title=Title,content=Abstract; else by the header."),
]
WORKERS = "Workers"  # a panel
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="Condition on snippet fields, whatever the case of values: 'year>=2015 and (type:Review or mesh:Asthma) "
        "and not retracted'. Repeatable; 'biorag indexes show NAME --fields' lists the fields.",
        rich_help_panel=RETRIEVAL,
    ),
]
Measure = Annotated[str, typer.Option("--measure", help="Measure to maximise.")]
DroppedPart = Annotated[
    bool,
    typer.Option(
        "--dropped", help="Only questions dropped by --guard and not held out: neither trained nor measured on."
    ),
]


@dataclass(frozen=True, slots=True)
class BadLines:
    """How records that cannot be read are treated."""

    on_bad_line: Annotated[
        str | None,
        typer.Option(
            help="stop, or skip: continue and write a rejects file. Default: skip in folders and Zotero, else stop.",
            **choices(BAD_LINE),
        ),
    ] = None

    def file(self, folder: Path | None, corpus: Sequence[str] = ()) -> RejectsFile | None:
        """Return the rejects file, in the folder of the result; None if a bad line stops the command.

        A folder or a library of the `corpus` may hold files that cannot be read.
        """
        from biorag.corpus.rejects import REJECTS, RejectsFile

        lenient = self.on_bad_line is None and any(library_of(name) or Path(name).is_dir() for name in corpus)
        chosen = self.on_bad_line or ("skip" if lenient else "stop")
        check_name("--on-bad-line", chosen, BAD_LINE)
        if chosen == "stop":
            return None
        path = folder / REJECTS if folder else None
        return RejectsFile(path, is_checked=not corpus, lenient=lenient)  # in an index's folder all is ours


@dataclass(frozen=True, slots=True)
class EncodingCluster:
    """What encodes: this process, or the workers of a Ray cluster."""

    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Ray cluster that encodes: its address, auto, or local to start one here.",
            rich_help_panel=WORKERS,
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Workers of the cluster. Default: one a GPU or core.", rich_help_panel=WORKERS),
    ] = None
    gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of the cluster to encode on.", rich_help_panel=WORKERS)
    ] = None

    def encoders(self) -> AbstractContextManager[Any]:
        """Return what encodes; see `biorag.lab.scale.stages.encoders`."""
        require("parquet")
        encoders: AbstractContextManager[Any] = PARTS["cluster encoders"].load()(self.ray, self.workers, self.gpus)
        return encoders


@dataclass(frozen=True, slots=True)
class Contamination:
    """What to do with rows whose questions are a benchmark's."""

    guard: Annotated[
        list[Path] | None,
        typer.Option(
            help="Benchmark (MIRAGE's benchmark.json, BEIR, BioASQ) whose questions must not be trained on. Repeatable."
        ),
    ] = None
    drop_contaminated: Annotated[
        bool, typer.Option("--drop-contaminated", help="Drop rows that --guard finds, instead of stopping.")
    ] = False

    @property
    def policy(self) -> ContaminationPolicy:
        """Return the policy."""
        from biorag.training.contamination import ContaminationPolicy

        return ContaminationPolicy(tuple(self.guard or ()), self.drop_contaminated)


@dataclass(frozen=True, slots=True)
class Divided:
    """How training split its questions, besides `--validation` and `--seed`."""

    guard: Annotated[
        list[Path] | None,
        typer.Option("--guard", help="Also leave out questions that training with this --guard dropped. Repeatable."),
    ] = None

    def split(self, part: str, settings: Settings, line: CommandLine, needed: str) -> HeldOutSplit:
        """Return how training split its questions, and the part to use.

        Raises `UsageError` naming the flags `needed` if `--guard` or `--validation` is given without a part.
        """
        from biorag.training.contamination import ALL, HeldOutSplit

        for flag, value in (("--guard", self.guard), ("--validation", line.value("train_validation"))):
            if part == ALL and value not in (None, [], ()):
                raise UsageError(f"{flag} describes what training left out: add {needed}")
        return HeldOutSplit(settings.training.validation, settings.seed, tuple(self.guard or ()), part)


@dataclass(frozen=True, slots=True)
class Development:
    """The part of the questions, as training split them, to use."""

    divided: Divided
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Only the questions that training with --validation and --seed left out.")
    ] = False
    training: Annotated[
        bool, typer.Option("--training", help="Only the questions that training saw: the complement of --held-out.")
    ] = False
    dropped: DroppedPart = False

    @property
    def part(self) -> str:
        """The part; raises `UsageError` if more than one is named."""
        from biorag.training.contamination import ALL, DROPPED, HELD_OUT, TRAINING

        flags = {HELD_OUT: self.held_out, TRAINING: self.training, DROPPED: self.dropped}
        asked = [part for part, wanted in flags.items() if wanted]
        if len(asked) > 1:
            raise UsageError("--held-out, --training and --dropped are parts of the questions: give one of them")
        return asked[0] if asked else ALL

    def split(
        self, settings: Settings, line: CommandLine, needed: str = "--training, --held-out or --dropped"
    ) -> HeldOutSplit:
        """Return the questions to use; see `Divided.split`."""
        return self.divided.split(self.part, settings, line, needed)


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost, unless `--yes` is given; "no" ends the command, and so does no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"no terminal to ask {question!r} at: give --yes")
    typer.confirm(showable(question), abort=True, err=True)


def dense_mode(mode: str | None) -> str:
    """Return the first stage of a command that needs the encoder; dense by default."""
    if mode is not None and mode not in DENSE_MODES:
        raise unknown_name("--mode", mode, DENSE_MODES)
    return mode or DENSE_MODES[0]


def output_format(name: str, as_json: bool, kinds: Registry[OutputKind] = OUTPUTS) -> str | None:
    """Return the format in which results are written; None for the terminal, and for `--json`."""
    kind = kinds.named(name)
    if kind.name == TERMINAL:
        return None
    if as_json:
        raise UsageError("--json and --format are two forms of one output: give one of them")
    return kind.name


def instructed(settings: Settings, instruct: str) -> Settings:
    """Return the settings with a copy of the named encoder that puts these instructions before its texts.

    Raises `UsageError` if no encoder is named.
    """
    from biorag.models.finding import find_encoder
    from biorag.models.prompted import prompted
    from biorag.training.instructions import read_instructions

    if settings.index.encoder is None:
        raise UsageError("--instruct is for the model that --encoder names: add it")
    prompts = read_instructions(instruct).prompts()
    files = prompted(find_encoder(settings.index.encoder, settings.index.revision), prompts, settings.encoders)
    return settings.replace(encoder=str(files.path), revision=None)


def published(settings: Settings) -> Settings:
    """Return the settings with the files of an encoder that is named as `biorag models recommend` lists it."""
    from biorag.models import published as listed

    name = settings.index.encoder or ""
    if (encoder := listed.published().get(name)) is None:
        return settings
    files = listed.find_published(name, settings.encoders)
    similarity = settings.index.similarity or encoder.similarity
    return settings.replace(encoder=str(files.path), revision=None, similarity=similarity)
