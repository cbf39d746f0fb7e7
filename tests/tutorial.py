"""The files of the pages for four people: `python -m tests.tutorial papers/ exports/ own/` writes them."""

from __future__ import annotations

import json
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
NBIB = """PMID- 90000011
OWN - NLM
STAT- MEDLINE
TI  - Home exercise and falls in adults over 70.
AB  - We randomly assigned 240 adults over 70 to home exercise or usual care. Home exercise reduced falls in adults over 70 (rate ratio 0.71, 95% CI 0.58 to 0.87).
FAU - Okafor, Ada
AU  - Okafor A
LA  - eng
PT  - Randomized Controlled Trial
DP  - 2021 May
JT  - Journal of Ward Medicine
AID - 10.5555/ward.2021.44 [doi]

"""  # noqa: E501
EMBASE = """"Title","Author Names","Source","Publication Year","Publication Type","Abstract","DOI","Medline PMID"
"Home exercise and falls in adults over 70","Okafor A.","Journal of Ward Medicine (2021) 3:1","2021","Article","We randomly assigned 240 adults over 70 to home exercise or usual care. Home exercise reduced falls in adults over 70 (rate ratio 0.71, 95% CI 0.58 to 0.87).","10.5555/ward.2021.44","90000011"
"A home exercise programme in a rural district","Lindqvist P.","Rural Medicine (2023) 9:2","2023","Article","We randomly assigned 96 adults over 70 to home exercise or leaflets. Home exercise did not reduce falls in adults over 70.","10.5555/rural.2023.9",""
"""  # noqa: E501
ZOTERO = """TY  - JOUR
AU  - Ito, Rin
TI  - Supervised exercise and falls: a narrative review
AB  - Falls are a common cause of injury in older adults. Exercise programmes differ in dose and supervision.
JF  - Reviews of Ward Medicine
PY  - 2012
ER  -
"""
DRAFT = """# Exercise and falls

Home exercise did not reduce falls in adults over 70 [1,2]. Tai chi halves fractures [3].

## References

1. Okafor A. Home exercise and falls in adults over 70. Journal of Ward Medicine. 2021.
2. Lindqvist P. A home exercise programme in a rural district. Rural Medicine. 2023;9(2).
3. Roe P. Tai chi and fractures of the hip. Lancet. 2014;12:34-9.
"""
# A question of one's own, the title of the abstract that answers it, and that.
JUDGED = """Which vitamin prevents numb feet during tuberculosis treatment?|Pyridoxine and isoniazid|Isoniazid depletes pyridoxine. Supplements prevent peripheral neuropathy.
Why do ACE inhibitors make people cough?|Bradykinin and enalapril|Enalapril blocks the breakdown of bradykinin, which irritates the airways.
What should be measured in the blood of people on metformin?|Cobalamin in type 2 diabetes|Metformin lowers the absorption of cobalamin in the ileum. Serum levels should be checked every year.
Does aspirin help against pre-eclampsia?|Acetylsalicylic acid in pregnancy|Acetylsalicylic acid begun before 16 weeks lowered the incidence of pre-eclampsia.
How is a heart attack told from reflux?|Troponin in chest pain|Troponin rises in myocardial infarction and stays low in reflux.
What causes heartburn at night?|Reflux and sleep|Acid reflux is worse when lying down after a late meal.
Can high blood pressure damage the kidneys?|Hypertension and renal failure|Hypertension thickens the renal arterioles, and filtration declines.
Which drug lowers blood pressure without a cough?|Losartan|Losartan blocks the angiotensin receptor and leaves bradykinin alone.
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


def write_exports(folder: Path) -> None:
    """Write a systematic reviewer's exports of PubMed, Embase and Zotero, and a manuscript beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pubmed.nbib").write_text(NBIB, encoding="utf-8")
    (folder / "embase.csv").write_text(EMBASE, encoding="utf-8")
    (folder / "zotero.ris").write_text(ZOTERO, encoding="utf-8")
    (folder.parent / "draft.md").write_text(DRAFT, encoding="utf-8")


def write_judged(folder: Path) -> None:
    """Write judged questions and their corpus in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    rows = [(n, line.split("|")) for n, line in enumerate(JUDGED.splitlines(), 1)]
    documents = [{"_id": f"d{n}", "title": title, "text": text} for n, (_, title, text) in rows]
    questions = [{"_id": f"q{n}", "text": question} for n, (question, *_) in rows]
    for name, values in (("corpus.jsonl", documents), ("queries.jsonl", questions)):
        (folder / name).write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    judged = "".join(f"q{n}\td{n}\t1\n" for n, _ in rows)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")


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
    write_exports(Path(sys.argv[2]))
    write_judged(Path(sys.argv[3]))
