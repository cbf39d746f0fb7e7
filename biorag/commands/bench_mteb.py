"""`biorag bench mteb`."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biorag.commands import options, show
from biorag.commands.groups import Flags, Given, expanded
from biorag.engine import SnippetEncoders, encoder_files, load_encoder, make_retriever
from biorag.errors import MismatchError, MissingError, UsageError, unknown_name
from biorag.indexes.manifest import Manifest
from biorag.indexes.store import Store, check_settings, similarity_of
from biorag.settings.retrieval import RetrievalSettings
from biorag.settings.settings import Settings
from biorag.utils.versions import installed_versions

if TYPE_CHECKING:
    from biorag.benchmarks.mteb.models import EncoderModel, OpenCorpus, Searchable
    from biorag.models.bi_encoder import BiEncoder
    from biorag.types import OnProgress, Snippet

logger = logging.getLogger(__name__)

# What each system sets; `reranker` orders the encoder's candidates by its own scores alone.
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "encoder": {"mode": "dense", "rerank": False},
    "reranker": {"mode": "dense", "rerank": True, "interpolation": 0.0, "cross_interpolation": 0.0},
    "pipeline": {},
}
RERANKED = 100  # candidates that the reranker alone orders, unless --k-init says otherwise
PIPELINE_ONLY = ("mode", "fusion", "lambda", "rerank", "interpolation", "cross_interpolation")
# The settings that do not change a system.
IDLE = {"encoder": (*PIPELINE_ONLY, "reranker", "k_init"), "reranker": PIPELINE_ONLY, "pipeline": ()}


@dataclass(frozen=True, slots=True)
class Tasks:
    """What is measured: tasks of mteb's, and files."""

    task: Annotated[list[str] | None, typer.Option(help="A task by mteb's name (downloads its data). Repeatable.")] = (
        None
    )
    group: Annotated[str | None, typer.Option(help="A group of mteb's tasks: medical or stm.")] = None
    language: Annotated[
        list[str] | None, typer.Option(help="Only this language of mteb's tasks (eng, fra …). Repeatable.")
    ] = None
    local: Annotated[
        list[Path] | None,
        typer.Option(help="Folder with corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR layout). Repeatable."),
    ] = None
    similarity: Annotated[
        list[Path] | None, typer.Option(help="Sentence pairs with a score, .tsv or .jsonl. Repeatable.")
    ] = None
    linking: Annotated[
        list[Path] | None, typer.Option(help="Folder with concepts.jsonl and mentions.jsonl. Repeatable.")
    ] = None
    recommendation: Annotated[
        list[Path] | None,
        typer.Option(help="Folder in BEIR layout whose judged snippets are to be ordered. Repeatable."),
    ] = None

    @property
    def paths(self) -> dict[str, Sequence[Path]]:
        """The files of each kind of local task."""
        return {
            "local": self.local or (),
            "similarity": self.similarity or (),
            "linking": self.linking or (),
            "recommendation": self.recommendation or (),
        }


@expanded
def mteb(
    settings: Annotated[
        Settings,
        Flags("encoder"),
        Flags("name", shows_default=False),
        Flags(RetrievalSettings, but=("precision", "include_retracted", "k")),
    ],
    given: Given,
    tasks: Tasks,
    out: Annotated[Path, typer.Option(help="Folder of mteb's result files and report.json; a task done stays done.")],
    system: Annotated[
        str, typer.Option(help="encoder (searched exactly), reranker (its scores alone) or pipeline.")
    ] = "encoder",
    as_json: options.Json = False,
) -> None:
    """Measure an encoder, a reranker or the whole pipeline with mteb, on its tasks or on your files.

    Result files are mteb's own: out/results/MODEL/REVISION/TASK.json. The pipeline's rankings are 100 deep.

    Examples:

      biorag bench mteb --local data/mine --similarity pairs.tsv --out runs/mteb

      biorag bench mteb --task NFCorpus --task SciFact --encoder models/retriever --out runs/mteb --json

      biorag bench mteb --group medical --system pipeline --mode hybrid --rerank --out runs/mteb

      biorag bench mteb --recommendation data/relish --system reranker --reranker cross:models/ce --out runs/mteb
    """
    _require_mteb()
    settings = _configured(settings, given, tasks, system)
    from biorag.benchmarks.mteb.run import measured, report
    from biorag.utils.files import write_json

    chosen = _chosen(tasks)
    manifest = Store(settings).require_manifest() if given.value("name") else None
    with show.progress("Texts", None) as advance:
        model, identity = _model(settings, manifest, system, out, advance)
        rows = [measured(each, model, out, settings.services.offline) for each in chosen]
    found = report(rows, identity)
    write_json(out / "report.json", found)
    if as_json:
        show.print_json(found)
    else:
        _print(found)


def _require_mteb() -> None:
    try:
        import mteb  # noqa: F401
    except ImportError:
        raise MissingError("this needs mteb: run pip install 'biorag[mteb]'") from None


def _configured(settings: Settings, given: Given, tasks: Tasks, system: str) -> Settings:
    """Return the settings of a system.

    Raises
    ------
    UsageError
        If an option would change nothing, or nothing is named to be measured.
    """
    if system not in SYSTEMS:
        raise unknown_name("system", system, SYSTEMS)
    if option := given.first(*IDLE[system]):
        raise UsageError(f"{option} does not change --system {system}: leave it out, or give --system pipeline")
    if not (tasks.task or tasks.group or any(tasks.paths.values())):
        raise UsageError("nothing to measure: give --local FOLDER, --task NAME or another kind of task")
    depth = {"k_init": RERANKED} if system == "reranker" and given.value("k_init") is None else {}
    return settings.replace(**SYSTEMS[system], **depth)


def _chosen(asked: Tasks) -> list[Any]:
    """Return the tasks, local ones first: they fail at once if they do."""
    from biorag.benchmarks.mteb.groups import find_group
    from biorag.benchmarks.mteb.tasks import local_tasks, named_tasks

    names, languages = asked.task or (), asked.language or ()
    local = local_tasks(asked.paths)
    group = find_group(asked.group) if asked.group else None
    listed = named_tasks(names, languages)
    if group:
        listed += named_tasks([name for name in group.tasks if name not in names], languages or group.languages)
    taken = {task.metadata.name for task in listed}
    for task in local:
        if task.metadata.name in taken:
            raise UsageError(f"{task.metadata.name!r} is a task of mteb's too: rename the folder")
    return [*local, *listed]


def _model(
    settings: Settings, manifest: Manifest | None, system: str, out: Path, on_progress: OnProgress
) -> tuple[EncoderModel, dict[str, Any]]:
    """Return the model that mteb evaluates, and what determines its results."""
    from biorag.benchmarks.mteb.models import EncoderModel, PipelineModel, model_meta

    files = encoder_files(settings, manifest)
    if manifest is None and settings.index.similarity is None:
        settings = settings.replace(similarity=files.similarity())
    similarity = similarity_of(settings, manifest)
    identity: dict[str, Any] = {
        "system": system,
        "encoder": {"id": files.id, "sha256": files.sha256},
        "similarity": similarity,
        "precision": settings.retrieval.precision,
        "versions": installed_versions(),
    }
    if system != "encoder":
        identity |= {
            "settings": settings.retrieval.identity(),
            "reranker": settings.retrieval.rerankers_hash(),
            "index": manifest.fingerprint() if manifest else None,
        }
    encoder = load_encoder(files, similarity, settings.retrieval.precision)
    identity["query_prompt"] = encoder.query_prompt
    meta = model_meta(files.id, identity)
    if system == "encoder":
        return EncoderModel(encoder, meta, on_progress), identity
    opener = (
        _stored(settings, manifest, encoder)
        if manifest
        else _indexed(settings, encoder, out / "indexes" / str(meta.revision), on_progress)
    )
    return PipelineModel(encoder, meta, on_progress, opener), identity


@contextmanager
def _searchable(settings: Settings, store: Store, manifest: Manifest, encoder: BiEncoder) -> Iterator[Searchable]:
    from biorag.benchmarks.mteb.models import Searchable

    index = store.open(manifest)
    try:
        yield Searchable(index, make_retriever(settings, index, manifest, encoder))
    finally:
        index.close()


def _stored(settings: Settings, manifest: Manifest, encoder: BiEncoder) -> OpenCorpus:
    """Return what searches the index of a name for any task whose corpus it holds.

    Raises
    ------
    MismatchError
        From the opener, if the index lacks documents of the corpus or has others.
    """
    check_settings(manifest, settings)

    @contextmanager
    def open_corpus(key: str, corpus: Sequence[Snippet]) -> Iterator[Searchable]:
        from biorag.benchmarks.mteb.models import document_of

        ids = {snippet.id for snippet in corpus}
        with _searchable(settings, Store(settings), manifest, encoder) as found:
            held = {document_of(id, ids) for id in found.index.ids()}
            if held != ids:
                raise MismatchError(
                    f"index {manifest.name!r} is not of the corpus of {key}: it lacks {len(ids - held)} of {len(ids)} "
                    f"documents and has {len(held - ids)} others; leave --name out, and the corpus is indexed"
                )
            yield found

    return open_corpus


def _indexed(settings: Settings, encoder: BiEncoder, folder: Path, on_progress: OnProgress) -> OpenCorpus:
    """Return what indexes a corpus under `folder` and searches it; the index goes when the task is done."""

    @contextmanager
    def open_corpus(key: str, corpus: Sequence[Snippet]) -> Iterator[Searchable]:
        home = folder / key
        store = Store(settings.replace(home=home, name="corpus", qdrant=None))
        manifest = _write_index(store, corpus, encoder, on_progress)
        with _searchable(store.settings, store, manifest, encoder) as found:
            yield found
        shutil.rmtree(home)

    return open_corpus


def _write_index(store: Store, corpus: Sequence[Snippet], encoder: BiEncoder, on_progress: OnProgress) -> Manifest:
    """Index a corpus, going on where an interrupted run stopped."""
    from biorag.corpus.sources import Source
    from biorag.indexes.surveying import RejectsFile, survey
    from biorag.indexes.writing import write_index
    from biorag.utils.files import make_folder

    make_folder(store.settings.home)
    path = store.settings.home / "corpus.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        for snippet in corpus:
            row = {"_id": snippet.id, "title": snippet.title, "text": snippet.content}
            stream.write(json.dumps(row) + "\n")
    sources = [Source(path.name, path)]
    rejected = RejectsFile(store.settings.home / "rejects.jsonl")
    found = survey(sources, rejected, lambda _: None)
    if rejected.count:
        logger.warning(
            "%s documents of the task cannot be indexed and are never found: %s", rejected.count, rejected.path
        )
    held = store.manifest()
    manifest = held or store.new_manifest(encoder.identity, found.avg_len)
    write_index(
        store, manifest, sources, found, lambda: SnippetEncoders(encoder, None, None), on_progress, lambda _: None
    )
    return store.require_manifest()


def _print(found: Mapping[str, Any]) -> None:
    rows = [
        (row["task"], row["type"], name, f"{value:.4f}")
        for row in found["tasks"]
        for name, value in row["measures"].items()
    ]
    show.table(f"mteb, average {found['average']:.4f}", ["task", "type", "measure", "value"], rows)
