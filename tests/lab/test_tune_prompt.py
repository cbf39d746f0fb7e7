"""`biorag tune prompt`: scores against a slow reference, a search that resumes, and the encoder that is written."""

from __future__ import annotations

import json
import math
import shutil
from functools import partial
from pathlib import Path

import pytest

from biorag.corpus.datasets import Dataset
from biorag.errors import ServiceError
from biorag.lab.synthesis.drafts import Draws, PromptedWriter
from biorag.lab.tuning.prompt import (
    InstructionAdapter,
    PromptQuestions,
    SearchEffort,
    Searcher,
    Trial,
    draft_form,
    evolve,
    feedback_of,
    instruction_of,
)
from biorag.models.prompted import write_prompts
from biorag.prompts.template import load_template
from biorag.retrieval.retriever import Retriever
from biorag.settings.settings import Settings
from biorag.training.instructions import PromptForm, parted
from biorag.training.rows import is_held_out
from biorag.types import Generation, Question, ScoredDoc, Snippet
from tests import cli
from tests.cli import done, failed, succeeded
from tests.conftest import write_judged, write_medrag
from tests.fakes import HashEncoder, ScriptedGenerator
from tests.lab.test_tune import QUESTIONS, write_questions
from tests.loopback import Script

CALLS, MINIBATCH = 60, 3
REPLIES = ["Be vague.", "Be precise.", "Be precise precise.", "", "Be vague and vague.", "Be precise precise precise."]


class PromptedEncoder(HashEncoder):
    """Reads three more words of a question for each time that the prompt says precise."""

    query_prompt = ""

    def encode_queries(self, texts):
        words = 1 + 3 * self.query_prompt.count("precise")
        return super().encode_queries([" ".join(text.split()[:words]) for text in texts])


class DenseIndex:
    """Every snippet scored for every probe."""

    def __init__(self, snippets, encoder) -> None:
        self.snippets = {snippet.id: snippet for snippet in snippets}
        self.vectors = dict(zip(self.snippets, encoder.encode_snippets([s.contents for s in snippets]), strict=True))

    def search(self, probes):
        return [self._ranked(probe.query)[: probe.limit] for probe in probes]

    def _ranked(self, query):
        scored = [ScoredDoc(id, float(query @ vector)) for id, vector in self.vectors.items()]
        return sorted(scored, key=lambda doc: (-doc.score, doc.id))

    def fetch(self, ids):
        return {id: self.snippets[id] for id in ids if id in self.snippets}


class Bench:
    """Twelve questions, each about one snippet or two, and what they are searched with."""

    def __init__(self, snippets, folder) -> None:
        encoder = PromptedEncoder()
        self.index, self.folder = DenseIndex(snippets, encoder), folder / "gepa"
        self.questions = [
            Question(f"q{n}", f"Tell us of {' '.join(s.content.split()[-5:])}") for n, s in enumerate(snippets)
        ]
        following = [*snippets[1:], snippets[0]]
        qrels = {
            q.id: {s.id: 2, other.id: 1} if n % 2 else {s.id: 1, other.id: 0}
            for n, (q, s, other) in enumerate(zip(self.questions, snippets, following, strict=True))
        }
        self.dataset = Dataset("asked", self.questions, qrels)
        retrieval = Settings.of(home=folder, mode="dense", rerank=False).retrieval
        self.search = Searcher(
            Retriever(self.index, encoder, None, retrieval), self.index, encoder, PromptForm(), self.dataset
        )

    def evolve(self, replies, calls=CALLS, kind=ScriptedGenerator):
        self.generator = kind([json.dumps({"instruction": text}) for text in replies])
        template = load_template("reflection", None, "examples", ("instruction", "examples"))
        writer = PromptedWriter(self.generator, draft_form(template), Draws(1, 64, 1.0, 0))
        self.adapter = InstructionAdapter(self.search, writer, lambda _: None)
        questions = PromptQuestions(self.dataset, self.questions[:6], self.questions[6:], [])
        return evolve("Find passages.", questions, self.adapter, SearchEffort(12, MINIBATCH, calls), 0, self.folder)

    def slow_ndcg(self, instruction, question) -> float:
        """nDCG@10 with the grade as gain, by loops."""
        words = question.text.split()[: 1 + 3 * instruction.count("precise")]
        query = HashEncoder().encode_queries([" ".join(words)])[0]
        judged = self.dataset.qrels[question.id]
        gains = [judged.get(scored.id, 0) for scored in self.index._ranked(query)]

        def dcg(values):
            return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(values[:10], 1))

        return dcg(gains) / dcg(sorted(judged.values(), reverse=True))


@pytest.fixture
def bench(snippets, tmp_path):
    return Bench(snippets, tmp_path)


def test_the_winner_is_the_better_one_with_the_scores_of_a_slow_reference(bench):
    candidates, _ = bench.evolve(REPLIES)
    for candidate in candidates:
        slow = [bench.slow_ndcg(candidate.instruction, question) for question in bench.questions[6:]]
        assert candidate.score == pytest.approx(sum(slow) / len(slow), abs=1e-6)
    first, best = candidates[0], max(candidates, key=lambda candidate: candidate.score)
    assert (first.instruction, first.parent, first.calls) == ("Find passages.", None, 0)
    assert "precise" in best.instruction
    assert best.score > first.score


def test_a_finished_run_asks_for_nothing_and_a_larger_budget_continues_it(bench):
    first = bench.evolve(REPLIES)
    assert bench.adapter.replies == len(bench.generator.prompts) > 0
    assert bench.evolve([]) == first
    assert bench.generator.prompts == []
    more, _ = bench.evolve(["Be precise precise precise precise."] * 20, 2 * CALLS)
    assert more[: len(first[0])] == first[0]
    assert bench.adapter.replies == len(bench.generator.prompts) > 0


def test_a_stopped_run_resumes_with_what_it_had(bench):
    class Failing(ScriptedGenerator):
        def generate(self, *args, **options):
            if len(self.prompts) == 2:
                raise ServiceError("the server is gone")
            return super().generate(*args, **options)

    with pytest.raises(ServiceError, match="is gone"):
        bench.evolve(REPLIES, kind=Failing)
    candidates, calls = bench.evolve(REPLIES[2:])
    assert "Be precise." in [candidate.instruction for candidate in candidates], "the second reply"
    assert calls >= CALLS


def test_feedback_in_words():
    first, question = [Snippet(str(n), "", "text") for n in range(3)], Question("q", "Why?")
    assert feedback_of(Trial(question, 0.5, first, [1, 3], [(first[0], 37), (first[1], None)])) == (
        "nDCG@10 is 0.50 of 1: of the documents found first, 1 and 3 answer the question; "
        "one that does stands at rank 37, one that does was not found at all."
    )
    assert feedback_of(Trial(question, 0.0, [], [], [])) == "nDCG@10 is 0.00 of 1: nothing was found."


def test_an_instruction_is_one_line_and_a_cut_one_ends_with_a_sentence():
    assert instruction_of(Generation(" Find\n  it. Now", False)) == "Find it. Now"
    assert instruction_of(Generation("Find it. Now and", True)) == "Find it."
    assert instruction_of(Generation("Find it and", True)) == ""


@pytest.mark.parametrize(
    ("prompt", "instruction", "form"),
    [
        ("", "", PromptForm("", "\nQuery: ")),
        ("Find it\nQuery: ", "Find it", PromptForm("", "\nQuery: ")),
        ("Instruct: Find it\nQuery:", "Find it", PromptForm("Instruct: ", "\nQuery:")),
        ("query: ", "query:", PromptForm("", " ")),
        ("Instruct: ", "Instruct: ", PromptForm("", "")),
    ],
)
def test_the_instruction_in_a_prompt(prompt, instruction, form):
    assert parted(prompt) == (instruction, form)


def test_a_query_prompt_is_written_and_the_rest_stays(tmp_path):
    file = tmp_path / "config_sentence_transformers.json"
    write_prompts(tmp_path, {"query": "a "})
    assert json.loads(file.read_bytes()) == {"prompts": {"query": "a "}}
    file.write_text('{"similarity_fn_name": "dot", "prompts": {"document": "p ", "query": "q "}}')
    write_prompts(tmp_path, {"query": "a "})
    assert json.loads(file.read_bytes()) == {"similarity_fn_name": "dot", "prompts": {"document": "p ", "query": "a "}}
    file.write_text('{"default_prompt_name": "query", "prompts": {"query": "q "}}')
    write_prompts(tmp_path, {"query": "a "})
    assert json.loads(file.read_bytes())["prompts"] == {"query": "a ", "document": "q "}, "passages change"


# --- the command ---

INSTRUCTION = "Find what treats it"
LONG = "fever " * 200  # leaves no room for the question: any shorter prompt is better


@pytest.fixture(scope="module")
def made(tmp_path_factory, snippets, tiny_encoder) -> Path:
    """A folder with a data set, an encoder of a bad prompt, and a home whose index `default` is of it."""
    place = tmp_path_factory.mktemp("tune-prompt")
    shutil.copytree(tiny_encoder, place / "encoder")
    write_prompts(place / "encoder", {"query": LONG})
    corpus = write_medrag(place / "corpus.jsonl", snippets)
    succeeded(cli.invoke("index", corpus, "--encoder", place / "encoder", home=place / "home"))
    write_questions(place / "prompt")
    return place


@pytest.fixture
def server():
    script = Script()
    script.rule = lambda body: json.dumps({"instruction": f"{INSTRUCTION} {body['seed'] % 7}."})
    yield script
    script.close()


@pytest.fixture
def invoke(made, tmp_path, monkeypatch):
    """Run a command in an empty folder with the module's home."""
    monkeypatch.chdir(tmp_path)
    return partial(cli.invoke, home=made / "home")


@pytest.fixture
def words(made, server):
    data = str(made / "prompt")
    model = ("--llm", server.url, "--llm-model", "m", "--no-cache")
    return ("tune", "prompt", data, *model, "--validation", "0.5", "--calls", "30", "--out", "out")


def query_prompt(folder: Path) -> str:
    return json.loads((folder / "config_sentence_transformers.json").read_bytes()).get("prompts", {}).get("query", "")


def hits(invoke, *more):
    words = ("search", "What calms the airways?", "--mode", "dense", "--no-rerank", *more, "--json")
    return [(hit["id"], hit["score"]) for hit in done(invoke(*words))["hits"]]


def test_an_encoder_with_the_winner_searches_the_index(invoke, made, words, server, tmp_path):
    assert done(invoke(*words[:-1], "kept", "--no-write", "--json"))["written"] is None
    assert not (tmp_path / "kept" / "encoder").exists()
    server.asked.clear()
    report = done(invoke(*words, "--json"))
    left_out = sum(is_held_out(text, 0.5, 0) for text, _ in QUESTIONS.values())
    assert sum(report["questions"].values()) == len(QUESTIONS)
    assert report["questions"]["held_out"] == left_out
    assert report["development"]["after"] > report["development"]["before"]
    assert report["winner"] in [candidate["instruction"] for candidate in report["candidates"]]
    held_out = report["held_out"]
    assert held_out["difference"] == pytest.approx(held_out["after"] - held_out["before"])
    assert held_out["low"] <= held_out["difference"] <= held_out["high"]
    assert report["lm_calls"] == len(server.bodies)
    assert report["prompt"] == {"before": LONG, "after": f"{report['winner']} "}
    assert report["written"] == str(Path("out") / "encoder")
    assert query_prompt(made / "encoder") == LONG
    assert query_prompt(tmp_path / "out" / "encoder") == report["prompt"]["after"]
    assert json.loads((tmp_path / "out" / "report.json").read_bytes()) == report
    assert hits(invoke, "--encoder", tmp_path / "out" / "encoder") != hits(invoke)

    again = done(invoke(*words, "--json"))
    changing = {"seconds": 0, "lm_calls": 0}
    assert {**again, **changing} == {**report, **changing}
    assert again["lm_calls"] == 0
    failed(invoke(*words, "--max-tokens", 64, "--json"), 5, "out was made with other max_tokens (", " → 64)", "--out")
    (state,) = [path.name for path in (tmp_path / "out" / "gepa").glob("*.bin")]
    assert state == "gepa_state.bin", "the run resumes from GEPA's own state"


def test_nothing_is_written_where_no_candidate_is_better(invoke, made, words, server):
    server.rule = lambda _: json.dumps({"instruction": ""})
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert "held out (" in result.stdout
    shown = " ".join(result.stderr.split())
    assert "about 30 metric calls, one searched question each, and at most 5 replies of m" in shown
    assert "no candidate is better than the encoder's own prompt" in shown
    assert query_prompt(made / "encoder") == LONG


def test_a_winner_that_is_worse_on_held_out_questions_is_not_written(invoke, made, words, tmp_path):
    """The long prompt finds the same for every question; here that is right for those held out."""
    always = hits(invoke)[0][0]
    texts = {id: text for id, (text, _) in QUESTIONS.items()}
    judged = [(id, always if is_held_out(texts[id], 0.5, 0) else snippet, 1) for id, (_, snippet) in QUESTIONS.items()]
    write_judged(tmp_path / "turned", texts, judged)
    turned = [tmp_path / "turned" if word == str(made / "prompt") else word for word in words]
    assert "the winner is worse than the encoder's own prompt" in " ".join(invoke(*turned).stderr.split())
    report = done(invoke(*turned, "--json"))
    assert report["development"]["after"] > report["development"]["before"]
    assert report["held_out"]["difference"] < 0
    assert report["written"] is None
    assert query_prompt(made / "encoder") == LONG


@pytest.mark.parametrize(
    ("more", "code", "parts"),
    [
        (("--budget", "huge"), 2, ("--budget", "'huge'", "heavy, light, medium")),
        (("--llm", "none"), 2, ("generator",)),
        (("--validation", "0"), 3, ("no question", "held out", "--validation 0")),
    ],
)
def test_what_is_refused(invoke, words, more, code, parts):
    failed(invoke(*words, *more), code, *parts)
