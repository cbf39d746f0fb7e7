"""Judges of claims: what their labels mean, torch against a slow reference, and exports against torch."""

import json
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest

from biorag.engine import load_checker, load_judge
from biorag.errors import MissingError
from biorag.models.cross_encoder import CrossEncoderJudge
from biorag.models.exported import ExportedJudge, exported_judge, open_judge
from biorag.models.exporting import LARGEST_DIFFERENCE, export_model, write_export
from biorag.models.exports import GRAPH, RECORD
from biorag.models.finding import STARTER_ENCODER, find_encoder
from biorag.models.labels import label_columns
from biorag.settings.settings import Settings
from tests.conftest import WORDS
from tests.tiny_judge import save_judge

pytestmark = pytest.mark.models

PAIRS = [
    ("aspirin lowers fever.", "aspirin lowers pain"),
    ("heparin, liver; kidney", ""),
    ("pain " * 300, "fever"),  # longer than the model's window
    ("fever", "gene " * 300),
    ("naïve T细胞 [MASK] 🩺", "5 mg?"),
]
# Other words and another order for each architecture: columns of supports, contradicts, neither.
LABELLED = {
    "bert": (("entailment", "neutral", "contradiction"), (0, 2, 1)),
    "deberta-v2": (("REFUTES", "SUPPORTS", "NOT ENOUGH INFO"), (1, 0, 2)),
    "modernbert": (("NEI", "Contradicts", "Support"), (2, 1, 0)),
}


def save_deberta(folder):
    """Save a tiny random DeBERTa-v2 with disentangled attention and a tokenizer of word pieces of its own kind."""
    import torch
    from transformers import DebertaV2Config, DebertaV2Model, DebertaV2Tokenizer

    special = [(piece, 0.0) for piece in ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")]
    letters = [(letter, -9.0) for letter in "▁abcdefghijklmnopqrstuvwxyz.,?"]
    vocabulary = [*special, *((f"▁{word}", -3.0) for word in WORDS), *letters]
    DebertaV2Tokenizer(vocab=vocabulary, model_max_length=64).save_pretrained(folder)
    torch.manual_seed(5)
    attention = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
    config = DebertaV2Config(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        type_vocab_size=0,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        **attention,
    )
    DebertaV2Model(config).save_pretrained(folder)


@pytest.fixture(scope="module", params=LABELLED)
def judge(request, tiny_encoder, tiny_modernbert, tmp_path_factory):
    """The files of a judge of three labels, and the outputs that are supports, contradicts and neither."""
    folder = tmp_path_factory.mktemp("judge")
    if request.param == "deberta-v2":
        save_deberta(folder / "base")
    bases = {"bert": tiny_encoder, "modernbert": tiny_modernbert, "deberta-v2": folder / "base"}
    labels, columns = LABELLED[request.param]
    return save_judge(bases[request.param], folder / "model", labels), columns


def predicted(files, pair):
    """Return the probabilities of one pair alone, by sentence-transformers, in the order of the model's outputs."""
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(files.path), device="cpu").predict([pair], apply_softmax=True)[0]


def test_probabilities_are_those_that_the_library_predicts_in_our_order(judge):
    files, columns = judge
    assert label_columns(files) == columns
    rows = CrossEncoderJudge(files, "fp32").judge(PAIRS)
    assert rows.shape == (5, 3) and rows.dtype == np.float32
    for pair, row in zip(PAIRS, rows, strict=True):
        np.testing.assert_allclose(row, predicted(files, pair)[list(columns)], atol=1e-5)
    assert rows.std(axis=0).max() > 0.01, "the pairs are told apart"
    assert CrossEncoderJudge(files, "fp32").judge([]).shape == (0, 3)


def test_one_output_is_the_log_odds_of_support(tiny_cross_encoder):
    files = find_encoder(str(tiny_cross_encoder))
    rows = CrossEncoderJudge(files, "fp32").judge(PAIRS[:2])
    for pair, row in zip(PAIRS, rows, strict=False):
        support = predicted(files, pair)  # through the model's own sigmoid
        np.testing.assert_allclose(row, [support, 0, 1 - support], atol=1e-5)


def test_an_export_gives_the_probabilities_of_torch(judge, tmp_path):
    files, _ = judge
    record = export_model(files, "judge", tmp_path)
    assert record.files is not None, record.reason
    assert record.files.difference <= LARGEST_DIFFERENCE
    ours, theirs = exported_judge(files, "auto", tmp_path), CrossEncoderJudge(files, "fp32")
    assert isinstance(ours, ExportedJudge)
    assert ours.sha256 == theirs.sha256
    np.testing.assert_allclose(ours.judge(PAIRS), theirs.judge(PAIRS), atol=LARGEST_DIFFERENCE)
    assert ours.judge([]).shape == (0, 3)
    assert isinstance(exported_judge(files, "bf16", tmp_path), CrossEncoderJudge)


def test_one_output_is_exported_too(tiny_cross_encoder, tmp_path):
    files = find_encoder(str(tiny_cross_encoder))
    export_model(files, "judge", tmp_path)
    ours = exported_judge(files, "fp32", tmp_path)
    assert isinstance(ours, ExportedJudge)
    theirs = CrossEncoderJudge(files, "fp32")
    np.testing.assert_allclose(ours.judge(PAIRS), theirs.judge(PAIRS), atol=LARGEST_DIFFERENCE)


def test_an_int8_export_stands_alone_and_says_how_much_it_differs(judge, tmp_path):
    files, _ = judge
    record = write_export(files, "judge", tmp_path / "small", int8=True)
    write_export(files, "judge", tmp_path / "whole")
    assert 0 < record.files.difference < 0.25
    small, whole = (open_judge(tmp_path / name) for name in ("small", "whole"))
    assert small.sha256 != whole.sha256
    difference = np.abs(small.judge(PAIRS) - whole.judge(PAIRS)).max()
    assert 0 < difference < 0.25
    settings = Settings.of(home=tmp_path, verifier=str(tmp_path / "small"))
    assert load_checker(settings).identity() == small.sha256 == record.files.graph


def test_the_first_use_exports_and_the_second_imports_no_torch(judge, tmp_path):
    files, _ = judge
    settings = Settings.of(home=tmp_path / "home", verifier=str(files.path))
    first = load_judge(settings.generation.verifier, settings)
    assert isinstance(first, ExportedJudge)
    code = (
        "import sys; from pathlib import Path; from biorag.models.exported import exported_judge as load\n"
        "from biorag.models.finding import find_encoder\n"
        f"judge = load(find_encoder({str(files.path)!r}), 'auto', Path({str(settings.exports)!r}))\n"
        f"print(judge.judge({PAIRS[:2]!r}).tolist(), 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == f"{first.judge(PAIRS[:2]).tolist()} False False\n"


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (("LABEL_0", "LABEL_1", "LABEL_2"), "LABEL_0, LABEL_1, LABEL_2"),
        (("entailment", "not_entailment"), "entailment, not_entailment"),
        (("entailment", "neutral", "supports"), "entailment, neutral, supports"),
        (("entailment", "neutral", "contradiction", "other"), "other"),
    ],
)
def test_other_labels_are_refused_before_anything_loads(tiny_encoder, tmp_path, labels, shown):
    files = save_judge(tiny_encoder, tmp_path / "model", labels)
    with pytest.raises(MissingError, match=shown) as caught:
        load_checker(Settings.of(home=tmp_path / "home", verifier=str(files.path))).identity()
    assert "entailment, contradiction and neutral" in str(caught.value)
    assert not (tmp_path / "home").exists()


def damaged(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def alone(tiny_encoder, tmp_path_factory):
    """A folder with an exported judge."""
    folder = tmp_path_factory.mktemp("alone")
    files = save_judge(tiny_encoder, folder / "model", LABELLED["bert"][0])
    write_export(files, "judge", folder / "export")
    return folder / "export"


@pytest.mark.parametrize("name", [GRAPH, "tokenizer.json", RECORD])
@pytest.mark.parametrize("damage", [damaged, lambda path: path.write_text("{}")])
def test_a_damaged_file_of_an_exported_judge_is_one_sentence(alone, tmp_path, name, damage):
    folder = shutil.copytree(alone, tmp_path / "export")
    damage(folder / name)
    with pytest.raises(MissingError, match=r"damaged|not JSON"):
        load_checker(Settings.of(home=tmp_path / "home", verifier=str(folder))).identity()


def test_other_models_and_missing_folders_are_one_sentence(alone, tiny_encoder, tmp_path):
    write_export(find_encoder(str(tiny_encoder)), "bi-encoder", tmp_path / "encoder")
    torn = shutil.copytree(alone.parent / "model", tmp_path / "torn")
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    unlabelled = shutil.copytree(alone.parent / "model", tmp_path / "unlabelled")
    config = json.loads((unlabelled / "config.json").read_text())
    (unlabelled / "config.json").write_text(json.dumps({**config, "id2label": None}))
    for verifier, message in [
        (tmp_path / "encoder", "an exported encoder, not a judge"),
        (tmp_path / "nowhere", "not a directory"),
        (torn, "fetch it again"),
        (unlabelled, "names no labels"),
        (tiny_encoder, "biorag train verifier"),
    ]:
        with pytest.raises(MissingError, match=message) as caught:
            load_checker(Settings.of(home=tmp_path / "home", verifier=str(verifier))).identity()
        assert "\n" not in str(caught.value)


@pytest.mark.long
def test_a_judge_of_the_starters_size_fits_25_megabytes_in_int8(tmp_path):
    """With -s it prints the table of docs/answers.md: the milliseconds of one core are the median of 200 pairs."""
    labels = LABELLED["bert"][0]
    files = save_judge(STARTER_ENCODER.path().parent, tmp_path / "model", labels, scale=1, head=30)
    pair = (
        "aspirin lowers fever and pain, " * 14,
        "aspirin lowers the fever of adults at any usual dose given",
    )  # 128 tokens
    bytes_of = {}
    for name, int8, most in (("float32", False, LARGEST_DIFFERENCE), ("int8", True, 0.1)):
        record = write_export(files, "judge", tmp_path / name, int8)
        assert record.files.difference < most
        judge = open_judge(tmp_path / name)
        seconds = [_processor_seconds(judge, pair) for _ in range(210)]
        bytes_of[name] = sum(path.stat().st_size for path in (tmp_path / name).iterdir())
        sizes = f"{bytes_of[name] / 1e6:.1f} MB, {record.files.difference:.2g}"
        sys.stdout.write(f"{name}: {sizes}, {1e3 * statistics.median(seconds[10:]):.1f} ms\n")
    assert bytes_of["int8"] <= 25_000_000 < bytes_of["float32"]


def _processor_seconds(judge, pair):
    begun = time.process_time()
    judge.judge([pair])
    return time.process_time() - begun
