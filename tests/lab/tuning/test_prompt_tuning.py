"""Instructions evolved: scores against a slow reference, budgets, and a run that goes on as if it had not stopped."""

from __future__ import annotations

import json
import math

import pytest

from biorag.corpus.datasets import Dataset
from biorag.errors import ServiceError
from biorag.lab.synthesis.writers import Draws, PromptedWriter
from biorag.lab.tuning.evolution import (
    BUDGETS,
    InstructionAdapter,
    Missed,
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
from biorag.types import Generation, Question, ScoredDoc, Snippet
from tests.fakes import HashEncoder, ScriptedGenerator

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
        self.encoder = PromptedEncoder()
        self.index = DenseIndex(snippets, self.encoder)
        self.questions = [
            Question(f"q{n}", f"Tell us of {' '.join(s.content.split()[-5:])}") for n, s in enumerate(snippets)
        ]
        following = [*snippets[1:], snippets[0]]
        qrels = {
            q.id: {s.id: 2, other.id: 1} if n % 2 else {s.id: 1, other.id: 0}
            for n, (q, s, other) in enumerate(zip(self.questions, snippets, following, strict=True))
        }
        self.dataset = Dataset("asked", self.questions, qrels)
        settings = Settings.of(home=folder, mode="dense", rerank=False)
        retriever = Retriever(self.index, self.encoder, None, settings.retrieval)
        self.search = Searcher(retriever, self.index, self.encoder, PromptForm(), self.dataset)
        self.folder = folder / "gepa"
        self.generator = ScriptedGenerator()

    def evolve(self, replies, calls=CALLS):
        self.generator = ScriptedGenerator([json.dumps({"instruction": text}) for text in replies])
        return self.evolve_with(self.generator, calls)

    def evolve_with(self, generator, calls=CALLS):
        template = load_template("reflection", None, "examples", ("instruction", "examples"))
        writer = PromptedWriter(generator, draft_form(template), Draws(1, 64, 1.0, 0))
        self.adapter = InstructionAdapter(self.search, lambda r: writer([r])[0][0], lambda _: None)
        questions = PromptQuestions(self.dataset, self.questions[:6], self.questions[6:], [])
        return evolve("Find passages.", questions, self.adapter, SearchEffort(calls, MINIBATCH, 0), self.folder)

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
    evolution = bench.evolve(REPLIES)
    validation = bench.questions[6:]
    for candidate in evolution.candidates:
        slow = [bench.slow_ndcg(candidate.instruction, question) for question in validation]
        assert candidate.score == pytest.approx(sum(slow) / len(slow), abs=1e-6)
    first, best = evolution.candidates[0], evolution.best
    assert (first.instruction, first.parent, first.calls) == ("Find passages.", None, 0)
    assert "precise" in best.instruction
    assert best.score == max(each.score for each in evolution.candidates) > first.score


@pytest.mark.parametrize("calls", [1, 30])
def test_the_budget_is_kept_to_a_round(bench, calls):
    evolution = bench.evolve(REPLIES, calls)
    validation = 6
    assert max(validation, calls) <= evolution.calls < max(validation, calls) + 2 * MINIBATCH + validation


def test_a_finished_run_asks_for_nothing_and_a_larger_budget_continues_it(bench):
    first = bench.evolve(REPLIES)
    assert bench.adapter.replies == len(bench.generator.prompts) > 0
    assert bench.evolve([]) == first
    assert bench.generator.prompts == []
    more = bench.evolve(["Be precise precise precise precise."] * 20, 2 * CALLS)
    assert list(more.candidates[: len(first.candidates)]) == list(first.candidates)
    assert bench.adapter.replies == len(bench.generator.prompts) > 0


def test_a_stopped_run_resumes_with_what_it_had(bench):
    class Failing(ScriptedGenerator):
        def generate(self, *args, **options):
            if len(self.prompts) == 2:
                raise ServiceError("the server is gone")
            return super().generate(*args, **options)

    replies = [json.dumps({"instruction": text}) for text in REPLIES]
    with pytest.raises(ServiceError, match="is gone"):
        bench.evolve_with(Failing(list(replies)))
    resumed = bench.evolve_with(ScriptedGenerator(replies[2:]))
    assert "Be precise." in [candidate.instruction for candidate in resumed.candidates], "the second reply"
    assert resumed.calls >= CALLS


def test_feedback_in_words():
    found, question = [Snippet(str(n), "", "text") for n in range(3)], Question("q", "Why?")
    missed = [Missed(found[0], 37), Missed(found[1], None)]
    assert feedback_of(Trial(question, 0.5, found, [1, 3], missed)) == (
        "nDCG@10 is 0.50 of 1: of the documents found first, 1 and 3 answer the question; "
        "one that does stands at rank 37, one that does was not found at all."
    )
    assert feedback_of(Trial(question, 0.0, found, [], [])) == (
        "nDCG@10 is 0.00 of 1: none of the documents found first answers the question."
    )
    assert feedback_of(Trial(question, 0.0, [], [], [])) == "nDCG@10 is 0.00 of 1: nothing was found."


def test_an_instruction_is_one_line_and_a_cut_one_ends_with_a_sentence():
    assert instruction_of(Generation(" Find\n  it. Now", False)) == "Find it. Now"
    assert instruction_of(Generation("Find it. Now and", True)) == "Find it."
    assert instruction_of(Generation("Find it and", True)) == ""


def test_budgets_are_those_of_dspy_and_of_table_8_of_synthesize_train_merge():
    """V + 5n + 35N + FV by hand: n is 6, 12, 18; N 10, 18, 27; F 3, 4, 6."""
    assert [budget.metric_calls(100) for budget in BUDGETS.values()] == [780, 1190, 1735]
    assert [budget.questions / 2 for budget in BUDGETS.values()] == [100, 200, 300]
    assert [budget.minibatch for budget in BUDGETS.values()] == [3, 5, 8]


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
