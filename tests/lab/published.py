"""Small sets in the layouts in which theirs are published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# As pubmedqa/pubmedqa has PQA-L, but for fields that are not read; PQA-U has no final_decision.
PQAL = {
    "21645374": {
        "QUESTION": "Do mitochondria play a role in remodelling leaves?",
        "CONTEXTS": ["Cell death perforates the leaves.", "Mitochondria were stained in vivo."],
        "final_decision": "yes",
        "LONG_ANSWER": "Mitochondria depict a morphological change.",
    },
    "16418930": {
        "QUESTION": "Landolt C and Snellen E acuity: differences in strabismus amblyopia?",
        "CONTEXTS": ["Assessment of visual acuity depends on the optotypes."],
        "final_decision": "no",
        "LONG_ANSWER": "Overestimation of acuity was slight.",
    },
    "9488747": {
        "QUESTION": "Syncope during bathing in infants, a pediatric form of urticaria?",
        "CONTEXTS": ["Apparent life-threatening events in infants are frequent.", " "],
        "final_decision": "maybe",
        "LONG_ANSWER": "It could be a form of aquagenic urticaria.",
    },
}
TEST_GROUND_TRUTH = {"16418930": "no", "9488747": "maybe"}
MEDRAG = [
    {
        "id": f"pubmed23n0001_{number}",
        "title": f"Title {number}",
        "content": f"Content of number {number}. It has two sentences.",
        "contents": f"Title {number}. Content of number {number}. It has two sentences.",
        "PMID": 100 + number,
    }
    for number in range(6)
]
ANSWERS: list[dict[str, Any]] = [
    {"type": "yesno", "exact_answer": "yes"},
    {"type": "factoid", "exact_answer": [["ABCC11"]]},
    {"type": "list", "exact_answer": [["hypoxia"], ["tissue injury", "injury"]]},
    {"type": "summary"},
]


def bioasq(count: int = 6) -> dict[str, Any]:
    """Questions as a training file of BioASQ has them, of all four types in turn."""
    url = "http://www.ncbi.nlm.nih.gov/pubmed/"
    section = {"beginSection": "abstract", "endSection": "abstract"}
    offsets = {"offsetInBeginSection": 0, "offsetInEndSection": 7}
    return {
        "questions": [
            {
                "id": f"55031181e9bde6963400000{n}",
                "body": f"What about number {n}?",
                "documents": [f"{url}{20000000 + n}", f"{url}{20000050 + n}"],
                "concepts": [],
                "snippets": [{"text": f"Fact {n}.", "document": f"{url}{20000000 + n}", **offsets, **section}],
                "ideal_answer": [f"It is {n}."],
                **ANSWERS[n % 4],
            }
            for n in range(count)
        ]
    }


def write_lines(path: Path, records: list[Any]) -> Path:
    """Write JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def write_beir(folder: Path) -> Path:
    """Write a BEIR folder with two parts; a query and a snippet of it are not judged."""
    corpus = [{"_id": f"d{n}", "title": f"T{n}", "text": f"Text {n}.", "metadata": {"year": n}} for n in range(5)]
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"Query {n}?", "metadata": {}} for n in range(4)])
    (folder / "qrels").mkdir()
    head = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "test.tsv").write_text(head + "q0\td0\t2\nq0\td1\t0\nq1\td2\t1\n")
    (folder / "qrels" / "dev.tsv").write_text(head + "q1\td0\t1\nq2\td3\t1\n")
    return folder
