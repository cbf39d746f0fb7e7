"""Settings: which source wins, and what is said about a setting that cannot be used."""

import json
from pathlib import Path

import pytest

from biorag.errors import BioragError, MissingError, UsageError
from biorag.settings.settings import PLACES, Settings
from biorag.settings.sources import configuration_file, load_settings

# setting (field name), spelling in files and variables, TOML text and value, variable text and value, flag
SOURCES = [
    ("k_init", "k_init", "30", 30, "40", 40, 50),
    ("name", "name", '"from-file"', "from-file", "from-environment", "from-environment", "from-flag"),
    ("rerank", "rerank", "false", False, "true", True, False),
    ("interpolation", "interpolation", "0.25", 0.25, "0.75", 0.75, 1.5),
    ("mode", "mode", '"bm25"', "bm25", "dense", "dense", "hybrid"),
    ("prompt", "prompt", '"file.txt"', Path("file.txt"), "env.txt", Path("env.txt"), Path("flag.txt")),
    ("threads", "threads", "2", 2, "3", 3, 4),
    ("lambda_", "lambda", "0.1", 0.1, "0.2", 0.2, 0.3),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def written(folder: Path, text: str, name: str = "settings.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("field", "key", "toml", "in_file", "variable", "in_environment", "flag"), SOURCES)
def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(
    elsewhere, field, key, toml, in_file, variable, in_environment, flag
):
    file = written(elsewhere, f"{key} = {toml}\n")
    environ = {f"BIORAG_{key.upper()}": variable}

    def value(flags, file, environ):
        return load_settings(flags, file, environ).flat()[key]

    assert value({}, None, {}) == Settings().flat()[key]
    assert value({}, file, {}) == in_file
    assert value({}, file, environ) == in_environment
    assert value({field: flag}, file, environ) == flag
    assert value({field: flag}, file, {}) == flag
    assert value({field: None}, file, environ) == in_environment, "None means that the option was not given"


def test_the_named_file_goes_before_biorag_config_before_the_one_in_the_home(elsewhere, tmp_path):
    home = {"BIORAG_HOME": str(tmp_path)}
    assert load_settings({}, None, home).retrieval.k == 5, "the one in the home may be missing"
    written(tmp_path, "k = 6\nk_init = 60\n", "biorag.toml")
    variable = home | {"BIORAG_CONFIG": str(written(elsewhere, "k = 7\n", "variable.toml"))}
    assert load_settings({}, None, home).retrieval.k == 6
    assert load_settings({}, None, variable).retrieval.k == 7
    named = load_settings({}, written(elsewhere, "k = 8\n"), variable).retrieval
    assert (named.k, named.k_init) == (8, 20), "one file is read"
    assert configuration_file(None, {}).name == "biorag.toml"
    with pytest.raises(MissingError, match=r"absent\.toml does not exist: check --config and BIORAG_CONFIG"):
        load_settings({}, None, {"BIORAG_CONFIG": "absent.toml"})


def test_a_biorag_toml_of_the_current_folder_is_not_read(elsewhere):
    written(elsewhere, 'llm = "http://evil.example"\nhome = "elsewhere"\n', "biorag.toml")
    assert load_settings({}, None, {}) == Settings()


def test_files_that_are_no_files(elsewhere, tmp_path):
    (tmp_path / "biorag.toml").mkdir()
    assert load_settings({}, None, {"BIORAG_HOME": str(tmp_path)}).retrieval.k == 5
    for path in (tmp_path / "biorag.toml", Path("/dev/null"), written(elsewhere, "# " + "x" * (1 << 20))):
        with pytest.raises((BioragError, OSError)):
            load_settings({}, path, {})


def test_the_process_environment_is_the_default_one(monkeypatch, tmp_path):
    monkeypatch.setenv("BIORAG_HOME", str(tmp_path / "elsewhere"))
    assert load_settings({}).indexes == tmp_path / "elsewhere" / "indexes"


def test_an_empty_variable_counts_as_not_set():
    assert load_settings({}, None, {"BIORAG_K": ""}).retrieval.k == 5


def test_a_false_flag_is_a_given_flag(elsewhere):
    assert load_settings({"rerank": False}, written(elsewhere, "rerank = true\n"), {}).retrieval.rerank is False


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({"QDRANT_API_KEY": "general"}, "general"),
        ({"BIORAG_QDRANT_API_KEY": "own"}, "own"),
        ({"QDRANT_API_KEY": "general", "BIORAG_QDRANT_API_KEY": "own"}, "own"),
    ],
)
def test_the_qdrant_key_comes_from_either_variable_and_ours_wins(environ, key):
    assert load_settings({}, None, environ).services.qdrant_api_key.get_secret_value() == key


def test_the_qdrant_key_variable_wins_over_the_file(elsewhere):
    file = written(elsewhere, 'qdrant_api_key = "filed"\n')
    assert load_settings({}, file, {}).services.qdrant_api_key.get_secret_value() == "filed"
    assert (
        load_settings({}, file, {"QDRANT_API_KEY": "variable"}).services.qdrant_api_key.get_secret_value() == "variable"
    )


def test_an_unknown_setting_is_named_with_its_file(elsewhere):
    file = written(elsewhere, "k_innit = 30\n")
    with pytest.raises(UsageError) as caught:
        load_settings({}, file, {})
    assert caught.value.exit_code == 2
    assert "'k_innit'" in str(caught.value)
    assert str(file) in str(caught.value)


OUT_OF_RANGE = [
    ("k_init", 0, "k_init=0"),
    ("k", 10_001, "k=10001"),
    ("lambda", -0.5, "lambda=-0.5"),
    ("mode", "sparse", "mode='sparse'"),
    ("name", "../up", "name='../up'"),
    ("bm25_b", 1.5, "bm25_b=1.5"),
    ("timeout", 0, "timeout=0"),
    ("qdrant", "localhost:6333", "qdrant='localhost:6333'"),
    ("context_window", 10, "context_window=10"),
    ("rerank", "perhaps", "rerank='perhaps'"),
    ("k", "five", "k='five'"),
]


@pytest.mark.parametrize(("key", "value", "said"), OUT_OF_RANGE)
def test_a_bad_value_in_a_file_names_setting_source_and_value(elsewhere, key, value, said):
    file = written(elsewhere, f"{key} = {json.dumps(value)}\n")
    with pytest.raises(UsageError) as caught:
        load_settings({}, file, {})
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert message.startswith(said)
    assert str(file) in message
    assert "\n" not in message


@pytest.mark.parametrize(("key", "value", "said"), OUT_OF_RANGE)
def test_a_bad_value_in_a_variable_names_setting_source_and_value(key, value, said):
    with pytest.raises(UsageError) as caught:
        load_settings({}, None, {f"BIORAG_{key.upper()}": str(value)})
    message = str(caught.value)
    assert message.startswith(f"{key}={str(value)!r}")
    assert "the environment" in message


@pytest.mark.parametrize(("flags", "said"), [({"k": 0}, "--k 0"), ({"lambda_": -1.0}, "--lambda -1.0")])
def test_a_bad_flag_names_the_option_as_the_source(elsewhere, flags, said):
    file = written(elsewhere, "k = 3\n")
    with pytest.raises(UsageError) as caught:
        load_settings(flags, file, {})
    message = str(caught.value)
    assert message.startswith(said)
    assert str(file) not in message


def test_the_bad_source_is_named_and_not_the_one_it_overrides(elsewhere):
    file = written(elsewhere, "k = 3\n")
    with pytest.raises(UsageError, match="the environment"):
        load_settings({}, file, {"BIORAG_K": "0"})


def test_a_good_flag_hides_a_bad_value_below_it(elsewhere):
    assert load_settings({"k": 4}, written(elsewhere, "k = 0\n"), {}).retrieval.k == 4


def test_a_named_file_that_is_not_there(elsewhere):
    with pytest.raises(MissingError) as caught:
        load_settings({}, elsewhere / "absent.toml", {})
    assert caught.value.exit_code == 4
    assert str(elsewhere / "absent.toml") in str(caught.value)


@pytest.mark.parametrize("content", [b"k = \n", b"k = 1\nk = 2\n", b"k_init: 5\n", b"name = \xff\n"])
def test_a_file_that_is_no_toml(elsewhere, content):
    path = elsewhere / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load_settings({}, path, {})
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value)
    assert "TOML" in str(caught.value)


def test_lambda_is_spelled_lambda_in_files_variables_reports_and_replace(elsewhere):
    assert "lambda" in PLACES
    assert "lambda_" not in PLACES
    settings = load_settings({}, written(elsewhere, "lambda = 0.5\n"), {})
    assert settings.retrieval.lambda_ == 0.5
    assert settings.public()["lambda"] == 0.5
    assert settings.replace(**{"lambda": 0.75}).retrieval.lambda_ == 0.75
    assert settings.replace(lambda_=0.25).retrieval.lambda_ == 0.25
    assert settings.replace(k=9).retrieval.lambda_ == 0.5, "an unrelated change keeps it"


def test_replace_changes_one_setting_and_checks_it():
    settings = Settings.of(name="a", k=3)
    assert settings.replace(k_init=100) == Settings.of(name="a", k=3, k_init=100)
    assert settings.retrieval.k_init == 20
    with pytest.raises(UsageError, match=r"k_init=0"):
        settings.replace(k_init=0)
    with pytest.raises(UsageError, match=r"unknown setting 'depht'"):
        settings.replace(depht=5)


def test_replace_keeps_secrets_and_machine_settings(tmp_path):
    settings = Settings.of(home=tmp_path, llm_api_key="hidden", threads=2).replace(k=1)
    assert settings.services.llm_api_key.get_secret_value() == "hidden"
    assert (settings.home, settings.generation.threads) == (tmp_path, 2)


def test_secrets_are_in_no_report_and_no_repr(tmp_path):
    settings = Settings.of(home=tmp_path, qdrant_api_key="s3cret-qdrant", llm_api_key="s3cret-llm")
    for shown in (json.dumps(settings.public()), repr(settings), str(settings), repr(settings.flat())):
        assert "s3cret" not in shown
    assert not {"qdrant_api_key", "llm_api_key", "home"} & settings.public().keys()


@pytest.mark.parametrize("key", ["qdrant_api_key", "llm_api_key"])
def test_a_secret_of_a_wrong_type_is_not_repeated(elsewhere, key):
    with pytest.raises(UsageError, match=key) as caught:
        load_settings({}, written(elsewhere, f"{key} = 5550123\n"), {})
    assert "5550123" not in str(caught.value)


def test_public_holds_what_determines_results_as_json_values():
    public = Settings.of(name="a", k_init=100, mode="dense", prompt=Path("p.txt")).public()
    assert json.loads(json.dumps(public)) == public
    expected = {"name": "a", "k_init": 100, "k": 5, "mode": "dense", "prompt": "p.txt", "lambda": 0.03, "seed": 0}
    assert expected.items() <= public.items()


def test_a_configuration_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="frozen"):
        Settings.of().k = 9


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_no_number_of_a_setting_is_infinite_or_nan(value):
    for name, place in PLACES.items():
        if "float" in str(place.field.annotation):
            with pytest.raises(UsageError, match=name):
                Settings.of(**{name: value})


@pytest.mark.parametrize(
    "name", [name for name, place in PLACES.items() if place.field.annotation in (int, int | None)]
)
def test_every_whole_number_of_a_setting_is_bounded(name):
    for value in (10**18, -(10**18), 2**64):
        with pytest.raises(UsageError, match=name):
            Settings.of(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("threads", 1025, "1024"),
        ("home", "a\0b", "NUL character"),
        ("llm", "x\0", "NUL character"),
        ("home", "~nobody-of-this-name/x", "in full"),
        ("prompt", "~nobody-of-this-name/x", "in full"),
    ],
)
def test_values_that_no_system_call_takes_are_refused(name, value, said):
    with pytest.raises(UsageError, match=said):
        Settings.of(**{name: value})


def test_a_message_repeats_the_beginning_of_a_long_value_only():
    with pytest.raises(UsageError) as error:
        Settings.of(mode="x" * 100_000)
    assert len(str(error.value)) < 500
