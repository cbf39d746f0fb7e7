"""Rehearsals: the packaged recipes at full scale, seeded faults, and the stand-ins that steps run on."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from biorag.cli import app
from biorag.errors import ServiceError
from biorag.lab.commands.reproduce import read_line
from biorag.lab.recipes import papers
from biorag.lab.recipes.estimates import Estimator
from biorag.lab.recipes.named_models import named_in, packaged
from biorag.lab.recipes.plan import Choices, RecipePlan
from biorag.lab.recipes.recipe import ExperimentRecipe, RecipeServer, load_recipe
from biorag.lab.recipes.run import recipe_of
from biorag.lab.scale.planning import MachineKind
from biorag.models.finding import find_encoder
from biorag.models.resources import architecture_shape
from biorag.training.rows import read_rows
from biorag.types import GenerationRequest, Prompt
from biorag.utils.progress import silent
from tests.cli import invoke
from tests.lab.recipes.rehearsal.inputs import FORMATS, INSTRUCTION, ROWS, texts, write_input
from tests.lab.recipes.rehearsal.run import rehearse
from tests.lab.recipes.rehearsal.servers import stand_ins

PAPERS = [paper for paper in papers() if "full" in load_recipe(recipe_of(paper)).scales]
SHORTEST = "bioasq8-hybrid"  # which `make test` rehearses; `make test-all` rehearses all

SEEDED = """
title = "Faults"
[inputs.questions]
what = "questions"
format = "PubMedQA"
[inputs.documents]
what = "documents"
format = "MedRAG"
[inputs.tests]
what = "folders"
files = { "one" = "BEIR" }
[servers.writer]
what = "a model"
url = "http://127.0.0.1:9"
model = "the-model"
[backbones.base]
model = "thenlper/gte-small"
[axes]
size = [1, 2]
[rehearsal]
alike = { size = [[1, 2]] }
[scales.full]
about = "Faults."
backbone = "base"
inputs = { questions = "{data}/ori_pqaa.json", documents = "{data}/chunk", tests = "{data}/tests" }
[scales.full.settings]
train_validation = 0.0
[[steps]]
name = "converted"
run = "data convert pubmedqa {questions} --out {out}"
[[steps]]
name = "asked"
axes = ["size"]
run = "data sample {converted} --sizes 2{size} --out {out}"
[[steps]]
name = "index"
run = "index {documents} --encoder {base} --store-tokens none --name {name}"
[[steps]]
name = "measured"
run = "bench retrieval {tests}/one --name {index.name} --mode bm25 --no-rerank"
[[tables]]
title = "Recall"
columns = [{title = "R", value = "metrics.sucess@3"}]
rows = [{title = "BM25", step = "measured"}]
"""

# A step with a fault by its name: its command, and a part of the sentence that the rehearsal has of it.
FAULTS = {
    "more than there is": ("data sample {converted} --sizes 5000 --out {out}", "there are 200 distinct ones"),
    "a file that no step writes": ("train retriever {converted}/row.jsonl --base {base} --out {out}", "row.jsonl"),
    "another format": ("data convert bioasq {questions} --out {out}", "it has no list of 'questions'"),
    "a folder that an input lacks": ("bench retrieval {tests}/two --name {index.name}", "tests/two"),
    "a validation share of zero": (
        "tune prompt {tests}/one --name {index.name} {writer} --no-write --out {out}",
        "no question of one is held out",
    ),
    "a model that nobody has": ("index {documents} --encoder nobody/nothing --name {name}", "'nobody/nothing'"),
    "a model of pickles": (
        "index {documents} --encoder GPL/msmarco-distilbert-margin-mse --name {name}",
        "'biorag models convert MODEL --out DIR' makes them",
    ),
    "a model that the server lacks": (
        "generate queries {documents} {writer} --llm-model another --limit 2 --out {out}/rows.jsonl",
        "The model `another` does not exist",
    ),
    "a value that is not allowed": (
        "train retriever {asked(size=1)}/sample-1 --base {base} --similarity cosin --out {out}",
        "(did you mean cosine?)",
    ),
    "an option that the base does not take": (
        "train retriever {asked(size=1)}/sample-1 --base {base} --attention causal --out {out}",
        "--attention is for decoders",
    ),
    "a grid that is none": (
        "tune {tests}/one --param lambda --name {index.name} --values 0.1,many --out {out}",
        "--values",
    ),
    "a task that mteb lacks": ("bench mteb --task NFCorpuz --encoder {base} --out {out}", "'NFCorpuz'"),
    "a prompt that is not there": (
        "generate queries {documents} {writer} --limit 2 --prompt {data}/p.txt --out {out}/rows.jsonl",
        "p.txt is not there",
    ),
}


def reader() -> Any:
    """Return what reads command lines as the program does."""
    return partial(read_line, get_command(app).make_context("biorag", ["version"]))


def rehearsed(
    recipe: Path, home: Path, scale: str = "full", out: Path | None = None, hardware: str | None = None
) -> dict[str, Any]:
    """Return the report of a rehearsal in a home of its own."""
    loaded = load_recipe(recipe)
    choices = Choices(hardware=hardware or loaded.profile_for(scale), read=reader())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIORAG_HOME", str(home))
        return rehearse(loaded, scale, choices, out, 1, silent)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory) -> dict[str, Any]:
    """The rehearsal of a recipe whose steps have one fault each, and of a step that needs such a step."""
    folder = tmp_path_factory.mktemp("seeded")
    steps = "".join(f"[[steps]]\nname = {name!r}\nrun = {run!r}\n" for name, (run, _) in FAULTS.items())
    blocked = "[[steps]]\nname = 'after it'\nrun = 'data sample {more than there is} --sizes 2 --out {out}'\n"
    renamed = {name: name.replace(" ", "-") for name in FAULTS}
    text = SEEDED + steps + blocked
    for name, plain in renamed.items():
        text = text.replace(f"'{name}'", f"'{plain}'").replace(f"{{{name}}}", f"{{{plain}}}")
    (folder / "faults.toml").write_text(text)
    report = rehearsed(folder / "faults.toml", folder / "home")
    failed = [step for step in report["steps"] if "error" in step]
    assert len(failed) == len(FAULTS) and len(report["figures"]) == 1
    return {**report, "by_name": {step["name"].replace("-", " "): step for step in report["steps"]}}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_rehearsal_finds_a_step_that_would_fail(seeded, fault):
    step = seeded["by_name"][fault]
    assert step["outcome"] == "failed"
    assert FAULTS[fault][1] in step["error"] and step["error"].startswith(f"{step['name']!r} failed: ")
    assert "\n" not in step["error"] and "Traceback" not in step["error"]


@pytest.mark.slow
def test_a_rehearsal_runs_all_that_no_fault_blocks_and_one_of_each_kind(seeded):
    steps = seeded["by_name"]
    assert [steps[name]["outcome"] for name in ("converted", "asked 1", "index", "measured")] == ["ok"] * 4
    assert (steps["asked 2"]["outcome"], steps["asked 2"]["like"]) == ("like", "asked 1")
    assert steps["after it"]["outcome"] == "not run"
    assert seeded["figures"] == ["'Recall': the report of step 'measured' has no number at 'metrics.sucess@3'"]


TWO = """
[hardware.two]
about = "Two."
memory_gb = 1
processes = 2
[[steps]]
name = "trained"
run = "train retriever {asked(size=1)}/sample-1 --base {base} --name {index.name} --batch-size 16 --out {out}"
[[steps]]
name = "trained-badly"
run = "train retriever {converted}/row.jsonl --base {base} --out {out}"
"""


@pytest.mark.long
def test_two_processes_share_a_training_in_a_rehearsal(tmp_path):
    (tmp_path / "two.toml").write_text(PLAIN + TWO)
    report = rehearsed(tmp_path / "two.toml", tmp_path / "home", out=tmp_path / "out", hardware="two")
    steps = {step["name"]: step for step in report["steps"]}
    assert steps["trained"]["outcome"] == "ok", steps["trained"]
    assert "row.jsonl" in steps["trained-badly"]["error"], "the sentence of a process, not torchrun's"
    records = [json.loads(path.read_text()) for path in (tmp_path / "out" / "run" / "steps").iterdir()]
    (report,) = (record["report"] for record in records if record["name"] == "trained")
    assert (report["processes"], report["batch_size"], report["steps"]) == (2, 8, 2)


PLAIN = SEEDED.replace("metrics.sucess@3", "metrics.success@3")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("--sizes 2{size}", "--size 2{size}", "step 'asked 1': biorag data sample has no option --size"),
        ("--mode bm25", "--k-init many", "step 'measured': biorag bench retrieval"),
        ("data convert", "data converted", "step 'converted': "),
        ('name = "index"', 'name = "index"\nsettings = {precision = "fp16"}', "steps.2.settings: "),
        ("--mode bm25", "{wrtier}", "step 'measured' names {wrtier}, which is neither a value, an input nor a step"),
        ("{tests}/one", "{test}/one", "step 'measured' names {test}, which is neither a value, an input nor a step"),
        ('step = "measured"', 'step = "measurd"', "table 'Recall': there is no step 'measurd'"),
        ("{converted} --sizes", "{asked} --sizes", "step 'asked' needs itself"),
        ("train_validation", "train_validating", "unknown setting 'train_validating'"),
        ("[axes]", "[hardware.x]\nabout = ''\nmemory_gb = 9\nsettings = {train_epochs = 2}\n[axes]", "changes results"),
        ('name = "index"', 'name = "size"', "'size' is both a step and a value"),
        ("alike = { size", "alike = { sizes", "rehearsal: there is no axis 'sizes'"),
    ],
)
def test_a_plan_finds_what_no_step_has_to_run_for(tmp_path, old, new, sentence):
    assert old in PLAIN
    (tmp_path / "recipe.toml").write_text(PLAIN.replace(old, new))
    result = invoke("run", tmp_path / "recipe.toml", "--scale", "full", "--dry-run")
    assert result.exit_code in (2, 3), result.output
    assert sentence in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paper", "scale"),
    [
        *(pytest.param(paper, "full", marks=() if paper == SHORTEST else pytest.mark.long) for paper in PAPERS),
        pytest.param("bmretriever", "generated", marks=pytest.mark.long),
    ],
)
def test_every_step_of_a_packaged_recipe_at_full_scale_runs_on_stand_ins(paper, scale, tmp_path):
    report = rehearsed(recipe_of(paper), tmp_path, scale)
    outcomes = Counter(step["outcome"] for step in report["steps"])
    assert outcomes.keys() <= {"ok", "like"} and outcomes["ok"] > 10
    assert report["figures"] == []


# --- plans ---------------------------------------------------------------------------------------------------------


PROFILES = [
    (paper, profile, backbone)
    for paper in PAPERS
    for recipe in [load_recipe(recipe_of(paper))]
    for profile in recipe.hardware
    for backbone in recipe.backbones
    if backbone == recipe.scales["full"].backbone
    or (profile == "h200" and recipe.backbones[backbone].model in packaged())
]


@pytest.mark.parametrize(("paper", "profile", "backbone"), PROFILES)
def test_a_profile_fits_into_the_memory_that_it_names(paper, profile, backbone, monkeypatch):
    monkeypatch.setattr("biorag.models.resources.operations", lambda *_: 1e12)
    recipe = load_recipe(recipe_of(paper))
    memory = recipe.hardware[profile].memory_gb
    processes = recipe.hardware[profile].processes
    gpu = {"gpus": processes, "gpu_memory_gb": memory, "gpu_tflops": 100}
    machine = MachineKind(name="m", cores=8, memory_gb=128 * processes, disk_gb=1000, **gpu)
    assert processes > 1 or recipe.profile_for("full", int(memory * 1e9)) == profile
    plan = RecipePlan(recipe, "full", Choices(backbone=backbone, hardware=profile, read=reader()))
    estimates = Estimator(plan, machine).all()
    assert {step.name: estimates[step.key].fault for step in plan.steps if estimates[step.key].fault} == {}
    assert any(one.bytes for one in estimates.values())


@pytest.mark.parametrize("paper", PAPERS)
def test_full_recipes_say_where_their_inputs_and_servers_come_from(paper, tmp_path):
    recipe = load_recipe(recipe_of(paper))
    plan = RecipePlan(recipe, "full", Choices(tmp_path, read=reader()))
    for name in plan.inputs:
        described = recipe.inputs[name]
        assert described.get and (described.format or described.files), name
    for name, server in plan.servers.items():
        assert server.get and server.calls["full"], name
    models = {id for step in plan.steps for id in named_in(step.arguments)}
    assert models <= packaged().keys() and models
    paid = {name: round(server.cost("full")) for name, server in plan.servers.items() if any(server.price)}
    assert paid == ({"negatives-writer": 3907} if paper == "stm" else {})


# --- stand-ins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_stand_in_is_the_same_each_time(format, tmp_path):
    described = load_recipe(recipe_of("bica")).inputs["papers"].model_copy(update={"format": format, "files": {}})
    contents = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "input"
        write_input("papers", described, path)
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        contents.append([file.read_bytes()[10:] for file in files])  # gzip's head has the time
    assert contents[0] == contents[1] != []
    assert all(contents[0])


def test_rows_of_a_stand_in_have_a_negative_and_an_instruction(tmp_path):
    FORMATS["rows"](tmp_path / "rows.jsonl")
    rows, _ = read_rows([tmp_path / "rows.jsonl"])
    assert len(rows) == ROWS and all(len(row.negatives) == 1 for row in rows)
    lines = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert {line["instruction"] for line in lines} == {INSTRUCTION}


PUBLISHED = {  # parameters as the models' pages give them, in millions, without a head for words
    "answerdotai/ModernBERT-base": 149,
    "google/gemma-2b": 2506,
    "Qwen/Qwen3-0.6B-Base": 596,
    "microsoft/Phi-4-mini-instruct": 3836,
    "EleutherAI/pythia-410m": 354,
    "thenlper/gte-base": 109,
    "doc2query/all-t5-base-v1": 223,
}


@pytest.mark.models
@pytest.mark.parametrize("id", PUBLISHED)
def test_estimates_see_the_shapes_of_the_real_weights(id):
    assert round(architecture_shape(packaged()[id].config).parameters / 1e6) == PUBLISHED[id]


@pytest.mark.models
@pytest.mark.parametrize("id", ["answerdotai/ModernBERT-base", "EleutherAI/pythia-410m", "thenlper/gte-small"])
def test_a_tiny_model_is_of_the_architecture_and_found_by_its_id(id, tmp_path, monkeypatch):
    from tests.lab.recipes.rehearsal.models import write_model

    write_model(id, packaged()[id], tmp_path, [text.content for text in texts()])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    found = find_encoder(id, fetch=False)
    assert found.settings("config.json")["model_type"] == packaged()[id].config["model_type"]
    assert sum(file.stat().st_size for file in found.path.rglob("*") if file.is_file()) < 1_000_000


def test_a_stand_in_server_replies_in_the_schema_and_knows_its_model():
    from biorag.generators.server import ServerGenerator
    from biorag.lab.synthesis.drafts import free_texts
    from biorag.utils.network import Server as Reached

    described = RecipeServer(what="a model", url="http://x", model="m")
    request = GenerationRequest(Prompt("", "Aspirin relieves fever and pain"), free_texts("query", "positive"), 50)
    with stand_ins({"writer": described}) as urls:
        reached = Reached(urls["writer"], 5.0, 0)
        replies = [ServerGenerator(reached, "m", 4096).generate(request).text for _ in range(2)]
        assert replies[0] == replies[1] and json.loads(replies[0]).keys() == {"query", "positive"}
        with pytest.raises(ServiceError, match="The model `n` does not exist"):
            ServerGenerator(reached, "n", 4096).generate(request)


def test_a_packaged_recipe_needs_no_stand_in_of_its_own() -> None:
    known = set(FORMATS)
    for paper in PAPERS:
        recipe: ExperimentRecipe = load_recipe(recipe_of(paper))
        formats = [described.format for described in recipe.inputs.values() if described.format]
        formats += [kind for described in recipe.inputs.values() for kind in described.files.values()]
        assert set(formats) <= known
