"""Mixtures and drawn prompts: what an epoch holds, what the model reads, each set's loss, resuming; what is refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from biorag.errors import BadInputError, MissingError, UsageError
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training import retriever
from biorag.training.bi_encoder import EncoderForm
from biorag.training.data import TrainingSet, instructions_of, load_mixture, mixed
from biorag.training.evaluators import METRIC, Validation, retrieval_validation
from biorag.training.instructions import Instructions, PromptForm
from biorag.types import TrainingRow
from tests.conftest import WORDS
from tests.training.trainers import QUIET, train_retriever

pytestmark = pytest.mark.models

ROWS = [
    TrainingRow(f"{one} {other}", f"{one} heals {other}", (f"{other} hurts {one}", f"{one} kills {other}"), kind="bm25")
    for one in WORDS
    for other in WORDS
    if one != other
]
FIRST, SECOND = Instructions("gene lung ", "liver "), Instructions("fever: ")
SETS = [
    TrainingSet("one", ROWS[:20], ROWS[60:66], instructions=FIRST),
    TrainingSet("two", ROWS[20:31], ROWS[66:70], instructions=SECOND),
    TrainingSet("own", [TrainingRow(row.query, row.positive) for row in ROWS[42:50]], []),
]
CONFIG = Settings.of(
    precision="fp32", train_batch_size=8, train_epochs=2, train_learning_rate=1e-3, train_evaluations=4
)
STEPS = 2 * (3 + 2 + 1)  # of 20, 11 and 8 rows


def seen_by(monkeypatch, encoder, split, form, out, settings=CONFIG):
    """Train, and return for each step its set's place and the token ids of its queries and positives."""
    steps = []
    compute = retriever.RetrieverTrainer.compute_loss

    def recorded(trainer, model, inputs, *arguments, **options):
        if model.training:
            read = [inputs[f"{name}_input_ids"].tolist() for name in ("query", "positive")]
            steps.append((inputs.get("dataset_name"), *[[tuple(filter(None, ids)) for ids in each] for each in read]))
        return compute(trainer, model, inputs, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(retriever.RetrieverTrainer, "compute_loss", recorded)
        found = train_retriever(find_encoder(str(encoder)), split, settings, out, {}, QUIET, form=form)
    return steps, found


def part_of(encoder, split, negatives="in-batch", **changes):
    files = find_encoder(str(encoder))
    return retriever.RetrieverTraining(files, split, CONFIG.replace(**changes), negatives)


def tokens(encoder, texts):
    """Return the ids of each text without padding, whose id is 0."""
    tokenizer = SentenceTransformer(str(encoder), device="cpu").tokenizer
    return [tuple(tokenizer(text, truncation=True).input_ids) for text in texts]


@pytest.fixture(scope="module")
def whole(tiny_encoder, tmp_path_factory):
    """A run of the mixture: what each step saw, the manifest, the folder."""
    out = tmp_path_factory.mktemp("mixture") / "m"
    with pytest.MonkeyPatch.context() as patch:
        return (*seen_by(patch, tiny_encoder, mixed(SETS), EncoderForm(instructions=FIRST), out), out)


# --- what an epoch holds ------------------------------------------------------------------------------------


def test_batches_are_of_one_set_with_its_rows_and_instructions(whole, tiny_encoder):
    steps, manifest, _ = whole
    assert len(steps) == manifest["steps"] == STEPS
    expected = Counter()
    for number, (each, instructions) in enumerate(zip(SETS, [FIRST, SECOND, FIRST], strict=True)):  # the run's for one
        queries = tokens(tiny_encoder, [instructions.query + row.query for row in each.training])
        positives = tokens(tiny_encoder, [instructions.passage + row.positive for row in each.training])
        expected.update((str(number), *texts) for texts in zip(queries, positives, strict=True))
    epochs = steps[: STEPS // 2], steps[STEPS // 2 :]
    for epoch in epochs:
        rows = [(name, *texts) for name, *columns in epoch for texts in zip(*columns, strict=True)]
        assert Counter(rows) == expected, "each row once"
    assert all(len(queries) <= CONFIG.training.batch_size for _, queries, _ in steps)
    assert epochs[0] != epochs[1], "other batches in the second epoch"
    assert len({name for name, *_ in epochs[0]}) == 3, "sets are interleaved within an epoch"


# --- losses and validation ----------------------------------------------------------------------------------


def test_validation_is_the_mean_of_the_sets_each_with_its_instructions(tiny_encoder):
    model = SentenceTransformer(str(tiny_encoder), device="cpu")
    evaluator = part_of(tiny_encoder, mixed(SETS))._validation(model)
    expected = []
    for each in SETS[:2]:
        model.prompts = each.instructions.prompts()
        expected.append(
            Validation("fp32", [retrieval_validation(each.validation, each.training, "cosine", 0)])(model)[METRIC]
        )
    model.prompts = {"query": "kidney pain ", "document": "heart "}  # which no set's evaluation reads
    assert expected[0] != expected[1]
    assert evaluator(model)[METRIC] == pytest.approx(np.mean(expected))


# --- prompts and negatives that are drawn -------------------------------------------------------------------

DRAWN = Instructions("gene ", "liver ", ("lung ", "pain: ", "fever "))


def prompts_of(encoder, steps, rows):
    """Return the prompt before each query of each epoch, by the row."""
    expected = {
        ids: (row, prompt)
        for prompt in DRAWN.drawn
        for row, ids in zip(rows, tokens(encoder, [prompt + row.query for row in rows]), strict=True)
    }
    passages = dict(zip(tokens(encoder, ["liver " + row.positive for row in rows]), rows, strict=True))
    half = len(steps) // 2
    found: list[dict[TrainingRow, str]] = [{}, {}]
    for number, (_, queries, positives) in enumerate(steps):
        for query, positive in zip(queries, positives, strict=True):
            row, prompt = expected[query]
            assert passages[positive] == row
            found[number >= half][row] = prompt
    return found


def test_each_query_has_a_drawn_prompt_anew_in_each_epoch(tiny_encoder, tmp_path, monkeypatch):
    split = replace(mixed([replace(SETS[0], training=ROWS[:24], validation=[])]), sets=())
    form = EncoderForm(instructions=DRAWN)
    steps, manifest = seen_by(monkeypatch, tiny_encoder, split, form, tmp_path / "m")
    first, second = prompts_of(tiny_encoder, steps, ROWS[:24])
    assert len(first) == len(second) == 24
    assert set(first.values()) == set(second.values()) == set(DRAWN.drawn)
    assert first != second
    assert manifest["identity"]["random_prompts"] == list(DRAWN.drawn)
    again, _ = seen_by(monkeypatch, tiny_encoder, split, form, tmp_path / "again")
    assert again == steps
    other, _ = seen_by(monkeypatch, tiny_encoder, split, form, tmp_path / "other", CONFIG.replace(seed=1))
    assert prompts_of(tiny_encoder, other, ROWS[:24])[0] != first
    kept = json.loads((tmp_path / "m" / "config_sentence_transformers.json").read_text())["prompts"]
    assert kept["query"] == "gene "


def test_a_killed_mixture_goes_on_to_the_same_weights(tiny_encoder, tmp_path, monkeypatch):
    """Killed in its second epoch, of which other rows and prompts are drawn than of the first."""
    split = mixed([replace(part, instructions=DRAWN) for part in SETS])
    form = EncoderForm(instructions=DRAWN)
    whole, _ = seen_by(monkeypatch, tiny_encoder, split, form, tmp_path / "whole")

    class Killed(BaseException):
        pass

    count = []

    def die(steps: int) -> None:
        count.append(steps)
        if sum(count) > 10:
            raise Killed

    with pytest.raises(Killed):
        train_retriever(find_encoder(str(tiny_encoder)), split, CONFIG, tmp_path / "cut", {}, die, form=form)
    steps, resumed = seen_by(monkeypatch, tiny_encoder, split, form, tmp_path / "cut")
    assert resumed["resumed_from_step"] == 9
    assert steps == whole[9:]
    one, other = (SentenceTransformer(str(tmp_path / name), device="cpu").state_dict() for name in ("whole", "cut"))
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, atol=1e-5, err_msg=name)


# --- the file -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for name in ("one.jsonl", "two.jsonl", "gold.jsonl.gz"):
        (tmp_path / name).write_text("")
    return tmp_path


def written(folder, text):
    path = folder / "mix.toml"
    path.write_text(text)
    return path


FILE = """
[[sets]]
rows = "gold.jsonl.gz"
task = "Find gold"
[[sets]]
name = "synthetic"
rows = ["one.jsonl", "two.jsonl"]
task = "Find ore"
[[sets]]
rows = "two.jsonl"
"""


def test_a_set_has_the_runs_instructions_where_it_sets_no_task(folder):
    sets = load_mixture(written(folder, FILE))
    assert [each.name for each in sets] == ["gold", "synthetic", "two"]
    assert sets[1].rows == (folder / "one.jsonl", folder / "two.jsonl")
    of_model, of_sets = instructions_of(sets, "bmretriever", None)
    passage = "Represent this passage\npassage: "
    assert of_model == Instructions("Find gold\nQuery: ", passage, form=PromptForm())
    of_task = replace(of_model, form=None)  # which replaces that of rows
    assert of_sets == [of_task, Instructions("Find ore\nQuery: ", passage), of_model]
    of_model, of_sets = instructions_of(sets, "bmretriever", "Find all", ["A", "B"])
    assert of_model == of_sets[2] == Instructions("Find all\nQuery: ", passage, ("A\nQuery: ", "B\nQuery: "))
    assert [each.query for each in of_sets] == ["Find gold\nQuery: ", "Find ore\nQuery: ", "Find all\nQuery: "]
    with pytest.raises(UsageError, match="'gold'"):
        instructions_of(sets, None, None)


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("", BadInputError, "sets: Field required"),
        ("sets = []", BadInputError, "sets: Tuple should have at least 1"),
        ('[[sets]]\nrows = "one.jsonl"\nwieght = 2', BadInputError, "sets.0.wieght: Extra inputs"),
        ("[[sets]]\nrows = []", BadInputError, "sets.0.rows: Tuple should have at least 1"),
        ('[[sets]]\nrows = "three.jsonl"', MissingError, "names .*three.jsonl, which is not there"),
        ('[[sets]]\nrows = "one.jsonl"\n[[sets]]\nrows = "one.jsonl"', BadInputError, "two sets have the name 'one'"),
        ("[[sets", BadInputError, "not valid TOML"),
        (
            '[[sets]]\nrows = "one.jsonl"\nshare = 0.2\n[[sets]]\nrows = "two.jsonl"',
            BadInputError,
            "every set needs a share",
        ),
        (
            '[[sets]]\nrows = "one.jsonl"\nshare = 0.2\ntask = "t"\n[[sets]]\nrows = "two.jsonl"\nshare = 0.8',
            BadInputError,
            "of their own",
        ),
    ],
)
def test_what_is_no_mixture(folder, text, error, reason):
    with pytest.raises(error, match=reason):
        load_mixture(written(folder, text))
