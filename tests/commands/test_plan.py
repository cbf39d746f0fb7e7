"""`biorag plan` as a user runs it."""

from __future__ import annotations

import pytest

from biorag.scale import measuring
from biorag.scale.machine import load_machine
from tests.cli import done, failed, invoke, succeeded
from tests.scale.test_machine import LEAST
from tests.scale.test_planning import MACHINE, MEASURED


@pytest.fixture
def machine(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(LEAST + "price_per_hour = 2\n[rates]\nexport_snippets_per_second = 1000\n")
    return path


def test_the_document_says_what_each_figure_rests_on(machine, tmp_path):
    report = done(
        invoke("plan", "--snippets", 36_000, "--machine", machine, "--quantize", "--json", home=tmp_path / "home")
    )
    assert set(report) == {"workload", "sizes", "machines"}
    assert (report["workload"]["snippets"], report["workload"]["dimension"]) == (36_000, 384)
    assert (report["workload"]["parameters"], report["workload"]["multiplied"]) == (22_713_728, 10_764_288)
    (found,) = report["machines"]
    assert set(found) >= {"name", "stages", "search", "machines", "seconds", "cost", "bottleneck", "notes", "needed"}
    export = found["stages"][0]
    assert export["rate"] == {"value": 1000, "source": "given", "basis": "export_snippets_per_second under [rates]"}
    assert export["seconds"]["value"] == 36
    assert export["cost"] == {"value": 0.02, "source": "computed", "basis": "1 × 0.01 h × 2 USD"}
    assert found["search"]["memory_bytes"]["value"] == 36_000 * (384 + 760)


def test_the_table_has_a_column_for_each_machine_and_a_mark_for_each_figure(machine, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(LEAST.replace('"m"', '"other"') + "count = 3\n")
    shown = succeeded(invoke("plan", "--snippets", 36_000, "--machine", machine, "--machine", other, home=tmp_path))
    lines = [line.split("\t") for line in shown.stdout.splitlines()]
    assert lines[0] == ["# 36,000 snippets: (m) measured, (g) given, (c) computed"]
    assert lines[1] == ["", "1 × m", "3 × other"]
    rows = {title: cells for title, *cells in lines[2:]}
    assert rows["export: snippets/s a machine"][0] == "1,000 (g)"
    assert rows["export: time"][0] == "36 s (c)"
    assert rows["all stages: money"][1] == "no price_per_hour"


def test_parameters_and_dimension_may_be_another_encoders(machine, tmp_path):
    arguments = ("plan", "--snippets", 1000, "--machine", machine, "--parameters", 1e8, "--dimension", 768, "--json")
    assert done(invoke(*arguments, home=tmp_path))["sizes"]["searched_bytes"] == 768 * 4 + 760


def test_wrong_usage_is_one_sentence(machine, tmp_path):
    failed(invoke("plan", "--snippets", 5, home=tmp_path), 2, "--machine FILE.toml", "--measure")
    failed(invoke("plan", "--snippets", 5, "--machine", machine, "demo", home=tmp_path), 2, "'demo'", "add --measure")
    failed(invoke("plan", "--snippets", 5, "--save", "x", home=tmp_path), 2, "--save x", "add --measure")
    machine.write_text(LEAST + "gpu = 1\n")
    failed(invoke("plan", "--snippets", 5, "--machine", machine, home=tmp_path), 3, str(machine), "did you mean gpus?")
    missing = tmp_path / "none.toml"
    failed(invoke("plan", "--snippets", 5, "--machine", missing, home=tmp_path), 4, f"--machine {missing} is not there")


def test_a_measurement_is_used_and_saved(machine, tmp_path, monkeypatch):
    asked = []

    def measured(settings, corpus, progress):
        asked.append(corpus)
        return MACHINE.model_copy(update={"name": "this machine", "cores": 2, "measured": MEASURED})

    monkeypatch.setattr(measuring, "measure", measured)
    saved = tmp_path / "here.toml"
    arguments = ("plan", "--snippets", 1000, "--tokens", 100, "--measure", "--save", saved, "--json")
    (here,) = done(invoke(*arguments, home=tmp_path))["machines"]
    assert (asked, here["name"]) == ([["demo"]], "this machine")
    assert here["stages"][0]["rate"]["source"] == "measured"
    assert load_machine(saved).measured == MEASURED
    (there,) = done(invoke(*arguments, "--machine", machine, "corpus.jsonl", home=tmp_path))["machines"]
    assert (asked[1], there["name"]) == (["corpus.jsonl"], "m")
    assert there["stages"][2]["rate"]["value"] == 200
    assert there["stages"][3]["rate"]["value"] == pytest.approx(4000 * 4 / 2)
    saved.write_text("of the user")
    failed(invoke(*arguments, home=tmp_path), 2, str(saved), "--force")
