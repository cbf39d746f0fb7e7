"""Rows that a model writes: what it is shown, which of its texts are kept and counted, and where a run resumes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.errors import BadInputError, MismatchError, MissingError
from biorag.lab.synthesis import negatives, pairs, questions
from biorag.lab.synthesis.drafts import Draws, GenerationJob, PromptedWriter, passage_fault
from biorag.lab.synthesis.negatives import MinedPair
from biorag.lab.synthesis.pairs import LISTED, Scenario, list_scenarios, read_attributes, read_scenarios
from biorag.lab.synthesis.questions import draw
from biorag.prompts.template import Template, load_template
from biorag.settings.settings import Settings
from biorag.training.rows import normalised, read_rows
from biorag.types import Generation, Snippet, TrainingRow
from biorag.utils.progress import silent
from tests.fakes import ScriptedGenerator


class Writer:
    """Writes what it is told of each subject; keeps the batches."""

    def __init__(self, texts, batch=1, fails_at=None):
        self.texts, self.batch, self.fails_at = texts, batch, fails_at
        self.batches = []

    def __call__(self, subjects):
        if len(self.batches) == self.fails_at:
            raise KeyboardInterrupt
        self.batches.append([subject.id for subject in subjects])
        # As a sampler's, the texts depend on what else is in the batch.
        together = "-".join(subject.id for subject in subjects) if self.batch > 1 else ""
        return [
            [Generation(text.replace("{batch}", together), *others) for text, *others in self.texts[subject.id]]
            for subject in subjects
        ]


def generated(out, make_rows, subjects, writer, counts, seed=0):
    """Return the counts and rows of a run whose replies are the writer's."""
    job = GenerationJob(Settings.of(), out, Draws(1, 48, 0.5, seed), None, silent)
    tally = job.generate("Writing", {}, make_rows, lambda: (subjects, dict(counts), writer))
    return tally, [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


# --- questions ---

ASPIRIN = Snippet("a", "Does aspirin lower fever?", "Aspirin lowers fever. It relieves pain by blocking an enzyme.")
HEPARIN = Snippet("h", "", "Heparin activates antithrombin, and acts at once, which is of use.")
QUESTIONS = {
    "a": [
        ("How does\n aspirin lower fever? By what?", False),
        ("does aspirin lower FEVER", False),  # the title
        ("It relieves pain by blocking an enzyme?", False),  # a sentence
        ("how does Aspirin, lower fever", False),  # the first again
        ("??", False),
        ("Why aspirin?", False),
        ("Which enzyme does aspirin block, and", True),
    ],
    "h": [
        ("Which enzyme does heparin block?", True),
        ("How does aspirin lower fever?", False),
        ("what activates antithrombin", False),
        ("Is it of use? \ud800", False),
    ],
}


def test_snippets_are_drawn_by_the_hash_of_seed_and_id():
    snippets = [Snippet(f"s{n}", "", "x" * 60) for n in range(50)]
    key = {s.id: hashlib.blake2b(json.dumps([7, s.id]).encode(), digest_size=16).digest() for s in snippets}
    slow = sorted(snippets, key=lambda s: key[s.id])
    assert draw(snippets, 10, 7) == (slow[:10], 0)
    assert draw(snippets[::-1], 20, 7)[0] == slow[:20]
    assert draw(snippets, 10, 8)[0] != slow[:10]
    assert draw(snippets, None, 7)[0] == snippets
    lengths = [Snippet("a", "", "x" * 39), Snippet("b", "", "x" * 40), Snippet("c", "t" * 20, "x" * 18)]
    assert draw(lengths, None, 0) == (lengths[1:], 1)


def test_questions_and_their_counts(tmp_path):
    out, own = tmp_path / "new" / "q.jsonl", {"snippets": 2, "too_short": 0}
    counts, lines = generated(out, questions.question_rows, [ASPIRIN, HEPARIN], Writer(QUESTIONS), own)
    faults = {"empty": 1, "short": 1, "cut": 1, "copied": 2, "duplicates": 2}
    tokens = {"prompt_tokens": 0, "completion_tokens": 0, "resumed": 0}
    assert counts == {**own, "generated": 11, "rows": 4, **faults, **tokens}
    assert [line["query"] for line in lines] == [
        "How does aspirin lower fever?",
        "Which enzyme does heparin block?",
        "what activates antithrombin",
        "Is it of use?",
    ]
    assert lines[1] == {
        "query": "Which enzyme does heparin block?",
        "positive": HEPARIN.contents,
        "kind": "generated",
        "positive_id": "h",
    }
    assert sorted(path.name for path in out.parent.iterdir()) == ["q.jsonl", "q.jsonl.manifest.json"]


# --- interruption ---

SEVEN = [Snippet(f"s{n}", "", f"Snippet number {n} says something about a subject.") for n in range(7)]
TEXTS = {
    s.id: [(f"What does snippet {s.id} of {{batch}} say?", False), (f"Why does {s.id} say it?", False)] for s in SEVEN
}


@pytest.mark.parametrize(
    ("batch", "fails_at", "torn"), [(1, 0, b""), (1, 2, b'{"id": "s'), (3, 1, "line"), (3, 2, "line")]
)
def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path, batch, fails_at, torn):
    run = partial(generated, make_rows=questions.question_rows, subjects=SEVEN, counts={})
    run(tmp_path / "whole.jsonl", writer=Writer(TEXTS, batch))
    out, drafts = tmp_path / "resumed.jsonl", tmp_path / "resumed.jsonl.drafts"
    with pytest.raises(KeyboardInterrupt):
        run(out, writer=Writer(TEXTS, batch, fails_at))
    assert not out.exists()
    done = fails_at * batch
    if torn == "line":  # a batch of which one line came to the disk
        torn = json.dumps({"id": SEVEN[done].id, "drafts": [["torn", False, False, 1, 2]] * 2}).encode() + b"\n"
        done += done + batch > 6  # then it is a whole one
    with drafts.open("ab") as stream:
        stream.write(torn)
    sentence = r"resumed\.jsonl\.drafts was made with other seed \(0 → 1\): choose another --out"
    with pytest.raises(MismatchError, match=sentence):
        run(out, writer=Writer(TEXTS, batch), seed=1)
    writer = Writer(TEXTS, batch)
    assert run(out, writer=writer)[0]["resumed"] == done
    assert [id for ids in writer.batches for id in ids] == [s.id for s in SEVEN[done:]]
    if done == fails_at * batch:  # else the torn line stays
        assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not drafts.exists()
    with pytest.raises(MismatchError, match="other seed"):
        run(out, writer=writer, seed=1)
    out.write_text("{}\n")
    with pytest.raises(MismatchError, match="was changed"):
        run(out, writer=writer)


# --- negatives ---

POSITIVE = "Aspirin lowers fever since it blocks cyclooxygenase, which makes prostaglandins."
MINED = ("Paracetamol lowers fever too, by means that are not known.", "Heparin acts at once, and by infusion.")
MINED_PAIR = MinedPair(TrainingRow("How does aspirin lower fever?", POSITIVE, MINED, "bm25", "q1", "p1"))
BARE_PAIR = MinedPair(TrainingRow("What is heparin?", "Heparin is a glycosaminoglycan."))
GOOD = [
    "Aspirin is sold in every pharmacy, and fever is why most people buy it.",
    "In a survey of 310 patients, aspirin against fever was taken twice a day.",
]


def test_negatives_and_their_counts(tmp_path):
    texts = [
        (f" {GOOD[0]}\n", False, False, 100, 20),
        (GOOD[0].upper(), False, False, 100, 20),
        ("", False),
        (GOOD[1], True),
        ("Aspirin is sold.", False),
        (MINED[0], False),
        (POSITIVE.replace("since", "as since"), False),
        ("An example of the prompt, of eight words.", False),
        (GOOD[1], False, True, 7, 3),
    ]
    rows = partial(negatives.negative_rows, examples="Example: An example of the prompt, of eight words. Be brief.")
    writer = Writer({MINED_PAIR.id: texts, BARE_PAIR.id: [(GOOD[1], False)]})
    own = {"negatives": 0, "without": 0, "near_copies": 0}
    counts, lines = generated(tmp_path / "n.jsonl", rows, [MINED_PAIR, BARE_PAIR], writer, own)
    tally = {"empty": 1, "cut": 1, "short": 1, "copied": 2, "near_copies": 1, "duplicates": 2}
    tokens = {"prompt_tokens": 207, "completion_tokens": 43, "resumed": 0}
    assert counts == {"negatives": 2, "without": 1, "generated": 10, "rows": 1, **tally, **tokens}
    texts = {"query": MINED_PAIR.row.query, "positive": POSITIVE, "negative_1": GOOD[0], "negative_2": GOOD[1]}
    assert lines == [{**texts, "kind": "synthetic", "query_id": "q1", "positive_id": "p1"}]


def test_a_model_is_shown_the_positive_and_mined_negatives_in_turn():
    generator = ScriptedGenerator(replies=[json.dumps({"passage": f" text {n} "}) for n in range(6)])
    form = negatives.draft_form(load_template("negative"))
    PromptedWriter(generator, form, Draws(3, 48, 0.5, seed=3))([MINED_PAIR, BARE_PAIR])
    shown = [[text in prompt.user for text in (POSITIVE, *MINED)] for prompt in generator.prompts[:3]]
    assert shown == [[True, True, False], [True, False, True], [True, True, False]]
    assert '<document n="2">' not in generator.prompts[3].user
    assert generator.schemas[0]["properties"] == {"passage": {"type": "string"}}
    template = Template("Be brief.", "Query: {question} Original prompt: {instruction}\n{documents}")
    subject = MinedPair(replace(MINED_PAIR.row, instruction="Find {it}"))
    (prompt, *_) = negatives.draft_form(template).prompts(subject, 0)
    assert prompt.user.startswith(f"Query: {MINED_PAIR.row.query} Original prompt: Find {{it}}\n")


def test_long_passages_are_cut_to_the_window_together():
    generator = ScriptedGenerator(replies=["{}"], context_window=700)
    long = MinedPair(TrainingRow("What is it?", "one " * 3000, ("two " * 3000,)))
    PromptedWriter(generator, negatives.draft_form(load_template("negative")), Draws(1, 48, 0.5, 0))([long])
    (prompt,) = generator.prompts
    assert 300 < generator.count_tokens(prompt) <= 700 - 48 - 64
    assert abs(prompt.user.count("one ") - prompt.user.count("two ")) <= 1


LONG_POSITIVE = (
    "Aspirin lowers fever: it blocks cyclooxygenase, an enzyme that makes prostaglandins from arachidonic acid."
)
TWENTY = " ".join(f"word{n}" for n in range(20))


@pytest.mark.parametrize(
    ("passage", "capped", "fault"),
    [
        ("Fever is measured in the ear, and aspirin is sold in every pharmacy.", False, None),
        ("", True, "empty"),
        ("Fever is measured in the ear, and aspirin is sold in every phar", True, "cut"),
        ("Fever is measured in the ear today", False, "short"),
        ("aspirin LOWERS fever; it blocks cyclooxygenase - an enzyme", False, "copied"),
        (f"We say: {LONG_POSITIVE} It is known.", False, "copied"),
        ("Heparin acts at once, heparin is cheap, and all have it.", False, None),
        (" ".join(reversed(LONG_POSITIVE.split())), False, "near_copies"),
        (TWENTY.replace("word7", "x y"), False, None),
        (TWENTY.replace("word7", "word7 x"), False, "near_copies"),
    ],
)
def test_faults_of_passages(passage, capped, fault):
    assert passage_fault(passage, capped, [LONG_POSITIVE, "Heparin.", TWENTY]) == fault


# --- pairs ---

DRUG, GENE = Scenario("Given a drug, find what it does."), Scenario("Given a gene, find its disease.")
ANSWER = "Aspirin lowers fever since it blocks an enzyme called cyclooxygenase."
NEGATIVE = "Aspirin against fever is sold in every pharmacy of the country."
ATTRIBUTES = read_attributes(7)


def pair(query="How does aspirin act? And more", positive=ANSWER, negative=NEGATIVE):
    return json.dumps({"query": query, "positive": positive, "hard_negative": negative})


PAIRS = {
    DRUG.id: [
        (pair(), False, False, 50, 60),
        (pair("how does ASPIRIN act?", positive=f"{ANSWER} It does."), False),
        (pair("Why?"), False),
        (pair(DRUG.id), False),
        (pair("What of fever?", positive=NEGATIVE), False),
        (pair("What of fever?", negative=f"Fever, {ANSWER}"), False),
        (pair("What of fever?", positive="An enzyme."), False),
        (pair("What of fever?", negative=""), False),
        (pair("What of fever?", negative="Fever is felt on the forehead by all who ha"), True),
        (pair("What of it?", negative="The prompt has this passage of eight words."), False),
        (pair("aspirin example?"), False),
        ("no JSON", False),
        ('{"query": "What of fe', True),
        (json.dumps(["x"]), False),
    ],
    GENE.id: [
        (pair("What of fever?"), False),  # the first pair's positive
        (pair("cftr gene", "Mutations of CFTR cause cystic fibrosis, as was found."), False, True, 5, 6),
        (pair("What of fever?", "In 1989, as was found, mutations of CFTR.", "a b c d e f g h"), False),
    ],
}


def test_pairs_and_their_counts(tmp_path):
    examples = "Aspirin example: The prompt has this passage of eight words."
    rows = partial(pairs.pair_rows, examples=examples, attributes=None)
    own = {"scenarios": 2, "near_copies": 0, "prompt_tokens": 1000}
    counts, lines = generated(tmp_path / "p.jsonl", rows, [DRUG, GENE], Writer(PAIRS, batch=2), own)
    faults = {"empty": 3, "short": 2, "cut": 2, "copied": 5, "near_copies": 0, "duplicates": 2}
    tokens = {"prompt_tokens": 1055, "completion_tokens": 66, "resumed": 0}
    assert counts == {"scenarios": 2, "generated": 17, "rows": 3, **faults, **tokens}
    assert lines[0] == {
        "query": "How does aspirin act?",
        "positive": ANSWER,
        "negative_1": NEGATIVE,
        "kind": "synthetic",
        "instruction": DRUG.id,
    }
    assert [line["instruction"] for line in lines] == [DRUG.id, GENE.id, GENE.id]
    training, cleaning = read_rows([tmp_path / "p.jsonl"])
    assert (cleaning["rows"], {row.kind for row in training}, len(training[1].negatives)) == (3, {"synthetic"}, 1)


def test_attributes_are_bmretrievers_and_drawn_for_each_pair_alone(tmp_path):
    lengths = {name: len(values) for name, values in ATTRIBUTES.values.items()}
    assert lengths == {"query_type": 3, "query_length": 3, "clarity": 3, "num_words": 5, "difficulty": 3}
    counts = Counter(ATTRIBUTES.draw("task", number)["num_words"] for number in range(2000))
    assert set(counts) == set(ATTRIBUTES.values["num_words"])
    assert all(320 < count < 480 for count in counts.values())
    assert read_attributes(8).draw("task", 0) != ATTRIBUTES.draw("task", 0)
    template = load_template("pair_attributes", needed="scenario", known=("scenario", *ATTRIBUTES.values))
    generator = ScriptedGenerator(replies=[pair(), pair("What of it?", f"{NEGATIVE} So", f"{ANSWER} So")])
    writer = PromptedWriter(generator, pairs.draft_form(template, ATTRIBUTES), Draws(2, 60, 0.5, seed=7))
    rows = partial(pairs.pair_rows, examples="", attributes=ATTRIBUTES)
    _, lines = generated(tmp_path / "p.jsonl", rows, [DRUG], writer, {})
    assert [line["attributes"] for line in lines] == [ATTRIBUTES.draw(DRUG.id, number) for number in range(2)]
    for line, prompt in zip(lines, generator.prompts, strict=True):
        assert all(value in prompt.user for value in line["attributes"].values())


# --- scenarios ---


def lister(*replies):
    generator = ScriptedGenerator(replies=list(replies))
    template = load_template("scenario", needed="count", known=("count",))
    return generator, PromptedWriter(generator, pairs.scenario_form(template), Draws(1, 40, 0.7, seed=1))


def listing(*texts):
    return json.dumps({"scenarios": list(texts)})


def test_lists_are_asked_for_until_there_are_enough():
    first = [f"find paper number {n}" for n in range(7)]
    generator, writer = lister(
        listing(*first, "Find PAPER: number 3", "too short", "find case reports of patients"),
        "no JSON",
        listing("find the\nlast one", "find one too many", 3),
    )
    progress = []
    listed, _ = list_scenarios(8, writer, LISTED, "Example: find case reports of patients, or not.", progress.append)
    assert [scenario.id for scenario in listed] == [*first, "find the last one"]
    assert (sum(progress), len(generator.prompts)) == (8, 3)
    assert len({sampling.seed for sampling in generator.samplings}) == 3
    field = generator.schemas[0]["properties"]["scenarios"]
    assert field == {"type": "array", "items": {"type": "string"}, "minItems": LISTED, "maxItems": LISTED}


def test_a_model_that_repeats_itself_is_asked_three_times_as_often_and_no_more():
    generator, writer = lister(*[listing("find the same again")] * 9)
    assert [s.id for s in list_scenarios(12, writer, LISTED, "", lambda _: None)[0]] == ["find the same again"]
    assert len(generator.prompts) == 6
    _, writer = lister(*["no JSON"] * 3)
    with pytest.raises(BadInputError, match="listed no scenario: give --scenario-file"):
        list_scenarios(1, writer, LISTED, "", lambda _: None)


@given(st.lists(st.text(st.sampled_from("ab \t\r?é\u2028"), max_size=12)), st.integers(1, 5))
def test_a_file_gives_its_distinct_lines_of_three_words(tmp_path_factory, lines, limit):
    path = tmp_path_factory.mktemp("s") / "s.txt"
    with pytest.raises(MissingError, match=r"s\.txt is not there"):
        read_scenarios(path)
    path.write_bytes("\n".join(lines).encode())
    slow = {}
    for line in "\n".join(lines).replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if len(normalised(line).split()) >= 3:
            slow.setdefault(normalised(line), " ".join(line.split()))
    if slow:
        assert [scenario.id for scenario in read_scenarios(path, limit)] == list(slow.values())[:limit]
    else:
        with pytest.raises(BadInputError, match=r"s\.txt has no scenario"):
            read_scenarios(path, limit)
    path.write_bytes(b"find \xff this\n")
    with pytest.raises(BadInputError, match=r"s\.txt is not UTF-8 \(byte 5\)"):
        read_scenarios(path)
