"""Make the rows by which the packaged reader learnt which sentences answer, for `biorag train reader`.

    for STAGE in 3 4 5; do python -m scripts.answer_rows DATA $STAGE rows$STAGE; done

docs/readers.md has the stages, LOG.md the commands that train on the rows. Each row has a question, a sentence as the
extractor shows it to a reader, and whether it answers. In stages 3 and 4 the others stand beside the answer or in its
place, those first that have most of the question's words:

- BioASQ 1 to 6: sentences with an exact answer, or with most of the ideal answer's words that the question lacks.
- MedQuAD: an answer on a disease, beside the answers to what else is asked of it; most questions in other words.
- Evidence Inference: sentences that people marked, for questions of other forms too.
- COVID-QA, QED, XQuAD, SelQA: the sentence with the answer.
- Abstracts with sections (stage 4): conclusions and results for the title, beside aims, background and methods.
- Claims (stage 4): the sentences that decide one, of SciFact, Check-COVID and Citation-Integrity.

Stage 5 is of questions and claims that were written for it (`question_sets/*/learnt.jsonl.gz`), beside 6,000 rows of
stage 4. A question comes with sentences of a record, of which other ones answer the record's other questions. Claims
and yes/no questions come with the record; half of the latter are also questions that the deciding sentences answer.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import bm25s
import Stemmer

from biorag.answering.extract import candidates, window_of
from biorag.answering.guards.words import rarity, stems
from biorag.answering.sections import labelled_sentences
from biorag.answering.sentence_matching import EvidenceSentence
from biorag.corpus.claims import read_claims
from biorag.training.reading import LONGEST
from biorag.training.rows import read_records
from biorag.types import Hit, Snippet
from scripts.measure_answers import squashed

ROWS = 2500  # of a file, as many as --limit 2500 takes of one
LEARNT, DECIDED = (Path(__file__).parent / f"question_sets/{name}/learnt.jsonl.gz" for name in ("sentences", "yesno"))
VOICES = LEARNT.with_name("voices.jsonl.gz")  # 2,400 of these questions in the words of users, for the second reader
WHOLE = ("ncbi_disease", "evidence_inference", "med1250", "bioasq_1_6")  # whose records it asks about
OF_QUESTION = 6  # sentences of a record, at most
EARLIER = 6000  # rows of stage 4 in stage 5
NEAR = 0.8  # likeness to a held-out question from which one is left out
CLAIMS = 600  # of a file, of which windows are made
Row = tuple[str, str, int]
Drawn = TypeVar("Drawn", str, int)
ASKED = {  # the questions of MedQuAD in other words, by their type
    "treatment": "How is {} treated?|What helps against {}?|What is the treatment of {}?|Which drugs are used for {}?"
    "|How do you manage {}?|therapy of {}|How should {} be treated?|What can be done about {}?|management of {}",
    "symptoms": "What are the symptoms of {}?|How does {} present?|What are the signs of {}?"
    "|How do I know that I have {}?|clinical features of {}|How does {} show?",
    "causes": "What causes {}?|Why does {} happen?|What leads to {}?|What is {} due to?|cause of {}"
    "|Where does {} come from?",
    "information": "What is {}?|Define {}.|What does {} mean?|What kind of disease is {}?|definition of {}",
    "exams and tests": "How is {} diagnosed?|Which test confirms {}?|How do doctors find {}?"
    "|What tests are done for {}?|diagnosis of {}",
    "outlook": "What is the prognosis of {}?|How long do people live with {}?|Does {} get better?"
    "|What is the outcome of {}?|Is {} dangerous?",
    "prevention": "How can {} be prevented?|What protects against {}?|How do I avoid {}?|prevention of {}",
    "frequency": "How common is {}?|How many people have {}?|What is the prevalence of {}?|How often does {} occur?"
    "|incidence of {}",
    "inheritance": "How is {} inherited?|Does {} run in families?|Is {} passed on to children?",
    "genetic changes": "Which gene is mutated in {}?|What genes are involved in {}?|Which mutations cause {}?",
    "susceptibility": "Who gets {}?|What are the risk factors for {}?|Who is at risk for {}?"
    "|What raises the risk of {}?",
    "complications": "What are the complications of {}?|What can {} lead to?",
}
HEREDITARY = {"causes", "genetic changes", "inheritance", "susceptibility"}  # types that one sentence may answer
FREQUENT = {"information", "inheritance", "genetic changes", "frequency"}  # of which half is drawn
COMPARED = (  # the questions of Evidence Inference in other words
    "Is {i} better than {c} for {o}?",
    "What does {i} do to {o}?",
    "How does {i} compare with {c} in {o}?",
    "Does {i} change {o}?",
    "{i} versus {c}: {o}",
    "What is the effect of {i} on {o}?",
    "Does {i} work better than {c}?",
)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [dict(record) for _, record in read_records(path)]


def strings(answer: Any) -> list[str]:
    """Return the names in an exact answer."""
    return [answer] if isinstance(answer, str) else [text for one in answer or () for text in strings(one)]


def weight(words: Iterable[str]) -> float:
    """Return the sum of the rarities of stems."""
    return sum(map(rarity, words))


def covered(question: str, text: str) -> float:
    """Return the share of a question's words that a text has, by rarity."""
    asked = set(stems(question))
    return weight(asked & set(stems(text))) / max(1e-6, weight(asked))


def agreement(ideal: str, question: str, text: str) -> float:
    """Return the F1, by rarity, of a text's words and an ideal answer's, both without the question's."""
    asked = set(stems(question))
    wanted, said = set(stems(ideal)) - asked, set(stems(text)) - asked
    common = weight(wanted & said)
    return 2 * common / max(1e-6, weight(wanted) + weight(said))


def near(record: dict[str, Any]) -> bool:
    """Tell whether a question nearly equals one that is held out."""
    return bool(record.get("near_heldout")) and record["near_heldout"][0] >= NEAR


def hit_of(n: int, doc: Mapping[str, Any]) -> Hit:
    """Return a record as the hit of a rank."""
    return Hit(n, Snippet(doc["id"], doc["title"] or "", doc["content"]), 1.0)


def nearest(questions: Sequence[str], docs: Mapping[str, Mapping[str, Any]], most: int) -> list[list[str]]:
    """Return the ids of the records that BM25 finds for each question."""
    ids, stemmer, bm25 = list(docs), Stemmer.Stemmer("english"), bm25s.BM25()
    texts = [f"{docs[id]['title']} {docs[id]['content']}" for id in ids]
    tokens = [bm25s.tokenize(each, stopwords="en", stemmer=stemmer, show_progress=False) for each in (texts, questions)]
    bm25.index(tokens[0], show_progress=False)
    numbers, _ = bm25.retrieve(tokens[1], k=most, show_progress=False)
    return [[ids[number] for number in found] for found in numbers]


def found_for(data: Path, rng: random.Random) -> Iterator[tuple[dict[str, Any], list[Hit], set[str]]]:
    """Yield BioASQ's questions with ten records that BM25 finds and up to four other gold ones, and the gold ids."""
    docs = {doc["id"]: doc for doc in read(data / "qa/bioasq_1_6_docs.jsonl.gz")}
    questions = [one for one in read(data / "qa/bioasq_1_6.jsonl.gz") if not near(one)]
    for one, found in zip(questions, nearest([one["question"] for one in questions], docs, 10), strict=True):
        gold = {f"pubmed_{passage['pmid']}" for passage in one["passages"] if passage.get("pmid")}
        others = sorted(gold & docs.keys() - set(found))
        rng.shuffle(others)
        yield one, [hit_of(n, docs[id]) for n, id in enumerate([*found, *others[:4]], 1)], gold


class Rows:
    """Rows of questions and sentences."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: dict[Row, None] = {}

    def put(self, question: str, texts: Iterable[str], answers: bool, title: str = "", titled: float = 1.0) -> None:
        """Add sentences, each after its title with probability `titled`."""
        for text in texts:
            named = title and title.strip() != text.strip() and self.rng.random() < titled
            sentence = f"{title.rstrip('.')}. {text}" if named else text
            if len(question) + len(sentence) <= LONGEST:
                self.rows.setdefault((question, sentence, int(answers)))

    def tempting(self, question: str, texts: Sequence[str], most: int) -> list[str]:
        """Return texts, those first that have most of a question's words, with some chance."""
        return sorted(texts, key=lambda text: -covered(question, text) + 0.3 * self.rng.random())[:most]

    def drawn(self, texts: Sequence[Drawn], most: int) -> list[Drawn]:
        """Return texts, or their numbers, drawn at random."""
        return self.rng.sample(texts, min(most, len(texts)))

    def bioasq(self, data: Path, positives: int, beside: int, elsewhere: int) -> None:
        """Add BioASQ's questions with the sentences that BM25 finds for them, and of their gold passages."""
        for one, hits, gold in found_for(data, self.rng):
            parts = self.judged(one, hits, gold)
            if parts[0]:
                self.put(one["question"], self.drawn(parts[0], positives), True)
                self.put(one["question"], self.tempting(one["question"], parts[1], beside), False)
                self.put(one["question"], self.tempting(one["question"], parts[2], elsewhere), False)

    @staticmethod
    def judged(one: dict[str, Any], hits: Sequence[Hit], gold: set[str]) -> tuple[list[str], list[str], list[str]]:
        """Return the sentences that answer, those beside them in gold records, and those of other records."""
        parts: tuple[list[str], list[str], list[str]] = ([], [], [])
        (answers, beside, elsewhere), question = parts, one["question"]
        exact = strings(one["exact_answer"]) if one["type"] in ("factoid", "list") else []
        names = [name for name in map(squashed, exact) if len(name) > 1 and name not in squashed(question)]
        ideals = strings(one["ideal_answer"])[:3]
        rows = candidates(hits)
        said = [max((agreement(ideal, question, row.text) for ideal in ideals), default=0.0) for row in rows]
        of_gold = [hits[row.n - 1].snippet.id in gold for row in rows]
        scores = [
            (alike + 0.15 * covered(question, row.text)) * is_gold
            for row, alike, is_gold in zip(rows, said, of_gold, strict=True)
        ]
        best = max(scores, default=0.0)
        for index, row in enumerate(rows):
            has = any(name in squashed(row.text) for name in names)
            right = has if names else scores[index] >= 0.75 * best and said[index] >= 0.12
            wrong = not has if names else scores[index] < 0.45 * best
            if of_gold[index] and (right or wrong):
                (answers if right else beside).append(window_of(rows, index))
            elif not of_gold[index] and (not has if names else said[index] < 0.12):
                elsewhere.append(window_of(rows, index))
        return parts

    def medquad(self, data: Path) -> None:
        """Add MedQuAD's questions, each with the answers to it, and those to other questions on the disease."""
        by_disease: dict[str, dict[str, list[tuple[str, list[str]]]]] = defaultdict(lambda: defaultdict(list))
        for one in read(data / "qa/medquad.jsonl.gz"):
            texts = [] if one.get("boilerplate") else list(_plain(one["passages"][0]["text"]))
            if texts and (title := one["passages"][0]["title"].strip()):
                by_disease[title][one["qtype"]].append((one["question"], texts))
        openings = [(title, texts[0]) for title, types in by_disease.items() for ((_, texts), *_) in types.values()]
        for title, types in by_disease.items():
            for kind, asked in types.items():
                alike = HEREDITARY if kind in HEREDITARY else {kind}
                others = [text for type in types.keys() - alike for _, texts in types[type] for text in texts[:5]]
                for question, texts in asked:
                    if kind in FREQUENT and self.rng.random() < 0.55:
                        continue
                    if kind in ASKED and self.rng.random() < 0.7:
                        question = self.rng.choice(ASKED[kind].split("|")).format(title)
                    self.put(question, self.drawn(texts[:3], 2), True, title, 0.5)
                    wrong = [text for text in others if text not in texts]
                    self.put(question, self.tempting(question, wrong, 3), False, title, 0.5)
                    other, text = self.rng.choice(openings)
                    if other != title and self.rng.random() < 0.4:
                        self.put(question, [text], False, other)

    def evidence_inference(self, data: Path) -> None:
        """Add questions on trials, most in other words, with the sentences that people marked."""
        asked = {one["id"]: one for one in read(data / "qa/evidence_inference_qa.jsonl.gz")}
        for id, right, wrong in _marked(data / "qa/assel_evidence_inference.jsonl.gz", "qid"):
            if one := asked.get(id):
                question = one["question"]
                if self.rng.random() < 0.8:
                    form = self.rng.choice(COMPARED)
                    question = form.format(i=one["intervention"], c=one["comparator"], o=one["outcome"])
                title = one["passages"][0].get("title") or ""
                self.put(question, right[:2], True, title, 0.6)
                self.put(question, self.tempting(question, wrong, 3), False, title, 0.6)

    def marked(self, path: Path, most: int) -> None:
        """Add questions with sentences that are marked."""
        rows = list(_marked(path, "question"))
        for question, right, wrong in self.rng.sample(rows, min(most, len(rows))):
            self.put(question, right[:1], True)
            self.put(question, self.tempting(question, wrong, 3), False)

    def abstracts(self, path: Path) -> None:
        """Add titles with the findings of their abstracts, beside aims, background and methods."""
        for one in read(path):
            rows, title = labelled_sentences(one["content"] or ""), one["title"].strip("[]. ")
            parts = {
                kind: [row.text for row in rows if row.section in kind.split() and len(row.text) > 40]
                for kind in ("conclusions", "results", "objective background methods")
            }
            found, seen, planned = parts.values()
            if planned and (found or seen) and len(title) > 15:
                question = title if title.endswith("?") else self._of_title(title)
                self.put(question, [*found[:2], *self.tempting(question, seen, 1)], True)
                self.put(question, self.tempting(question, planned, 3), False)

    def _of_title(self, title: str) -> str:
        low = title[0].lower() + title[1:] if title[1:2].islower() else title
        if re.match(r"(the )?effects? of ", low):
            return self.rng.choice([title, f"What is the {low.removeprefix('the ')}?"])
        return self.rng.choice([title, f"What is known about {low}?", f"What was found on {low}?"])

    def claims(self, path: Path) -> None:
        """Add claims with the sentences that decide them."""
        for claim in read_claims(path):
            if claim.rationale and claim.sentences:
                text = claim.claim.strip().rstrip(".")
                low = text[0].lower() + text[1:] if text[1:2].islower() else text
                question = self.rng.choice([f"{text}.", f"Is it true that {low}?", f"{text}?"])
                right = [claim.sentences[number] for number in sorted(claim.rationale)]
                wrong = [text for number, text in enumerate(claim.sentences) if number not in claim.rationale]
                self.put(question, self.drawn(right, 2), True)
                self.put(question, self.tempting(question, wrong, 3), False)

    def learnt(self, records: Mapping[str, dict[str, Any]]) -> None:
        """Add the questions that were written for it, each with the sentences of its record that were judged."""
        for one in read(LEARNT):
            rows, right, wrong = told_of(one["answers"], one["doubtful"], records[one["doc"]])
            if wrong:
                drawn = right if len(right) + len(wrong) <= OF_QUESTION else right[: OF_QUESTION // 2]
                self.put(one["question"], [window_of(rows, n) for n in drawn], True)
                beside = self.drawn(wrong, OF_QUESTION - len(drawn))
                self.put(one["question"], [window_of(rows, n) for n in beside], False)

    def decided(self, records: Mapping[str, dict[str, Any]]) -> None:
        """Add half of the yes/no questions that were written for it, with sentences that decide them and others."""
        for one in read(DECIDED):
            if one["form"] == "question" and self.rng.random() < 0.5:
                rows, right, wrong = told_of(one["deciding"], one["doubtful"], records[one["doc"]])
                windows = [window_of(rows, n) for n in self.drawn(wrong, OF_QUESTION // 2)]
                self.put(one["text"], [window_of(rows, n) for n in right[:2]], True)
                self.put(one["text"], windows, False)


def claims_of(records: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the claims and yes/no questions that were written for it, as rows of claims, without what is doubtful."""
    for number, one in enumerate(read(DECIDED)):
        doc = records[one["doc"]]
        rows, right, wrong = told_of(one["deciding"], one["doubtful"], doc)
        kept = sorted((*right, *wrong))
        yield {
            "id": f"{one['doc']}-{number}",
            "claim": one["text"],
            "title": doc["title"] or "",
            "sentences": [rows[n].text for n in kept],
            "label": one["label"],
            "rationale": [place for place, n in enumerate(kept) if n in right],
        }


def told_of(
    right: Sequence[Sequence[int]], doubtful: Sequence[Sequence[int]], doc: dict[str, Any]
) -> tuple[list[EvidenceSentence], list[int], list[int]]:
    """Return the sentences of a record, the numbers of those at some stretches of it, and of those at neither."""
    rows = candidates([hit_of(1, doc)])
    told, may = ({doc["content"][start:end] for start, end in at} for at in (right, doubtful))
    numbers = [n for n, row in enumerate(rows) if row.text in told]
    return rows, numbers, [n for n, row in enumerate(rows) if row.text not in told | may]


def _plain(text: str) -> Iterator[str]:
    """Yield the sentences of an answer of MedQuAD that are no lists, headings or questions."""
    text = re.sub(r"\s+", " ", re.sub(r"Key Points.*?\n\s*\n\s*\n", " ", text[:4000], flags=re.DOTALL))
    rows = candidates([Hit(1, Snippet("", "", text), 1.0)])
    for index, row in enumerate(rows):
        if 30 <= len(row.text) <= 320 and row.text.count(" - ") < 3:
            yield window_of(rows, index)


def _marked(path: Path, key: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the values of a key with the sentences that answer, and those beside them."""
    by_key: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for row in read(path):
        if row["label"] or len(row["sentence"]) > 25:
            by_key[row[key]][0 if row["label"] else 1].append(row["sentence"])
    yield from ((name, right, wrong) for name, (right, wrong) in sorted(by_key.items()) if right)


def made(data: Path, stage: int) -> list[Row]:
    """Return the rows of a stage, in an order drawn at random, those of a question of stage 5 together."""
    if stage == 5:
        return _of_written(data)
    rng = random.Random(stage)
    asked, rest, more = Rows(rng), Rows(rng), Rows(rng)
    more.medquad(data)
    for name, most in (("covidqa", 1500), ("qed", 700), ("xquad_en", 700), ("selqa", 1500)):
        rest.marked(data / f"qa/assel_{name}.jsonl.gz", most)
    asked.evidence_inference(data)
    if stage == 3:
        asked.bioasq(data, 4, 3, 4)
        kept = [*more.rows, *rest.rows]
    else:
        asked.evidence_inference(data)
        asked.bioasq(data, 5, 6, 5)
        for name in ("evidence_inference", "med1250", "ncbi_disease"):
            asked.abstracts(data / f"qa/{name}_docs.jsonl.gz")
        for name in ("scifact", "check_covid", "citation_integrity"):
            asked.claims(data / f"claims/train/{name}.jsonl.gz")
        kept = [*rng.sample(list(more.rows), 7000), *rng.sample(list(rest.rows), 5000)]
    rows = [*asked.rows, *kept]
    rng.shuffle(rows)
    return rows


def _of_written(data: Path) -> list[Row]:
    rng = random.Random(5)
    written = Rows(rng)
    written.learnt(asked_about(data))
    written.decided(asked_about(data))
    by_question: dict[str, list[Row]] = defaultdict(list)
    for row in written.rows:
        by_question[row[0]].append(row)
    groups = [*by_question.values(), *([row] for row in made(data, 4)[:EARLIER])]
    rng.shuffle(groups)
    return [row for group in groups for row in group]


@cache
def asked_about(data: Path) -> dict[str, dict[str, Any]]:
    """Return the records that questions and claims were written on."""
    return {doc["id"]: doc for name in WHOLE for doc in read(data / f"qa/{name}_docs.jsonl.gz")}


def write(folder: Path, name: str, rows: Sequence[dict[str, Any]], most: int) -> None:
    """Write rows into files of so many."""
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(rows), most):
        with gzip.open(folder / f"{name}_{start // most:02}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows[start : start + most])


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("stage", type=int, choices=(3, 4, 5))
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    keys = ("question", "sentence", "label")
    rows = [dict(zip(keys, row, strict=True)) for row in made(asked.data, asked.stage)]
    write(asked.out, "answers", rows, ROWS)
    if asked.stage == 5:
        claims = list(claims_of(asked_about(asked.data)))
        random.Random(5).shuffle(claims)
        write(asked.out, "claims", claims, CLAIMS)


if __name__ == "__main__":
    main()
