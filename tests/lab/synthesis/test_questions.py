"""Generated questions: which snippets are drawn, what of the texts is kept, and where a run goes on."""

import hashlib
import json

import pytest

from biorag.errors import MismatchError
from biorag.lab.synthesis.drafts import GeneratedFile
from biorag.lab.synthesis.questions import as_question, draft_form, draw, question_rows
from biorag.lab.synthesis.writers import Draws, PromptedWriter
from biorag.prompts.template import load_template
from biorag.training.rows import read_rows
from biorag.types import Generation, Snippet
from tests.fakes import ScriptedGenerator

ASPIRIN = Snippet("a", "Does aspirin lower fever?", "Aspirin lowers fever. It relieves pain by blocking an enzyme.")
HEPARIN = Snippet("h", "", "Heparin activates antithrombin, and acts at once, which is of use.")
IDENTITY = {"seed": 0}


class Writer:
    """Writes what it is told of each snippet; keeps the batches."""

    def __init__(self, texts, batch=1, fails_at=None):
        self.texts, self.batch, self.fails_at = texts, batch, fails_at
        self.batches = []

    def __call__(self, snippets):
        if len(self.batches) == self.fails_at:
            raise KeyboardInterrupt
        self.batches.append([snippet.id for snippet in snippets])
        # As a sampler's, the texts depend on what else is in the batch.
        together = "-".join(snippet.id for snippet in snippets) if self.batch > 1 else ""
        return [[Generation(text.format(together), False) for text in self.texts[s.id]] for s in snippets]


def question_file(path, identity):
    return GeneratedFile(path, identity, question_rows)


def generated(file, snippets, writer):
    counts = file.generate(snippets, {"snippets": len(snippets), "too_short": 0}, writer, lambda _: None)
    return counts["resumed"], {**counts, "resumed": 0}


# --- the draw ---


def test_snippets_are_drawn_by_the_hash_of_seed_and_id():
    snippets = [Snippet(f"s{n}", "", "x" * 60) for n in range(50)]
    key = {s.id: hashlib.blake2b(json.dumps([7, s.id]).encode(), digest_size=16).digest() for s in snippets}
    slow = sorted(snippets, key=lambda s: key[s.id])
    assert draw(snippets, 10, 7) == (slow[:10], 0)
    assert draw(snippets[::-1], 20, 7)[0] == slow[:20]
    assert draw(snippets, 10, 8)[0] != slow[:10]
    assert draw(snippets, None, 7)[0] == snippets
    assert draw(snippets, 99, 7)[0] == slow


def test_snippets_of_little_text_are_passed_over_and_counted():
    snippets = [Snippet("a", "", "x" * 39), Snippet("b", "", "x" * 40), Snippet("c", "t" * 20, "x" * 18)]
    assert draw(snippets, None, 0) == (snippets[1:], 1)
    assert draw(snippets, 5, 0)[1] == 1


# --- what is kept ---


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Does it?", "Does it?"),
        (" Does\n it ? {'}", "Does it ?"),
        ("Does it? Or not?", "Does it?"),
        ("what is it", "what is it"),
        ("", ""),
    ],
)
def test_a_text_ends_at_its_first_question_mark(text, question):
    assert as_question(text) == question


def test_rows_and_counts(tmp_path):
    texts = {
        "a": [
            ("How does aspirin lower fever? By what?", False),
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

    class Scripted(Writer):
        def __call__(self, snippets):
            return [[Generation(*pair) for pair in texts[snippet.id]] for snippet in snippets]

    file = question_file(tmp_path / "new" / "q.jsonl", IDENTITY)
    counts = generated(file, [ASPIRIN, HEPARIN], Scripted({}))[1]
    faults = {"empty": 1, "short": 1, "cut": 1, "copied": 2, "duplicates": 2}
    tokens = {"prompt_tokens": 0, "completion_tokens": 0, "resumed": 0}
    assert counts == {"snippets": 2, "too_short": 0, "generated": 11, "rows": 4, **faults, **tokens}
    lines = [json.loads(line) for line in file.path.read_text(encoding="utf-8").splitlines()]
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
    rows, cleaning = read_rows([file.path])
    assert (len(rows), cleaning["duplicates"], rows[1].kind, rows[1].positive_id) == (4, 0, "generated", "h")
    assert file.finished() == {**counts, "resumed": 2}
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["q.jsonl", "q.jsonl.manifest.json"]


# --- interruption ---

SEVEN = [Snippet(f"s{n}", "", f"Snippet number {n} says something about a subject.") for n in range(7)]
TEXTS = {s.id: [f"What does snippet {s.id} of {{}} say?", f"Why does {s.id} say it?"] for s in SEVEN}


@pytest.mark.parametrize(
    ("batch", "fails_at", "torn"), [(1, 0, b""), (1, 2, b'{"id": "s'), (3, 1, "line"), (3, 2, "line")]
)
def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path, batch, fails_at, torn):
    whole, parts = (question_file(tmp_path / name, IDENTITY) for name in ("whole.jsonl", "parts.jsonl"))
    generated(whole, SEVEN, Writer(TEXTS, batch))
    with pytest.raises(KeyboardInterrupt):
        generated(parts, SEVEN, Writer(TEXTS, batch, fails_at))
    assert parts.finished() is None
    assert not parts.path.exists()
    done = fails_at * batch
    if torn == "line":  # a batch of which one line came to the disk
        torn = json.dumps({"id": SEVEN[done].id, "drafts": [["torn", False, False, 1, 2]] * 2}).encode() + b"\n"
        done += done + batch > 6 or batch == 1  # then it is a whole one
    with parts.drafts.path.open("ab") as stream:
        stream.write(torn)
    writer = Writer({**TEXTS}, batch)
    resumed, counts = generated(parts, SEVEN, writer)
    assert resumed == done
    assert [id for ids in writer.batches for id in ids] == [s.id for s in SEVEN[done:]]
    if done == fails_at * batch:  # else it stays
        assert parts.path.read_bytes() == whole.path.read_bytes()
        assert counts["rows"] == 14


def test_drafts_and_files_of_other_settings_are_left_alone(tmp_path):
    file, other = (question_file(tmp_path / "q.jsonl", {"seed": seed}) for seed in (0, 1))
    with pytest.raises(KeyboardInterrupt):
        generated(file, SEVEN, Writer(TEXTS, fails_at=2))
    with pytest.raises(MismatchError, match=r"q\.jsonl\.drafts was made with other seed: choose another --out"):
        other.finished()
    generated(file, SEVEN, Writer(TEXTS))
    with pytest.raises(MismatchError, match="other seed"):
        other.finished()
    file.path.write_text("{}\n")
    with pytest.raises(MismatchError, match="was changed"):
        file.finished()


# --- the prompt ---

ASKED = draft_form(load_template("question", needed="documents"))


def test_each_question_is_asked_for_with_its_own_seed():
    generator = ScriptedGenerator(replies=[json.dumps({"question": f" Is it {n}? "}) for n in range(3)] + ["no JSON"])
    writer = PromptedWriter(generator, ASKED, Draws(2, 48, 0.5, seed=3))
    drafts = writer([ASPIRIN, HEPARIN])
    assert [[draft.text for draft in group] for group in drafts] == [["Is it 0?", "Is it 1?"], ["Is it 2?", ""]]
    assert "Aspirin lowers fever." in generator.prompts[1].user
    assert "Heparin activates" in generator.prompts[2].user
    assert len({prompt.system for prompt in generator.prompts}) == 1, "what prompts share comes first"
    seeds = [sampling.seed for sampling in generator.samplings]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)
    again = ScriptedGenerator()
    PromptedWriter(again, ASKED, Draws(1, 48, 0.5, seed=3))([HEPARIN])
    assert again.samplings[0] == (0.5, seeds[2]), "whatever stands around it"
