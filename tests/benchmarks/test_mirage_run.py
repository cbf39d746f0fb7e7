"""A MIRAGE run: where its files lie, resuming, refusing, what is reported, comparing."""

from __future__ import annotations

import _thread
import json
import re
import signal
import threading
import time
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

import pytest

from biorag.answering.answerer import ANSWER_MARGIN, Answerer
from biorag.benchmarks.mirage import run
from biorag.benchmarks.mirage.records import Layout, read_questions, read_result
from biorag.benchmarks.mirage.run import MirageMethod, MirageRun, answer_all
from biorag.benchmarks.mirage.run import score_all as score_in
from biorag.benchmarks.mirage.scoring import compared
from biorag.errors import BadInputError, MissingError
from biorag.indexes.edge import EdgeIndex
from biorag.indexes.store import Store
from biorag.retrieval.retriever import Retriever
from biorag.types import Question
from tests.benchmarks.test_per_question import check_figures
from tests.fakes import HashEncoder, OverlapReranker, ScriptedGenerator

IDENTITY = {"answer": "generate", "settings": {"k": 3, "mode": "hybrid"}, "generator": {"name": "scripted"}}
OPTIONS = {"A": "aspirin", "B": "warfarin", "C": "heparin"}

BENCHMARK = {
    "medqa": [
        Question("q1", "Which drug blocks vitamin K recycling?", OPTIONS, "B", (1001,)),
        Question("q2", "Which drug activates antithrombin?", OPTIONS, "C", (1002,)),
    ],
    "medmcqa": [
        Question("q1", "Which drug lowers fever?", OPTIONS, "A", (1000,)),
        Question("q3", "Does metformin act in the liver?", {"A": "yes", "B": "no"}, "A", (1003,)),
    ],
}


@pytest.fixture(scope="module")
def small_index(tmp_path_factory, snippets):
    from biorag.settings.settings import Settings

    encoder = HashEncoder()
    store = Store(Settings.of(home=tmp_path_factory.mktemp("mirage"), name="test"))
    index = EdgeIndex(store.folder, store.new_manifest(encoder.identity, 10.0), writable=True)
    index.upsert(snippets, encoder.encode_snippets([snippet.contents for snippet in snippets]))
    yield index
    index.close()


@pytest.fixture
def answerer_of(small_index, settings):
    """An answerer over the twelve snippets with the given generator."""
    settings = settings.replace(k=3, k_init=6)

    def build(generator, closed_book=False, **changes):
        retriever = (
            None if closed_book else Retriever(small_index, HashEncoder(), [OverlapReranker()], settings.retrieval)
        )
        return Answerer(retriever, generator, settings.replace(**changes))

    return build


LAYOUT = Layout("scripted", 3, "test", "hybrid+encoder")


def plan_in(out: Path, method="generate", exclude_source=False, identity=IDENTITY, retriever="hybrid+encoder"):
    layout = replace(LAYOUT, retriever=retriever)
    return MirageRun(out, identity, MirageMethod(method, exclude_source, ()), layout)


def score_all(benchmark, out: Path):
    return score_in(benchmark, out, LAYOUT)


def files_under(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json"))}


def chosen(letter: str, reasoning: str = "text") -> str:
    return json.dumps({"step_by_step_thinking": reasoning, "relevant_context": "YES", "answer_choice": letter})


def nothing(_):
    pass


@pytest.mark.parametrize(
    ("name", "folder"),
    [("meta-llama/Llama-3-8B", "meta-llama-Llama-3-8B"), ("../../etc", "etc"), ("..", "model"), ("a" * 300, None)],
)
def test_a_models_name_is_one_folder(name, folder):
    path = Layout(name, 5, "pubmed", name).file(Path("runs"), "mmlu", "q")
    folder = folder or path.parts[3]
    assert len(folder) <= 200
    assert path == Path(f"runs/mmlu/rag_5/{folder}/pubmed/{folder}/test_q.json")


def test_every_question_gets_its_file_and_its_evidence(tmp_path, answerer_of):
    generator = ScriptedGenerator(replies=[chosen("B"), chosen("A"), chosen("A"), chosen("B")])
    seen = []
    work = answer_all(BENCHMARK, answerer_of(generator), plan_in(tmp_path), seen.append)
    folder = "rag_3/scripted/test/hybrid+encoder"
    assert sorted(files_under(tmp_path)) == [
        f"medmcqa/{folder}/dev_q1.json",
        f"medmcqa/{folder}/dev_q3.json",
        f"medqa/{folder}/test_q1.json",
        f"medqa/{folder}/test_q2.json",
        "run.json",
    ]
    assert json.loads((tmp_path / "medqa" / folder / "test_q1.json").read_text()) == [chosen("B")]
    assert json.loads((tmp_path / "medmcqa" / folder / "dev_q3.json").read_text()) == [chosen("B")]
    assert json.loads((tmp_path / "run.json").read_text())["identity"] == IDENTITY
    assert seen == [1, 1, 1, 1]
    assert (work["answered"], work["resumed"]) == (4, 0)
    assert work["concurrency"] == 1
    assert set(work["seconds"]) >= {"encode", "first_stage", "rerank", "generate", "total"}
    assert "Warfarin blocks vitamin K recycling" in generator.prompts[0].user
    assert "Which drug blocks vitamin K recycling?" in generator.prompts[0].user
    assert generator.prompts[0].user.count("<document n=") == 3
    enums = [schema["properties"]["answer_choice"]["enum"] for schema in generator.schemas]
    assert enums == [["A", "B", "C"]] * 3 + [["A", "B"]]


@dataclass
class Interrupted(ScriptedGenerator):
    """Replies by the question, and is interrupted at the call after `until`."""

    until: int = 10**9

    def generate(self, request, on_text=None):
        if len(self.prompts) == self.until:
            raise KeyboardInterrupt
        letters = request.schema["properties"]["answer_choice"]["enum"]
        length = len(request.prompt.user)
        self.replies = [chosen(letters[length % len(letters)], f"{length} characters — β")]
        return super().generate(request, on_text)


@pytest.mark.parametrize("until", [0, 2])
def test_an_interrupted_run_goes_on_and_gives_the_same_bytes(tmp_path, answerer_of, until):
    whole = Interrupted()
    answer_all(BENCHMARK, answerer_of(whole), plan_in(tmp_path / "whole"), nothing)

    first, second = Interrupted(until=until), Interrupted()
    with pytest.raises(KeyboardInterrupt):
        answer_all(BENCHMARK, answerer_of(first), plan_in(tmp_path / "parts"), nothing)
    held = files_under(tmp_path / "parts")
    assert len(held) == until + 1
    work = answer_all(BENCHMARK, answerer_of(second), plan_in(tmp_path / "parts"), nothing)

    assert (work["answered"], work["resumed"]) == (4 - until, until)
    assert first.prompts + second.prompts == whole.prompts, "no question is asked twice, none in another way"
    assert files_under(tmp_path / "parts") == files_under(tmp_path / "whole")
    assert held.items() <= files_under(tmp_path / "parts").items()


@pytest.mark.parametrize("text", ["[]", "[1]", '["cut of'], ids=lambda text: repr(text))
def test_a_damaged_result_file_is_named_and_not_overwritten(tmp_path, answerer_of, text):
    answer_all(BENCHMARK, answerer_of(ScriptedGenerator()), plan_in(tmp_path), nothing)
    path = LAYOUT.file(tmp_path, "medmcqa", "q1")
    path.write_text(text)
    with pytest.raises(BadInputError, match="is damaged: delete it") as caught:
        answer_all(BENCHMARK, answerer_of(ScriptedGenerator()), plan_in(tmp_path), nothing)
    assert str(path) in str(caught.value)
    assert path.read_text() == text
    with pytest.raises(BadInputError, match="is damaged"):
        score_all(BENCHMARK, tmp_path)


MANY = {"medqa": [Question(f"q{n}", f"Which drug has number {n}?", OPTIONS, "A") for n in range(20)]}


def by_the_prompt(body) -> str:
    """A reply that only depends on the prompt, later for some questions than for those asked after them."""
    user = body["messages"][1]["content"]
    number = int(re.search(r"number (\d+)", user)[1])
    time.sleep(0.03 if number % 3 == 0 else 0.005)
    return chosen("ABC"[number % 3], f"{len(user)} characters — β")


def plan_for(out, at_a_time):
    return replace(plan_in(out), at_a_time=at_a_time)


def test_several_questions_at_a_time_give_the_same_files(tmp_path, answerer_of, server):
    server.rule = by_the_prompt
    answerer, seen = answerer_of(server.generator()), []
    answer_all(MANY, answerer, plan_for(tmp_path / "one", 1), nothing)
    assert server.most == 1
    work = answer_all(MANY, answerer, plan_for(tmp_path / "many", 5), seen.append)
    assert 1 < server.most <= 5
    assert files_under(tmp_path / "many") == files_under(tmp_path / "one")
    assert seen == [1] * 20
    assert (work["answered"], work["resumed"], work["cached"], work["concurrency"]) == (20, 0, 0, 5)
    rows = read_questions(tmp_path / "many")
    assert [row["id"] for row in rows] == [question.id for question in MANY["medqa"]], "in the benchmark's order"
    times = [row["timings_ms"]["generate"] for row in rows]
    assert min(times) >= 5
    assert work["seconds"]["generate"] == pytest.approx(sum(times) / 1000, abs=0.01)


def test_an_interruption_keeps_what_was_being_answered(tmp_path, answerer_of, server):
    """Ctrl-C as the main thread gets it, while it waits for the server."""

    signal.signal(signal.SIGINT, signal.default_int_handler)  # the end of a command in this process ignores it
    interrupted = threading.Lock()

    def interrupting(body):
        if len(server.asked) >= 6 and interrupted.acquire(blocking=False):  # once: requests come side by side
            _thread.interrupt_main()
        return by_the_prompt(body)

    server.rule = interrupting
    answerer = answerer_of(server.generator())
    with pytest.raises(KeyboardInterrupt):
        answer_all(MANY, answerer, plan_for(tmp_path / "parts", 4), nothing)
    asked = len(server.asked)
    assert 6 <= asked < 20
    server.rule = by_the_prompt
    held = files_under(tmp_path / "parts")
    work = answer_all(MANY, answerer, plan_for(tmp_path / "parts", 4), nothing)
    answer_all(MANY, answerer, plan_for(tmp_path / "whole", 1), nothing)
    assert files_under(tmp_path / "parts") == files_under(tmp_path / "whole")
    assert held.items() <= files_under(tmp_path / "parts").items()
    assert work["resumed"] == len(held) - 1 in (asked - 1, asked)


def test_a_free_reply_that_is_not_the_json_asked_for_is_sampled_again_and_counted(tmp_path, answerer_of, server):
    """By question: malformed once, well at once, malformed always, and an option that is none."""
    said = {
        "recycling": ["It is B.", f"```json\n{chosen('A')}\n```", chosen("B")],
        "antithrombin": [chosen("C")],
        "fever": [f"```json\n{chosen('A')}\n```", "I think A", "It may be C"],
        "metformin": [chosen("C"), chosen("a.")],
    }

    def rule(body):
        asked = next(word for word in said if word in body["messages"][1]["content"].rpartition("## Question")[2])
        return said[asked].pop(0)

    server.rule = rule
    planned = plan_in(tmp_path)
    work = answer_all(BENCHMARK, answerer_of(server.generator(), json_mode="free"), planned, nothing)
    assert not any("response_format" in body for body in server.bodies)
    assert {body["max_tokens"] for body in server.bodies} == {256 + ANSWER_MARGIN}
    drawn = [(body["temperature"], body.get("seed")) for body in server.bodies]
    greedy, first, second = (0, None), (0.7, 1), (0.7, 2)
    assert drawn == [greedy, first, second, greedy, greedy, first, second, greedy, first]
    rows = {(row["task"], row["id"]): row for row in read_questions(tmp_path)}
    retries = {("medqa", "q1"): 2, ("medqa", "q2"): 0, ("medmcqa", "q1"): 2, ("medmcqa", "q3"): 1}
    assert {key: row["retries"] for key, row in rows.items()} == retries
    assert rows["medmcqa", "q1"]["reply"].startswith("```json"), "the greedy one, as none is well formed"
    assert json.loads(rows["medmcqa", "q3"]["reply"])["answer_choice"] == "A"
    for more in (0, 4):  # also when nothing is left to answer
        report = run.write_report(BENCHMARK, planned, {"seed": 0}, work, None)
        tasks = report["tasks"]
        assert {task: (score["retries"], score["malformed"]) for task, score in tasks.items()} == {
            "medqa": (2, 0),
            "medmcqa": (3, 1),
        }
        assert (work["resumed"], [score["accuracy"] for score in tasks.values()]) == (more, [1.0, 1.0])
        assert "retries" not in report["manifest"]
        work = answer_all(BENCHMARK, answerer_of(None), planned, nothing)


def test_rows_of_a_run_before_free_replies_have_no_retries(tmp_path, answerer_of):
    answer_all(BENCHMARK, answerer_of(ScriptedGenerator()), plan_in(tmp_path), nothing)
    path = tmp_path / "questions.jsonl"
    path.write_text(path.read_text().replace('"retries": 0, ', ""))
    assert not any("retries" in row for row in read_questions(tmp_path))
    work = answer_all(BENCHMARK, answerer_of(None), plan_in(tmp_path), nothing)
    assert work["retries"] == {"medqa": 0, "medmcqa": 0}


def test_a_question_too_long_for_the_window_is_answered_with_that_and_counted(tmp_path, answerer_of):
    generator = ScriptedGenerator(context_window=500)
    long = Question("long", "Which drug? " * 500, OPTIONS, "B")
    answer_all({"medqa": [long, BENCHMARK["medqa"][0]]}, answerer_of(generator), plan_in(tmp_path), nothing)
    assert "does not fit the generator's window of 500 tokens" in read_result(LAYOUT.file(tmp_path, "medqa", "long"))
    long_scoring, short_scoring = score_all({"medqa": [long, BENCHMARK["medqa"][0]]}, tmp_path)["medqa"]
    assert (long_scoring.strict, long_scoring.forced) == (False, True)
    assert short_scoring.strict


@pytest.mark.parametrize("exclude", [False, True])
def test_the_records_a_question_was_made_from_can_be_left_out(tmp_path, answerer_of, exclude):
    generator = ScriptedGenerator()
    answer_all(BENCHMARK, answerer_of(generator), plan_in(tmp_path, exclude_source=exclude), nothing)
    sources = ["Warfarin blocks vitamin K", "Heparin activates", "Aspirin lowers fever", "Metformin suppresses"]
    found = [source in prompt.user for source, prompt in zip(sources, generator.prompts, strict=True)]
    assert found == [not exclude] * 4
    assert all(prompt.user.count("<document n=") == 3 for prompt in generator.prompts), "others take their place"


def finished(out, answerer_of, letters, retriever="hybrid+encoder"):
    """Run with these letters as replies, and write the report."""
    answerer = answerer_of(ScriptedGenerator(replies=[chosen(letter) for letter in letters]), retriever is None)
    planned = plan_in(out, retriever=retriever)
    work = answer_all(BENCHMARK, answerer, planned, nothing)
    return run.write_report(BENCHMARK, planned, {"seed": 0}, work, None)


def test_two_runs_are_compared_question_by_question(tmp_path, answerer_of):
    right = tmp_path / "right"
    written = finished(right, answerer_of, "BCAA")
    assert json.loads((right / "report.json").read_text()) == json.loads(json.dumps(written))
    assert written["manifest"]["layout"] == asdict(LAYOUT)
    assert check_figures(right, written) == {"average", "tasks.medqa.accuracy", "tasks.medmcqa.accuracy"}
    finished(tmp_path / "wrong", answerer_of, "AACB")
    ours = score_all(BENCHMARK, right)
    comparison = asdict(compared(ours, run.score_finished(BENCHMARK, tmp_path / "wrong"), seed=0))
    p_value = comparison.pop("p_value")
    assert list(comparison.values()) == [4, 1.0, 1.0, 1.0, 4, 0, 0] and p_value == pytest.approx(2 / 16, abs=0.02)
    assert astuple(compared(ours, ours, seed=0))[1:5] == (0.0, 0.0, 0.0, 1.0)
    finished(tmp_path / "closed", answerer_of, "BAAA", retriever=None)
    assert "medqa/cot/scripted/test_q1.json" in files_under(tmp_path / "closed")
    closed = run.score_finished(BENCHMARK, tmp_path / "closed")
    assert compared(ours, closed, seed=0).difference == pytest.approx(0.25)


@pytest.mark.parametrize("text", [None, "[]", '{"manifest": {"layout": {"unknown": 1}}}'])
def test_a_folder_without_a_finished_run_cannot_be_compared_with(tmp_path, text):
    (tmp_path / "other").mkdir()
    if text is not None:
        (tmp_path / "other" / "report.json").write_text(text)
    with pytest.raises((BadInputError, MissingError), match=r"report") as caught:
        run.score_finished(BENCHMARK, tmp_path / "other")
    assert caught.value.exit_code == (4 if text is None else 3)
