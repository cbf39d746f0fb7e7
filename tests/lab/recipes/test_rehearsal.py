"""Rehearsals, each step of the packaged recipes at full scale on stand-ins; and their plans."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from biorag.cli import app
from biorag.lab.commands.reproduce import read_line
from biorag.lab.recipes import papers
from biorag.lab.recipes.estimates import Estimator
from biorag.lab.recipes.plan import Choices, RecipePlan
from biorag.lab.recipes.recipe import load_recipe, named_in, packaged
from biorag.lab.recipes.run import recipe_of
from biorag.lab.scale.planning import MachineKind
from biorag.models.resources import architecture_shape
from biorag.utils.parsing import packaged_toml
from biorag.utils.progress import silent
from tests.lab.recipes.rehearsal import run
from tests.lab.recipes.rehearsal.inputs import FORMATS
from tests.lab.recipes.rehearsal.run import rehearse

PAPERS = [paper for paper in papers() if "full" in load_recipe(recipe_of(paper)).scales]
SMALL = packaged_toml(run.__file__, "small.toml")

FAULTY = """
title = "Faults"
[inputs.questions]
what = "questions"
format = "PubMedQA"
[inputs.documents]
what = "documents"
format = "MedRAG"
[backbones.base]
model = "thenlper/gte-small"
[hardware.two]
about = "Two."
memory_gb = 1
processes = 2
[scales.full]
about = "Faults."
backbone = "base"
inputs = { questions = "{data}/ori_pqaa.json", documents = "{data}/chunk" }
settings = { train_validation = 0.0 }
[[steps]]
name = "converted"
run = "data convert pubmedqa {questions} --out {out}"
[[steps]]
name = "asked"
run = "data sample {converted} --sizes 20 --out {out}"
[[steps]]
name = "index"
run = "index {documents} --encoder {base} --store-tokens none --name {name}"
[[steps]]
name = "trained"
run = "train retriever {asked}/sample-1 --base {base} --name {index.name} --batch-size 16 --out {out}"
[[steps]]
name = "trained-badly"
run = "train retriever {converted}/row.jsonl --base {base} --out {out}"
[[steps]]
name = "after it"
run = "index {documents} --encoder {trained-badly} --name {name}"
"""


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
        return rehearse(loaded, scale, choices, SMALL.get(recipe.stem, {}), out, 1, silent)


@pytest.mark.long
def test_a_rehearsal_runs_all_that_no_fault_blocks_and_shares_a_training(tmp_path):
    (tmp_path / "two.toml").write_text(FAULTY)
    report = rehearsed(tmp_path / "two.toml", tmp_path / "home", out=tmp_path / "out", hardware="two")
    steps = {step["name"]: step for step in report["steps"]}
    assert [step["outcome"] for step in steps.values()] == [*["ok"] * 4, "failed", "not run"], steps
    assert "row.jsonl" in steps["trained-badly"]["error"], "the sentence of a process, not torchrun's"
    records = [json.loads(path.read_text()) for path in (tmp_path / "out" / "run" / "steps").iterdir()]
    (trained,) = (record["report"] for record in records if record["name"] == "trained")
    assert (trained["processes"], trained["batch_size"], trained["steps"]) == (2, 8, 2)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("paper", "scale"),
    [
        *((paper, "full") for paper in PAPERS),
        ("bmretriever", "generated"),
    ],
)
def test_every_step_of_a_packaged_recipe_at_full_scale_runs_on_stand_ins(paper, scale, tmp_path):
    report = rehearsed(recipe_of(paper), tmp_path, scale)
    outcomes = Counter(step["outcome"] for step in report["steps"])
    assert outcomes.keys() <= {"ok", "like"} and outcomes["ok"] > 10
    assert report["figures"] == []


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
    recipe = load_recipe(recipe_of(paper))
    memory, processes = recipe.hardware[profile].memory_gb, recipe.hardware[profile].processes
    gpu = {"gpus": processes, "gpu_memory_gb": memory, "gpu_tflops": 100}
    machine = MachineKind(name="m", cores=8, memory_gb=128 * processes, disk_gb=1000, **gpu)
    assert processes > 1 or recipe.profile_for("full", int(memory * 1e9)) == profile
    plan = RecipePlan(recipe, "full", Choices(backbone=backbone, hardware=profile, read=reader()))
    estimates = Estimator(plan, machine).all()
    assert {step.name: estimates[step.key].fault for step in plan.steps if estimates[step.key].fault} == {}
    assert any(estimate.bytes for estimate in estimates.values())


@pytest.mark.parametrize("paper", PAPERS)
def test_full_recipes_say_where_their_inputs_and_servers_come_from(paper, tmp_path):
    recipe = load_recipe(recipe_of(paper))
    plan = RecipePlan(recipe, "full", Choices(tmp_path, read=reader()))
    for name in plan.inputs:
        described = recipe.inputs[name]
        formats = set(described.files.values()) or {described.format}
        assert described.get and formats <= FORMATS.keys(), name
    for name, server in plan.servers.items():
        assert server.get and server.calls["full"], name
    models = {id for step in plan.steps for id in named_in(step.arguments)}
    assert models <= packaged().keys() and models
    paid = {name: round(server.cost("full")) for name, server in plan.servers.items() if any(server.price)}
    assert paid == ({"negatives-writer": 3907} if paper == "stm" else {})


PUBLISHED = {  # parameters as the models' pages give them, in millions, without a head for words
    "answerdotai/ModernBERT-base": 149,
    "google/gemma-2b": 2506,
    "microsoft/Phi-4-mini-instruct": 3836,
    "EleutherAI/pythia-410m": 354,
    "doc2query/all-t5-base-v1": 223,
}


@pytest.mark.models
@pytest.mark.parametrize("id", PUBLISHED)
def test_estimates_see_the_shapes_of_the_real_weights(id):
    assert round(architecture_shape(packaged()[id].config).parameters / 1e6) == PUBLISHED[id]
