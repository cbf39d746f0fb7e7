"""The registry of every kind of fusion, reranker, reader, published format, store, generator, benchmark and so on.

A new kind is one new file and one entry here. An entry names its implementation, imported when used, and states the
facts that the code, settings and help texts need. Code names a kind only where it means that one, such as a default.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from biorag.utils.registry import Kind, Registry


@dataclass(frozen=True, kw_only=True)
class FusionKind(Kind):
    """A way to join the two sides of hybrid retrieval, `(dense, bm25, **parameters) -> {id: score}`.

    Both sides are lists of `ScoredDoc`, best first.
    """

    parameters: tuple[str, ...] = ()  # the retrieval settings that it takes, by name
    true_scores: bool = False  # whether each side also scores the other's hits, after its own ranking
    exhaustive: bool = False  # whether to rank all snippets, not those on the two lists (see `biorag.retrieval.fusion`)
    bounded: bool = False  # whether scores are on the scale of the dense side; else a query's are stretched to 0..1


FUSIONS = Registry(
    "fusion",
    FusionKind(
        "linear", ".retrieval.fusion:linear", "dense + λ·BM25", parameters=("lambda_",), true_scores=True, bounded=True
    ),
    FusionKind("rrf", ".retrieval.fusion:reciprocal_rank", "reciprocal ranks", parameters=("rrf_k",)),
    FusionKind(
        "exact",
        ".retrieval.fusion:linear",
        "dense + λ·BM25, the best of all snippets",
        parameters=("lambda_",),
        true_scores=True,
        exhaustive=True,
        bounded=True,
    ),
)


@dataclass(frozen=True, kw_only=True)
class RerankerKind(Kind):
    """A kind of reranker: its target makes one, `(name, RerankerParts) -> Reranker`.

    A stage of a chain is of the kind whose `word` it is, else of the one whose `prefix` it begins with.
    """

    weight: str  # the retrieval setting that weighs the score of the stage before
    word: str = ""
    prefix: str = ""
    id: str = "ID"  # placeholder of the stage's name in help texts
    bounded: bool = False  # whether scores are on the scale of a cosine; else a query's are stretched to 0..1
    token_model: str = ""  # target of its own model of token vectors that can be stored, `(ModelFiles, precision)`
    uses_encoder: bool = False  # whether it works with the bi-encoder's token vectors
    weights: str = ""  # target of the function that hashes its own weights, `(name) -> SHA-256`

    @property
    def syntax(self) -> str:
        """How a stage of the kind is written."""
        return f"'{self.word}'" if self.word else self.prefix + self.id

    @property
    def stored(self) -> bool:
        """Whether an index can store the token vectors that it compares."""
        return self.uses_encoder or bool(self.token_model)

    def weights_hash(self, name: str) -> str | None:
        """Return the hash of the reranker's own weights, None if it has none."""
        return str(self.imported(self.weights)(name)) if self.weights else None


RERANKERS = Registry(
    "reranker",
    RerankerKind(
        "encoder",
        ".retrieval.rerankers:encoder_tokens",
        "the bi-encoder's token vectors",
        weight="interpolation",
        word="encoder",
        bounded=True,
        uses_encoder=True,
    ),
    RerankerKind(
        "colbert",
        ".retrieval.rerankers:colbert",
        "by directory or Hugging Face id",
        id="a ColBERT checkpoint",
        weight="interpolation",
        bounded=True,
        token_model=".models.colbert:ColBERT",
        weights=".models.finding:encoder_hash",
    ),
    RerankerKind(
        "colbert-ai",
        ".retrieval.rerankers:colbert_ai",
        "a ColBERT checkpoint by colbert-ai's code",
        weight="interpolation",
        prefix="colbert-ai:",
        bounded=True,
        weights=".models.finding:encoder_hash",
        extra="colbert",
    ),
    RerankerKind(
        "cross-encoder",
        ".retrieval.rerankers:cross_encoder",
        "a cross-encoder",
        weight="cross_interpolation",
        prefix="cross:",
        weights=".models.finding:encoder_hash",
    ),
)


def reranker_of(stage: str) -> tuple[RerankerKind, str]:
    """Return the kind of a stage of a chain, and the stage's name without its prefix."""
    kinds = sorted(RERANKERS.values(), key=lambda kind: len(kind.prefix), reverse=True)
    named = next((kind for kind in kinds if kind.word and kind.word == stage), None)
    kind = named or next(kind for kind in kinds if not kind.word and stage.startswith(kind.prefix))
    return kind, stage.removeprefix(kind.prefix)


@dataclass(frozen=True, kw_only=True)
class ReaderKind(Kind):
    """A format of corpus files: its target is a `FileReader` (biorag.corpus.readers)."""

    suffixes: tuple[str, ...]  # how the names of such files end, in lower case
    beginning: bytes | None = None  # pattern of the beginning that tells such a file if its name does not
    roots: tuple[str, ...] = ()  # the root elements that tell it from other XML
    incremental: bool = False  # whether later files change earlier ones: one taken in before changes nothing
    common: bool = False  # whether other files than corpora have the format, so that not all of a folder's are taken
    unit: str = "line"  # unit in which messages count positions in a file
    joins: bool = False  # whether its records are of papers that may lie beside it
    paper: bool = False  # whether a file is one paper, which a record may be of


def or_gzipped(*suffixes: str) -> tuple[str, ...]:
    """Return suffixes of plain files and of compressed ones."""
    return tuple(ending for suffix in suffixes for ending in (suffix, f"{suffix}.gz"))


READERS = Registry(
    "corpus format",
    ReaderKind(
        "MedRAG or BEIR JSONL",
        ".corpus.readers:JSON_LINES",
        "a snippet a line",
        suffixes=or_gzipped(".jsonl", ".json", ".ndjson"),
        beginning=rb"\{",
    ),
    ReaderKind(
        "PubMed XML",
        ".corpus.pubmed:READER",
        "baseline and update files",
        suffixes=or_gzipped(".xml"),
        beginning=b"<",
        roots=("PubmedArticleSet", "PubmedArticle", "PubmedBookArticleSet", "PubmedBookArticle"),
        incremental=True,
    ),
    ReaderKind(
        "PMC XML",
        ".corpus.jats:READER",
        "full text in JATS, a snippet a paragraph",
        suffixes=or_gzipped(".xml", ".nxml"),
        beginning=b"<",
        roots=("article", "pmc-articleset"),
    ),
    ReaderKind(
        "CSV or TSV",
        ".corpus.tables:READER",
        "a snippet a row",
        suffixes=or_gzipped(".csv", ".tsv"),
        beginning=rb"(?i:PT\tAU\t|(?=(?:[^\n]{0,800}\t)?authors?\t)(?=(?:[^\n]{0,800}\t)?title\t))",
        common=True,
    ),
    ReaderKind(
        "text or Markdown",
        ".papers.files.texts:READER",
        "a snippet for some 300 words",
        suffixes=or_gzipped(".txt", ".md", ".markdown"),
        common=True,
    ),
    ReaderKind(
        "PDF",
        ".papers.files.pdf:READER",
        "a snippet a page",
        suffixes=(".pdf",),
        beginning=b"%PDF-",
        common=True,
        paper=True,
        unit="page",
    ),
    ReaderKind(
        "Word",
        ".papers.files.documents:DOCX",
        "a snippet for some 300 words of a section",
        suffixes=(".docx",),
        common=True,
        paper=True,
    ),
    ReaderKind(
        "EPUB",
        ".papers.files.documents:EPUB",
        "a snippet for some 300 words of a section",
        suffixes=(".epub",),
        common=True,
    ),
    ReaderKind(
        "web page",
        ".papers.files.documents:HTML",
        "a snippet for some 300 words of a section",
        suffixes=or_gzipped(".html", ".htm", ".xhtml"),
        beginning=rb"(?i:<!DOCTYPE html|<html)",
        roots=("html",),
        common=True,
        paper=True,
    ),
    ReaderKind(
        "MEDLINE XML",
        ".corpus.pubmed:MEDLINE_READER",
        "sets of citations as NLM had them before PubMed's",
        suffixes=or_gzipped(".xml"),
        beginning=b"<",
        roots=("MedlineCitationSet", "MedlineCitation"),
    ),
    ReaderKind(
        "RIS",
        ".corpus.tagged:RIS",
        "references as Zotero and EndNote export them",
        suffixes=or_gzipped(".ris"),
        beginning=rb"TY\s{1,3}-",
        joins=True,
    ),
    ReaderKind(
        "Web of Science",
        ".corpus.tagged:WEB_OF_SCIENCE",
        "references as Web of Science exports them as plain text",
        suffixes=or_gzipped(".ciw"),
        beginning=rb"FN [^\n]{1,80}\s+VR [0-9]|PT [A-Z]\s*\n[A-Z][A-Z0-9] ",
        joins=True,
    ),
    ReaderKind(
        "EndNote",
        ".corpus.tagged:ENDNOTE",
        "references in EndNote's export style",
        suffixes=or_gzipped(".enw"),
        beginning=rb"%[0AT] [^\n]{1,1000}\n%[A-Z0-9@] ",
        joins=True,
    ),
    ReaderKind(
        "EndNote XML",
        ".corpus.references:ENDNOTE_XML",
        "references as EndNote exports its library",
        suffixes=or_gzipped(".xml"),
        beginning=b"<",
        roots=("xml", "records"),
        joins=True,
    ),
    ReaderKind(
        "Ovid text",
        ".corpus.tagged:OVID",
        "references as Ovid and Embase export them as text",
        suffixes=(),
        beginning=rb"(?:<[0-9]{1,6}\s?\.?\s?>\s*\n(?:[A-Z][A-Za-z ]{2,50}|[A-Z]{2} ? -)|RECORD [0-9]{1,6}\s+TITLE)\s",
        joins=True,
    ),
    ReaderKind(
        "PubMed text",
        ".corpus.tagged:PUBMED_TEXT",
        "PubMed's format 'Abstract (text)'",
        suffixes=(),
        beginning=rb"1\. [^.\n]{2,200}\. [12][0-9]{3}[^\n]{0,80};(?=[\s\S]{0,60000}?\nPMID: [0-9])",
        joins=True,
    ),
    ReaderKind(
        "BibTeX",
        ".corpus.references:BIBTEX",
        "references as Zotero, Mendeley and JabRef export them",
        suffixes=or_gzipped(".bib"),
        beginning=b"@",
        joins=True,
    ),
    ReaderKind(
        "CSL-JSON",
        ".corpus.references:CSL",
        "references as Zotero and pandoc export them",
        suffixes=or_gzipped(".json"),
        beginning=rb"\[",
        unit="record",
        joins=True,
    ),
    ReaderKind(
        "MEDLINE",
        ".corpus.tagged:MEDLINE",
        "references as PubMed exports them",
        suffixes=or_gzipped(".nbib"),
        beginning=b"PMID- ",
        joins=True,
    ),
)


@dataclass(frozen=True, kw_only=True)
class LibraryKind(Kind):
    """A program's library of papers: its target finds its files for a corpus's name, `(name, folder, may_be_empty)`."""

    prefix: str  # begins the name of a corpus: the whole library, or with a name after it a collection
    database: str  # the file that tells its folder

    def claims(self, name: str) -> bool:
        """Return whether a corpus is named as such a library, by the prefix, its database or its folder."""
        file = os.path.join(name, self.database)  # noqa: PTH118
        is_folder = os.path.isfile(file)  # noqa: PTH113 - False where it may not be asked
        return name.startswith(self.prefix) or Path(name).name == self.database or is_folder


LIBRARIES = Registry(
    "library",
    LibraryKind(
        "Zotero library",
        ".papers.files.zotero:zotero_corpus",
        "references and attached papers",
        prefix="zotero:",
        database="zotero.sqlite",
    ),
)


def library_of(name: str) -> LibraryKind | None:
    """Return the kind of library that a corpus is named as."""
    return next((kind for kind in LIBRARIES.values() if kind.claims(name)), None)


# Services that are asked for records of papers; a target gives how one is found, `(ServiceSettings) -> Find`.
ENRICHERS = Registry(
    "service",
    Kind("crossref", ".corpus.enriching:crossref", "by DOI or title"),
    Kind("pubmed", ".corpus.enriching:pubmed", "by PMID, DOI or title"),
)


@dataclass(frozen=True, kw_only=True)
class FormatKind(Kind):
    """A format in which a set is published: its target is a `Format` (biorag.lab.conversion.items)."""

    folder: bool = False  # whether it reads one folder as it is, beside which corpora may be named
    splits: tuple[str, ...] | None = None  # the parts for `--split`; () if the files name them, None without parts
    options: tuple[str, ...] = ()  # its own options of 'biorag data convert', as the code names them


FORMATS = Registry(
    "format",
    FormatKind(
        "pubmedqa",
        ".lab.conversion.pubmedqa:convert",
        "PQA-L, PQA-A, PQA-U",
        splits=("train", "test"),
        options=("test_ids", "id_prefix"),
    ),
    FormatKind(
        "bioasq",
        ".lab.conversion.bioasq:convert",
        "training and golden files of task B",
        splits=("train", "dev"),
        options=("last", "id_prefix"),
    ),
    FormatKind(
        "beir",
        ".lab.conversion.corpora:beir",
        "a BEIR folder, and its corpus behind it",
        folder=True,
        splits=(),
    ),
    FormatKind(
        "bmretriever",
        ".lab.conversion.bmretriever:convert",
        "pairs for fine-tuning",
        splits=("med-synth", "med-real", "search", "nlu"),
    ),
    FormatKind("medi", ".lab.conversion.bmretriever:medi", "InstructOR's pairs for fine-tuning"),
    FormatKind(
        "questions", ".lab.conversion.corpora:questions", "questions with their passages", options=("id_prefix",)
    ),
    FormatKind("rows", ".lab.conversion.corpora:judged_rows", "training rows, as a BEIR folder"),
    FormatKind("claims", ".lab.conversion.corpora:claims", "claims with the texts that they are judged by"),
    FormatKind("conclusions", ".lab.conversion.corpora:conclusions", "last sentences of a corpus's abstracts"),
    FormatKind("title-abstract", ".lab.conversion.corpora:title_abstract", "pairs from any corpus"),
    FormatKind("abstracts", ".lab.conversion.corpora:abstracts", "records of a corpus that have more than a title"),
)


@dataclass(frozen=True, kw_only=True)
class SourceKind(Kind):
    """A kind of model that an option names by a word, a path, an id or a URL.

    A name is of the kind whose `words` it is among, or one of whose `prefixes` it begins with; a kind with neither
    takes the rest.
    """

    written: str
    words: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    remote: bool = False  # whether it runs elsewhere, and so takes concurrent requests

    @property
    def syntax(self) -> str:
        """How users write it."""
        return self.written

    def claims(self, spec: str) -> bool:
        """Return whether a name is one of this kind's own."""
        return spec in self.words or spec.startswith(self.prefixes)

    def at_a_time(self, concurrency: int) -> int:
        """Return the number of concurrent requests if the settings allow `concurrency`."""
        return concurrency if self.remote else 1


def _kind_named(kinds: Registry[SourceKind], spec: str) -> SourceKind:
    rest = next(kind for kind in kinds.values() if not (kind.words or kind.prefixes))
    return next((kind for kind in kinds.values() if kind.claims(spec)), rest)


# The target of a generator is a `GeneratorSource` (biorag.generators.source).
GENERATORS = Registry(
    "generator",
    SourceKind(
        "llama",
        ".generators.gguf:GgufSource",
        "a model in this process",
        written="'starter', a GGUF path, hf:OWNER/REPO/FILE",
        extra="llama",
    ),
    SourceKind(
        "server",
        ".generators.server:ServerSource",
        "its key: BIORAG_LLM_API_KEY",
        written="the URL of an OpenAI-compatible server",
        prefixes=("http://", "https://"),
        remote=True,
    ),
    SourceKind("none", ".generators.source:GeneratorSource", "evidence only", written="'none'", words=("none",)),
)


def generator_of(spec: str) -> SourceKind:
    """Return the kind of the generator that `--llm` names."""
    return _kind_named(GENERATORS, spec)


# The target of a reader of evidence opens it, `(spec, settings) -> Reader | None`; empty for none.
EVIDENCE_READERS = Registry(
    "reader",
    SourceKind(
        "starter", ".engine:packaged_reader", "small, for choosing sentences", written="'starter'", words=("starter",)
    ),
    SourceKind(
        "model",
        ".engine:model_reader",
        "a cross-encoder of three labels, or of one output",
        written="a directory, a Hugging Face id",
    ),
    SourceKind(
        "server",
        ".answering.readers.generators:open_server_reader",
        "its key: BIORAG_READER_API_KEY",
        written="the URL of an OpenAI-compatible server",
        prefixes=("http://", "https://"),
        remote=True,
    ),
    SourceKind("none", "", "words alone", written="'none'", words=("none",)),
)


def evidence_reader_of(spec: str) -> SourceKind:
    """Return the kind of the reader that `--reader` names."""
    return _kind_named(EVIDENCE_READERS, spec)


@dataclass(frozen=True, kw_only=True)
class StoreKind(Kind):
    """A kind of store of snippets and their vectors.

    The target of an embedded one opens a folder, `(folder, manifest, writable) -> Index`; that of a server is a
    `ServerCollection` (biorag.indexes.server).
    """

    server: str = ""  # the setting that gives the URL of its server; empty if it is embedded
    snapshots: bool = False  # whether 'biorag indexes export' saves its indexes: every file stands in `checksums.json`
    instead: str = "is in a store that cannot be exported: copy its folder while nothing writes to it"


STORES = Registry(
    "store",
    StoreKind("edge", ".indexes.edge:EdgeIndex", "Qdrant Edge, in the index's folder", snapshots=True),
    StoreKind(
        "qdrant",
        ".indexes.server:ServerCollection",
        "the server that --qdrant names",
        server="qdrant",
        instead="is on a server: copy it here first, by 'biorag indexes copy {name} {name}-here'",
    ),
)
EMBEDDED = "edge"  # the store of a new index, and of scratch ones


@dataclass(frozen=True, kw_only=True)
class NegativesKind(Kind):
    """A kind of negatives: its target mines them, `(MiningPlan, OpenIndex, rows) -> Miner`; empty if none are mined."""

    options: tuple[str, ...] = ()  # the options of 'biorag mine' that are its own, as they are named in the code
    plan: tuple[str, ...] = ()  # the fields of a `MiningPlan` that are its own
    modes: tuple[str, ...] = ("bm25",)  # the first stages that it can search with, the default first
    per_row: int | None = 8  # how many of a row are kept by default; None for all
    made_by: str = "mine PAIRS --negatives {name}"  # the command that writes rows with them, for messages
    in_batch: bool = False  # whether they are the other rows' passages, for which no row needs negatives of its own
    swept: bool = True  # whether a sweep makes them, which mines by the index of its base and has no citation graph


NEGATIVES = Registry(
    "kind of negatives",
    NegativesKind("in-batch", "", "other rows' passages and the row's own mined ones", in_batch=True),
    NegativesKind("bm25", ".training.mining:bm25", "the bottom 32 of the top 42 by BM25"),
    NegativesKind("bm25-hits", ".training.mining:bm25_hits", "the other hits of the top 10 by BM25"),
    NegativesKind(
        "citation",
        ".training.mining:citation",
        "papers that the positive cites, and those that they cite",
        options=("graph", "paths", "path_length", "top"),
        plan=("walk",),
        per_row=None,
        swept=False,
    ),
    NegativesKind("random", ".training.mining:random", "drawn from the index"),
    NegativesKind(
        "retriever",
        ".training.mining:retriever",
        "the index's own encoder's predictions",
        options=("ranks", "margin", "mode"),
        plan=("ranks", "margin"),
        modes=("dense", "hybrid"),
        swept=False,
    ),
    NegativesKind("synthetic", "", "written by a model", made_by="generate negatives PAIRS", swept=False),
)


def mined_negatives() -> list[str]:
    """Return the kinds that 'biorag mine' mines."""
    return [kind.name for kind in NEGATIVES.values() if kind.target]


def own_negatives() -> list[str]:
    """Return the kinds that rows bring along."""
    return [kind.name for kind in NEGATIVES.values() if not kind.in_batch]


def swept_negatives() -> list[str]:
    """Return the kinds that a sweep can train with."""
    return [kind.name for kind in NEGATIVES.values() if kind.swept]


# A benchmark's target is its command, whose signature gives its options and whose docstring its help.
BENCHMARKS = Registry(
    "benchmark",
    Kind("retrieval", ".commands.bench_retrieval:retrieval", "Measure retrieval on judged questions."),
    Kind("answers", ".commands.bench_answers:answers", "Compare answers with those of experts."),
    Kind("mirage", ".commands.bench_mirage:mirage", "Answer the multiple-choice questions of MIRAGE."),
    Kind("latency", ".commands.bench_latency:latency", "Time each stage of a question."),
    Kind("similarity", ".commands.bench_retrieval:similarity", "Compare cosines of relevant and other snippets."),
    Kind("bioasq", ".commands.bench_bioasq:bioasq", "Score BioASQ's test batches by its own measures."),
    Kind("verification", ".commands.bench_answers:verification", "Judge claims that people labelled."),
    Kind("show", ".commands.bench_mirage:show_run", "Show the questions of a MIRAGE run."),
    Kind("mteb", ".lab.commands.bench_mteb:mteb", "Run retrieval tasks of MTEB.", extra="mteb"),
)


@dataclass(frozen=True, kw_only=True)
class OutputKind(Kind):
    """A format that `search` and `ask` write their hits in: its target writes them, `(hits) -> str`.

    The target of the one for the terminal is empty: the commands show hits themselves.
    """

    suffix: str = "txt"  # of the names of its files


OUTPUTS = Registry(
    "output format",
    OutputKind("table", "", "for the terminal"),
    OutputKind("md", ".references.formats:markdown", "Markdown", suffix="md"),
    OutputKind("csv", ".references.formats:comma_separated", "a row a hit", suffix="csv"),
    OutputKind("tsv", ".references.formats:tab_separated", "a row a hit", suffix="tsv"),
    OutputKind("ris", ".references.formats:ris", "reference managers", suffix="ris"),
    OutputKind("bibtex", ".references.formats:bibtex", "LaTeX", suffix="bib"),
    OutputKind("csl-json", ".references.formats:csl_json", "pandoc, Zotero", suffix="json"),
    OutputKind("vancouver", ".references.formats:vancouver", "as in NLM's journals"),
)
TERMINAL = "table"  # the output format that the commands show themselves
WEIGHINGS = Registry(
    "format of a weighing",
    OUTPUTS[TERMINAL],
    OutputKind("md", ".api.weighings:markdown", "Markdown", suffix="md"),
    OutputKind("csv", ".api.weighings:comma_separated", "a row a study", suffix="csv"),
)  # their targets take the weighing

# What a core command takes of a wing, imported when it is used.
PARTS = Registry(
    "part",
    Kind("cluster encoders", ".lab.scale.stages:encoders", "encode by the workers of a Ray cluster"),
    Kind("staged index", ".lab.scale.stages:index_in_stages", "export, encode and load a corpus"),
    Kind("load vectors", ".lab.scale.stages:load", "bring encoded vectors into an index"),
    Kind("checked manuscript", ".papers.manuscripts.report:checked_files", "check a manuscript, and write its report"),
    Kind("leftovers", ".lab.recipes.cleaning:leftovers", "what indexes and runs leave on the disk"),
    Kind("remove leftovers", ".lab.recipes.cleaning:remove", "remove it"),
)

# What `biorag indexes clean` removes. Whoever writes it yields `(folder, paths)`: these of the folder may go; if none
# are named, the whole of it.
LEFTOVERS = Registry(
    "leftover",
    Kind("export", ".lab.recipes.cleaning:unused_exports", "exported models that no index uses, or torn"),
    Kind("temporary", ".indexes.catalogue:left_temporary", "temporary files of processes that were killed"),
    Kind("import", ".indexes.snapshot:left_imports", "imports that were killed"),
    Kind("stage", ".lab.recipes.cleaning:old_stages", "stages of an indexing run, untouched for 90 days"),
    Kind("reply", ".generators.cache:old_replies", "replies of models, not asked for in 90 days"),
)
