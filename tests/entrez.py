"""A stand-in for NCBI's elink, esearch and efetch on a loopback port, with faults."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

from biorag.corpus.eutils import LINK, EUtils
from biorag.utils.network import Server
from tests.loopback import Loopback
from tests.pubmed_records import HEAD

CITED = {n: list(range(n + 100, n + 100 + n % 4)) for n in range(1, 500)}  # some cite nothing


class Entrez(Loopback):
    """Answers elink by `CITED`, efetch with an abstract of each paper, and any search with the papers `found`.

    First come the faults that are queued, of which None is none.

    It keeps the forms. Papers `left_out` are in no answer, those `untold` have a title alone.
    """

    def __init__(self) -> None:
        self.faults: list[tuple[int, bytes, dict[str, str]] | None] = []
        self.forms: list[dict[str, list[str]]] = []
        self.fetched: list[dict[str, list[str]]] = []
        self.searched: list[dict[str, list[str]]] = []
        self.found: list[int] = []
        self.left_out: set[int] = set()
        self.books: set[int] = set()
        self.untold: set[int] = set()
        super().__init__()

    @property
    def url(self) -> str:
        return f"{super().url}/entrez/eutils"

    @property
    def asked(self) -> list[list[int]]:
        return [[int(id) for id in form["id"]] for form in self.forms]

    def link(self, key: str | None = None, retries: int = 4) -> EUtils:
        return EUtils(Server(self.url, 5.0, retries, key))

    def answer(self, pmids: list[int]) -> bytes:
        sets = []
        for pmid in pmids:
            if pmid not in self.left_out:
                links = [{"dbto": "pubmed", "linkname": LINK, "links": [str(other) for other in CITED[pmid]]}]
                others = [{"dbto": "pubmed", "linkname": "pubmed_pubmed_citedin", "links": ["9999"]}]
                found = {"linksetdbs": others + links} if CITED[pmid] else {}
                sets.append({"dbfrom": "pubmed", "ids": [str(pmid)], **found})
        return json.dumps({"header": {"type": "elink", "version": "0.3"}, "linksets": sets}).encode()

    def records(self, pmids: list[int]) -> bytes:
        """Return PubMed's XML of papers, as efetch has it."""
        records = []
        for pmid in pmids:
            if pmid in self.books:
                records.append(
                    f"<PubmedBookArticle><BookDocument><PMID>{pmid}</PMID></BookDocument></PubmedBookArticle>"
                )
            elif pmid not in self.left_out:
                told = "" if pmid in self.untold else f"<Abstract><AbstractText>Text {pmid}.</AbstractText></Abstract>"
                article = f"<Article><ArticleTitle>Paper {pmid}</ArticleTitle>{told}</Article>"
                citation = f'<MedlineCitation><PMID Version="1">{pmid}</PMID>{article}</MedlineCitation>'
                records.append(f"<PubmedArticle>{citation}</PubmedArticle>\n")
        return f"{HEAD}<PubmedArticleSet>{''.join(records)}</PubmedArticleSet>\n".encode()

    def search(self, most: int) -> bytes:
        """Return an answer of esearch."""
        result = {"count": str(len(self.found)), "idlist": [str(pmid) for pmid in self.found[:most]]}
        return json.dumps({"header": {"type": "esearch", "version": "0.3"}, "esearchresult": result}).encode()

    def respond(self, method, path, headers, body):
        form = parse_qs(body.decode())
        tool = path.removeprefix("/entrez/eutils/")
        if tool == "esearch.fcgi":
            self.searched.append(form)
            answer = self.search(int(form["retmax"][0]))
        elif tool == "efetch.fcgi":
            self.fetched.append(form)
            answer = self.records([int(id) for id in form["id"][0].split(",")])
        else:
            assert tool == "elink.fcgi"
            self.forms.append(form)
            answer = self.answer([int(id) for id in form["id"]])
        fault = self.faults.pop(0) if self.faults else None
        return fault or (200, answer, {})
