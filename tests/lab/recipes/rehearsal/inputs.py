"""Stand-ins for the data sets of recipes: a few hundred rows each, in the format in which each is published.

All are made of the packaged snippets, so that questions, judgements and texts belong together: the snippet of number n
has the PMID `FIRST_PMID` + n in each of them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from biorag.benchmarks.golden import PUBMED
from biorag.corpus.datasets import QRELS_HEADER
from biorag.corpus.sources import demo_file
from biorag.errors import BadInputError
from biorag.lab.conversion.run import CORPUS, QUERIES
from biorag.lab.recipes.recipe import Input
from biorag.training.instructions import dataset_key, read_tasks
from biorag.utils.files import json_line, write_json, write_text
from biorag.utils.registry import or_list

ROWS = 200
QUESTIONS = 24  # of a set with judgements
FIRST_PMID = 1000
TITLE_ONLY = 4  # of PubMed's records every fourth has a title alone: about 10 of 28 million (BioASQ 8, section 5)
ABOUT = ("What is known about {}?", "How is {} explained?", "Which findings concern {}?")
OF_BMRETRIEVER = ("MQP", "MS Marco", "FEVER", "PubMed")
INSTRUCTION = "Given a question, retrieve passages that answer the question"


@dataclass(frozen=True, slots=True)
class Text:
    """A snippet and a question that it answers."""

    number: int
    title: str
    content: str

    @property
    def pmid(self) -> int:
        """Its PMID in all stand-ins."""
        return FIRST_PMID + self.number

    @property
    def question(self) -> str:
        """A question of its title's words."""
        return ABOUT[self.number % len(ABOUT)].format(self.title.rstrip("?.").lower())


@cache
def texts() -> list[Text]:
    """Return as many texts as a stand-in has rows."""
    lines = map(json.loads, demo_file("snippets.jsonl").read_bytes().splitlines())
    return [Text(number, line["title"], line["content"]) for number, line in enumerate(islice(lines, ROWS))]


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(json_line, rows)))


def _snippet(text: Text) -> dict[str, Any]:
    joined = f"{text.title}. {text.content}"
    identified = {"id": f"pubmed23n0001_{text.number}", "PMID": text.pmid}
    return {**identified, "title": text.title, "content": text.content, "contents": joined}


def _write_medrag(path: Path) -> None:
    """Write the folder of MedRAG's chunks, of several files."""
    for part in range(2):
        _write_lines(path / f"pubmed23n000{part + 1}.jsonl", map(_snippet, texts()[part::2]))


def _write_baseline(path: Path) -> None:
    """Write a folder of PubMed's baseline, of which some records have a title alone."""
    path.mkdir(parents=True, exist_ok=True)
    told = (text if text.number % TITLE_ONLY else replace(text, content="") for text in texts())
    (path / "pubmed20n0001.xml.gz").write_bytes(gzip.compress(pubmed_xml({text.pmid: text for text in told})))


def pubmed_xml(papers: Mapping[int, Text]) -> bytes:
    """Return records of PubMed with the texts of papers by their PMIDs, as efetch and the baseline have them."""
    records = []
    for pmid, text in papers.items():
        told = f"<Abstract><AbstractText>{escape(text.content)}</AbstractText></Abstract>" if text.content else ""
        article = f"<ArticleTitle>{escape(text.title)}</ArticleTitle>{told}"
        citation = f'<PMID Version="1">{pmid}</PMID><Article>{article}</Article>'
        records.append(f"<PubmedArticle><MedlineCitation>{citation}</MedlineCitation></PubmedArticle>")
    return f'<?xml version="1.0"?>\n<PubmedArticleSet>{"".join(records)}</PubmedArticleSet>\n'.encode()


def _write_pubmedqa(path: Path) -> None:
    """Write PubMedQA's artificial questions, whose contexts are an abstract's sections but the conclusion."""
    records = {
        str(text.pmid): {
            "QUESTION": text.question,
            "CONTEXTS": text.content.split(". "),
            "LABELS": ["BACKGROUND"],
            "LONG_ANSWER": text.title,
            "final_decision": ("yes", "no")[text.number % 2],
        }
        for text in texts()
    }
    write_json(path, records)


def _write_mirage(path: Path) -> None:
    """Write MIRAGE's benchmark.json: a few questions of each of its five tasks."""
    tasks = json.loads(demo_file("benchmark.json").read_bytes())
    write_json(path, {task: dict(islice(questions.items(), 2)) for task, questions in tasks.items()})


def _write_bioasq(path: Path) -> None:
    """Write a training or golden file of BioASQ: questions with URLs of documents, snippets and answers."""
    number = sum(map(ord, path.name))  # each file has questions of its own
    records = [
        {
            "id": f"{text.pmid:024x}",
            "body": text.question,
            "type": "summary",
            "documents": [f"{PUBMED}{text.pmid}"],
            "ideal_answer": [text.title],
            "concepts": [],
            "snippets": [{"text": text.title, "document": f"{PUBMED}{text.pmid}", "beginSection": "title"}],
        }
        for text in (texts()[(number + place) % ROWS] for place in range(QUESTIONS * 4))
        if text.number % TITLE_ONLY
    ]
    write_json(path, {"questions": records[: 2 * QUESTIONS]})


def _write_beir(path: Path, part: str = "test", grades: tuple[int, ...] = (1,)) -> None:
    """Write a folder in BEIR's layout; each question is judged by as many texts as there are grades."""
    corpus = ({"_id": str(text.pmid), "title": text.title, "text": text.content} for text in texts())
    asked = texts()[sum(map(ord, path.name)) % 7 :: ROWS // QUESTIONS]
    _write_lines(path / CORPUS, corpus)
    _write_lines(path / QUERIES, ({"_id": f"q{text.number}", "text": text.question} for text in asked))
    judged = [
        f"q{text.number}\t{texts()[(text.number + place) % ROWS].pmid}\t{grade}\n"
        for text in asked
        for place, grade in enumerate(grades)
    ]
    write_text(path / "qrels" / f"{part}.tsv", QRELS_HEADER + "".join(judged))


def _write_bmretriever(path: Path) -> None:
    """Write BMRetriever's rows for fine-tuning, each of another data set and so with another instruction."""
    tasks = read_tasks("bmretriever")
    told = [tasks[dataset_key(name)] for name in OF_BMRETRIEVER]
    _write_rows(path, lambda text: told[text.number % len(told)])


def _write_rows(path: Path, instruction: Callable[[Text], str] = lambda _: INSTRUCTION) -> None:
    """Write training rows: a question, its passage, a negative and an instruction."""
    rows = (
        {
            "query": text.question,
            "positive": text.content,
            "negatives": [texts()[(text.number + 7) % ROWS].content],
            "instruction": instruction(text),
        }
        for text in texts()
    )
    _write_lines(path, rows)


def _write_pairs(path: Path) -> None:
    """Write gzipped pairs of a question and an answer, each a JSON array, as sentence-transformers publishes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(b"".join(json_line([text.question, text.content]) for text in texts())))


def _write_medi(path: Path) -> None:
    """Write MEDI's rows, whose texts each follow their instruction."""
    records = (
        {
            "query": [f"{INSTRUCTION}: ", text.question],
            "pos": ["Represent the passage: ", text.content],
            "neg": ["Represent the passage: ", texts()[(text.number + 7) % ROWS].content],
        }
        for text in texts()
    )
    write_json(path, list(records))


def _write_untitled(path: Path) -> None:
    """Write snippets without titles."""
    _write_lines(path, ({**_snippet(text), "title": "", "contents": text.content} for text in texts()))


def _write_prompt(path: Path) -> None:
    """Write a template of a multiple-choice question."""
    write_text(path, (resources.files("biorag.prompts") / "choice.txt").read_text(encoding="utf-8"))


FORMATS: Mapping[str, Callable[[Path], None]] = {
    "snippets": lambda path: _write_lines(path, map(_snippet, texts())),
    "untitled snippets": _write_untitled,
    "MedRAG": _write_medrag,
    "PubMed baseline": _write_baseline,
    "PubMedQA": _write_pubmedqa,
    "MIRAGE": _write_mirage,
    "BioASQ": _write_bioasq,
    "BEIR": _write_beir,
    "BEIR dev": lambda path: _write_beir(path, "dev"),
    "BEIR train": lambda path: _write_beir(path, "train"),
    "BEIR graded": lambda path: _write_beir(path, grades=(2, 1, 0)),
    "rows": _write_rows,
    "pairs": _write_pairs,
    "BMRetriever": _write_bmretriever,
    "MEDI": _write_medi,
    "prompt": _write_prompt,
}


def write_input(name: str, described: Input, path: Path) -> None:
    """Write the stand-in of an input.

    Raises BadInputError if its format is none that has one.
    """
    parts = {path / file: kind for file, kind in described.files.items()} or {path: described.format}
    for place, kind in parts.items():
        if kind not in FORMATS:
            raise BadInputError(
                f"input {name!r} has the format {kind!r}, which has no stand-in: use {or_list(FORMATS)}"
            )
        FORMATS[kind](place)
