"""The papers that an index's papers cite, and those that these cite, with their abstracts, from NCBI's E-utilities.

The neighbourhoods of BiCA (Sinha et al. 2025, arXiv 2511.08029): the references of the seeds, the references of these,
and the abstracts of both. Entrez Programming Utilities Help, NCBI: `elink` and `efetch`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from biorag.citation_graph.eutils import BATCH, EUtils, Filled, KeptAnswers, KeptLines, fill_papers, indexed_papers
from biorag.citation_graph.graph import Graph, Papers, read_manifest
from biorag.citation_graph.rows import LARGEST, distinct
from biorag.corpus.pubmed import parse_record, read_records
from biorag.corpus.sources import DamagedSourceError, Source
from biorag.errors import ServiceError
from biorag.types import Index, OnProgress, Snippet
from biorag.utils.batched import batched
from biorag.utils.files import json_line, replacing
from biorag.utils.parsing import parse_json, parsed

SOURCE = "E-utilities"
Pmid = Annotated[int, Field(gt=0, le=LARGEST)]


@dataclass(frozen=True, slots=True)
class _Kept:
    pmid: Pmid
    snippet: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of fetching neighbourhoods.

    `references` are the first requests, for what the index's papers cite, `further` those for what these cite. Of the
    papers one or two citations away (`one_hop`, `two_hop`) and not in the index, `kept` answers were there from before
    and `asked` were asked for; `without` have no abstract there; `written` are in the file.
    """

    references: Filled
    further: Filled
    one_hop: int
    two_hop: int
    kept: int
    asked: int
    without: int
    written: int
    seconds: float


class KeptAbstracts(KeptLines):
    """Abstracts on disk, a line each; null where a paper has none, so that it is not asked for again."""

    def pmids(self) -> set[int]:
        """Return the papers that were asked for."""
        return {kept.pmid for kept in self._answers()}

    def snippets(self, wanted: set[int]) -> Iterator[Mapping[str, Any]]:
        """Yield the records of papers, each once."""
        left = set(wanted)
        for kept in self._answers():
            if kept.snippet is not None and kept.pmid in left:
                left.remove(kept.pmid)
                yield kept.snippet

    def keep_snippets(self, answers: Mapping[int, Snippet | None]) -> None:
        """Append answers, durably."""
        self.append({"pmid": pmid, "snippet": snippet and record_of(snippet)} for pmid, snippet in answers.items())

    def _answers(self) -> Iterator[_Kept]:
        for line in self.lines():
            try:
                kept: _Kept = parsed(_Kept, line)
            except ValueError:
                continue
            yield kept


def record_of(snippet: Snippet) -> dict[str, Any]:
    """Return a snippet as a line that `biorag index` reads."""
    own = {"id": snippet.id, "title": snippet.title, "content": snippet.content, "PMID": snippet.pmid}
    return {**own, "source": SOURCE, **snippet.metadata}


def is_abstracts(beginning: bytes) -> bool:
    """Return whether a file that begins so holds abstracts that biorag fetched."""
    try:
        record = parse_json(beginning.partition(b"\n")[0])
    except ValueError:
        return False
    return isinstance(record, dict) and record.get("source") == SOURCE


def fetch_neighbourhoods(
    folder: Path,
    index: Index,
    link: EUtils,
    answers: KeptAnswers,
    abstracts: KeptAbstracts,
    out: Path,
    on_progress: OnProgress,
) -> Fetched:
    """Write the abstracts of the papers one and two citations away from an index's papers; alone.

    The graph in the folder gets the references of the index's papers and of those they cite, where it lacks them. The
    file is written whole at the end, from the abstracts kept; a killed run resumes where they end.

    Raises
    ------
    ServiceError
        If another process is asking, or writes the graph; or as `EUtils` does.
    """
    started = time.perf_counter()
    with answers.alone():
        seeds = indexed_papers(index)
        references = fill_papers(folder, seeds, link, answers, on_progress)
        one_hop = _without(_cited(folder, seeds), seeds)
        further = fill_papers(folder, one_hop, link, answers, on_progress)
        two_hop = _without(_cited(folder, one_hop), np.union1d(seeds, one_hop))
        wanted = {*one_hop.tolist(), *two_hop.tolist()}
        known = abstracts.pmids() & wanted
        missing = sorted(wanted - known)
        for batch in batched(missing, BATCH):
            abstracts.keep_snippets(articles(link, batch))
            on_progress(len(batch))
        written = _write(out, abstracts, wanted)
    return Fetched(
        references=references,
        further=further,
        one_hop=one_hop.size,
        two_hop=two_hop.size,
        kept=len(known),
        asked=len(missing),
        without=len(wanted) - written,
        written=written,
        seconds=round(time.perf_counter() - started, 3),
    )


def articles(link: EUtils, pmids: list[int]) -> dict[int, Snippet | None]:
    """Return papers with an abstract as snippets; None for a paper without one, or that the answer leaves out.

    Raises
    ------
    ServiceError
        If the answer is not PubMed's XML; or as `EUtils` does.
    """
    found: dict[int, Snippet | None] = dict.fromkeys(pmids)
    try:
        with file_of(link.articles(pmids)) as path:
            for _, element in read_records(Source("efetch", path)):
                try:
                    record = parse_record(element)
                except ValueError:
                    continue  # neither title nor abstract
                if isinstance(record, Snippet) and record.pmid in found and record.metadata.get("abstract"):
                    found[record.pmid] = record
    except DamagedSourceError as error:
        raise ServiceError(
            f"the E-utilities did not answer with PubMed's XML ({error.reason}): check --eutils"
        ) from None
    return found


@contextmanager
def file_of(content: bytes) -> Iterator[Path]:
    """Give an answer as a file, for readers of files."""
    with tempfile.TemporaryDirectory(prefix="biorag-") as folder:
        path = Path(folder) / "articles.xml"
        path.write_bytes(content)
        yield path


def _cited(folder: Path, papers: Papers) -> Papers:
    """Return what papers cite, distinct and sorted."""
    if read_manifest(folder) is None:
        return papers[:0]
    graph = Graph(folder)
    parts = [graph.cited(pmid) for pmid in papers.tolist()]
    return distinct(np.concatenate(parts)) if parts else papers[:0]


def _without(papers: Papers, others: Papers) -> Papers:
    return papers[~np.isin(papers, others)]


def _write(out: Path, abstracts: KeptAbstracts, wanted: set[int]) -> int:
    written = 0
    with replacing(out) as stream:
        for snippet in abstracts.snippets(wanted):
            stream.write(json_line(snippet))
            written += 1
    return written
