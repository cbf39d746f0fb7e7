"""Headers of model files: what is whole passes, every cut and every changed byte gives one of our errors or passes."""

from __future__ import annotations

import ctypes
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biorag.errors import MissingError
from biorag.models.finding import STARTER_ENCODER, STARTER_GENERATOR
from biorag.models.formats import gguf
from biorag.models.formats import safetensors as tensors
from biorag.models.formats.directory import check_folder
from tests.hostile.hostile_files import safetensors
from tests.hostile.tiny_gguf import Tensor, tiny_llama

TINY = tiny_llama().bytes()
HEADER = TINY[: TINY.index(b"blk.0.ffn_down.weight") + 100]


@pytest.mark.slow
def test_the_starters_headers_are_those_that_their_libraries_read():
    from safetensors import safe_open

    weights = STARTER_ENCODER.path()
    with safe_open(weights, "np") as opened:
        expected = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    assert {tensor.name: tensor.shape for tensor in tensors.read_header(weights)} == expected
    llama_cpp = pytest.importorskip("llama_cpp")
    generator = STARTER_GENERATOR.path()
    metadata = llama_cpp.Llama(str(generator), vocab_only=True, verbose=False).metadata
    header = gguf.read_header(generator)
    texts = {key: value for key, value in header.metadata.items() if isinstance(value, str)}
    assert texts == {key: metadata[key] for key in texts}
    assert header.trained_window() == int(metadata["llama.context_length"]) == 8192


def test_block_sizes_are_those_of_the_library():
    library = pytest.importorskip("llama_cpp")
    from pathlib import Path

    found = sorted(Path(library.__file__).parent.glob("lib/libggml-base.*"))
    if not found:
        pytest.skip("this llama-cpp-python has no ggml library of its own")
    ggml = ctypes.CDLL(str(found[0]))
    ggml.ggml_blck_size.restype, ggml.ggml_type_size.restype = ctypes.c_int64, ctypes.c_size_t
    sizes = {kind: (ggml.ggml_blck_size(kind), ggml.ggml_type_size(kind)) for kind in gguf.BLOCKS}
    assert sizes == gguf.BLOCKS


def read(tmp_path, data: bytes):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    return gguf.read_header(path)


def test_a_gguf_cut_anywhere_is_refused(tmp_path):
    for length in [*range(0, len(HEADER), 97), len(TINY) - 1]:
        with pytest.raises(MissingError, match=r"m\.gguf is not a GGUF model"):
            read(tmp_path, TINY[:length])
    read(tmp_path, TINY)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(place=st.integers(0, len(HEADER) - 1), bytes_=st.binary(min_size=1, max_size=8))
def test_a_gguf_with_any_bytes_changed_gives_a_header_or_our_error(tmp_path_factory, place, bytes_):
    data = TINY[:place] + bytes_ + TINY[place + len(bytes_) :]
    try:
        found = read(tmp_path_factory.getbasetemp(), data)
    except MissingError as error:
        assert "\n" not in str(error)
        return
    assert all(tensor.bytes <= len(TINY) for tensor in found.tensors)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "U8", "I64", "F4", "X"]),
                "shape": st.lists(st.integers(-1, 9) | st.just(2**62), max_size=3),
                "data_offsets": st.lists(st.integers(-1, 99) | st.just(2**63), min_size=1, max_size=3),
            }
        )
        | st.none(),
        max_size=3,
    ),
    st.binary(max_size=40),
)
def test_a_safetensors_header_is_read_only_if_the_library_reads_it(tmp_path_factory, header, data):
    from safetensors import SafetensorError, deserialize

    path = tmp_path_factory.getbasetemp() / "m.safetensors"
    path.write_bytes(safetensors(header, data))
    try:
        names = {tensor.name for tensor in tensors.read_header(path)}
    except MissingError:
        return
    try:
        assert {name for name, _ in deserialize(path.read_bytes())} == names
    except SafetensorError:
        pytest.fail("taken by us, refused by the library")


def model(folder, **files):
    folder.mkdir(parents=True)
    whole = safetensors({"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}, bytes(64))
    for name, content in {"model.safetensors": whole, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def test_what_trainers_and_other_formats_leave_beside_safetensors_is_passed_over(tmp_path):
    left = ["training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "pytorch_model.bin"]
    others = ["checkpoint-5/optimizer.pt", "openvino/openvino_model.bin", "onnx/model.onnx_data", "data_config.json"]
    check_folder(model(tmp_path / "m", **{name: [] for name in (*left, *others)}))


def test_settings_of_published_models_pass(tmp_path):
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Dense", "type": "pylate.models.Dense.Dense"},
        {"idx": 3, "name": "3", "path": "", "type": "sentence_transformers.base.modules.dense.Dense"},
    ]
    config = {"hidden_size": 4, "vocab_size": 8, "max_position_embeddings": 131_072, "attn_implementation": "sdpa"}
    dense = {"activation_function": "torch.nn.modules.linear.Identity"}
    check_folder(
        model(tmp_path / "m", **{"modules.json": modules, "config.json": config, "2_Dense/config.json": dense})
    )


def test_the_models_of_the_other_tests_pass(tiny_encoder, tiny_modernbert):
    check_folder(tiny_encoder)
    check_folder(tiny_modernbert)
    if folder := STARTER_ENCODER.folder():
        check_folder(folder / "model")


def test_tensors_of_the_writer_are_where_it_says(tmp_path):
    found = read(tmp_path, tiny_llama().shaped("output_norm.weight", Tensor((32,))).bytes())
    assert sum(tensor.bytes for tensor in found.tensors) <= len(TINY)
