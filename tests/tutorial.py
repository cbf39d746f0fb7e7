"""The files of docs/tutorial.md: `python -m tests.tutorial papers/` writes a PDF and a RIS file, written for it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.corpus.samples import searchable_pdf
from tests.pubmed_records import HEAD

TITLE = "Vitamin B12 in people who take metformin"
PAGES = [
    f"{TITLE}. We measured serum vitamin B12 in 212 adults with type 2 diabetes who had taken metformin for at least "
    "four years.",
    "Results. Long-term use of metformin lowered the absorption of vitamin B12 in the terminal ileum. Vitamin B12 was "
    "deficient in 31 of 212 adults. Serum vitamin B12 should be measured every year in people who take metformin.",
]
RIS = """TY  - JOUR
AU  - Okafor, Ada
AU  - Lindqvist, Per
TI  - Dry cough during treatment with enalapril
AB  - Enalapril blocks the breakdown of bradykinin. Bradykinin accumulates in the airways and causes a persistent dry cough. The cough stops within four weeks after the drug is withdrawn.
JF  - Journal of Ward Medicine
PY  - 2021
DO  - 10.5555/ward.2021.17
ER  -
"""  # noqa: E501
RECORDS = {  # what the stand-in for PubMed finds: title, text, year
    90000001: (
        "Pyridoxine and the neuropathy of isoniazid",
        "Isoniazid interferes with the metabolism of vitamin B6. Pyridoxine given with isoniazid prevented peripheral "
        "neuropathy in malnourished adults.",
        2018,
    ),
    90000002: (
        "Liver enzymes during treatment with isoniazid",
        "Isoniazid raised liver enzymes in one of eight adults. The enzymes fell when the drug was stopped.",
        2023,
    ),
}


def write_papers(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metformin-b12.pdf").write_bytes(searchable_pdf(PAGES, TITLE))
    (folder / "library.ris").write_text(RIS, encoding="utf-8")


def pubmed(pmids: list[int]) -> bytes:
    """Return the records as efetch has them."""
    records = []
    for pmid in pmids:
        title, text, year = RECORDS[pmid]
        issue = f"<JournalIssue><PubDate><Year>{year}</Year></PubDate></JournalIssue>"
        journal = f"<Journal>{issue}<Title>Journal of Ward Medicine</Title></Journal>"
        abstract = f"<Abstract><AbstractText>{text}</AbstractText></Abstract>"
        article = f"<Article>{journal}<ArticleTitle>{title}</ArticleTitle>{abstract}</Article>"
        citation = f'<MedlineCitation><PMID Version="1">{pmid}</PMID>{article}</MedlineCitation>'
        records.append(f"<PubmedArticle>{citation}</PubmedArticle>\n")
    return f"{HEAD}<PubmedArticleSet>{''.join(records)}</PubmedArticleSet>\n".encode()


if __name__ == "__main__":
    write_papers(Path(sys.argv[1]))
