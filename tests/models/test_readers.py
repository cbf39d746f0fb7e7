"""Readers of claims: what their labels mean, torch against a slow reference, and exports against torch."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from biorag import engine
from biorag.engine import load_checker, load_chooser, load_reader
from biorag.errors import MissingError
from biorag.models.cross_encoder import CrossEncoderReader
from biorag.models.exported import GRAPH, RECORD, ExportedReader, open_reader
from biorag.models.exported import load_reader as load_exported
from biorag.models.exporting import LARGEST_DIFFERENCE, export_model, write_export
from biorag.models.finding import find_encoder
from biorag.models.labels import TRUST, label_columns
from biorag.settings.settings import Settings
from biorag.types import Trust
from tests.conftest import WORDS
from tests.fakes import ScriptedReader
from tests.models.test_exported import flip_a_bit
from tests.tiny_reader import save_reader

pytestmark = pytest.mark.models

PAIRS = [  # window, claim
    ("aspirin lowers fever.", "aspirin lowers pain"),
    ("heparin, liver; kidney", ""),
    ("pain " * 300, "fever"),  # longer than the model's window
    ("fever", "gene " * 300),
    ("naïve T细胞 [MASK] 🩺", "5 mg?"),
]
# Other words and another order for each architecture: columns of supports, contradicts, neither, and answers.
LABELLED = {
    "bert": (("entailment", "neutral", "contradiction"), (0, 2, 1)),
    "deberta-v2": (("REFUTES", "SUPPORTS", "NOT ENOUGH INFO"), (1, 0, 2)),
    "modernbert": (("NEI", "Contradicts", "Support"), (2, 1, 0)),
    "answers": (("answers", "neither", "supports", "contradicts"), (2, 3, 1, 0)),
    "one output": (("LABEL_0",), ()),  # the log-odds of support
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
def reader(request, tiny_encoder, tiny_modernbert, tmp_path_factory):
    """The files of a reader, and the outputs that are supports, contradicts, neither and, of one, answers."""
    folder = tmp_path_factory.mktemp("reader")
    if request.param == "deberta-v2":
        save_deberta(folder / "base")
    bases = {"modernbert": tiny_modernbert, "deberta-v2": folder / "base"}
    labels, columns = LABELLED[request.param]
    return save_reader(bases.get(request.param, tiny_encoder), folder / "model", labels), columns


def read_each(reader, pairs=PAIRS):
    """Return what a reader says of each pair alone, (pairs, 3), or (pairs, 4) with the answers."""
    readings = [reader.read(claim, [window]) for window, claim in pairs]
    stances = np.concatenate([reading.stances for reading in readings])
    answers = [reading.answers for reading in readings]
    return stances if answers[0] is None else np.column_stack([stances, np.concatenate(answers)])


def predicted(files, columns, pair):
    """Return the probabilities of a pair by the library's own outputs, in loops."""
    from sentence_transformers import CrossEncoder
    from torch import nn

    model = CrossEncoder(str(files.path), device="cpu")
    outputs = [float(output) for output in np.ravel(model.predict([pair], activation_fn=nn.Identity()))]
    if not columns:
        support = 1 / (1 + math.exp(-outputs[0]))
        return [support, 0.0, 1 - support]
    stances = [math.exp(outputs[column]) for column in columns[:3]]
    return [each / sum(stances) for each in stances] + [1 / (1 + math.exp(-outputs[n])) for n in columns[3:]]


def test_probabilities_are_those_of_the_library_in_our_order(reader):
    files, columns = reader
    assert label_columns(files) == columns
    loaded = CrossEncoderReader(files, "fp32")
    assert loaded.trust.tells_sides == bool(columns), "one output says of no study that it is against"
    assert loaded.tells_answers == loaded.reads_questions == (len(columns) == 4)
    rows = read_each(loaded)
    assert rows.shape == (5, len(columns) or 3) and rows.dtype == np.float32
    for pair, row in zip(PAIRS, rows, strict=True):
        np.testing.assert_allclose(row, predicted(files, columns, pair), atol=1e-5)
    assert rows.std(axis=0).max() > 0.01, "the pairs are told apart"
    together = loaded.read("fever", [window for window, _ in PAIRS])
    alone = read_each(loaded, [(window, "fever") for window, _ in PAIRS])
    np.testing.assert_allclose(together.stances, alone[:, :3], atol=1e-5)
    assert loaded.read("fever", []).stances.shape == (0, 3)


def test_an_export_gives_the_probabilities_of_torch(reader, tmp_path):
    files, columns = reader
    record = export_model(files, "reader", tmp_path)
    assert record.files is not None, record.reason
    assert record.files.difference <= LARGEST_DIFFERENCE
    ours, theirs = load_exported(files, "auto", tmp_path), CrossEncoderReader(files, "fp32")
    assert isinstance(ours, ExportedReader)
    assert (ours.name, ours.sha256) == (theirs.name, theirs.sha256)
    assert ours.trust.tells_sides == bool(columns)
    assert ours.tells_answers == ours.reads_questions == (len(columns) == 4)
    np.testing.assert_allclose(read_each(ours), read_each(theirs), atol=LARGEST_DIFFERENCE)
    assert ours.read("fever", []).stances.shape == (0, 3)
    assert isinstance(load_exported(files, "bf16", tmp_path), CrossEncoderReader)


def test_an_int8_export_stands_alone_and_says_how_much_it_differs(reader, tmp_path):
    files, columns = reader
    record = write_export(files, "reader", tmp_path / "small", int8=True)
    write_export(files, "reader", tmp_path / "whole")
    assert 0 < record.files.difference < 0.25
    small, whole = (open_reader(tmp_path / name) for name in ("small", "whole"))
    assert small.sha256 != whole.sha256
    difference = np.abs(read_each(small) - read_each(whole)).max()
    assert 0 < difference < 0.25 and read_each(small).shape == (5, len(columns) or 3)
    settings = Settings.of(home=tmp_path, reader=str(tmp_path / "small"))
    assert load_checker(settings).identity() == small.sha256 == record.files.graph


def test_the_first_use_exports_and_the_second_imports_no_torch(reader, tmp_path):
    files, _ = reader
    settings = Settings.of(home=tmp_path / "home", reader=str(files.path))
    first = load_reader(settings)
    assert isinstance(first, ExportedReader)
    code = (
        "import sys; from pathlib import Path; from biorag.models.exported import load_reader\n"
        "from biorag.models.finding import find_encoder\n"
        f"reader = load_reader(find_encoder({str(files.path)!r}), 'auto', Path({str(settings.exports)!r}))\n"
        f"print(reader.read('pain', ['aspirin']).stances.tolist(), {{'torch', 'transformers'}} & set(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == f"{first.read('pain', ['aspirin']).stances.tolist()} set()\n"


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (("LABEL_0", "LABEL_1", "LABEL_2"), "LABEL_0, LABEL_1, LABEL_2"),
        (("entailment", "not_entailment"), "entailment, not_entailment"),
        (("entailment", "neutral", "supports"), "entailment, neutral, supports"),
        (("entailment", "neutral", "contradiction", "other"), "other"),
        (("entailment", "neutral", "answers"), "entailment, neutral, answers"),
    ],
)
def test_other_labels_are_refused_before_anything_loads(tiny_encoder, tmp_path, labels, shown):
    files = save_reader(tiny_encoder, tmp_path / "model", labels)
    with pytest.raises(MissingError, match=f"{shown}.*entailment, contradiction and neutral"):
        load_checker(Settings.of(home=tmp_path / "home", reader=str(files.path))).identity()
    assert not (tmp_path / "home").exists()


@pytest.fixture(scope="module")
def alone(tiny_encoder, tmp_path_factory):
    """A folder with an exported reader."""
    folder = tmp_path_factory.mktemp("alone")
    files = save_reader(tiny_encoder, folder / "model", LABELLED["bert"][0])
    write_export(files, "reader", folder / "export")
    return folder / "export"


@pytest.mark.parametrize("name", [GRAPH, "tokenizer.json", RECORD])
@pytest.mark.parametrize("damage", [flip_a_bit, lambda path: path.write_text("{}")])
def test_a_damaged_file_of_an_exported_reader_is_one_sentence(alone, tmp_path, name, damage):
    folder = shutil.copytree(alone, tmp_path / "export")
    damage(folder / name)
    with pytest.raises(MissingError, match=r"damaged|not JSON"):
        load_checker(Settings.of(home=tmp_path / "home", reader=str(folder))).identity()


def test_other_models_and_missing_folders_are_one_sentence(alone, tiny_encoder, tmp_path):
    write_export(find_encoder(str(tiny_encoder)), "bi-encoder", tmp_path / "encoder")
    torn = shutil.copytree(alone.parent / "model", tmp_path / "torn")
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    unlabelled = shutil.copytree(alone.parent / "model", tmp_path / "unlabelled")
    config = json.loads((unlabelled / "config.json").read_text())
    (unlabelled / "config.json").write_text(json.dumps({**config, "id2label": None}))
    for reader, message in [
        (tmp_path / "encoder", "an exported encoder, not a reader"),
        (tmp_path / "nowhere", "is not there"),
        (torn, "fetch it again"),
        (unlabelled, "names no labels"),
        (tiny_encoder, "biorag train reader"),
    ]:
        with pytest.raises(MissingError, match=message) as caught:
            load_checker(Settings.of(home=tmp_path / "home", reader=str(reader))).identity()
        assert "\n" not in str(caught.value)


def test_a_folder_says_from_where_its_reader_is_trusted(alone, tmp_path):
    folder, trust = shutil.copytree(alone, tmp_path / "export"), Trust(0.9, 0.8, 2.0, 0.95)
    assert open_reader(folder).trust == Trust()
    (folder / TRUST).write_text(json.dumps({"trust": trust._asdict(), "measured": "by hand"}))
    assert open_reader(folder).trust == trust


@pytest.mark.parametrize("packaged", [True, False])
def test_the_packaged_reader_is_used_where_it_is_there(alone, tmp_path, monkeypatch, packaged):
    monkeypatch.setattr("biorag.models.exported.PACKAGED_READER", alone if packaged else tmp_path / "none")
    engine.packaged_reader.cache_clear()
    settings = Settings.of(home=tmp_path / "home")
    reader = load_reader(settings)
    assert (reader and reader.name) == ("biorag-reader" if packaged else None)
    assert load_reader(settings.replace(reader="none")) is None
    assert load_chooser(settings, None) is reader, "no verdicts are asked for, sentences are chosen all the same"
    whole = ScriptedReader(lambda query, window: (0, 0, 0), tells_answers=True)
    assert load_chooser(settings, whole) is whole
    assert load_chooser(settings, replace(whole, trust=Trust(answers=0))) is reader
    whole.reads_whole = True
    assert load_chooser(settings, whole) is reader, "one that is slow or costs money does not choose sentences"
    engine.packaged_reader.cache_clear()
