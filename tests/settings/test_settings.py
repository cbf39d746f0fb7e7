"""Settings: which source wins, what is refused and how, and what identifies a run."""

import json
import tomllib
from pathlib import Path

import pytest

from biorag.errors import MissingError, UsageError
from biorag.settings.section import Effect
from biorag.settings.settings import FIELDS, SECRETS, SECTIONS, Settings
from biorag.settings.sources import configuration_file, load_settings, write_setting
from scripts.settings_page import PAGE, page

# setting (field name), spelling in files and variables, TOML text and value, variable text and value, flag
SOURCES = [
    ("k_init", "k_init", "30", 30, "40", 40, 50),
    ("rerank", "rerank", "false", False, "true", True, False),
    ("prompt", "prompt", '"file.txt"', Path("file.txt"), "env.txt", Path("env.txt"), Path("flag.txt")),
    ("lambda_", "lambda", "0.1", 0.1, "0.2", 0.2, 0.3),
]
MINE = """# my settings
name = "pubmed"   # the big one
lambda = 0.01 # by hand

# reranking
k_init = 50
"""


def written(folder: Path, text: str, name: str = "settings.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- sources --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "key", "toml", "in_file", "variable", "in_environment", "flag"), SOURCES)
def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(
    tmp_path, field, key, toml, in_file, variable, in_environment, flag
):
    file = written(tmp_path, f"{key} = {toml}\n")
    environ = {f"BIORAG_{key.upper()}": variable}

    def value(flags, file, environ):
        return load_settings(flags, file, environ).flat()[key]

    assert value({}, None, {}) == Settings().flat()[key]
    assert value({}, file, {}) == in_file
    assert value({}, file, environ) == in_environment
    assert value({field: flag}, file, environ) == flag
    assert value({field: None}, file, environ) == in_environment, "None means that the option was not given"
    assert value({}, None, {f"BIORAG_{key.upper()}": ""}) == Settings().flat()[key], "an empty variable is not set"


def test_the_named_file_goes_before_biorag_config_before_the_one_in_the_home(tmp_path):
    home = {"BIORAG_HOME": str(tmp_path)}
    assert load_settings({}, None, home).retrieval.k == 5, "the one in the home may be missing"
    written(tmp_path, "k = 6\nk_init = 60\n", "biorag.toml")
    variable = home | {"BIORAG_CONFIG": str(written(tmp_path, "k = 7\n", "variable.toml"))}
    assert load_settings({}, None, home).retrieval.k == 6
    assert load_settings({}, None, variable).retrieval.k == 7
    named = load_settings({}, written(tmp_path, "k = 8\n"), variable).retrieval
    assert (named.k, named.k_init) == (8, 20), "one file is read"
    assert configuration_file(None, {}).name == "biorag.toml"
    with pytest.raises(MissingError, match=r"absent\.toml does not exist: check --config and BIORAG_CONFIG"):
        load_settings({}, None, {"BIORAG_CONFIG": "absent.toml"})


def test_a_biorag_toml_of_the_current_folder_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, 'llm = "http://evil.example"\nhome = "elsewhere"\n', "biorag.toml")
    assert load_settings({}, None, {}) == Settings()


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "start"),
    [
        ("k_init", 0, "k_init=0"),
        ("mode", "sparse", "mode='sparse'"),
        ("name", "../up", "name='../up'"),
        ("qdrant", "localhost:6333", "qdrant='localhost:6333'"),
        ("k", "five", "k='five'"),
    ],
)
def test_a_bad_value_names_setting_source_and_value(tmp_path, key, value, start):
    file = written(tmp_path, f"{key} = {json.dumps(value)}\n")
    with pytest.raises(UsageError) as caught:
        load_settings({}, file, {})
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(start) and str(file) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="the environment"):
        load_settings({}, written(tmp_path, ""), {f"BIORAG_{key.upper()}": str(value)})


def test_the_source_at_fault_is_named(tmp_path):
    file = written(tmp_path, "k = 3\n")
    with pytest.raises(UsageError, match="the environment"):
        load_settings({}, file, {"BIORAG_K": "0"})
    with pytest.raises(UsageError, match=r"^--lambda -1\.0"):
        load_settings({"lambda_": -1.0}, file, {})
    assert load_settings({"k": 4}, written(tmp_path, "k = 0\n"), {}).retrieval.k == 4, "a good flag hides a bad value"
    with pytest.raises(UsageError, match=r"'k_innit' \(set in .*settings\.toml\).*did you mean k_init"):
        load_settings({}, written(tmp_path, "k_innit = 30\n"), {})


@pytest.mark.parametrize("content", [b"k = \n", b"k = 1\nk = 2\n", b"name = \xff\n"])
def test_a_file_that_is_not_toml(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"broken\.toml is not valid TOML"):
        load_settings({}, path, {})


def test_no_number_is_infinite_nan_or_without_bounds():
    for name, entry in FIELDS.items():
        if "float" in str(entry.field.annotation):
            for value in (float("nan"), float("inf")):
                with pytest.raises(UsageError, match=name):
                    Settings.of(**{name: value})
        elif entry.field.annotation in (int, int | None):
            for value in (-(10**18), 2**64):
                with pytest.raises(UsageError, match=name):
                    Settings.of(**{name: value})


# --- names, reports, identities ---------------------------------------------------------------------------------


def test_every_setting_stands_in_one_section_under_one_name_with_one_flag():
    names = [info.alias or name for section in SECTIONS.values() for name, info in section.model_fields.items()]
    assert len(names) == len(set(names))
    everywhere = {*names, "home", "graph", "seed"}
    assert everywhere == set(FIELDS) == set(Settings().flat()) == set(Settings().flat_json())
    assert all(entry.field.description for entry in FIELDS.values())
    assert (FIELDS["lambda"].flag, FIELDS["train_max_tokens"].flag, FIELDS["rrf_k"].flag) == (
        "--lambda",
        "--max-tokens",
        "",
    )


def test_flat_values_make_the_same_settings_again():
    settings = Settings.of(lambda_=0.5, train_epochs=2, llm_login="user:word", qdrant="http://user:p@host:1", k=7)
    assert Settings.of(**settings.flat()) == settings
    assert (settings.retrieval.lambda_, settings.training.epochs, settings.retrieval.k) == (0.5, 2, 7)


def test_replace_changes_one_setting_and_checks_it(tmp_path):
    settings = Settings.of(name="a", k=3, home=tmp_path, llm_api_key="hidden", lambda_=0.5)
    changed = settings.replace(k_init=100)
    assert (changed.retrieval.k_init, changed.retrieval.lambda_, settings.retrieval.k_init) == (100, 0.5, 20)
    assert (changed.services.llm_api_key.get_secret_value(), changed.home) == ("hidden", tmp_path)
    with pytest.raises(UsageError, match=r"k_init=0"):
        settings.replace(k_init=0)
    with pytest.raises(UsageError, match=r"unknown setting 'depht'"):
        settings.replace(depht=5)
    with pytest.raises(ValueError, match="frozen"):
        settings.k = 9


def test_secrets_are_in_no_report_no_repr_and_no_message(tmp_path):
    settings = Settings.of(home=tmp_path, qdrant_api_key="s3cret-qdrant", llm_api_key="s3cret-llm")
    for shown in (json.dumps(settings.public()), repr(settings), str(settings), repr(settings.flat())):
        assert "s3cret" not in shown
    with pytest.raises(UsageError, match="llm_api_key") as caught:
        load_settings({}, written(tmp_path, "llm_api_key = 5550123\n"), {})
    assert "5550123" not in str(caught.value)


def test_reports_show_neither_secrets_nor_this_machine_nor_training():
    settings = Settings.of(home="/h", timeout=9, llm_api_key="key", qdrant="http://host:1", prompt=Path("p.txt"))
    shown = settings.public()
    hidden = {name for name, entry in FIELDS.items() if entry.option.effect is Effect.NONE}
    assert hidden >= SECRETS | {"home", "graph", "timeout", "retries", "threads", "offline", "batch_size", "cache"}
    training_and_abstention = {name for name, entry in FIELDS.items() if entry.section in ("training", "abstention")}
    assert set(shown) == set(FIELDS) - hidden - training_and_abstention
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["qdrant"], shown["k_init"], shown["seed"], shown["lambda"]) == ("http://host:1", 20, 0, 0.03)


@pytest.mark.parametrize(
    ("changes", "also"),
    [
        ({}, {}),
        ({"reranker": "encoder,cross:models/ce"}, {"reranker": "encoder,cross:models/ce", "cross_interpolation": 10.0}),
        ({"reranker": "cross:models/ce", "rerank": False}, {"reranker": "cross:models/ce", "rerank": False}),
        ({"name": "other", "timeout": 1, "threads": 3, "llm": "none", "train_epochs": 9, "seed": 4}, {}),
    ],
)
def test_a_ranking_is_identified_by_retrieval_and_a_cross_encoder_s_weight_by_its_use(changes, also):
    expected = {"precision": "auto", "mode": "hybrid", "fusion": "linear", "lambda": 0.03, "rrf_k": 60, "depth": 100}
    retrieval = Settings.of(**changes).retrieval
    assert retrieval.first_stage() == expected
    expected |= {"rerank": True, "reranker": "encoder", "interpolation": 0.5, "include_retracted": False}
    expected |= {"k_init": retrieval.k_init, "k": 5}
    assert retrieval.identity() == {**expected, **also}


def test_training_is_identified_by_its_section_precision_and_seed_and_unset_options_do_not_count():
    identity = Settings.of(train_epochs=3, seed=5, precision="bf16", k=9, train_max_steps=9).training_identity()
    assert {"train_epochs": 3.0, "seed": 5, "precision": "bf16", "train_max_steps": 9}.items() <= identity.items()
    assert not {"train_mini_batch_size", "train_patience", "k"} & identity.keys()


def test_the_page_of_settings_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m scripts.settings_page"


# --- writing ------------------------------------------------------------------------------------------------------


def test_a_setting_is_written_and_the_rest_stays(tmp_path):
    real = written(tmp_path, MINE)
    path = tmp_path / "link.toml"
    path.symlink_to(real)
    write_setting(path, "lambda", 0.03, "today: nDCG@10 0.9")
    expected = MINE.replace("lambda = 0.01 # by hand", "lambda = 0.03 # biorag tune today: nDCG@10 0.9 # by hand")
    assert path.read_text() == expected
    write_setting(path, "lambda", 0.05, "tomorrow,\nat\x07 noon")
    expected = expected.replace(
        "0.03 # biorag tune today: nDCG@10 0.9 ", "0.05 # biorag tune tomorrow, at\N{REPLACEMENT CHARACTER} noon "
    )
    write_setting(path, "interpolation", 1.5, "today")
    assert path.read_text() == expected + "interpolation = 1.5 # biorag tune today\n"
    assert path.is_symlink()
    write_setting(tmp_path / "new" / "biorag.toml", "k_init", 20, "today")
    assert tomllib.loads((tmp_path / "new" / "biorag.toml").read_text()) == {"k_init": 20}


def test_a_damaged_or_read_only_file_is_left_alone(tmp_path):
    path = written(tmp_path, "k_init = = 3")
    with pytest.raises(UsageError, match="is not valid TOML"):
        write_setting(path, "k_init", 20, "today")
    path.chmod(0o444)
    with pytest.raises(UsageError, match=r"read-only: .*--no-write"):
        write_setting(path, "k_init", 20, "today")
    assert path.read_text() == "k_init = = 3"
