"""What a biorag.toml of the current folder may set, and what trusting it changes."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from biorag.errors import BioragError, UsageError
from biorag.settings.file import write_setting
from biorag.settings.section import Effect, Trust, marked
from biorag.settings.settings import PLACES, SECRETS, Settings
from biorag.settings.sources import load_settings
from biorag.settings.trust import store, trust_index, trusted, updated

# Each setting that names a server, a model, a folder or file that is read, or holds a secret: with a value of it.
GUARDED = {
    "home": "/evil/home",
    "qdrant": "http://evil.example:6333",
    "qdrant_api_key": "evil",
    "qdrant_login": "evil:evil",
    "eutils": "http://evil.example",
    "eutils_api_key": "evil",
    "eutils_login": "evil:evil",
    "llm": "http://evil.example",
    "llm_api_key": "evil",
    "llm_login": "evil:evil",
    "llm_model": "evil",
    "prompt": "evil.txt",
    "encoder": "evil/encoder",
    "revision": "evil",
    "reranker": "colbert:evil/reranker",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "untrusted"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


def written(folder: Path, text: str) -> Path:
    path = folder / "biorag.toml"
    path.write_text(text, encoding="utf-8")
    return path


def toml(values: dict[str, object]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def trust(path: Path) -> None:
    with updated() as changed:
        changed.trust(path, path.read_bytes())


def test_every_setting_that_names_something_is_guarded():
    """A new setting whose value is a name, a path or a secret is added here, or to those that are harmless."""
    harmless = {"name"}  # of an index or graph of the user's own, in the home
    naming = {name for name, place in PLACES.items() if marked(place.field, Effect) is Effect.NAMES}
    guarded = {name for name, place in PLACES.items() if marked(place.field, Trust)}
    assert guarded == set(GUARDED)
    assert naming - harmless <= guarded and guarded >= SECRETS
    paths = {name for name, place in PLACES.items() if "Path" in str(place.field.annotation)}
    assert paths <= guarded


@pytest.mark.parametrize("name", GUARDED)
def test_an_untrusted_file_does_not_set_it_and_one_sentence_says_so(folder, caplog, name):
    path = written(folder, f"{toml({name: GUARDED[name]})}k = 7\n")
    settings = load_settings({}, None, {})
    assert settings.flat()[name] == Settings().flat()[name]
    assert settings.retrieval.k == 7, "what names nothing counts"
    (said,) = caplog.messages
    assert said.startswith(f"{path} is not trusted, so what it sets as {name} does not count: ")
    assert "biorag config trust" in said and "--config biorag.toml" in said
    assert "evil" not in said


@pytest.mark.parametrize("name", GUARDED)
def test_trusted_or_named_it_sets_it_without_a_word(folder, caplog, name):
    path = written(folder, toml({name: GUARDED[name]}))
    named = load_settings({}, path, {}).flat()[name]
    trust(path)
    settings = load_settings({}, None, {}).flat()[name]
    assert settings == named != Settings().flat()[name]
    assert caplog.messages == []


def test_all_that_does_not_count_stands_in_one_sentence(folder, caplog):
    written(folder, toml({"k": 3, **GUARDED, "lambda": 0.1}))
    settings = load_settings({}, None, {})
    assert settings == Settings.of(k=3, lambda_=0.1)
    (said,) = caplog.messages
    assert f"sets as {', '.join(GUARDED)} does not" in said


def test_a_file_that_names_nothing_needs_no_trust_and_no_look_at_what_is_trusted(folder, caplog):
    written(folder, "k = 3\nmode = 'bm25'\n")
    store().parent.mkdir(parents=True, exist_ok=True)
    store().write_text("damaged")
    assert load_settings({}, None, {}).retrieval.k == 3
    assert caplog.messages == []


def test_a_reranker_that_names_no_model_needs_no_trust(folder, caplog):
    written(folder, 'reranker = "encoder@9"\n')
    assert load_settings({}, None, {}).retrieval.reranker == "encoder@9"
    for chain in ("encoder@9,cross:evil/model@5", "evil/encoder", "encoder/", ""):
        written(folder, toml({"reranker": chain}))
        assert load_settings({}, None, {}).retrieval.reranker == "encoder", chain
    assert len(caplog.messages) == 4


def test_flags_and_variables_count_beside_an_untrusted_file(folder):
    written(folder, toml({"llm": "http://evil.example", "encoder": "evil/encoder"}))
    settings = load_settings({"llm": "http://mine:1"}, None, {"BIORAG_ENCODER": "starter"})
    assert (settings.generation.llm, settings.index.encoder) == ("http://mine:1", "starter")


def test_a_trusted_file_that_changes_is_not_trusted_and_the_sentence_says_that_it_changed(folder, caplog):
    path = written(folder, toml({"llm": "http://mine:1"}))
    trust(path)
    written(folder, toml({"llm": "http://evil.example"}))
    assert load_settings({}, None, {}).generation.llm is None
    assert f"{path} has changed since it was trusted, so what it sets as llm" in caplog.text
    written(folder, toml({"llm": "http://mine:1"}))
    assert load_settings({}, None, {}).generation.llm == "http://mine:1", "as it was trusted"


def test_trust_is_of_a_path_and_a_copy_or_a_link_elsewhere_has_none(folder, tmp_path, monkeypatch):
    path = written(folder, toml({"prompt": "prompt.txt"}))
    trust(path)
    for name, make in (
        ("copy", lambda to: to.write_bytes(path.read_bytes())),
        ("link", lambda to: to.symlink_to(path)),
    ):
        (tmp_path / name).mkdir()
        make(tmp_path / name / "biorag.toml")
        monkeypatch.chdir(tmp_path / name)
        assert load_settings({}, None, {}).generation.prompt is None, name
    (tmp_path / "same").symlink_to(folder)
    monkeypatch.chdir(tmp_path / "same")
    assert load_settings({}, None, {}).generation.prompt == Path("prompt.txt"), "the very file, by another way"


@pytest.mark.parametrize("content", ["[[", '{"files": 3}', '{"files": {"a": 1}, "indexes": {}, "keys": []}', "null"])
def test_where_what_is_trusted_is_damaged_nothing_is(folder, content):
    written(folder, toml({"llm": "http://evil.example"}))
    store().parent.mkdir(parents=True, exist_ok=True)
    store().write_text(content)
    with pytest.raises(UsageError, match=r"trusted.json is damaged .*: delete it, then run 'biorag config trust'"):
        load_settings({}, None, {})


def test_what_is_trusted_is_for_its_owner_to_read_and_an_empty_file_holds_nothing(folder):
    trust(written(folder, "k = 1\n"))
    assert stat.S_IMODE(store().stat().st_mode) == 0o600
    store().write_bytes(b"")
    assert trusted().files == {}


def test_an_index_is_trusted_by_its_path_and_url(tmp_path):
    trust_index(tmp_path / "manifest.json", "http://a:1")
    trust_index(tmp_path / "manifest.json", "http://b:1")
    assert trusted().indexes == {str(tmp_path / "manifest.json"): "http://b:1"}


def test_what_cannot_be_recorded_is_said_and_no_error(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    trust_index(tmp_path / "manifest.json", "http://a:1")
    assert "cannot be recorded" in caplog.text


# --- what biorag itself writes


def test_a_setting_written_into_a_trusted_file_leaves_it_trusted(folder):
    path = written(folder, toml({"llm": "http://mine:1"}))
    trust(path)
    write_setting(path, "k_init", 30, "today")
    settings = load_settings({}, None, {})
    assert (settings.generation.llm, settings.retrieval.k_init) == ("http://mine:1", 30)


def test_a_setting_written_into_an_untrusted_file_makes_it_no_more_trusted(folder):
    path = written(folder, toml({"llm": "http://evil.example"}))
    write_setting(path, "k_init", 30, "today")
    settings = load_settings({}, None, {})
    assert (settings.generation.llm, settings.retrieval.k_init) == (None, 30)


def test_a_file_that_biorag_made_is_trusted_until_someone_else_writes_it(folder):
    path = folder / "biorag.toml"
    write_setting(path, "k_init", 30, "today")
    assert trusted().state(path, path.read_bytes()) == "trusted"
    path.write_text(path.read_text() + 'llm = "http://evil.example"\n')
    assert load_settings({}, None, {}).generation.llm is None


def test_files_that_are_no_files(folder, tmp_path):
    (folder / "biorag.toml").mkdir()
    assert load_settings({}, None, {}) == Settings()
    with pytest.raises((BioragError, OSError)):
        load_settings({}, folder / "biorag.toml", {})
    with pytest.raises(BioragError, match="not a regular file"):
        load_settings({}, Path("/dev/null"), {})
    (tmp_path / "large.toml").write_text("# " + "x" * (1 << 20))
    with pytest.raises(BioragError, match="more than 1,048,576 bytes"):
        load_settings({}, tmp_path / "large.toml", {})
