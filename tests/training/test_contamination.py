"""The contamination guard: benchmark files of every shape, matches against all pairs, what real data holds."""

import gzip
import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.datasets import Dataset
from biorag.errors import BadInputError, BioragError, UsageError
from biorag.training.contamination import (
    ALL,
    DROPPED,
    HELD_OUT,
    TRAINING,
    ContaminationDetector,
    ContaminationError,
    ContaminationMatch,
    ContaminationPolicy,
    HeldOutSplit,
    jaccard,
    read_benchmark_questions,
)
from biorag.training.rows import normalised, split
from biorag.types import Question, TrainingRow

MIRAGE = {"bioasq": {"1": {"question": "Is it so?", "options": {}}, "2": {"question": "Is it not?"}}, "mmlu": {}}
QUESTIONS = [
    "Does imatinib cause fluid retention?",
    "Which of the following is not a tumor suppressor gene?",
    "Is celecoxib effective for treatment of amyotrophic lateral sclerosis?",
    "What is the most common side effect of metformin in adults?",
]


def benchmark_of(tmp_path, questions=QUESTIONS):
    path = tmp_path / "benchmark.jsonl"
    path.write_text("".join(json.dumps({"question": question}) + "\n" for question in questions), encoding="utf-8")
    return path


def detector_of(tmp_path, questions=QUESTIONS, threshold: float = 0.8) -> ContaminationDetector:
    return ContaminationDetector([benchmark_of(tmp_path, questions)], threshold)


def grams(text: str) -> set[str]:
    padded = " " + normalised(text) + " "
    return {a + b + c for a, b, c in zip(padded, padded[1:], padded[2:], strict=False)}


def slow_matches(questions, queries, threshold: float) -> list[tuple[str, str, float]]:
    """Every query against every question."""
    distinct = list({normalised(question): question for question in reversed(questions)}.values())[::-1]
    sets = [(question, grams(question)) for question in distinct]
    found = []
    for query in {normalised(query): query for query in reversed(queries)}.values():
        own = grams(query)
        scored = [(len(own & other) / len(own | other), question) for question, other in sets]
        exact = [question for question in distinct if normalised(question) == normalised(query)]
        best, question = (1.0, exact[0]) if exact else max(scored, key=lambda pair: pair[0])
        if best >= threshold:
            found.append((query, question, best))
    return found


# benchmark files


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps(MIRAGE), ["Is it so?", "Is it not?"]),
        (json.dumps(MIRAGE, indent=1), ["Is it so?", "Is it not?"]),
        (json.dumps({"questions": [{"body": "Is it so?"}, {"body": "Why?", "id": "x"}]}), ["Is it so?", "Why?"]),
        ('{"_id": "1", "text": "Is it so?"}\n{"_id": "2", "text": "Why?"}\n', ["Is it so?", "Why?"]),
        ('{"_id": "1", "text": "Is it so?"}', ["Is it so?"]),
        ('{"question": "Is it so?", "text": "no"}\n\n{"query": "Why?"}', ["Is it so?", "Why?"]),
        ('{"question": "Is it so?"}', ["Is it so?"]),
        ('{"question": " … "}\n{"question": "Why?"}', ["Why?"]),
    ],
)
def test_every_shape_plain_and_gzip(tmp_path, content, expected):
    path = tmp_path / "questions"
    path.write_text(content, encoding="utf-8")
    assert read_benchmark_questions(path) == expected
    path.write_bytes(gzip.compress(content.encode()))
    assert read_benchmark_questions(path) == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no question"),
        (b"\xff", "not JSON"),
        (b'{"question": "a"}\n{"question": ', "line 2: not JSON"),
        (b'{"question": "a"}\n[]', "line 2: not a JSON object"),
        (b'{"bioasq": {"1": {"query": "a"}}}', "'bioasq', '1': the question is not a text"),
        (b'{"question": "\\ud800"}', "not JSON"),
        (b'["a"]', "is a JSON list: expected MIRAGE's"),
        (b'{"bioasq": {}}', "has no question"),
        (b"[" * 100_000, "not JSON"),
        (b'{"n": 1%s}' % (b"0" * 5000), "not JSON"),
        (gzip.compress(b'{"question": "a"}' * 99, mtime=0)[:-9], "damaged or truncated gzip"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "benchmark"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=re.escape(reason)) as caught:
        read_benchmark_questions(path)
    assert str(path) in str(caught.value).encode("utf-8").decode()


@given(
    data=st.binary(max_size=60)
    | st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["question", "questions", "body", "_id", "text", "\ud800"]), inner)
        ),
    )
)
def test_arbitrary_files_raise_none_but_our_errors(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("benchmark") / "file"
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    try:
        assert all(map(normalised, read_benchmark_questions(path)))
    except BioragError as error:
        str(error).encode("utf-8")


# matching


def test_each_query_once_with_its_best_match_in_order(tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text('{"question": "Is warfarin safe during pregnancy?"}\n{"question": "Is heparin safe?"}')
    two.write_text('{"question": "is HEPARIN safe"}\n{"question": "Is warfarin safe in pregnancy?"}')
    queries = [
        "Is heparin safe??",
        "Nothing like it",
        "Is warfarin safe in pregnancies?",
        "Is Heparin Safe",
        "is heparin safe",
    ]
    first, second = ContaminationDetector([one, two], 0.6).matches(queries)
    assert first == ContaminationMatch("Is heparin safe??", "Is heparin safe?", str(one), 1.0)
    assert second == ContaminationMatch(
        queries[2],
        "Is warfarin safe in pregnancy?",
        str(two),
        pytest.approx(jaccard(grams(queries[2]), grams("Is warfarin safe in pregnancy?"))),
    )
    assert ContaminationDetector([], 0.8).matches(queries) == []


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_matches_are_those_of_all_pairs(tmp_path, threshold):
    """Made-up questions of few words, so that many pairs lie on both sides of the threshold."""
    draw = random.Random(7)
    vocabulary = ["aspirin", "aspirins", "warfarin", "heparin", "fever", "fevers", "is", "does", "of", "cause", "in"]
    texts = [" ".join(draw.choices(vocabulary, k=draw.randint(1, 9))) + "?" for _ in range(600)]
    questions, queries = texts[:300], texts[300:]
    expected = slow_matches(questions, queries, threshold)
    found = detector_of(tmp_path, questions, threshold).matches(queries)
    assert {(match.query, match.question, match.similarity) for match in found} == set(expected)
    assert 20 < len(expected) < 290


def test_rows_are_dropped_or_the_run_stops(tmp_path):
    benchmarks = (benchmark_of(tmp_path),)
    bad = [TrainingRow(question.lower(), positive) for question in QUESTIONS for positive in ("p1", "p2")]
    good = [TrainingRow("Is lithium safe?", "p")]
    kept, matches = ContaminationPolicy(benchmarks, drop=True).apply([*bad, *good])
    assert kept == good
    assert [match.question for match in matches] == QUESTIONS
    assert ContaminationPolicy(benchmarks).apply(good) == (good, [])
    with pytest.raises(ContaminationError) as caught:
        ContaminationPolicy(benchmarks).apply([*bad, *good])
    message = str(caught.value)
    assert caught.value.matches == tuple(matches)
    assert caught.value.details[0] == "1.00  does imatinib cause fluid retention?"
    with pytest.raises(UsageError, match="--guard FILE"):
        ContaminationPolicy(drop=True)
    assert caught.value.exit_code == 3
    assert message.startswith("4 training queries match a benchmark question: ")
    assert '"does imatinib cause fluid retention?" ~ "Does imatinib cause fluid retention?" in ' in message
    assert message.count(" ~ ") == 3
    assert "--drop-contaminated removes them" in message


# the held-out split

TEXTS = {f"q{n}": f"Does substance {n:02} relieve complaint {n * n}?" for n in range(40)}
DATA = Dataset("asked", [Question(id, text) for id, text in TEXTS.items()], {id: {f"d{id}": 1, "d": 2} for id in TEXTS})
OF_BENCHMARK = {f"q{n}" for n in range(10)}
HELD = {row.query_id for row in split([TrainingRow(text, "p", query_id=id) for id, text in TEXTS.items()], 0.3, 5)[1]}


@pytest.fixture
def benchmark(tmp_path):
    path = tmp_path / "benchmark.jsonl"
    path.write_text("".join(json.dumps({"question": TEXTS[id].upper()}) + "\n" for id in sorted(OF_BENCHMARK)))
    return path


def test_each_part_has_its_questions_in_their_order_with_their_judgements(benchmark):
    assert OF_BENCHMARK & HELD and OF_BENCHMARK - HELD and HELD - OF_BENCHMARK
    for benchmarks, dropped in (((), set()), ((benchmark,), OF_BENCHMARK)):
        parts = {ALL: TEXTS.keys(), HELD_OUT: HELD | dropped, TRAINING: TEXTS.keys() - HELD - dropped}
        if benchmarks:
            parts[DROPPED] = dropped - HELD
        for part, expected in parts.items():
            found = HeldOutSplit(0.3, 5, benchmarks, part).select(DATA)
            assert [question.id for question in found.questions] == [id for id in TEXTS if id in expected], part
            assert found.qrels == {id: DATA.qrels[id] for id in expected}


@pytest.mark.parametrize(
    ("fraction", "part", "reason"),
    [
        (0.0, HELD_OUT, "no question of asked is held out by --validation 0.0"),
        (1.0, TRAINING, "no question of asked is left for training by --validation 1.0"),
        (1.0, DROPPED, "no question of asked was dropped by --guard"),
    ],
)
def test_a_part_without_a_question_is_refused(benchmark, fraction, part, reason):
    with pytest.raises(BadInputError, match=re.escape(reason)):
        HeldOutSplit(fraction, 5, (benchmark,) if part == DROPPED else (), part).select(DATA)


# real data


@pytest.fixture(scope="module")
def mirage(shared_data) -> ContaminationDetector:
    return ContaminationDetector([shared_data / "mirage" / "benchmark.json"])


@pytest.mark.slow
def test_409_of_the_bioasq_questions_are_mirages_word_for_word(shared_data, mirage):
    queries = read_benchmark_questions(shared_data / "bioasq")
    matches = mirage.matches(queries)
    matched = {normalised(match.query) for match in matches}
    assert len(queries) == 1497
    assert len(matches) == 406  # three are asked twice
    assert sum(normalised(query) in matched for query in queries) == 409
    assert {match.similarity for match in matches} == {1.0}
