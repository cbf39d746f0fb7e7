"""Recipes: what a file may say, the steps it comes to, running them, and the tables they fill."""

from __future__ import annotations

import json
import math
import re
import signal
import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.main import get_command

from biorag.benchmarks.per_question import QuestionValues, averaged, together
from biorag.benchmarks.significance import bootstrap_interval, paired, wilson
from biorag.cli import app
from biorag.errors import BadInputError, UsageError
from biorag.lab.commands.reproduce import read_line
from biorag.lab.recipes import papers
from biorag.lab.recipes.estimates import Estimator, StepEstimate, elapsed
from biorag.lab.recipes.plan import Change, Choices, RecipePlan
from biorag.lab.recipes.recipe import load_recipe
from biorag.lab.recipes.report import markdown
from biorag.lab.recipes.run import recipe_of
from biorag.lab.recipes.steps import StepRunner
from biorag.lab.recipes.tables import Figures
from biorag.lab.scale.planning import MachineKind
from biorag.settings.settings import checked
from biorag.training.loop import steps_of
from biorag.utils.parsing import parse_toml
from tests.cli import done, failed, invoke, start, wait_until
from tests.conftest import write_medrag

READER = partial(read_line, get_command(app).make_context("biorag", ["version"]))

HEAD = """
title = "A paper"
paper = "arXiv 1"
[inputs.texts]
what = "ten texts"
get = "from the shelf"
size = {smoke = 10}
tokens = 100
[models."org/one"]
licence = "none"
[models."org/one".config]
model_type = "bert"
vocab_size = 100
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 2
[backbones.one]
model = "org/one"
[backbones.two]
model = "other"
[axes]
kind = ["near", "far"]
depth = [1, 2]
[scales.smoke]
about = "Ten texts."
backbone = "one"
inputs = {texts = "{data}/texts.jsonl"}
values = {options = ["--seed", "3"], none = [], words = "of {base}"}
[scales.cpu]
about = "More."
backbone = "one"
axes = {depth = [1]}
settings = {seed = 7}
"""
STEPS = """
[[steps]]
name = "model"
axes = ["kind"]
when = {kind = ["near"]}
run = "make {texts} {options} {none} --out {out}"
work = {kind = "train", of = "texts", texts = 2}
[[steps]]
name = "model"
axes = ["kind"]
when = {kind = ["far"]}
run = "copy {model(kind=near)}"
[[steps]]
name = "index"
axes = ["kind"]
run = "index --encoder {model} --name {name} '{words}'"
work = {kind = "encode", of = "texts"}
[[steps]]
name = "measured"
axes = ["kind", "depth"]
run = "bench --name {index.name} --depth {depth}"
[[steps]]
name = "extra"
scales = ["cpu"]
run = "extra"
[[tables]]
title = "Table 1"
note = "By hand."
columns = [{title = "Recall", value = "metrics.recall"}, {title = "ms", value = "ms"}]
rows = [
  {title = "near", step = "measured", at = {kind = "near", depth = 1}, paper = [0.5, ""]},
  {title = "far, both", step = "measured", at = {kind = "far"}},
  {title = "extra", step = "extra", paper = ["", 3]},
]
[[findings]]
text = "near is better than far"
higher = {step = "measured", at = {kind = "near", depth = 1}, value = "metrics.recall"}
lower = {step = "measured", at = {kind = "far", depth = 1}, value = "metrics.recall"}
[[findings]]
text = "far is slower"
higher = {step = "measured", at = {kind = "far"}, value = "ms"}
lower = {step = "measured", at = {kind = "near"}, value = "ms"}
[[findings]]
text = "extra is better"
higher = {step = "extra", value = "ms"}
lower = {step = "measured", value = "ms"}
"""


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "texts.jsonl").write_text("{}\n")
    path = tmp_path / "recipe.toml"
    path.write_text(HEAD + STEPS)
    return path


def plan(file: Path, scale: str = "smoke", backbone: str | None = None) -> RecipePlan:
    return RecipePlan(load_recipe(file), scale, Choices(file.parent, backbone))


def by_name(plan: RecipePlan) -> dict[str, list[str]]:
    return {step.name: list(step.arguments) for step in plan.steps}


def test_each_step_is_there_once_for_each_point_of_its_axes(file):
    made = plan(file)
    steps = {step.name: step for step in made.steps}
    assert list(steps) == [
        *("model near", "model far", "index near", "index far"),
        *("measured near, 1", "measured near, 2", "measured far, 1", "measured far, 2"),
    ]
    texts = str(file.parent / "texts.jsonl")
    assert by_name(made)["model near"] == ["make", texts, "--seed", "3", "--out", "{out}"]
    assert by_name(made)["model far"] == ["copy", steps["model near"].place]
    assert steps["model far"].needs == (steps["model near"],)
    assert by_name(made)["index far"][1:] == ["--encoder", steps["model far"].place, "--name", "{name}", "of org/one"]
    assert by_name(made)["measured far, 2"] == ["bench", "--name", steps["index far"].title_place, "--depth", "2"]
    assert steps["measured far, 2"].needs == (steps["index far"],)


def test_conditions_scales_and_files_of_a_step(file):
    """Of several conditions one is enough; a scale has axes, settings and steps of its own; files may hold JSON."""
    lines = '{"id": "one"} {texts}'
    changed = (
        ('run = "bench', 'when = [{kind = ["near"]}, {depth = [2]}]\nrun = "bench'),
        ('name = "model"\n', f"name = \"model\"\nfiles = {{'rows.jsonl' = '{lines}'}}\n"),
    )
    for old, new in changed:
        file.write_text(file.read_text().replace(old, new, 1))
    assert [name for name in by_name(plan(file)) if "measured" in name] == [
        *("measured near, 1", "measured near, 2", "measured far, 2"),
    ]
    step = next(step for step in plan(file).steps if step.name == "model near")
    assert dict(step.files) == {"rows.jsonl": lines.replace("{texts}", str(file.parent / "texts.jsonl"))}
    file.write_text((HEAD + STEPS).replace("make {texts} {options} {none}", "make").replace("'{words}'", ""))
    assert {"extra", "measured near, 1"} <= by_name(plan(file, "cpu")).keys() - {"measured near, 2"}
    assert plan(file, "cpu").scale.settings == {"seed": 7}


def test_a_step_is_another_when_its_input_its_settings_or_what_it_needs_changes(file):
    before = {step.name: step.key for step in plan(file).steps}
    assert {step.name: step.key for step in plan(file).steps} == before
    (file.parent / "texts.jsonl").write_text("{}\n{}\n")
    after = {step.name: step.key for step in plan(file).steps}
    assert all(after[name] != key for name, key in before.items()), "all need the model that reads the texts"
    file.write_text(file.read_text().replace("--depth {depth}", "--depth {depth} -v"))
    again = {step.name: step.key for step in plan(file).steps}
    assert {name for name in after if again[name] != after[name]} == {name for name in after if "measured" in name}


def test_a_scale_leaves_out_points(file):
    before = set(by_name(plan(file)))
    file.write_text(
        file.read_text().replace(
            'backbone = "one"\ninputs', 'backbone = "one"\nwithout = [{kind = ["far"], depth = [2]}]\ninputs', 1
        )
    )
    assert before - set(by_name(plan(file))) == {"measured far, 2"}


def test_the_backbone_stands_for_base(file):
    assert by_name(plan(file, backbone="two"))["index near"][-1] == "of other"
    file.write_text(
        file.read_text().replace('model = "other"', 'model = "other"\nvalues = {none = ["-v"], words = "mine"}')
    )
    found = by_name(plan(file, backbone="two"))
    assert "-v" not in found["model near"] and found["index near"][-1] == "of other", "the scale's values come first"
    file.write_text(file.read_text().replace("none = [], ", "", 1))
    assert "-v" in by_name(plan(file, backbone="two"))["model near"]
    with pytest.raises(UsageError, match="no backbone 'three' in this recipe: use one or two"):
        plan(file, backbone="three")
    with pytest.raises(UsageError, match="no scale 'full'"):
        plan(file, "full")


BAD = [
    ('title = "A paper"', 'title = "A paper', "is not valid TOML"),
    ('paper = "arXiv 1"', 'papers = "arXiv 1"', "papers: Extra inputs"),
    ('backbone = "one"\ninputs', 'backbone = "six"\ninputs', "scale 'smoke': there is no backbone 'six'"),
    ('axes = ["kind", "depth"]', 'axes = ["kind", "width"]', "step 'measured': there is no axis 'width'"),
    ('step = "extra", paper', 'step = "extras", paper', "table 'Table 1': there is no step 'extras'"),
    ("paper = [0.5, ", "paper = [0.5, 2, ", "has 3 figures of the paper, not 2"),
    ('note = "By hand."', 'against = "base"', "table 'Table 1' has no row 'base' to compare with"),
    ('text = "near is', 'not_tested = {huge = "why"}\ntext = "near is', "there is no scale 'huge'"),
    ("settings = {seed = 7}", "settings = {sead = 7}", "unknown setting 'sead'"),
    ("settings = {seed = 7}", 'settings = {llm_api_key = "k"}', "set BIORAG_LLM_API_KEY"),
    ("[axes]", "[hardware.x]\nabout = ''\nmemory_gb = 9\nsettings = {train_epochs = 2}\n[axes]", "changes results"),
    ("depth = [1, 2]", "depth = [1, 2]\nextra = [1]", "'extra' is both a step and a value"),
    ("{options} {none}", "{option}", "names {option}, which is neither a value, an input nor a step"),
    ("copy {model(kind=near)}", "copy {model(kind=wide)}", "needs 'model', which the recipe does not have at"),
    ("copy {model(kind=near)}", "copy {model}", "step 'model' needs itself"),
    ("make {texts}", "make {texts} {measured}", "needs 'measured', which the recipe does not have at"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_what_a_file_may_not_say_and_a_command_not_name(file, old, new, message):
    file.write_text((HEAD + STEPS).replace(old, new))
    with pytest.raises(BadInputError) as error:
        plan(file)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("--batch-size 4", "--batches 4", "step 'model': biorag train retriever has no option --batches"),
        ("--max-tokens 100", "--max-tokens many", "step 'model': biorag train retriever"),
        ("bench retrieval", "bench retrieving", "step 'measured': "),
    ],
)
def test_a_plan_reads_every_command_as_the_program_does(real, old, new, message):
    real.write_text(real.read_text().replace(old, new))
    failed(invoke("run", real, "--data", real.parent, "--dry-run"), 3, message)


QUESTIONS = 40


@pytest.fixture
def figures(file) -> tuple[Figures, RecipePlan, dict[str, np.ndarray]]:
    """Figures as if the steps had run: drawn values for each question."""
    made = plan(file)
    out = file.parent / "out"
    runner, draws, values = StepRunner(out), np.random.default_rng(5), {}
    (out / "steps").mkdir(parents=True)
    for number, step in enumerate(made.steps):
        recalls = values[step.name] = draws.random(QUESTIONS).round(3) + (0.5 if "near" in step.name else 0)
        runner.out(step).mkdir(parents=True)
        lines = [{"id": f"q{n}", "metrics": {"recall": recall}} for n, recall in enumerate(recalls.tolist())]
        (runner.out(step) / "per-question.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        report = {"metrics": {"recall": float(recalls.mean())}, "ms": 10.0 * number}
        report["batches"] = [{"batch": "8B1", "MAP": number / 4}]
        report["tasks"] = [{"task": "other"}, {"task": "NFCorpus", "measures": {"ndcg_at_10": number / 8}}]
        record = {"name": step.name, "command": ["biorag"], "seconds": 1.0, "report": report}
        head = {"complete": True, "identity": {"key": step.key}}
        (out / "steps" / f"{step.key}.json").write_text(json.dumps({**head, **record}))
    return Figures(made, runner, 0), made, values


def test_cells_are_means_with_intervals_beside_the_papers(figures):
    found, made, values = figures
    filled = found.table(made.recipe.tables[0])
    near, both, extra = filled["rows"]
    recall, ms = near["cells"]
    assert recall["value"] == pytest.approx(values["measured near, 1"].mean())
    assert (recall["low"], recall["high"]) == bootstrap_interval(values["measured near, 1"].tolist(), 0)
    assert (recall["runs"], recall["paper"]) == (1, 0.5)
    assert (ms["value"], ms["low"], ms["paper"]) == (40.0, None, None)
    mean = (values["measured far, 1"] + values["measured far, 2"]) / 2
    averaged = both["cells"][0]
    assert averaged["value"] == pytest.approx(mean.mean())
    assert (averaged["low"], averaged["high"]) == pytest.approx(bootstrap_interval(mean.tolist(), 0))
    assert averaged["runs"] == 2
    unknown = [(cell["value"], cell["runs"], cell["paper"]) for cell in extra["cells"]]
    assert unknown == [(None, 0, None), (None, 0, 3)]
    lines = markdown(filled).splitlines()
    assert [lines[0], lines[2], lines[6], lines[8]] == [
        *("**Table 1**", "| | Recall | ms |", "| extra | – | – / 3 |", "By hand."),
    ]
    assert lines[4].endswith(" / 0.5 | 40.000 |")


def test_differences_stand_beside_the_row_they_are_against(figures):
    found, made, values = figures
    filled = found.table(made.recipe.tables[0].model_copy(update={"against": "near"}))
    near, both, extra = filled["rows"]
    mean = (values["measured far, 1"] + values["measured far, 2"]) / 2
    compared = paired(mean.tolist(), values["measured near, 1"].tolist(), 0)
    difference = both["cells"][0]["difference"]
    assert difference["value"] == pytest.approx(compared.difference)
    assert (difference["low"], difference["high"]) == pytest.approx((compared.low, compared.high))
    assert "difference" not in near["cells"][0]
    assert extra["cells"][1]["difference"] == {"value": None, "low": None, "high": None, "paper": None}
    lines = markdown(filled).splitlines()
    assert lines[2] == "| | Recall | Δ Recall | ms | Δ ms |"
    assert lines[4].split(" | ")[2] == "" and lines[5].split(" | ")[2].startswith(f"{compared.difference:+.3f} (")
    assert "Δ: against near." in lines


def test_paths_of_figures_and_rows_of_another_table(figures):
    """A figure may be of a task or batch among several, or the mean of several."""
    found, made, values = figures
    table = made.recipe.tables[0]

    def column(value):
        of_value = table.columns[0].model_copy(update={"value": value})
        filled = found.table(table.model_copy(update={"columns": (of_value, of_value)}))
        return [row["cells"][0]["value"] for row in filled["rows"]]

    assert column("tasks.NFCorpus.measures.ndcg_at_10") == [4 / 8, 6.5 / 8, None]
    assert column("batches.8B1.MAP") == [4 / 4, 6.5 / 4, None]
    assert column("batches.0.MAP") == column("batches.8B1.MAP"), "a row by its number"
    assert column(("metrics.recall", "ms"))[0] == pytest.approx((values["measured near, 1"].mean() + 40) / 2)
    with pytest.raises(BadInputError, match=r"no number at 'tasks\.SciFact"):
        column("tasks.SciFact.measures.ndcg_at_10")
    other = table.model_copy(update={"title": "other", "rows": (), "rows_of": table.title})
    recipe = made.recipe.model_copy(update={"tables": (table, other)})
    assert [(row.at, row.paper) for row in recipe.rows(other)] == [(row.at, ()) for row in table.rows]


def test_figures_of_several_data_sets_are_their_mean_with_sets_that_count_alike():
    """By Zou and Donner's formula, of shares of 1 of 2 and 2 of 2."""
    first, second = (
        QuestionValues(((name,) * 2,), (np.array(values),), (1.0,))
        for name, values in (("a", [1.0, 0.0]), ("b", [1.0, 1.0]))
    )
    both, shares = together([averaged([first, first]), second]), [(1, 2), (2, 2)]
    sides = [sum((count / total - wilson(count, total)[side]) ** 2 for count, total in shares) for side in (0, 1)]
    assert both.interval(0) == pytest.approx((0.75 - sides[0] ** 0.5 / 2, 0.75 + sides[1] ** 0.5 / 2))
    assert both.against(together([second, first]), 0) is None, "other questions, in another order"


def test_findings_are_decided_by_paired_intervals(figures):
    found, made, values = figures
    near, slower, absent = found.findings(made.recipe.findings)
    compared = paired(values["measured near, 1"].tolist(), values["measured far, 1"].tolist(), 0)
    assert (near["difference"], near["low"], near["high"]) == (compared.difference, compared.low, compared.high)
    assert (near["questions"], near["p"]) == (QUESTIONS, compared.p_value)
    assert (near["verdict"], near["reason"], near["p_corrected"]) == ("holds", "", near["p"])
    assert (slower["difference"], slower["low"], slower["verdict"]) == (20.0, None, "not tested")
    assert slower["reason"] == "no measures of the same questions"
    assert (absent["difference"], absent["verdict"]) == (None, "not tested")
    assert absent["reason"] == "not measured at this scale"
    first = made.recipe.findings[0]
    swapped = first.model_copy(update={"higher": first.lower, "lower": first.higher})
    assert found.findings([swapped])[0]["verdict"] == "does not hold"
    same = swapped.model_copy(update={"lower": swapped.higher})
    undecided = found.findings([same])[0]
    assert (undecided["verdict"], undecided["reason"]) == ("not tested", f"{QUESTIONS} questions do not decide")


PAIRS = """
reported = [
  { item = "Table 1", what = "near and far", by = ["Table 1"], how = "as described" },
  { item = "Figure 1", what = "a drawing", how = "cannot be had", why = "it has no figures" },
]
"""
COMPARED = """
[[tables]]
title = "Table 2"
step = "measured"
at = { depth = 1 }
path = "metrics.{}"
columns = [["Recall", "recall"]]
rows = [
  { title = "near", at = { kind = "near" }, paper = [0.6] },
  { title = "far", at = { kind = "far" }, paper = [0.5] },
  { title = "far, twice as deep", at = { kind = "far", depth = 2 } },
  { title = "the best of others", step = "", paper = [0.7] },
]
[[findings]]
of = ["Table 2", "Recall"]
claims = [["near finds more", "near", "far"], ["depth tells", "far, twice as deep", "far"]]
[[findings]]
of = ["Table 2", "Recall"]
at = {}
claims = [["near finds more at each depth", "near", "far"]]
"""


@pytest.fixture
def compared(file):
    file.write_text(PAIRS + HEAD + STEPS + COMPARED)
    return file


def test_findings_compare_rows_of_a_table(compared, figures):
    found, made, values = figures
    table = made.recipe.tables[-1]
    near, deeper, both = found.findings(made.recipe.compared()[-3:])
    ours, theirs = values["measured near, 1"], values["measured far, 1"]
    pair = paired(ours.tolist(), theirs.tolist(), 0)
    assert (near["difference"], near["paper"]) == (pair.difference, pytest.approx(0.1))
    error = (pair.high - pair.low) / 3.92
    assert near["needed"] == math.ceil(QUESTIONS * (2.8 * error / 0.1) ** 2), "for a difference as large as the paper's"
    assert deeper["paper"] is None and deeper["difference"] == pytest.approx(
        values["measured far, 2"].mean() - theirs.mean()
    )
    means = [np.mean([values[f"measured {kind}, {depth}"] for depth in (1, 2)]) for kind in ("near", "far")]
    assert both["difference"] == pytest.approx(means[0] - means[1])
    rows = {row["title"]: row["cells"][0] for row in found.table(table)["rows"]}
    assert (rows["the best of others"]["value"], rows["the best of others"]["paper"]) == (None, 0.7)
    assert rows["near"]["value"] == pytest.approx(ours.mean())


def test_differences_of_seeds(compared, figures):
    found, made, values = figures
    made.axes = {**made.axes, "seed": (1, 2)}
    made.recipe = made.recipe.model_copy(update={"axes": {**made.recipe.axes, "seed": (1, 2)}})
    for place, instance in enumerate(made.instances):  # the depths as if they were seeds
        at = tuple(("seed" if axis == "depth" else axis, value) for axis, value in instance.at)
        made.instances[place] = replace(instance, at=at)
    both = made.recipe.compared()[-1]
    differences = [values[f"measured near, {seed}"].mean() - values[f"measured far, {seed}"].mean() for seed in (1, 2)]
    assert found.findings([both])[0]["by_seed"] == pytest.approx(differences)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"near", "far"]]', '"near", "further"]]', "findings of 'Table 2': there is no row ('Table 2', 'further')"),
        (
            '"near", "far"]]',
            '"near", "the best of others"]]',
            "finding 'near finds more at each depth': a row of table",
        ),
        ('of = ["Table 2", "Recall"]', 'of = ["Table 2", "MAP"]', "there is no column ('Table 2', 'MAP')"),
        ('by = ["Table 1"]', 'by = ["Table 3"]', "Table 1: there is no table, plot or step 'Table 3'"),
        (
            ', why = "it has no figures"',
            "",
            "Figure 1 has no table, plot or step that fills it as described, and no reason",
        ),
    ],
)
def test_what_is_reported_and_compared_is_there(compared, old, new, message):
    compared.write_text(compared.read_text().replace(old, new))
    with pytest.raises(BadInputError) as error:
        plan(compared)
    assert message in str(error.value)


def test_what_is_not_tested_says_why_and_corrects_nothing(figures):
    found, made, _ = figures
    near = made.recipe.findings[0]
    other = near.model_copy(update={"not_tested": {"smoke": "the citations are made up"}})
    named, alone = found.findings([other, near])
    assert (named["verdict"], named["reason"]) == ("not tested", "the citations are made up")
    assert named["low"] > 0 and named["p_corrected"] is None and alone["p_corrected"] == alone["p"]
    assert {finding["p_corrected"] for finding in found.findings([near] * 3)} == {min(1, 3 * alone["p"])}
    for step in made.steps:
        if "measured" in step.name:
            path = Path(found._runner.out(step)) / "per-question.jsonl"
            path.write_text("".join(json.dumps({"id": n, "metrics": {"recall": 1.0}}) + "\n" for n in "ab"))
            record = found._runner._record_file(step)
            text = json.loads(record.read_text())
            record.write_text(json.dumps({**text, "report": {"metrics": {"recall": 0.988}}}))
    ceiling = Figures(made, found._runner, 0).findings([near])[0]
    assert (ceiling["verdict"], ceiling["reason"]) == ("not tested", "ceiling: 0.988")


SHORT = """
[[steps]]
name = "titles"
run = "data convert title-abstract {texts} --out {out}"
[[steps]]
name = "index"
run = "index {texts} --encoder ENCODER --store-tokens none --name {name}"
[[steps]]
name = "measured"
run = "bench retrieval {titles} --name {index.name} --mode bm25 --no-rerank --per-question {out}/per-question.jsonl"
[[tables]]
title = "Titles"
columns = [{title = "nDCG", value = "metrics.nDCG@10"}, {title = "Elsewhere", value = "no", scales = ["larger"]}]
rows = [{title = "BM25", step = "measured", paper = [0.9, 0.8]}]

[[plots]]
title = "Of a column that this scale leaves out"
columns = [{table = "Titles", title = "Elsewhere"}]
[[plots]]
title = "Found"
columns = [{table = "Titles", title = "nDCG"}]
"""


@pytest.fixture
def short(file, snippets, tiny_encoder) -> Path:
    """A recipe of three real steps: titles as questions, an index, and what BM25 finds in it."""
    write_medrag(file.parent / "texts.jsonl", [snippet for snippet in snippets if snippet.title])
    file.write_text(HEAD + SHORT.replace("ENCODER", str(tiny_encoder)))
    return file


@pytest.mark.slow
def test_a_run_resumes_and_reports(short, tmp_path):
    asked = ["run", short, "--out", tmp_path / "out", "--data", tmp_path, "--json"]
    report = done(invoke(*asked))
    (cell,) = report["tables"][0]["rows"][0]["cells"]
    assert (cell["value"], cell["runs"], cell["paper"]) == (1.0, 1, 0.9), "each title has a word of its own"
    assert [step["command"][3] for step in report["steps"]] == ["data", "index", "bench"]
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written == report
    told = (tmp_path / "out" / "report.md").read_text()
    assert "| BM25 | 1.000" in told and "![Found](plots/plot-1.png)" in told
    assert f"Questions measured: {report['questions']['measured']} in " in told and report["measured"]
    assert f"'biorag indexes clean --run {tmp_path / 'out'}' removes indexes and models." in told
    assert report["disk"]["out"] > report["disk"]["indexes"] > 1000
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<td>1.000 (" in page and page.count("<svg") == 1
    assert not re.search(r"(?:src|href)=.https?:", page), "it asks no host for anything"
    assert {path.name for path in (tmp_path / "out" / "plots").iterdir()} == {"plot-1.png", "plot-1.svg"}
    again = done(invoke(*asked))
    assert again["steps"] == report["steps"], "nothing runs twice, the seconds are the first ones"


@pytest.mark.long
def test_a_terminated_run_of_steps_says_so_by_its_exit_code(short, tmp_path):
    with start("run", short, "--out", tmp_path / "out", "--data", tmp_path, home=tmp_path) as process:
        wait_until(process, lambda: any((tmp_path / "out" / "logs").glob("*.txt")))
        process.send_signal(signal.SIGTERM)
        assert process.communicate().code == 143


REAL = """
[[steps]]
name = "model"
run = "train retriever {texts} --base {base} --batch-size 4 --max-tokens 100 --hard-negatives 2 {more} --out {out}"
work = {kind = "train", of = "texts", texts = 4}
[[steps]]
name = "index"
run = "index {texts} --encoder {model} --store-tokens none --name {name}"
work = {kind = "encode", of = "texts"}
[[steps]]
name = "measured"
run = "bench retrieval {texts} --name {index.name}"
"""


@pytest.fixture
def real(file) -> Path:
    """The recipe with commands that biorag has."""
    head = HEAD.replace('words = "of {base}"', "more = []")
    file.write_text(head + REAL)
    return file


def test_a_dry_run_lists_steps_with_estimates(real, tmp_path):
    asked = ["run", real, "--data", tmp_path / "absent", "--dry-run"]
    found = done(invoke(*asked, "--json"))
    trained, encoded, measured = found["steps"]
    assert found["missing"] == {"texts": str(tmp_path / "absent" / "texts.jsonl")}
    # BERT of width 32: words, positions, types; of 2 layers 4 · 32 · 32 and 2 · 32 · 64; the pooler
    multiplied = 2 * (4 * 32 * 32 + 2 * 32 * 64) + 32 * 32
    biases = 2 * (4 * 32 + 64 + 32) + 32 + (1 + 2 * 2) * 2 * 32
    parameters = (100 + 512 + 2) * 32 + multiplied + biases
    assert trained["disk"] == 16 * parameters
    assert encoded["bytes"] == 4 * parameters < trained["bytes"]
    # 10 rows of a question of 64 tokens and three texts of 100, at 6 operations a parameter, against 10 of 100 at 2
    assert trained["seconds"] / encoded["seconds"] == pytest.approx(3 * (64 + 300) / 100)
    assert (measured["seconds"], measured["bytes"], trained["fault"]) == (None, None, "")
    assert encoded["command"][3:5] == ["index", str(tmp_path / "absent" / "texts.jsonl")]
    assert found["seconds"] == trained["seconds"] + encoded["seconds"]
    shown = invoke(*asked)
    assert "not there" in shown.stderr
    assert "ten texts; from the shelf" in shown.stderr.replace("\n", " ")


MACHINE = """
name = "small"
cores = 2
memory_gb = 64
disk_gb = 100
gpus = 1
gpu_memory_gb = {memory}
gpu_tflops = 100
"""


def test_a_plan_is_checked_against_the_machine_named(real, tmp_path):
    profiles = "[hardware.large]\nabout = ''\nmemory_gb = 1\n[hardware.small]\nabout = ''\nmemory_gb = 0.002\n"
    real.write_text(real.read_text() + profiles + "settings = {train_mini_batch_size = 1}\n")
    machine = tmp_path / "machine.toml"

    def planned(memory: float) -> tuple[str | None, int, str]:
        machine.write_text(MACHINE.format(memory=memory))
        asked = ["run", real, "--data", tmp_path, "--dry-run", "--machine", machine, "--json"]
        found = done(invoke(*asked))
        return found["hardware"], found["steps"][0]["bytes"], found["steps"][0]["fault"]

    profile, whole, fault = planned(2)
    assert (profile, fault) == ("large", "")
    profile, parts, fault = planned(0.002)
    assert (profile, fault) == ("small", "") and parts < whole, "a row at a time fits"
    profile, bytes, fault = planned(0.001)
    assert (profile, bytes) == (None, whole)
    assert fault.startswith("training org/one takes 0.0 GiB and there are")


def test_a_gated_model_is_named_in_the_plan_and_asked_for_before_the_first_step(real, tmp_path):
    asked = ["run", real, "--data", tmp_path]
    assert done(invoke(*asked, "--dry-run", "--json"))["gated"] == {}
    server = '[servers.writer]\nwhat = "Gemma"\nurl = "http://localhost:1"\nmodel = "google/gemma-2b"\n'
    real.write_text(real.read_text().replace('licence = "none"', 'licence = "its own"\ngated = true') + server)
    assert done(invoke(*asked, "--dry-run", "--json"))["gated"] == {"org/one": True}, "no step asks the server"
    real.write_text(
        real.read_text() + '[[steps]]\nname = "written"\nrun = "generate queries {texts} {writer} --out {out}"\n'
    )
    assert done(invoke(*asked, "--dry-run", "--json"))["gated"] == {"google/gemma-2b": False, "org/one": True}
    assert (
        "org/one is gated: accept its licence on https://huggingface.co/org/one" in invoke(*asked, "--dry-run").stderr
    )
    sentence = failed(invoke(*asked, "--out", tmp_path / "out"), 4, "the hub does not give 'org/one'")
    assert "https://huggingface.co/org/one, signed in, and set HF_TOKEN" in sentence
    assert not (tmp_path / "out").exists()


TWO = "[hardware.two]\nabout = ''\nmemory_gb = 1\nprocesses = 2\n"


def test_processes_of_a_profile_share_the_batch_of_a_training(real, tmp_path):
    command = "train cross-encoder {texts} --base {base} --out {out}"
    real.write_text(real.read_text() + f'[[steps]]\nname = "cross"\nrun = "{command}"\n' + TWO)
    asked = ["run", real, "--data", tmp_path, "--dry-run", "--json"]
    (tmp_path / "machine.toml").write_text(MACHINE.format(memory=2).replace("gpus = 1", "gpus = 2"))
    machine = ["--machine", tmp_path / "machine.toml"]
    alone, shared = (done(invoke(*asked, *machine, *more)) for more in ([], ["--hardware", "two"]))
    assert (alone["hardware"], shared["hardware"]) == (None, "two"), "by name alone"
    whole, halves = alone["steps"][0], shared["steps"][0]
    assert halves["command"][:5] == ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    assert halves["command"][5] == whole["command"][0] == "biorag"
    assert "--batch-size" in whole["command"] and "--batch-size" not in halves["command"]
    assert halves["seconds"] == whole["seconds"] / 2 and halves["bytes"] < whole["bytes"]
    assert halves["host"] == 2 * whole["host"] == 2 * 10 * (900 + 4 * (64 + 3 * 100))
    assert [step["command"][0] for step in shared["steps"][1:]] == ["biorag"] * 3, "only what can be shared"

    def planned(*changes: str) -> RecipePlan:
        parsed = tuple(map(Change.parsed, changes))
        return RecipePlan(load_recipe(real), "smoke", Choices(tmp_path, None, "two", parsed, read=READER))

    step = planned().steps[0]
    assert (step.processes, dict(step.settings)) == (2, {"train_batch_size": 2})
    assert dict(planned("train_batch_size=16").steps[0].settings) == {"train_batch_size": 8}
    with pytest.raises(UsageError, match="batches of 5 rows, which 2 processes cannot share equally"):
        planned("model:train_batch_size=5")
    one_gpu = MachineKind(**parse_toml(MACHINE.format(memory=2).encode(), "machine"))
    assert Estimator(planned(), one_gpu).all()[step.key].fault == "it takes 2 GPUs, and there are 1"


def test_changes_replace_options_and_values_and_are_reported(real, tmp_path):
    def planned(*changes: str) -> RecipePlan:
        parsed = tuple(map(Change.parsed, changes))
        return RecipePlan(load_recipe(real), "smoke", Choices(tmp_path, changes=parsed, read=READER))

    changed, plain = planned("train_batch_size=8", "model:more=--seed 4"), planned()
    words = changed.steps[0].arguments
    assert ("--batch-size" in words, words[-4:-2]) == (False, ("--seed", "4"))
    assert dict(changed.steps[0].settings) == {"train_batch_size": 8}
    assert [one.key == other.key for one, other in zip(changed.steps, plain.steps, strict=True)] == [False] * 3
    assert changed.changes.deviations() == [
        {"step": "model", "name": "more", "value": "--seed 4", "was": []},
        {"step": "all", "name": "train_batch_size", "value": "8", "was": 4},
    ]
    for change, message in (
        ("train_batch_sise=8", "did you mean train_batch_size"),
        ("index:train_batch_size=8", "no effect on step 'index'"),
        ("train_epochs=-1", "--set"),
        ("nothing", "is not NAME=VALUE"),
    ):
        with pytest.raises(UsageError, match=message):
            planned(change)


def test_steps_side_by_side_end_sooner_but_wait_for_what_they_need(file):
    steps = plan(file).steps
    estimates = {step.key: StepEstimate(seconds=1.0) for step in steps}
    estimates[steps[0].key] = StepEstimate()  # not known: left out
    times = [elapsed(SimpleNamespace(steps=steps), estimates, jobs) for jobs in (1, 2, 99)]
    assert times == [len(steps) - 1, (len(steps) - 1) / 2, 3], "a model, its index, a measurement"
    wide = replace(steps[0], processes=2)
    assert wide.key not in estimates, "another step"
    assert elapsed(SimpleNamespace(steps=[wide]), {wide.key: StepEstimate(seconds=1.0)}, 2) == 1


def test_the_recipe_of_the_page_on_recipes_can_be_planned(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text(encoding="utf-8")
    block = page[page.index("    title = ") : page.index("| blank |")]
    (tmp_path / "recipe.toml").write_text(textwrap.dedent(block))
    planned = done(invoke("run", tmp_path / "recipe.toml", "--dry-run", "--json"))
    assert [step["name"].split()[0] for step in planned["steps"]] == ["pairs", "retriever", "index", "measured"]


def test_what_cannot_be_run(real, tmp_path):
    sentence = failed(invoke("run", real, "--out", tmp_path / "out", "--data", tmp_path / "absent"), 4, "--data")
    assert "ten texts; from the shelf" in sentence
    failed(invoke("run", real, "--data", tmp_path), 2, "give --out, or --dry-run")
    failed(invoke("reproduce", "nobody", "--out", tmp_path / "out"), 2, "no recipe of 'nobody'")
    assert not (tmp_path / "out").exists()


@pytest.mark.recipes
@pytest.mark.parametrize("paper", papers())
def test_a_packaged_recipe_runs_at_the_scale_smoke(paper, tmp_path):
    report = done(invoke("reproduce", paper, "--out", tmp_path / "out", "--json"))
    assert report["steps"]
    measured = [cell for table in report["tables"] for row in table["rows"] for cell in row["cells"] if cell["runs"]]
    assert measured and all(cell["value"] is not None for cell in measured)
    assert any(finding["difference"] is not None for finding in report["findings"])


def test_packages_that_are_not_installed_are_named_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("biorag.lab.recipes.run.lacking", lambda extra: ["gguf", "peft"] if extra == "decoders" else [])
    result = invoke("reproduce", "bmretriever", "--out", tmp_path / "out")
    failed(result, 4, "need gguf, peft: run pip install 'biorag[decoders]'")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("paper", papers())
def test_every_command_of_a_packaged_recipe_is_one_that_the_program_reads(paper, tmp_path):
    recipe = load_recipe(recipe_of(paper))
    assert all(RecipePlan(recipe, scale, Choices(tmp_path, read=READER)).steps for scale in recipe.scales)


@pytest.mark.parametrize("paper", papers())
def test_no_training_of_a_packaged_recipe_ends_before_its_warmup(paper, tmp_path):
    recipe = load_recipe(recipe_of(paper))
    for scale in recipe.scales.keys() - {"smoke", "cpu"}:
        made = RecipePlan(recipe, scale, Choices(tmp_path, read=READER))
        for instance in made.instances:
            work, given = instance.template.work, instance.use.given
            if work is None or work.kind != "train":
                continue
            rows = recipe.inputs[work.of].size[scale] if isinstance(work.of, str) else work.of
            options = {name: value for name, value in given.items() if "{" not in str(value)}
            training = checked({**made.settings, **dict(instance.step.settings), **options}).training
            assert (training.warmup_steps or 0) < steps_of([rows], training), instance.step.name
