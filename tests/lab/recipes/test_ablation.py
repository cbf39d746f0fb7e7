"""The ablation: the values that a sweep file may have, its steps and their keys, running them, the report."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from itertools import product
from pathlib import Path

import pytest

from biorag.corpus.sources import demo_file
from biorag.errors import BadInputError, MismatchError, MissingError, UsageError
from biorag.lab.recipes import steps
from biorag.lab.recipes.plan import RecipePlan
from biorag.lab.recipes.steps import Step, StepRunner
from biorag.lab.recipes.sweep import SCALE, Sweep, cells, load_sweep, pipeline_of, recipe_of
from biorag.utils.progress import silent
from tests import cli
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import write_judged

PATHS = {"train": ["train"], "corpus": ["corpus.jsonl"], "evaluate": ["test"]}


def toml(values: dict) -> str:
    """Return values as TOML; the nested ones are tables."""
    plain = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items() if not isinstance(value, dict))
    tables = [(key, value) for key, value in values.items() if isinstance(value, dict)]
    return plain + "".join(f"[{key}]\n{toml(value)}" for key, value in tables)


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A working directory with the files of a sweep."""
    monkeypatch.chdir(tmp_path)
    names = ("train/queries.jsonl", "test/queries.jsonl", "corpus.jsonl", "benchmark.json", "base/model.safetensors")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def sweep(place):
    """Read the sweep of these values beside the paths that it needs."""

    def sweep(**values):
        path = place / "sweep.toml"
        path.write_text(toml({**PATHS, **values}))
        return load_sweep(path)

    return sweep


def test_a_value_that_is_named_twice_is_one(sweep):
    twice = sweep(negatives=["in-batch", "in-batch"], k_init=[20, 20], base=["minilm", "minilm"])
    assert (twice.negatives, twice.k_init, twice.base) == (("in-batch",), (20,), ("minilm",))


@pytest.mark.parametrize(
    ("values", "error", "parts"),
    [
        ({"settings": {"llm_api_key": "s3cret"}}, BadInputError, ["has a key or a login", ": set BIORAG_LLM_API_KEY"]),
        ({"settings": {"llm": "https://u:s3cret@host/v1"}}, BadInputError, [": set BIORAG_LLM_LOGIN"]),
        ({"colour": "red"}, BadInputError, ["colour", "not permitted", "'red'"]),
        ({"negatives": ["hard"]}, BadInputError, ["negatives.0", "in-batch, bm25, bm25-hits or random", "'hard'"]),
        ({"settings": {"train_epochs": -1}}, BadInputError, ["settings"]),
        (
            {"hard_negatives": 32, "per_row": 4},
            BadInputError,
            ["per_row mines 4 negatives, and hard_negatives uses 32"],
        ),
        ({"guard": ["absent"]}, MissingError, ["names absent, which is not there"]),
    ],
)
def test_what_a_sweep_may_not_say(sweep, place, values, error, parts):
    with pytest.raises(error) as caught:
        sweep(**values)
    message = str(caught.value)
    assert message.startswith(str(place / "sweep.toml")) and "s3cret" not in message
    assert [part for part in parts if part not in message] == [], message
    with pytest.raises(MissingError, match=r"absent\.toml is not there: `biorag ablate .* --init DATA` writes one"):
        load_sweep(place / "absent.toml")


def test_cells_are_the_papers_grid_and_a_dimension_of_several_values_is_named(sweep):
    expected = {"BM25", "base encoder"}
    for pair in map(" ".join, product(("in-batch", "bm25", "random"), ("cosine", "dot"))):
        expected.add(pair)
        reranked = product(("untrained", "independent", "aligned"), (20, 100))
        expected |= {f"{pair}, {reranker}, k_init {depth}" for reranker, depth in reranked}
    names = [cell.name for cell in cells(sweep())]
    assert set(names) == expected and len(names) == 44
    own = sweep(reranker=["none", "own-kind", "aligned"], aligned=["in-batch"], k_init=[20], similarity=["dot"])
    kinds = (("in-batch", "aligned"), ("bm25", "own-kind"), ("random", "own-kind"))
    assert [cell.name for cell in cells(own)[2:]] == [
        name for kind, reranker in kinds for name in (f"{kind} dot", f"{kind} dot, {reranker}, k_init 20")
    ]
    several = sweep(**ONE, base=["base", "starter"], pretraining=["none", "corpus.jsonl"])
    assert [cell.name for cell in cells(several)][:4] == [
        *("BM25", "base, base encoder", "starter, base encoder", "base, none, in-batch cosine"),
    ]


SMALL = {"negatives": ["in-batch", "bm25"], "similarity": ["cosine"], "k_init": [5]}
ONE = {**SMALL, "negatives": ["in-batch"], "reranker": ["none"]}


def steps_of(sweep) -> dict[str, Step]:
    """Return all steps of a sweep by their names, which are distinct."""
    listed = RecipePlan(recipe_of(sweep), SCALE).steps
    assert len({step.name for step in listed}) == len(listed)
    return {step.name: step for step in listed}


def words(step: Step) -> str:
    """Return a step's arguments with the names of the steps that they point at."""
    text = " ".join(step.arguments)
    for need in step.needs:
        text = text.replace(need.place, f"<{need.name}>").replace(need.title_place, f"<{need.name}>")
    return text


def test_the_commands_of_a_sweep(sweep):
    asked = sweep(**SMALL, base="base", guard=["benchmark.json"], max_positives=2, per_row=3)
    guard = "--guard benchmark.json --drop-contaminated"
    measured = "--held-out --per-question {out}/per-question.jsonl --run-file {out}/run.trec"
    mining = f"{guard} --per-row 3 --out {{out}}/rows.jsonl"
    trained = "--out {out} --max-positives 2"
    expected = {
        "base-index": "index corpus.jsonl --encoder base --name {name}",
        "retrieval-bm25 test": f"bench retrieval test --name <base-index> --mode bm25 --no-rerank {measured}",
        "retrieval-base test": f"bench retrieval test --name <base-index> --no-rerank {measured}",
        "retriever in-batch, cosine": f"train retriever train --name <base-index> {guard} --base base --negatives "
        f"in-batch --similarity cosine {trained}",
        "retriever bm25, cosine": "train retriever <mined bm25>/rows.jsonl --base base --negatives bm25 "
        f"--similarity cosine {trained}",
        "mined bm25": f"mine train --negatives bm25 --name <base-index> {mining}",
        "independent": f"train reranker <mined bm25>/rows.jsonl --base base {trained}",
    }
    for pair in ("in-batch, cosine", "bm25, cosine"):
        index = f"<index {pair}>"
        searched = f"bench retrieval test --name {index} --k-init 5 --reranker"
        expected |= {
            f"index {pair}": f"index corpus.jsonl --encoder <retriever {pair}> --similarity cosine --name {{name}}",
            f"retrieval-none {pair}, test": f"bench retrieval test --name {index} --no-rerank {measured}",
            f"retrieval-untrained {pair}, 5, test": f"{searched} encoder {measured}",
            f"retrieval-independent {pair}, 5, test": f"{searched} <independent> {measured}",
            f"mistakes {pair}": f"mine train --negatives retriever --name {index} {mining}",
            f"aligned {pair}": f"train reranker <mistakes {pair}>/rows.jsonl --base base {trained}",
            f"retrieval-aligned {pair}, 5, test": f"{searched} <aligned {pair}> {measured}",
        }
    assert {name: words(step) for name, step in steps_of(asked).items()} == expected


def test_the_commands_of_further_dimensions(sweep):
    """Own kinds of negatives, pretraining, and answers from several numbers of snippets by several generators."""
    asked = sweep(reranker=["none", "own-kind", "aligned"], aligned=["in-batch"], hard_negatives=32, k_init=[20])
    commands = {name: words(step) for name, step in steps_of(asked).items()}
    for kind in ("bm25", "random"):
        assert "--per-row 32" in commands[f"mined {kind}"]
        assert "--hard-negatives 32" in commands[f"retriever {kind}, dot"]
        own = f"<mined {kind}>/rows.jsonl --hard-negatives 32 --base starter --out {{out}} --negatives {kind}"
        assert own in commands[f"own-kind {kind}"]
    assert "--hard-negatives 32" in commands["aligned in-batch, cosine"]
    assert not any("--hard-negatives" in command for name, command in commands.items() if "retriever in-b" in name)

    asked = sweep(**ONE, base=["base", "starter"], pretraining=["none", "corpus.jsonl"])
    commands = {name: words(step) for name, step in steps_of(asked).items()}
    first = "train retriever corpus.jsonl --pairs title-abstract --base starter --similarity cosine --out {out}"
    assert commands["pretrained starter, corpus.jsonl, cosine"] == first
    after = "retriever starter, corpus.jsonl, in-batch, cosine"
    assert "--base <pretrained starter, corpus.jsonl, cosine>" in commands[after]
    assert "--base starter " in commands["retriever starter, none, in-batch, cosine"]

    answers = {"mirage": "benchmark.json", "mirage_tasks": ["bioasq"], "mirage_limit": 9, "k": [5, 10]}
    asked = sweep(**ONE, **answers, generator=["evidence", "base"])
    commands = {name: words(step) for name, step in steps_of(asked).items()}
    start = (
        "bench mirage --benchmark benchmark.json --task bioasq --limit 9 --name <index in-batch, cosine> --no-rerank"
    )
    for name, command in (("10, evidence", "10 --answer evidence"), ("5, base", "5 --answer generate --llm base")):
        assert commands[f"answers-none in-batch, cosine, {name}"] == f"{start} --k {command} --out {{out}}"
    (_, table) = recipe_of(asked).tables
    assert [column.title for column in table.columns] == ["average", "bioasq"]
    assert [row.title for row in table.rows[-2:]] == ["in-batch cosine, k 10, evidence", "in-batch cosine, k 10, base"]


def test_contrasts_are_of_one_dimension_over_all_others(sweep):
    asked = sweep(
        **{**SMALL, "k_init": [5, 50], "similarity": ["cosine", "dot"]}, aligned=["in-batch"], mirage="benchmark.json"
    )
    found = {one.text: (one.higher, one.lower) for one in recipe_of(asked).findings if "base encoder" not in one.text}
    assert list(found) == [
        f"{where}: {text}"
        for where in ("test", "MIRAGE")
        for text in (
            *(f"aligned above {other} (in-batch)" for other in ("none", "untrained", "independent")),
            *("in-batch above bm25", "cosine above dot", "k_init 50 above 5"),
        )
    ]
    higher, lower = found["test: aligned above none (in-batch)"]
    assert (higher.step, higher.at) == ("retrieval-aligned", {"dataset": "test", "negatives": "in-batch"})
    assert (lower.step, lower.at) == ("retrieval-none", {"dataset": "test", "negatives": "in-batch"})
    higher, lower = found["MIRAGE: k_init 50 above 5"]
    assert (higher.step, higher.at, lower.at) == ("answers-aligned", {"k_init": 50}, {"k_init": 5})


def test_a_sweep_of_a_folder_of_data(tmp_path):
    write_judged(tmp_path / "data" / "asked", {"q1": "one?"}, [("q1", "s1", 1)])
    (tmp_path / "data" / "mirage").mkdir()
    (tmp_path / "data" / "mirage" / "benchmark.json").write_text("{}")
    failed(ablate(tmp_path / "sweep.toml", "--init", tmp_path / "data"), 4, "has no corpus")
    (tmp_path / "data" / "snippets.jsonl").write_text("{}")
    succeeded(ablate(tmp_path / "sweep.toml", "--init", tmp_path / "data"))
    written = load_sweep(tmp_path / "sweep.toml")
    assert (written.train, written.corpus) == ((tmp_path / "data" / "asked",), (tmp_path / "data" / "snippets.jsonl",))
    assert written.guard == (written.mirage,) == (tmp_path / "data" / "mirage" / "benchmark.json",)
    failed(ablate(tmp_path / "sweep.toml", "--init", tmp_path / "data"), 2, "is there already")
    failed(ablate(tmp_path / "sweep.toml"), 2, "give --out")


def test_a_pipeline_is_a_sweep_of_one_cell_that_ends_in_an_index_with_tokens(place):
    asked = {"train": ["train"], "corpus": ["demo"], "negatives": ["bm25"], "similarity": ["dot"], "k_init": 20}
    pipeline = pipeline_of(Sweep.of({**asked, "reranker": ["none", "aligned"]}), "mine")
    listed = {step.name: words(step) for step in RecipePlan(pipeline, SCALE).steps}
    names = ("base-index", "mined bm25", "retriever bm25, dot", "index bm25, dot", "mistakes bm25, dot")
    assert list(listed) == [*names, "aligned bm25, dot", "tokens bm25, dot"], "nothing is measured without questions"
    assert listed["tokens bm25, dot"] == (
        "index demo --encoder <retriever bm25, dot> --similarity dot --reranker <aligned bm25, dot> --name mine"
    )
    with pytest.raises(UsageError, match=r"--hard-negatives: .* less than or equal to 64"):
        Sweep.of({**asked, "hard_negatives": 65})


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({}, {"base-index", "mined bm25", "retriever in-batch, cosine"}),
        ({"base": "base"}, set()),
        ({"settings": {"seed": 1}}, set()),
        ({"guard": ["benchmark.json"]}, {"base-index"}),
        ({"max_positives": 3}, {"base-index", "mined bm25"}),
        ({"per_row": 5}, {"base-index", "retriever in-batch, cosine"}),
    ],
)
def test_an_argument_changes_the_steps_that_have_it_and_those_after(sweep, values, kept):
    before, after = steps_of(sweep(**SMALL)), steps_of(sweep(**SMALL, **values))
    watched = ("base-index", "mined bm25", "retriever in-batch, cosine")
    assert {name for name in watched if before[name].key == after[name].key} == kept


FAKE = """
    import json, os, sys, time
    from pathlib import Path

    notes, name, seconds, fault = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
    with notes.open("a") as stream:
        stream.write(f"start {name} {time.monotonic()}\\n")
    time.sleep(seconds)
    print("progress", file=sys.stderr)
    with notes.open("a") as stream:
        stream.write(f"end {name} {time.monotonic()}\\n")
    if fault == "kill":
        os.kill(os.getpid(), 9)
    if fault and not notes.with_name("mended").exists():
        print(fault, file=sys.stderr)
        sys.exit(3)
    kept = {key: value for key, value in os.environ.items() if key.startswith(("BIORAG_", "OMP_", "CUDA_"))}
    print(json.dumps({"name": name, "environment": kept}))
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Steps that are cheap: each writes down when it starts and ends, waits, and prints JSON or a fault."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "fakestep.py").write_text(textwrap.dedent(FAKE))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    notes = tmp_path / "notes.txt"
    waits: dict[str, tuple[float, str]] = {}

    def command(self, step):
        seconds, fault = waits.get(step.name, (0.0, ""))
        return ["fakestep", str(notes), step.name, str(seconds), fault]

    monkeypatch.setattr(StepRunner, "command", command)
    return waits


@pytest.fixture
def runner(tmp_path):
    def runner(jobs=1):
        return StepRunner(tmp_path / "out", jobs=jobs)

    return runner


def noted(tmp_path) -> list[tuple[str, str, float]]:
    """Return what the steps wrote down, in the order of time."""
    path = tmp_path / "notes.txt"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return sorted(((what, name, float(when)) for what, name, when in lines), key=lambda line: line[2])


def started(tmp_path) -> list[str]:
    return [name for what, name, _ in noted(tmp_path) if what == "start"]


def test_each_step_runs_once_after_what_it_needs(fake, runner, tmp_path):
    first = Step("first", ("1",))
    second = Step("second", ("2",), (first,))
    third, fourth = Step("third", ("3",), (second, first)), Step("fourth", ("4",), (second,))
    shop = runner(3)
    shop.run([third, fourth, third], silent)
    shop.run([third, fourth], silent)
    assert sorted(started(tmp_path)) == ["first", "fourth", "second", "third"]
    ends = {name: when for what, name, when in noted(tmp_path) if what == "end"}
    starts = {name: when for what, name, when in noted(tmp_path) if what == "start"}
    assert all(ends[need.name] <= starts[step.name] for step in (second, third, fourth) for need in step.needs)
    path = tmp_path / "out" / "steps" / f"{third.key}.json"
    path.write_text(path.read_text()[:-9])
    with pytest.raises(MismatchError, match=f"{third.key}.json is damaged .*: delete it, then run the command again"):
        shop.run([third], silent)


def test_a_failing_step_is_one_sentence(fake, runner, tmp_path):
    """The one that runs beside it is let finish; what needs it is not started; then it goes on."""
    broken, beside = Step("broken", ("1",)), Step("beside", ("2",))
    after = Step("after", ("3",), (broken,))
    fake.update({"broken": (0.1, "error: line 7 has no query"), "beside": (0.6, "")})
    shop = runner(2)
    with pytest.raises(BadInputError) as caught:  # the fake ends with 3
        shop.run([broken, beside, after], silent)
    log = tmp_path / "out" / "logs" / f"{broken.key}.txt"
    assert str(caught.value) == f"'broken' failed: line 7 has no query (all messages: {log})"
    assert log.read_text() == "progress\nerror: line 7 has no query\n"
    assert [bool(shop.finished(step)) for step in (broken, beside, after)] == [False, True, False]
    assert "after" not in started(tmp_path)

    (tmp_path / "mended").touch()
    shop.run([broken, beside, after], silent)
    assert sorted(started(tmp_path)) == ["after", "beside", "broken", "broken"]


def test_a_step_has_its_own_home_and_no_settings_of_the_users(fake, runner, tmp_path, monkeypatch):
    monkeypatch.setenv("BIORAG_TRAIN_EPOCHS", "7")
    monkeypatch.setenv("BIORAG_LLM_API_KEY", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setattr(steps, "usable_cores", lambda: 8)
    found = []
    for jobs in (1, 2):
        step = Step("alone", (str(jobs),))
        shop = runner(jobs)
        shop.run([step], silent)
        found.append(shop.record(step)["report"]["environment"])
    alone = {"BIORAG_HOME": str(tmp_path / "out" / "home"), "BIORAG_LLM_API_KEY": "secret", "OMP_NUM_THREADS": "64"}
    assert {name: found[0].get(name) for name in alone} == alone
    assert found[1] == {**found[0], "OMP_NUM_THREADS": "4", "BIORAG_THREADS": "4"}
    assert "BIORAG_TRAIN_EPOCHS" not in found[0]


@pytest.mark.parametrize(
    ("jobs", "gpus", "wide", "counts"),
    [
        (1, "3,5", 1, [2, 2, 2]),
        (2, "3,5", 1, [1, 1, 1]),
        (2, "3,5,6", 2, [1, 2, 1]),
        (4, "3,5,6", 2, [1, 3, 1]),  # jobs that share GPUs make way for it
    ],
)
def test_steps_side_by_side_have_a_gpu_for_each_process(fake, runner, tmp_path, monkeypatch, jobs, gpus, wide, counts):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    names = ("first", "wide", "last")
    fake.update(dict.fromkeys(names, (0.1, "")))
    shop, asked = runner(jobs), [Step(name, (name,), processes=wide if name == "wide" else 1) for name in names]
    shop.run(asked, silent)
    seen = [shop.record(step)["report"]["environment"]["CUDA_VISIBLE_DEVICES"].split(",") for step in asked]
    assert [len(set(places)) for places in seen] == counts
    if (jobs, wide) == (2, 2):
        assert [what for what, _, _ in noted(tmp_path)] == ["start", "end"] * 3


def ablate(*arguments):
    return invoke("ablate", *arguments)


def demonstration(folder: Path, count: int) -> None:
    """Write the first packaged snippets without their titles as a corpus, and the titles as its questions."""
    records = [json.loads(line) for line in demo_file("snippets.jsonl").read_text().splitlines()[:count]]
    texts = {f"q{record['id']}": record["title"] for record in records}
    write_judged(folder / "ds", texts, [(f"q{record['id']}", record["id"], 1) for record in records])
    corpus = [json.dumps({"id": record["id"], "title": "", "content": record["content"]}) for record in records]
    (folder / "snippets.jsonl").write_text("\n".join(corpus))


class Forked:
    """A `subprocess.Popen` of `python -m biorag`, forked from a process that has the libraries loaded."""

    def __init__(self, command, stdout, stderr, env):
        assert (command[:3], stdout) == ([sys.executable, "-m", "biorag"], subprocess.PIPE)
        self.returncode, self._stderr, self._running = None, stderr, cli.start(*command[3:], **env)

    def communicate(self):
        with self._running as running:
            self.returncode, reply, messages = running.communicate()
        self._stderr.write(messages)
        return reply.encode(), None


@pytest.mark.long
@pytest.mark.timeout(900)  # nine processes
def test_a_whole_sweep_and_again(tiny_encoder, tmp_path, monkeypatch):
    """Every step a real process; the second time none is started and the same is reported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **given: (popen if "bm25" in command else Forked)(command, **given)
    )
    demonstration(tmp_path, 60)
    values = {
        **{"train": ["ds"], "corpus": ["snippets.jsonl"], "evaluate": ["ds"], "base": str(tiny_encoder)},
        **{"negatives": ["in-batch"], "similarity": ["cosine"], "reranker": ["none", "aligned"], "k_init": [5]},
        "settings": {"mode": "dense", "precision": "fp32", "train_max_tokens": 32, "train_validation": 0.3},
    }
    (tmp_path / "sweep.toml").write_text(toml(values))
    result = ablate("sweep.toml", "--out", "out", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    (table,) = found["tables"]
    rows = {row["title"]: dict(zip(table["columns"], row["cells"], strict=True)) for row in table["rows"]}
    assert list(rows) == ["BM25", "base encoder", "in-batch cosine", "in-batch cosine, aligned, k_init 5"]
    assert len(found["steps"]) == len(list((tmp_path / "out" / "steps").iterdir())) == 9
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == found
    assert [finding["text"] for finding in found["findings"][:1]] == ["ds: aligned above none"]
    for finding in found["findings"][1:]:
        name = finding["text"].removeprefix("ds: ").removesuffix(" above the base encoder")
        gain = rows[name]["nDCG@10"]["value"] - rows["base encoder"]["nDCG@10"]["value"]
        assert finding["low"] <= finding["difference"] <= finding["high"]
        assert finding["difference"] == pytest.approx(gain, abs=1e-6)
    # The command of a step, by hand, gives its figures again.
    command = next(step["command"] for step in found["steps"] if step["name"] == "retrieval-bm25 ds")
    again = done(invoke(*command[1:], BIORAG_HOME=str(tmp_path / "out" / "home")))
    assert again["metrics"]["nDCG@10"] == rows["BM25"]["nDCG@10"]["value"]

    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    second = done(ablate("sweep.toml", "--out", "out", "--json"))
    changing = {"seconds_now": 0, "disk": {}}  # the report itself takes some of the disk the second time
    assert {**second, **changing} == {**found, **changing}
    assert "in-batch cosine above the base encoder" in ablate("sweep.toml", "--out", "out").stdout
