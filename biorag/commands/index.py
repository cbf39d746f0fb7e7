"""`biorag index`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biorag.commands import options, show
from biorag.commands.completion import choices
from biorag.commands.groups import CommandLine, Flags, expanded, is_named, overridden
from biorag.commands.outputs import FOLDER
from biorag.corpus.sources import in_words
from biorag.corpus.tables import parse_columns
from biorag.errors import BadInputError, UsageError
from biorag.indexes.store import Store, name_for
from biorag.indexes.token_vectors import stores_tokens
from biorag.indexing import CorpusReading, index_corpus, survey_corpus
from biorag.registries import ENRICHERS, PARTS, READERS
from biorag.settings.index import IndexSettings
from biorag.settings.settings import Settings
from biorag.utils.progress import duration
from biorag.utils.versions import require

if TYPE_CHECKING:
    from biorag.corpus.rejects import RejectsFile
    from biorag.indexes.estimating import IndexEstimate
    from biorag.indexes.writing import IndexReport


@dataclass(frozen=True, slots=True)
class EncoderChoice:
    """An encoder put together of two models, or one with other prompts."""

    query_encoder: Annotated[
        str | None, typer.Option(help="Model for queries, beside --passage-encoder (DPR, MedCPT).")
    ] = None
    passage_encoder: Annotated[str | None, typer.Option(help="Model for passages, beside --query-encoder.")] = None
    pooling: Annotated[
        str | None, typer.Option(help="Pooling of these two: cls, mean or last. Default: their own.")
    ] = None
    instruct: options.Instruct = None

    def chosen(self, settings: Settings, line: CommandLine) -> Settings:
        """Return the settings with this encoder.

        Raises `UsageError` if one model is missing, another encoder is named too, or token vectors are described and
        none are stored.
        """
        if line.first("reranker", "token_pooling") and not stores_tokens(settings):
            raise UsageError(
                "--reranker and --token-pooling choose which token vectors are stored, and this index stores none: "
                "leave them out, or index under another --name with --store-tokens compact"
            )
        settings = options.published(settings)
        if self.instruct is not None:
            settings = options.instructed(settings, self.instruct)
        if self.query_encoder is None and self.passage_encoder is None and self.pooling is None:
            return settings
        if self.query_encoder is None or self.passage_encoder is None:
            raise UsageError("an encoder of two models takes both: give --query-encoder and --passage-encoder")
        if other := line.first("encoder"):
            raise UsageError(f"{other} names one model, and --query-encoder one of two: leave one of them out")
        from biorag.models.finding import find_encoder
        from biorag.models.pairing import write_pair

        models = find_encoder(self.query_encoder), find_encoder(self.passage_encoder)
        encoder = str(write_pair(*models, self.pooling, settings.encoders).path)
        return overridden(settings, encoder=encoder)


@dataclass(frozen=True, slots=True)
class IndexingRun(options.EncodingCluster):
    """How a corpus gets into an index: directly, by the stages of many machines, or as an estimate alone."""

    vectors: Annotated[
        Path | None,
        typer.Option(
            help="Folder that 'biorag embed' wrote: load its vectors. CORPUS is the export then, if it has moved. Or "
            "published embeddings of CORPUS, joined by id or PMID: a .npy file beside its ids, or a folder of them.",
            rich_help_panel=options.WORKERS,
        ),
    ] = None
    stages: Annotated[
        Path | None,
        typer.Option(
            help="With --ray: folder for snippets and vectors, which is kept; all machines must see it.",
            rich_help_panel=options.WORKERS,
        ),
        FOLDER,
    ] = None

    estimate: Annotated[
        bool, typer.Option("--estimate", help="Estimate time, disk and memory of a new index; write nothing.")
    ] = False
    yes: options.Yes = False

    @property
    def published(self) -> Path | None:
        """Published vectors of the corpus, if they are named."""
        from biorag.indexes.published import holds_arrays

        return self.vectors if self.vectors and holds_arrays(self.vectors) else None

    def check(self, corpus: Sequence[str], line: CommandLine) -> None:
        """Check that the options can be combined.

        Raises `UsageError` if they cannot, or there is nothing to index.
        """
        if "enrich" in line.parameters and (self.estimate or self.vectors or self.ray):
            raise UsageError("--enrich cannot be combined with --estimate, --vectors or --ray")
        if self.estimate and (self.vectors or self.ray):
            raise UsageError("--estimate cannot be combined with --ray or --vectors")
        if self.vectors and (self.ray or self.stages):
            raise UsageError("--vectors cannot be combined with --ray or --stages, which encode")
        if self.vectors is None or self.published:
            if not corpus:
                raise UsageError("no corpus is given: name one, as in 'biorag index demo'")
            if self.ray is None and (self.stages or self.workers or self.gpus):
                raise UsageError("--stages, --workers and --gpus are for --ray: add it, or leave them out")
        elif exported := set(line.parameters) & {"columns", "on_bad_line"}:
            option = "--" + min(exported).replace("_", "-")
            raise UsageError(f"{option} is for reading files, which --vectors does not: leave it out")
        elif len(corpus) > 1:
            raise UsageError("--vectors takes one export: name its folder as CORPUS, or leave it out")


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """How the files of a corpus are read."""

    columns: options.Columns = None
    keep_missing: Annotated[
        bool, typer.Option("--keep-missing", help="Keep documents that are gone from a file or folder indexed earlier.")
    ] = False
    enrich: Annotated[
        str | None,
        typer.Option(
            help="Ask this service for the record of each PDF, Word file and web page that lacks authors, year or "
            f"journal: {ENRICHERS.listed()}, which are sent there.",
            **choices(ENRICHERS),
        ),
    ] = None

    def reading(self, published: Path | None) -> CorpusReading:
        """Return it as the engine takes it, with the published vectors of the corpus."""
        columns = parse_columns(self.columns) if self.columns is not None else ()
        return CorpusReading(columns, self.keep_missing, self.enrich or "", published)


@expanded
def index(
    settings: Annotated[
        Settings,
        Flags(IndexSettings, "qdrant", "eutils", "crossref"),
        Flags("reranker"),
        Flags("precision"),
    ],
    line: CommandLine,
    bad_lines: options.BadLines,
    models: EncoderChoice,
    run: IndexingRun,
    files: CorpusFiles,
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Files or folders of {READERS.names()} (.gz too), 'demo', 'zotero:' with the name of a collection or "
            "without, or - for standard input."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Index a corpus, or bring an index up to date with it.

    What is unchanged is skipped, and an interrupted run resumes where it stopped. What a file indexed before no longer
    holds is removed, and so is what came from files that are gone from a folder. Later PubMed files replace and delete
    records of earlier ones.

    Examples:

      biorag index demo
      biorag index papers/ references.nbib table.csv --columns id=Key,content=Notes --name mine
      biorag index pubmed/ --name pubmed --store-tokens full --token-pooling 2 --estimate
      biorag index baseline/ updatefiles/ --name pubmed --on-bad-line skip --block-tokens 300
      biorag index pubmed/ --name dpr --query-encoder models/question --passage-encoder models/context --similarity dot
      biorag index zotero: --name mine
      biorag index papers/ --name mine --enrich crossref
      zcat corpus.jsonl.gz | biorag index - --name mine --json
      biorag index baseline/ updatefiles/ --ray auto --gpus 8 --stages /shared/pubmed --qdrant http://qdrant:6333
      biorag index --vectors vectors --name pubmed
      biorag index baseline/ --name medcpt --vectors embeddings/ --encoder models/medcpt --similarity dot
    """
    corpus = corpus or []
    run.check(corpus, line)
    if not is_named(settings):
        settings = settings.replace(name=name_for(corpus, settings))
        show.err.print(f"Index {settings.index.name!r} (choose another with --name)", soft_wrap=True)
    if run.published:
        from biorag.indexes.published import without_tokens

        settings = without_tokens(settings)
    settings = models.chosen(settings, line)
    rejected = bad_lines.file(None if run.estimate else Store(settings).folder, corpus)
    reading = files.reading(run.published)
    if run.estimate:
        with survey_corpus(settings, corpus, rejected, show.progress, CorpusReading(reading.columns)) as surveyed:
            estimate = surveyed.estimate()
        _print_estimate(estimate, as_json)
    else:
        report = _indexed(settings, corpus, rejected, run, reading)
        _print_report(report, as_json)
    if kept := () if run.estimate else report.unreadable:
        names = f"{', '.join(kept[:3])}{f' and {len(kept) - 3:,} more' * (len(kept) > 3)}"
        show.err.print(f"Files that cannot be read now, or hold nothing: {names}", soft_wrap=True)
    show.rejected(rejected, "not read" if run.estimate else "skipped", "indexed")
    if kept:
        raise BadInputError(
            f"{len(kept):,} file{'s' * (len(kept) > 1)} cannot be read now, or hold nothing, and what index "
            f"{report.name!r} held of them is kept: make them readable and whole, and run the same command again, or "
            "remove it by 'biorag delete --source'"
        )


def _indexed(
    settings: Settings, corpus: Sequence[str], rejected: RejectsFile | None, run: IndexingRun, reading: CorpusReading
) -> IndexReport:
    """Load vectors, or index a corpus by the stages of many machines, or directly; return the report."""
    report: IndexReport
    if run.vectors and not run.published:
        require("parquet")
        exported = Path(corpus[0]) if corpus else None
        report = PARTS["load vectors"].load()(settings, run.vectors, exported, show.progress)
    elif run.ray:
        with run.encoders() as encode:
            index_in_stages = PARTS["staged index"].load()
            report = index_in_stages(settings, corpus, rejected, encode, show.progress, reading.columns, run.stages)
    else:
        confirm = partial(options.confirm, yes=run.yes)
        report = index_corpus(settings, corpus, rejected, show.progress, reading, confirm)
    return report


def _print_estimate(estimate: IndexEstimate, as_json: bool) -> None:
    values = asdict(estimate)
    if not as_json:
        parts = ", ".join(f"{part} {duration(seconds)}" for part, seconds in values.pop("parts").items())
        values["seconds"] = f"{estimate.seconds:,.0f} ({parts})"
    show.report(f"Index {estimate.name}, by a sample", values, as_json)


def _print_report(report: IndexReport, as_json: bool) -> None:
    values = asdict(report)
    if not report.vectors:
        del values["vectors"]
    if not as_json:
        values |= {f"files {part}": in_words(counts) for part, counts in values.pop("files").items() if counts}
        if lacking := values.pop("lacking"):
            names = f"{len(lacking):,} ({', '.join(lacking[:3])}{' …' * (len(lacking) > 3)})"
            advice = "a .ris or .bib file beside them, or --enrich crossref, gives them"
            show.err.print(f"Papers without authors or year: {names}; {advice}", soft_wrap=True)
        values = {name: value for name, value in values.items() if value or name in ("added", "complete")}
    show.report(f"Index {report.name}", values, as_json)
