"""Mixtures and drawn prompts: what an epoch holds, what the model reads, each set's loss, resuming; what is refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from biorag.errors import BadInputError, MissingError, UsageError
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training import retriever
from biorag.training.bi_encoder import EncoderForm
from biorag.training.data import TrainingSet, mixed, passes, sampled, sampled_split
from biorag.training.evaluators import METRIC, SetsValidation, retrieval_validation
from biorag.training.instructions import TASK, Instructions, read_instructions
from biorag.training.preparation import instructions_of, load_mixture
from biorag.types import TrainingRow
from tests.conftest import WORDS
from tests.training.trainers import train_retriever

pytestmark = pytest.mark.models

ROWS = [
    TrainingRow(f"{one} {other}", f"{one} heals {other}", (f"{other} hurts {one}", f"{one} kills {other}"), kind="bm25")
    for one in WORDS
    for other in WORDS
    if one != other
]
FIRST, SECOND = Instructions("gene lung ", "liver "), Instructions("fever: ")
SETS = [
    TrainingSet("one", ROWS[:20], ROWS[60:66], weight=1.5, temperature=0.5, instructions=FIRST),
    TrainingSet("two", ROWS[20:42], ROWS[66:70], weight=0.5, instructions=SECOND),
    TrainingSet("own", [TrainingRow(row.query, row.positive) for row in ROWS[42:50]], []),
]
CONFIG = Settings.of(
    precision="fp32", train_batch_size=8, train_epochs=2, train_learning_rate=1e-3, train_evaluations=4
)
STEPS = 2 * (3 + 2 + 2 + 1)  # 20 rows, 10 of the 20, 11 of the 22, 8
QUIET = lambda _: None  # noqa: E731


def seen_by(monkeypatch, encoder, split, form, out, settings=CONFIG):
    """Train, and return for each step its set's place and the token ids of its queries and positives."""
    steps = []
    compute = retriever._Trainer.compute_loss

    def recorded(trainer, model, inputs, *arguments, **options):
        if model.training:
            read = [inputs[f"{name}_input_ids"].tolist() for name in ("query", "positive")]
            steps.append((inputs.get("dataset_name"), *[[tuple(filter(None, ids)) for ids in each] for each in read]))
        return compute(trainer, model, inputs, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(retriever._Trainer, "compute_loss", recorded)
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


@given(st.integers(1, 60), st.floats(0.01, 4), st.integers(0, 5))
def test_an_epoch_draws_each_row_by_its_weight(rows, weight, seed):
    found = [list(passes(rows, weight, seed, epoch)) for epoch in range(3)]
    assert found == [list(passes(rows, weight, seed, epoch)) for epoch in range(3)]
    for epoch in found:
        counts = Counter(place for places in epoch for place in places)
        assert sum(counts.values()) == max(1, round(weight * rows))
        assert counts.keys() <= set(range(rows))
        assert max(counts.values()) - min(counts[place] for place in range(rows)) <= 1


def test_batches_are_of_one_set_with_its_rows_and_instructions(whole, tiny_encoder):
    steps, manifest, _ = whole
    assert len(steps) == manifest["steps"] == STEPS
    told = [FIRST, SECOND, FIRST]  # a set without any has the run's
    expected = {
        (str(place), query, positive): row
        for place, (each, instructions) in enumerate(zip(SETS, told, strict=True))
        for row, query, positive in zip(
            each.training,
            tokens(tiny_encoder, [instructions.query + row.query for row in each.training]),
            tokens(tiny_encoder, [instructions.passage + row.positive for row in each.training]),
            strict=True,
        )
    }
    drawn = [Counter(), Counter()]
    for number, (place, queries, positives) in enumerate(steps):
        assert len(set(queries)) == len(queries) <= CONFIG.training.batch_size
        for query, positive in zip(queries, positives, strict=True):
            drawn[number >= STEPS // 2][place, expected[place, query, positive].query] += 1
    for epoch in drawn:
        rows = Counter()
        for (place, _), times in epoch.items():
            rows[place] += times
        assert rows == {"0": 30, "1": 11, "2": 8}
        assert {times for (place, _), times in epoch.items() if place == "0"} == {1, 2}
    assert drawn[0] != drawn[1], "another half in the second epoch"
    assert len({place for place, *_ in steps[: STEPS // 2]}) == 3, "sets are interleaved within an epoch"


# --- losses and validation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("similarity", "negatives"), [("cosine", "in-batch"), ("dot", "bm25")])
def test_each_sets_loss_has_its_temperature(tiny_encoder, similarity, negatives):
    """InfoNCE, −log softmax of the similarities over the temperature, by hand."""
    model = SentenceTransformer(str(tiny_encoder), device="cpu").eval()
    sets = mixed([replace(each, training=each.training[:4], validation=[]) for each in SETS[:2]])
    job = part_of(tiny_encoder, sets, negatives, similarity=similarity)._of_sets(model)
    rows = sets.sets[0].training
    texts = [[row.query for row in rows], [row.positive for row in rows], [row.negatives[0] for row in rows]]
    query, positive, negative = (model.encode(each) for each in texts)
    passages = np.concatenate([positive, negative])
    scores = query @ passages.T
    if similarity == "cosine":
        scores /= np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(passages, axis=1)
    default = 0.05 if similarity == "cosine" else 1.0
    for name, temperature in (("0", 0.5), ("1", default)):
        expected = []
        for number in range(4):
            others = [number, number + 4] if negatives == "bm25" else range(8)
            powers = np.exp(scores[number, list(others)] / temperature)
            expected.append(-np.log(np.exp(scores[number, number] / temperature) / powers.sum()))
        features = [model.preprocess(each) for each in texts]
        assert job["loss"][name](features, None).item() == pytest.approx(np.mean(expected), rel=1e-4)


def test_validation_is_the_mean_of_the_sets_each_with_its_instructions(tiny_encoder):
    model = SentenceTransformer(str(tiny_encoder), device="cpu")
    job = part_of(tiny_encoder, mixed(SETS))._of_sets(model)
    assert isinstance(job["evaluator"], SetsValidation)
    expected = []
    for each in SETS[:2]:
        model.prompts = each.instructions.prompts()
        expected.append(retrieval_validation(each.validation, each.training, "cosine", "fp32", 0)(model)[METRIC])
    model.prompts = {"query": "kidney pain ", "document": "heart "}  # which no set's evaluation reads
    assert expected[0] != expected[1]
    assert job["evaluator"](model)[METRIC] == pytest.approx(np.mean(expected))


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
    split = mixed([replace(SETS[0], instructions=DRAWN), *SETS[1:]])
    form = EncoderForm(instructions=DRAWN)
    whole, _ = seen_by(monkeypatch, tiny_encoder, split, form, tmp_path / "whole")

    class Killed(BaseException):
        pass

    count = []

    def die(steps: int) -> None:
        count.append(steps)
        if sum(count) > 13:
            raise Killed

    with pytest.raises(Killed):
        train_retriever(find_encoder(str(tiny_encoder)), split, CONFIG, tmp_path / "cut", {}, die, form=form)
    steps, resumed = seen_by(monkeypatch, tiny_encoder, split, form, tmp_path / "cut")
    assert resumed["resumed_from_step"] == 12
    assert steps == whole[12:]
    one, other = (SentenceTransformer(str(tmp_path / name), device="cpu").state_dict() for name in ("whole", "cut"))
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, atol=1e-5, err_msg=name)


def test_drawn_tasks_stand_in_the_template():
    found = read_instructions("bmretriever", "Find it", ["One", "Two"])
    assert found == Instructions(
        "Find it\nQuery: ", "Represent this passage\npassage: ", ("One\nQuery: ", "Two\nQuery: ")
    )
    with pytest.raises(UsageError, match="--random-prompts"):
        read_instructions("none", "Find it", ["One"])


def test_sampled_negatives_are_drawn_with_their_scores():
    row = TrainingRow("q", "p", tuple(f"n{n}" for n in range(50)), (9.0, *map(float, range(50))))
    found = [sampled([row], 3, seed)[0] for seed in range(20)]
    assert found[0] == sampled([row], 3, 0)[0]
    for each in found:
        assert len(set(each.negatives)) == 3
        assert each.scores == (9.0, *(float(text[1:]) for text in each.negatives))
    assert len({text for each in found for text in each.negatives}) > 25
    assert sampled([TrainingRow("q", "p", ("n",)), TrainingRow("r", "p")], 3, 0) == [
        TrainingRow("q", "p", ("n",)),
        TrainingRow("r", "p"),
    ]
    split = sampled_split(mixed(SETS), 1, 0)
    assert [len(each.training) for each in split.sets] == [20, 22, 8]
    assert {len(row.negatives) for row in split.training} == {0, 1}
    assert split.validation == mixed(SETS).validation


# --- the file -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for name in ("one.jsonl", "two.jsonl", "gold.jsonl.gz"):
        (tmp_path / name).write_text("")
    (tmp_path / "template.toml").write_text('query = "{task}: {query}"\npassage = "{passage}"')
    return tmp_path


def written(folder, text):
    path = folder / "mix.toml"
    path.write_text(text)
    return path


FILE = """
[[sets]]
rows = "gold.jsonl.gz"
weight = 2
temperature = 0.5
task = "Find gold"
[[sets]]
name = "synthetic"
rows = ["one.jsonl", "two.jsonl"]
instruct = "template.toml"
[[sets]]
rows = "two.jsonl"
"""


def test_a_file_gives_sets_with_paths_from_where_it_lies(folder):
    sets = load_mixture(written(folder, FILE)).sets
    assert [each.name for each in sets] == ["gold", "synthetic", "two"]
    assert sets[1].rows == (folder / "one.jsonl", folder / "two.jsonl")
    assert [(each.weight, each.temperature) for each in sets] == [(2.0, 0.5), (1.0, None), (1.0, None)]


def test_a_set_has_the_runs_instructions_where_it_sets_none(folder):
    mixture = load_mixture(written(folder, FILE))
    kept, found = instructions_of(mixture, "bmretriever", None)
    passage = "Represent this passage\npassage: "
    assert kept == Instructions("Find gold\nQuery: ", passage)
    assert found == [kept, Instructions("Find gold: "), kept]
    kept, found = instructions_of(mixture, "bmretriever", "Find all", ["A", "B"])
    assert kept == found[2] == Instructions("Find all\nQuery: ", passage, ("A\nQuery: ", "B\nQuery: "))
    assert [each.query for each in found] == ["Find gold\nQuery: ", "Find all: ", "Find all\nQuery: "]
    assert found[1].drawn == ("A: ", "B: ")
    with pytest.raises(UsageError, match="'gold'"):
        instructions_of(mixture, None, None)
    bare = load_mixture(written(folder, '[[sets]]\nrows = "one.jsonl"'))
    assert instructions_of(bare, None, None) == (None, [None])
    own = load_mixture(written(folder, '[[sets]]\nrows = "one.jsonl"\ninstruct = "bmretriever"'))
    assert instructions_of(own, None, None)[0] == read_instructions("bmretriever", TASK)


ONE, TWO = (f'[[sets]]\nrows = "{name}.jsonl"\n' for name in ("one", "two"))


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("", BadInputError, "sets: Field required"),
        ("sets = []", BadInputError, "sets: Tuple should have at least 1"),
        ('[[sets]]\nrows = "one.jsonl"\nwieght = 2', BadInputError, "sets.0.wieght: Extra inputs"),
        ('[[sets]]\nrows = "one.jsonl"\nweight = 0', BadInputError, "sets.0.weight: Input should be greater than 0"),
        ('[[sets]]\nrows = "one.jsonl"\ntemperature = 0', BadInputError, "sets.0.temperature: .* greater than 0"),
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
            '[[sets]]\nrows = "one.jsonl"\nshare = 0.2\nweight = 2\n[[sets]]\nrows = "two.jsonl"\nshare = 0.8',
            BadInputError,
            "of their own",
        ),
    ],
)
def test_what_is_no_mixture(folder, text, error, reason):
    with pytest.raises(error, match=reason):
        load_mixture(written(folder, text))
