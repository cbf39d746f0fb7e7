"""Measure what answers say, on sets that people wrote who had not seen the program; see docs/answers.md.

    biorag index DATA/pubmed/snippets.jsonl.gz --name pubmed
    biorag index DATA/qa/{med1250,ncbi_disease,evidence_inference}_docs.jsonl.gz --name qa
    python -m scripts.measure_answers [SETS] [--only yesno,claims,…] [--index-a pubmed] [--index-b qa]

SETS is a folder like `scripts/question_sets`. The documents of `yesno` are indexed the first time. Each share comes
with its Wilson interval.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from biorag.answering.guards.checker import Checker
from biorag.answering.readers.windows import EvidenceWindows
from biorag.api.results import AnswerResult
from biorag.api.session import Session
from biorag.benchmarks.significance import wilson
from biorag.corpus.claims import read_claims
from biorag.engine import load_checker
from biorag.faces.chat.conversation import Conversation
from biorag.indexes.store import Store
from biorag.settings.sources import load_settings
from biorag.types import LABELS, Hit, Reading, Snippet, Trust, Verdict

DATA = Path("../shared/data")
WHOLE = ("med1250", "ncbi_disease", "evidence_inference")  # abstracts


def say(*parts: object) -> None:
    """Write a line."""
    sys.stdout.write(" ".join(map(str, parts)) + "\n")
    sys.stdout.flush()


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSONL file."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


@cache
def records_of(file: str) -> dict[str, dict[str, Any]]:
    """Return the records of a file of data by their ids."""
    return {str(row.get("id") or row["_id"]): row for row in rows_of(DATA / file)}


def with_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with title and content, its own or those of its `record`."""
    if "record" not in row:
        return dict(row)
    record = records_of(row["record"].split("#")[0])[row["record"].split("#")[1]]
    return {**row, "title": record["title"], "content": record.get("content") or record["text"]}


def texts_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file with their texts."""
    return [with_text(row) for row in rows_of(path)]


def index_documents(sets: Path) -> None:
    """Make the index `yesno`, unless it is there."""
    if Store(load_settings({"name": "yesno"})).manifest():
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "docs.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in texts_of(sets / "yesno/docs.jsonl")))
        subprocess.run([sys.executable, "-m", "biorag", "index", str(file), "--name", "yesno"], check=True)


def share(count: int, total: int) -> str:
    """Return "3 of 150, 2.0 % (0.7 to 5.7)", with Wilson's interval."""
    if not total:
        return "none"
    low, high = wilson(count, total)
    return f"{count} of {total}, {count / total:.1%} ({low:.1%} to {high:.1%})"


def polar(sets: Path) -> None:
    """Yes/no questions: how many get a verdict, and how many a wrong one."""
    table: Counter[tuple[str, str]] = Counter()
    certain: Counter[str] = Counter()
    index_documents(sets)
    with Session(load_settings({"name": "yesno"})) as session:
        asked = rows_of(sets / "yesno/questions.jsonl")
        for row in asked:
            answer = session.ask(row["question"])
            table[row["gold"], answer.short_answer] += 1
            certain[str(answer.certainty)] += 1
            if answer.short_answer and answer.short_answer != row["gold"]:
                say("  wrong:", row["id"], row["kind"], row["gold"], row["question"], "->", str(answer)[:200])
    wrong = sum(count for (gold, said), count in table.items() if said and said != gold)
    say("yes/no: confident and wrong", share(wrong, len(asked)))
    say("  verdicts", share(sum(count for (_, said), count in table.items() if said), len(asked)), dict(certain))


def claims(sets: Path) -> None:
    """Claims: how many of each kind are called stated or supported, or contradicted."""
    checker = load_checker(load_settings({}))
    docs = {row["id"]: row for row in texts_of(sets / "yesno/docs.jsonl")}
    for name in ("yesno/claims", "yesno/claims_spare", "claims/verbatim", "claims/paraphrases"):
        table: dict[str, Counter[str]] = {}
        for row in texts_of(sets / f"{name}.jsonl"):
            text = docs[row["doc"]] if "content" not in row else row
            checked = checker.check_claim(row["claim"], [Snippet("x", text["title"], text["content"])])
            group = kind_of(row) if row["gold"] == "supports" else "opposed"
            table.setdefault(group, Counter())[f"{checked.verdict.value}/{checked.basis}"] += 1
            if row["gold"] != "supports" and checked.verdict is Verdict.SUPPORTED:
                say("  wrong:", name, row["id"], row["kind"], row["claim"])
        for group, counts in table.items():
            called = sum(count for verdict, count in counts.items() if verdict.startswith("supported"))
            say(f"{name} {group}: supported", share(called, sum(counts.values())), dict(counts))


def kind_of(row: Mapping[str, Any]) -> str:
    """Return which of three kinds a true claim is: verbatim, reworded or a paraphrase."""
    kind = row["kind"]
    return "verbatim" if kind.startswith("verbatim") else "paraphrase" if kind.startswith("para") else "reworded"


def replies(sets: Path) -> None:
    """Count replies whose one false sentence is not called supported, and their true sentences that are."""
    checker = load_checker(load_settings({}))
    flagged = total = held = true = 0
    for row in rows_of(sets / "claims/replies.jsonl"):
        snippets = [(one["n"], with_text(one)) for one in row["snippets"]]
        hits = [Hit(n, Snippet(str(n), one["title"], one["content"]), 1.0) for n, one in snippets]
        checked = checker.check_answer(row["reply"], hits, row["question"])
        false = row["false_sentence"].split(" [")[0].rstrip(". ")
        for sentence in checked.sentences:
            supported = sentence.verdict is Verdict.SUPPORTED
            if false[:60] in sentence.text:
                total, flagged = total + 1, flagged + (not supported or "wrong_snippet" in row.get("kind", ""))
                if supported:
                    say("  missed:", row["id"], row.get("kind"), sentence.text)
            else:
                true, held = true + 1, held + supported
    say("replies: false sentences flagged", share(flagged, total), "; true ones stated", share(held, true))


def certainty(sets: Path, indexes: Mapping[str, str]) -> None:
    """Questions that the index answers and cannot answer: the three answers."""
    for corpus, index in indexes.items():
        with Session(load_settings({"name": index})) as session:
            for name in ("answerable", "unanswerable", "specifics", "specifics_present"):
                rows = [row for row in rows_of(sets / f"withholding/{name}.jsonl") if row["corpus"] == corpus]
                counts: Counter[str] = Counter()
                right = 0
                for row in rows:
                    answer = session.ask(row["question"])
                    counts[str(answer.certainty)] += 1
                    right += any(citation.id.startswith(row.get("doc", "-")) for citation in answer.citations)
                    right += "answer" in row and squashed(row["answer"]) in squashed(answer.text) and 10000
                say(f"{index} {name}:", {kind: share(count, len(rows)) for kind, count in counts.items()},
                      "cites the document", right % 10000, "has the string", right // 10000)  # fmt: skip


def squashed(text: str) -> str:
    """Return letters and digits alone, in lower case."""
    return "".join(letter for letter in text.lower() if letter.isalnum())


def chosen_sentences(sets: Path, indexes: Mapping[str, str]) -> None:
    """Questions and follow-ups whose answering sentences are known: the first sentence shown, and any."""
    for name in ("one", "two", "three", "four", "five", "six", "followups", "turns"):
        asked = rows_of(sets / f"sentences/{name}.jsonl")
        counts: dict[str, Counter[str]] = {corpus: Counter() for corpus in indexes}
        for corpus, index in indexes.items():
            rows = [row for row in asked if row["corpus"] == corpus and row["answers"]]
            with Session(load_settings({"name": index})) as session:
                for row in rows:
                    texts = [squashed(each.text) for each in asked_of(session, row).sentences]
                    right, wrong = (sentences_of(row[key], corpus) for key in ("answers", "beside"))
                    found = [{part for text, part in right if text in shown or shown in text} for shown in texts]
                    parts: set[str] = set().union(*found)
                    counts[corpus]["questions"] += 1
                    counts[corpus]["first"] += bool(found and found[0])
                    counts[corpus]["any"] += "both" in parts or {"first", "second"} <= parts
                    counts[corpus]["beside"] += any(text in texts[0] or texts[0] in text for text, _ in wrong if texts)
        for corpus, table in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
            shares = {key: share(table[key], table["questions"]) for key in ("first", "any", "beside")}
            say(f"sentences {name} {corpus}:", shares)


def asked_of(session: Session, row: Mapping[str, Any]) -> AnswerResult:
    """Return the answer to a question, or to one that follows another."""
    if "first" not in row:
        return session.ask(row["question"], answer_anyway=True)
    conversation = Conversation(session)
    for question in (row["first"], row["question"]):
        turn = conversation.ask(question, conversation.standalone(question))
    return turn.answer


@cache
def corpus_records(corpus: str) -> dict[str, dict[str, Any]]:
    """Return the records of a corpus by their ids."""
    if corpus == "D":
        return {row["id"]: row for row in rows_of(Path(str(resources.files("biorag") / "corpus/demo/snippets.jsonl")))}
    files = ["pubmed/snippets"] if corpus == "A" else [f"qa/{name}_docs" for name in WHOLE]
    return {id: record for file in files for id, record in records_of(f"{file}.jsonl.gz").items()}


def sentences_of(marked: Sequence[Mapping[str, Any]], corpus: str) -> list[tuple[str, str]]:
    """Return the marked sentences, squashed, each with which part of the question it answers."""
    records = corpus_records(corpus)
    return [(squashed(records[one["doc"]]["content"][slice(*one["at"])]), one.get("part", "both")) for one in marked]


def exact(index: str, most: int, anyway: bool) -> None:
    """BioASQ's development questions: factoids and items of lists whose string is in the answer; the three answers."""
    rows = rows_of(DATA / "bioasq/answers.jsonl.gz")
    rng = random.Random(2)
    counts: Counter[str] = Counter()
    facts: list[float] = []
    items: list[float] = []
    times: list[float] = []
    polar_table: Counter[tuple[str, str]] = Counter()
    settings = load_settings({"name": index, **({"answer_anyway": True} if anyway else {})})
    with Session(settings) as session:
        for row in rng.sample(rows, min(most, len(rows))):
            started = time.process_time()
            answer = session.ask(row["question"])
            times.append(time.process_time() - started)
            counts[f"{answer.certainty}"] += 1
            if row["type"] == "yesno":
                polar_table[row["exact_answer"], answer.short_answer] += 1
            text = squashed(answer.text)
            things = row["exact_answer"] if row["type"] in ("factoid", "list") else []
            found = [holds(text, thing) for thing in things or []]
            if row["type"] == "factoid" and found:
                facts.append(float(any(found)))
            elif row["type"] == "list" and found:
                items.append(sum(found) / len(found))
    shown = f"factoid {np.mean(facts):.3f} of {len(facts)}, list {np.mean(items):.3f} of {len(items)}"
    say("bioasq", dict(counts), shown, f"median CPU {1000 * np.median(times):.0f} ms", dict(polar_table))


def holds(text: str, thing: str | Sequence[str]) -> bool:
    """Return whether a squashed text has a name of a thing."""
    names = [thing] if isinstance(thing, str) else thing
    return any(squashed(name) in text for name in names if squashed(name))


class Oracle:
    """A reader that knows the label of each claim."""

    name, trust, reads_whole, reads_questions, tells_answers, sha256 = "oracle", Trust(), False, True, False, "0"

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels

    def read(self, query: str, windows: Sequence[str]) -> Reading:
        """Return the label of the query for every window."""
        row = [float(label == self._labels[query]) for label in LABELS]
        return Reading(np.array([row] * len(windows), np.float32))


def oracle() -> None:
    """Gold labels in the reader's place: how many verdicts are right."""
    for name in ("scifact", "check_covid", "healthver_no_training", "citation_integrity"):
        rows = [row for row in read_claims(DATA / f"claims/dev/{name}.jsonl.gz") if row.label and row.sentences]
        right = 0
        for row in rows:
            checker = Checker(Oracle({row.claim: str(row.label)}), EvidenceWindows())
            checked = checker.check_claim(row.claim, [row.text] if row.text else [])
            expected = dict(zip(LABELS, (Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNSUPPORTED), strict=True))
            right += checked.verdict is expected[row.label]  # type: ignore[index]
        say(f"oracle {name}: right", share(right, len(rows)))


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="?", default=Path("scripts/question_sets"))
    parser.add_argument("--only", default="yesno,claims,replies,certainty,sentences,exact,oracle")
    parser.add_argument("--index-a", default="pubmed")
    parser.add_argument("--index-b", default="qa")
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--anyway", action="store_true")
    asked = parser.parse_args()
    parts: dict[str, Any] = {
        "yesno": lambda: polar(asked.sets),
        "claims": lambda: claims(asked.sets),
        "replies": lambda: replies(asked.sets),
        "certainty": lambda: certainty(asked.sets, {"A": asked.index_a, "B": asked.index_b}),
        "sentences": lambda: chosen_sentences(asked.sets, {"A": asked.index_a, "B": asked.index_b, "D": "demo"}),
        "exact": lambda: exact(asked.index_a, asked.most, asked.anyway),
        "oracle": oracle,
    }
    for name in asked.only.split(","):
        parts[name]()


if __name__ == "__main__":
    main()
