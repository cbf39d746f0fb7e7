"""Model files: any cut or changed byte of a header gives our error or passes; a crash of a trial is not ours."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.errors import MissingError
from biorag.models.formats import gguf
from biorag.models.formats.directory import check_folder
from tests.hostile.test_hostile_files import WHOLE
from tests.hostile.tiny_gguf import tiny_llama

TINY = tiny_llama().bytes()
HEADER = TINY[: TINY.index(b"blk.0.ffn_down.weight") + 100]


def read(folder, data: bytes):
    path = folder / "m.gguf"
    path.write_bytes(data)
    return gguf.read_header(path)


def test_a_gguf_cut_anywhere_is_refused(tmp_path):
    for length in range(0, len(HEADER), 497):
        with pytest.raises(MissingError, match=r"m\.gguf"):
            read(tmp_path, TINY[:length])
    header = read(tmp_path, TINY)
    assert header.trained_window() == 2048
    assert {tensor.name for tensor in header.tensors} == set(tiny_llama().tensors)


@given(start=st.integers(0, len(HEADER) - 1), changed=st.binary(min_size=1, max_size=8))
def test_a_gguf_with_any_bytes_changed_gives_a_header_or_our_error(tmp_path_factory, start, changed):
    try:
        read(tmp_path_factory.getbasetemp(), TINY[:start] + changed + TINY[start + len(changed) :])
    except MissingError as error:
        assert "\n" not in str(error)


def test_settings_of_published_models_pass(tmp_path):
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    config = {"hidden_size": 4, "vocab_size": 8, "max_position_embeddings": 131_072, "attn_implementation": "sdpa"}
    dense = {"activation_function": "torch.nn.modules.linear.Identity"}
    files = {"modules.json": modules, "config.json": config, "2_Dense/config.json": dense, "model.safetensors": WHOLE}
    others = ["training_args.bin", "optimizer.pt", "pytorch_model.bin", "checkpoint-5/optimizer.pt", "data_config.json"]
    for name, content in {**files, **dict.fromkeys(others, b"")}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    check_folder(tmp_path)
