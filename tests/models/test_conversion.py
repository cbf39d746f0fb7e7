"""Pickled checkpoints converted: the same vectors, parts and modules; what is refused, and in what words."""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from biorag.errors import MissingError, UsageError
from biorag.models import conversion
from biorag.models.bi_encoder import BiEncoder
from biorag.models.conversion import convert
from biorag.models.finding import find_encoder, weights_hash
from biorag.utils.apart import LONGEST_REPLY, ApartError, run_in_subprocess
from tests.child_targets import aborting, endless, unpacking
from tests.cli import done, failed, invoke
from tests.hostile.test_hostile_files import Payload

pytestmark = pytest.mark.models

QUIET = lambda _: None  # noqa: E731
TEXTS = ["aspirin lowers fever", "liver", "the gene of a virus"]


def pickled(folder: Path, tmp_path: Path, parts: int = 1) -> Path:
    """Return a copy of a model whose weights are pickled, the main ones in parts."""
    copy = shutil.copytree(folder, tmp_path / "pickled")
    for path in sorted(copy.rglob("*.safetensors")):
        tensors = list(load_file(path).items())
        path.unlink()
        if path.parent != copy or parts == 1:
            torch.save(dict(tensors), path.with_name("pytorch_model.bin"))
            continue
        names = [f"pytorch_model-{number:05}-of-{parts:05}.bin" for number in range(1, parts + 1)]
        for number, name in enumerate(names):
            torch.save(dict(tensors[number::parts]), path.with_name(name))
        listed = {tensor: names[place % parts] for place, (tensor, _) in enumerate(tensors)}
        index = {"metadata": {"total_size": 1}, "weight_map": listed}
        path.with_name("pytorch_model.bin.index.json").write_text(json.dumps(index))
    return copy


def vectors_of(folder: Path):
    return BiEncoder(find_encoder(str(folder)), "cosine", "fp32").encode_snippets(TEXTS)


def test_a_model_in_parts_of_the_hub_is_converted_with_its_modules(tiny_encoder, tmp_path, monkeypatch):
    model = SentenceTransformer(str(tiny_encoder), device="cpu")
    torch.manual_seed(2)
    model.append(Dense(32, 5, activation_function=None))
    model.save(str(tmp_path / "dense"))
    source = pickled(tmp_path / "dense", tmp_path, parts=3)
    (source / "training_args.bin").write_bytes(b"not to be fetched")

    def downloaded(repo, *, allow_patterns, **_):
        assert repo == "owner/model"
        fetched = lambda name: any(fnmatch(name, pattern) for pattern in allow_patterns) or "." not in name  # noqa: E731
        left_out = lambda folder, names: [name for name in names if not fetched(name)]  # noqa: E731
        return shutil.copytree(source, tmp_path / "snapshot", ignore=left_out)

    monkeypatch.setattr("huggingface_hub.snapshot_download", downloaded)
    report = convert("owner/model", tmp_path / "new" / "out", QUIET)
    assert not (tmp_path / "snapshot" / "training_args.bin").exists()
    np.testing.assert_array_equal(vectors_of(tmp_path / "new" / "out"), vectors_of(tmp_path / "dense"))
    parts = [f"pytorch_model-0000{number}-of-00003.bin" for number in (1, 2, 3)]
    assert (report["model"], report["files"]) == ("owner/model", ["2_Dense/pytorch_model.bin", *parts])
    assert report["tensors"] == sum(len(load_file(path)) for path in (tmp_path / "dense").rglob("*.safetensors"))
    assert report["sha256"] == weights_hash(tmp_path / "new" / "out")
    assert not list((tmp_path / "new").rglob("*.bin*")), "no pickle is copied, nor the index of one"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"], "nothing temporary is left"


def converted(values, tmp_path):
    """Return the tensors of a pickled file after its conversion."""
    source, target = tmp_path / "pytorch_model.bin", tmp_path / "model.safetensors"
    source.write_bytes(values) if isinstance(values, bytes) else torch.save(values, source)
    conversion.convert_file(source, target)
    return load_file(target)


@pytest.mark.parametrize("name", ["vocab.txt", "notes.md", "1_Extra"])
def test_a_link_out_of_the_model_is_not_copied(tiny_encoder, tmp_path, name):
    source = pickled(tiny_encoder, tmp_path)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "config.json").write_text("a key")
    (source / name).unlink(missing_ok=True)
    (source / name).symlink_to(tmp_path / "secret" / "config.json" if "." in name else tmp_path / "secret")
    with pytest.raises(MissingError, match=rf"{re.escape(name)} is a link to something outside the model's folder"):
        convert(str(source), tmp_path / "out", QUIET)
    assert not (tmp_path / "out").exists()


def test_weights_behind_a_link_are_not_read(tiny_encoder, tmp_path):
    source = pickled(tiny_encoder, tmp_path)
    (source / "pytorch_model.bin").rename(tmp_path / "other.bin")
    (source / "pytorch_model.bin").symlink_to(tmp_path / "other.bin")
    with pytest.raises(MissingError, match=r"pytorch_model\.bin is a link"):
        convert(str(source), tmp_path / "out", QUIET)


def test_types_ties_and_views_are_kept(tmp_path):
    square = torch.arange(12.0).reshape(3, 4)
    values = {
        **{"whole": square, "tied": square, "turned": square.T, "row": square[1]},
        **{"half": square.half(), "brain": square.bfloat16(), "ids": torch.arange(3), "flag": torch.tensor([True])},
        **{"empty": torch.empty(0, 4), "number": torch.tensor(2.5), "trained": torch.nn.Parameter(square + 1)},
    }
    found = converted(values, tmp_path)
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert found[name].dtype == value.dtype, name
        torch.testing.assert_close(found[name], value.detach(), rtol=0, atol=0)


def test_the_format_of_torch_before_1_6_is_read(tmp_path):
    stream = io.BytesIO()
    torch.save({"w": torch.ones(2, 3)}, stream, _use_new_zipfile_serialization=False)
    assert converted(stream.getvalue(), tmp_path)["w"].shape == (2, 3)


def zipped(data: bytes) -> bytes:
    """Return a checkpoint in torch's format whose pickle is of our making."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("model/data.pkl", data)
        archive.writestr("model/version", "3\n")
    return stream.getvalue()


def saved(values) -> bytes:
    stream = io.BytesIO()
    torch.save(values, stream)
    return stream.getvalue()


HOSTILE = {
    "code": (lambda canary: pickle.dumps(Payload(canary)), "cannot be read as tensors and nothing else"),
    "code of protocol 2": (lambda canary: pickle.dumps(Payload(canary), 2), "names posix.system"),
    "code among tensors": (lambda canary: saved({"w": torch.ones(2), "x": Payload(canary)}), "names posix.system"),
    "no dictionary": (lambda _: saved([torch.ones(2)]), "does not hold tensors by name"),
    "a number": (lambda _: saved({"w": torch.ones(2), "epoch": 3}), "holds 'epoch', which is not a plain tensor"),
    "a sparse tensor": (lambda _: saved({"w": torch.ones(2).to_sparse()}), "holds 'w', which is not a plain tensor"),
    "a terabyte": (lambda _: saved({"w": torch.zeros(1).expand(2**38)}), "and promises tensors of 1,099,511,627,776"),
    "half a file": (lambda _: saved({"w": torch.ones(999)})[:900], "cannot be read as tensors"),
    "a deep list": (lambda _: zipped(b"\x80\x02" + b"]" * 10**6 + b"a" * (10**6 - 1) + b"."), ""),
    "a long number": (lambda _: zipped(b"\x80\x02\x8b" + (2**31 - 1).to_bytes(4, "little") + b"."), "cannot be read"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_sentence_and_leaves_nothing(tmp_path, name):
    make, said = HOSTILE[name]
    canary, source = tmp_path / "EXECUTED", tmp_path / "source"
    source.mkdir()
    (source / "pytorch_model.bin").write_bytes(make(canary))
    (source / "config.json").write_text("{}")
    sentence = failed(invoke("models", "convert", source, "--out", tmp_path / "out"), 4, "pytorch_model.bin", said)
    assert "it is not converted" in sentence and "trust" not in sentence
    assert not canary.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "said"),
    [(unpacking, r"ended the process .*exit code 1"), (endless, "took more than 2 seconds"), (aborting, "SIGABRT")],
)
def test_memory_time_and_crashes_are_bounded(tmp_path, monkeypatch, target, said):
    monkeypatch.setattr(conversion, "_convert", target)
    monkeypatch.setattr(conversion, "SECONDS", 2 if target is endless else 600)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(MissingError, match=said):
        conversion.convert_file(tmp_path / "pytorch_model.bin", tmp_path / "model.safetensors")


@pytest.mark.slow
def test_a_reply_is_cut_and_a_slow_process_is_ended():
    assert run_in_subprocess(str.upper, ("a" * 9999,), 600) == "A" * LONGEST_REPLY
    with pytest.raises(ApartError) as error:
        run_in_subprocess(endless, ("", "", 0), 2)
    assert error.value.slow


def test_what_is_not_converted(tiny_encoder, tmp_path):
    source = pickled(tiny_encoder, tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is there and not empty"):
        convert(str(source), tmp_path / "full", QUIET)
    with pytest.raises(UsageError, match="not UTF-8"):
        convert(str(source), tmp_path / "m\udcff", QUIET)
    with pytest.raises(MissingError, match=r"has \.safetensors weights already"):
        convert(str(tiny_encoder), tmp_path / "out", QUIET)
    (source / "pytorch_model.bin").unlink()
    with pytest.raises(MissingError, match=r"no pytorch_model\.bin to convert"):
        convert(str(source), tmp_path / "out", QUIET)
    assert not (tmp_path / "out").exists()


def test_the_error_that_refuses_a_pickle_names_the_command(tiny_encoder, tmp_path):
    source, home = pickled(tiny_encoder, tmp_path), tmp_path / "home"
    with pytest.raises(MissingError, match="'biorag models convert MODEL --out DIR' makes them"):
        find_encoder(str(source))
    (tmp_path / "none").mkdir()
    with pytest.raises(MissingError, match="run 'biorag models convert owner/model --out DIR' and name DIR"):
        weights_hash(tmp_path / "none", "owner/model")
    (tmp_path / "texts.jsonl").write_text('{"id": "a", "content": "aspirin"}\n')
    index = ("index", tmp_path / "texts.jsonl", "--name", "mine", "--encoder")
    failed(invoke(*index, source, home=home), 4, "biorag models convert")
    report = done(invoke("models", "convert", source, "--out", tmp_path / "out", "--json"))
    assert report["out"] == str(tmp_path / "out")
    done(invoke(*index, tmp_path / "out", "--json", home=home))
