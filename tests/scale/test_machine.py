"""Files of machines: read, refused, written."""

from __future__ import annotations

from pathlib import Path

import pytest

from biorag.errors import BadInputError, MissingError
from biorag.scale.machine import load_machine, reference, write_machine
from tests.scale.test_planning import MACHINE, MEASURED

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "machines").glob("*.toml"))
LEAST = 'name = "m"\ncores = 4\nmemory_gb = 16\ndisk_gb = 100\n'


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_read(path):
    assert load_machine(path).count >= 1


def test_the_packaged_measurement_has_every_rate():
    assert reference().question_milliseconds
    assert reference().first_stage_milliseconds_per_million


def test_what_is_written_is_read(tmp_path):
    machine = MACHINE.model_copy(update={"name": 'quoted "name" é', "measured": MEASURED})
    write_machine(tmp_path / "m.toml", machine, "# heading\n")
    assert load_machine(tmp_path / "m.toml") == machine
    assert (tmp_path / "m.toml").read_text(encoding="utf-8").startswith("# heading\n")


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ("memry_gb = 3\n", ["'memry_gb'", "did you mean memory_gb?"]),
        ("[rates]\nencode_per_second = 3\n", ["'rates.encode_per_second'", "did you mean encode_snippets_per_second?"]),
        ("count = 0\n", ["count = 0", "greater than or equal to 1"]),
        ('price_per_hour = "3"\n', ["price_per_hour = '3'", "valid number"]),
        ("gpus = 2\n", ["gpus = 2", "gpu_tflops"]),
        ("price_per_hour = nan\n", ["price_per_hour = nan"]),
        ("count = \n", ["not valid TOML"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path, lines, parts):
    path = tmp_path / "m.toml"
    path.write_text(LEAST + lines)
    with pytest.raises(BadInputError) as error:
        load_machine(path)
    assert [part for part in [str(path), *parts] if part not in str(error.value)] == [], str(error.value)


def test_a_missing_key_and_a_missing_file_are_named(tmp_path):
    (tmp_path / "m.toml").write_text('name = "m"\n')
    with pytest.raises(BadInputError, match="cores is missing"):
        load_machine(tmp_path / "m.toml")
    with pytest.raises(MissingError, match=r"--machine .*none\.toml is not there: docs/machines"):
        load_machine(tmp_path / "none.toml")
