"""The citations of an index's papers, and the abstracts of the papers they cite, from NCBI's E-utilities.

The neighbourhoods of BiCA (Sinha et al. 2025, arXiv 2511.08029): the references of the seeds, the references of these,
and the abstracts of both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from biorag.corpus.citation_graph import FILE, Graph, Papers, among, distinct, paper_of
from biorag.corpus.eutils import Answers, EUtils
from biorag.corpus.pubmed import parse_record
from biorag.indexes.reading import stored_snippets
from biorag.lab.citation_graph.building import add
from biorag.lab.citation_graph.sources import pairs_of
from biorag.types import Index, OnProgress, Snippet
from biorag.utils.files import json_line, replacing
from biorag.utils.outputs import first_row

SOURCE = "E-utilities"
CITES, ABSTRACT = "cites", "abstract"  # kinds of answers


def is_abstracts(beginning: bytes) -> bool:
    """Return whether a file that begins so holds abstracts that biorag fetched."""
    return first_row(beginning).get("source") == SOURCE


def indexed_papers(index: Index) -> Papers:
    """Return the papers of an index, sorted."""
    pmids = {pmid for pmid in map(paper_of, stored_snippets(index)) if pmid is not None}
    return np.array(sorted(pmids), np.uint32)


@dataclass(frozen=True)
class GraphFiller:
    """Adds answers of the E-utilities to the graph in a folder."""

    folder: Path
    link: EUtils
    answers: Answers
    on_progress: OnProgress = lambda _: None

    def fill_gaps(self, papers: Papers) -> dict[str, Any]:
        """Add the citations of the papers that the graph lacks, and report.

        Of the papers `lacking` references, `asked` had not been asked about before, and `unanswered` are missing from
        the answers.
        """
        started = time.perf_counter()
        graph = Graph(self.folder) if (self.folder / FILE).is_file() else None
        before = graph.size()[1] if graph else 0
        lacking = (papers[~among(papers, graph.pmids())] if graph else papers).tolist()
        asked = self.answers.ask(CITES, lacking, self.link.cited, self.on_progress)
        cited = dict(self.answers.read(CITES, lacking))
        pairs = pairs_of([(pmid, other) for pmid, others in cited.items() for other in others])
        edges = add(self.folder, SOURCE, pairs) if pairs.size else before
        return {
            "papers": papers.size,
            "lacking": len(lacking),
            "asked": asked,
            "unanswered": len(lacking) - len(cited),
            "edges": edges,
            "added": edges - before,
            "seconds": round(time.perf_counter() - started, 3),
        }

    def fetch_neighbourhoods(self, seeds: Papers, out: Path) -> dict[str, Any]:
        """Write the abstracts of the papers one and two citations away from an index's papers, the seeds, and report.

        `references` reports on the citations of the seeds, `further` on those of the papers they cite; the graph gets
        both. Of the papers `one_hop` and `two_hop` away, `asked` had not been asked about before, `without` have no
        abstract, and `written` are in the file, which is made from kept answers, so that a killed run resumes.
        """
        started = time.perf_counter()
        references = self.fill_gaps(seeds)
        one_hop = np.setdiff1d(self._cited(seeds), seeds)
        further = self.fill_gaps(one_hop)
        two_hop = np.setdiff1d(self._cited(one_hop), np.union1d(seeds, one_hop))
        wanted = sorted([*one_hop.tolist(), *two_hop.tolist()])
        asked = self.answers.ask(ABSTRACT, wanted, lambda batch: abstracts(self.link, batch), self.on_progress)
        written = 0
        with replacing(out) as stream:
            for _, snippet in self.answers.read(ABSTRACT, wanted):
                if snippet is not None:
                    stream.write(json_line(snippet))
                    written += 1
        return {
            "out": str(out),
            "references": references,
            "further": further,
            "one_hop": one_hop.size,
            "two_hop": two_hop.size,
            "asked": asked,
            "without": len(wanted) - written,
            "written": written,
            "seconds": round(time.perf_counter() - started, 3),
        }

    def _cited(self, papers: Papers) -> Papers:
        """Return the papers that some papers cite, distinct and sorted."""
        if not (self.folder / FILE).is_file():
            return papers[:0]
        return distinct(np.concatenate([papers[:0], *map(Graph(self.folder).cited, papers.tolist())]))


def abstracts(link: EUtils, pmids: Sequence[int]) -> dict[int, dict[str, Any] | None]:
    """Return papers as lines that `biorag index` reads; None for a paper without an abstract, or without a record."""
    records: dict[int, dict[str, Any] | None] = dict.fromkeys(pmids)
    for element in link.records(pmids):
        try:
            snippet = parse_record(element)
        except ValueError:
            continue  # neither title nor abstract
        if isinstance(snippet, Snippet) and snippet.pmid in records and snippet.metadata.get("abstract"):
            own = {"id": snippet.id, "title": snippet.title, "content": snippet.content, "PMID": snippet.pmid}
            records[snippet.pmid] = {**own, "source": SOURCE, **snippet.metadata}
    return records
