"""Training rows: every form of a line, every fault with its place, folders, round trips, splits and caps."""

import gzip
import json
import re
import unicodedata
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.datasets import QRELS_HEADER
from biorag.corpus.sentences import sentences
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, BioragError, MissingError
from biorag.training.rows import (
    cap_positives,
    disjoint_passages,
    normalised,
    read_rows,
    read_title_abstract,
    split,
    title_abstract_row,
)
from biorag.types import Snippet, TrainingRow
from tests.conftest import write_medrag

texts = st.text(st.characters(codec="utf-8"), max_size=12)
words = texts.filter(normalised)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
KEYS = ["query", "anchor", "positive", "negative", "negative_1", "negative_2", "negatives", "scores", "label", "kind"]


def lines(path, *records) -> list:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return [path]


def beir(folder, qrels: str, split: str = "test", queries=(("q1", "What is aspirin?"), ("q2", "What is warfarin?"))):
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": id, "text": text}) + "\n" for id, text in queries))
    (folder / "qrels" / f"{split}.tsv").write_text(QRELS_HEADER + qrels.replace(" ", "\t"))
    return folder


def counted(rows, questions, **others):
    return {"rows": rows, "questions": questions, "duplicates": 0, "empty": 0, "unknown": 0, "gold": 0} | others


# normalised


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Is  TNF-alpha, (really) up?", "is tnf alpha really up"),
        ("associated with ___.", "associated with"),
        ("STRASSE straße", "strasse strasse"),
        ("ﬁbrosis ① ½µ", "fibrosis 1 1 2μ"),
        ("β-Catenin\u00a0→\n胰岛素", "β catenin 胰岛素"),
        ("cafe\u0301", "café"),
        (" …?! ", ""),
    ],
)
def test_normalised(text, expected):
    assert normalised(text) == expected


# JSON Lines


def test_a_line_may_be_an_array_of_query_and_positive(tmp_path):
    rows, _ = read_rows(lines(tmp_path / "a.jsonl", ["Why?", "Because."], {"query": "a", "positive": "b"}))
    assert rows == [TrainingRow("Why?", "Because."), TrainingRow("a", "b")]
    with pytest.raises(BadInputError, match="line 1: not a JSON object but list"):
        read_rows(lines(tmp_path / "b.jsonl", ["Why?", "Because.", "No."]))


def test_every_key_of_a_line(tmp_path):
    paths = lines(
        tmp_path / "rows.jsonl",
        {
            "query": " Does it work? ",
            "positive": "It does.",
            "negatives": ["n-a", "n-b"],
            "negative_10": "n10",
            "negative_2": "n2",
            "negative": "n",
            "kind": "bm25",
            "query_id": "q",
            "positive_id": "p",
            "other": {"deep": [1]},
        },
        {"anchor": "a", "positive": "b", "label": 1.5, "kind": None, "query_id": None, "negative_1": None},
        {"query": "c", "anchor": "passed over", "positive": "b", "negatives": None},
    )
    rows, cleaning = read_rows(paths)
    negatives = ("n", "n2", "n10", "n-a", "n-b")
    assert rows == [
        TrainingRow(" Does it work? ", "It does.", negatives, "bm25", "q", "p"),
        TrainingRow("a", "b"),
        TrainingRow("c", "b"),
    ]
    assert cleaning == counted(3, 3)


def test_duplicates_across_files_and_empty_sides_are_counted_and_the_first_is_kept(tmp_path):
    one = lines(
        tmp_path / "one.jsonl",
        {"query": "What is it?", "positive": "A thing."},
        {"query": "what is IT", "positive": "Another."},
        {"query": "  ", "positive": "x"},
        {"query": "x", "positive": ""},
        {"query": "x", "positive": "…"},
    )
    (tmp_path / "two.jsonl.gz").write_bytes(
        gzip.compress(
            b'\n{"query": "what is it", "positive": "a thing!", "negative": "n"}\n{"query":"z","positive":"z"}'
        )
    )
    rows, cleaning = read_rows([*one, tmp_path / "two.jsonl.gz"])
    assert rows == [
        TrainingRow("What is it?", "A thing."),
        TrainingRow("what is IT", "Another."),
        TrainingRow("z", "z"),
    ]
    assert cleaning == counted(3, 2, duplicates=1, empty=3)


GOOD = {"query": "q", "positive": "p"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"positive": "p"}', "query: Field required"),
        (b'{"query": "q"}', "positive: Field required"),
        (b'{"query": 7, "positive": "p"}', "query: Input should be a valid string"),
        (b'{"query": "q", "positive": null}', "positive: Field required"),
        (b'{"query": "q", "positive": "\\ud800"}', "not JSON (unexpected end of hex escape"),
        (b'{"query": "q", "positive": "p", "negative": " "}', "a negative is empty"),
        (b'{"query": "q", "positive": "The p.", "negative_3": "the P"}', "the same text as the positive"),
        (b'{"query": "q", "positive": "p", "negative": ["n"]}', "negative: Input should be a valid string"),
        (b'{"query": "q", "positive": "p", "negatives": ["n", {}]}', "negatives."),
        (b'{"query": "q", "positive": "p", "kind": 1}', "kind: Input should be a valid string"),
        (b'{"query": "q", "positive": "p", "n": [NaN]}', "not JSON (expected value"),
        (b'{"query": "\xff"}', "not JSON (invalid unicode code point"),
        (b'{"query": ', "not JSON"),
        (b'["q", "p", "n"]', "not a JSON object but list"),
        (b'{"query": "q", "positive": "p", "n": 1%s}' % (b"0" * 5000), "not JSON"),
        (b"[" * 100_000, "not JSON (recursion limit exceeded"),
    ],
)
def test_a_bad_line_is_named_with_its_reason_and_what_to_do(tmp_path, line, reason):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n\n" + line + b"\n")
    with pytest.raises(BadInputError, match=re.escape(reason)) as caught:
        read_rows([path])
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert "fix or remove the line" in str(caught.value)


def test_files_that_are_absent_damaged_or_without_a_row(tmp_path):
    with pytest.raises(MissingError, match=r"absent\.jsonl is not there"):
        read_rows([tmp_path / "absent.jsonl"])
    damaged = tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(gzip.compress(json.dumps(GOOD).encode() * 99)[:-9])
    with pytest.raises(BadInputError, match="damaged or truncated gzip"):
        read_rows([damaged])
    with pytest.raises(BadInputError, match=r"no training row in .*rows.jsonl .with an empty side: 1;"):
        read_rows(lines(tmp_path / "rows.jsonl", {"query": "", "positive": "p"}))
    with pytest.raises(BadInputError, match="no training row in no file"):
        read_rows([])


@given(data=st.binary(max_size=60) | st.lists(json_values, max_size=3))
def test_arbitrary_files_raise_none_but_our_errors(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_bytes(data if isinstance(data, bytes) else b"\n".join(json.dumps(value).encode() for value in data))
    with pytest.raises(BioragError) as caught:  # no arbitrary file has both keys
        read_rows([path])
    str(caught.value).encode("utf-8")


# BEIR folders


def test_a_folder_with_its_corpus(tmp_path, snippets):
    folder = beir(tmp_path / "set", "q1 s0 1\nq1 s1 0\nq2 s1 2\nq2 s9 1\nq2 gone 1\n")
    write_medrag(folder / "corpus.jsonl", snippets)
    rows, cleaning = read_rows([folder], fetch=lambda ids: pytest.fail("the corpus is there"))
    assert rows == [
        TrainingRow("What is aspirin?", snippets[0].contents, query_id="q1", positive_id="s0"),
        TrainingRow("What is warfarin?", snippets[1].contents, query_id="q2", positive_id="s1"),
        TrainingRow("What is warfarin?", snippets[9].contents, query_id="q2", positive_id="s9"),
    ]
    assert cleaning == counted(3, 2, unknown=1)


def test_a_folder_without_a_corpus_takes_an_index(tmp_path):
    stored = {f"s{n}": Snippet(f"s{n}", "", f"text {n}") for n in range(2500)}
    asked: list[int] = []

    def fetch(ids):
        asked.append(len(ids))
        return {id: stored[id] for id in ids if id in stored}

    folder = beir(tmp_path / "set", "".join(f"q1 s{n} 1\nq2 s{n} 1\n" for n in range(2501)))
    rows, cleaning = read_rows([folder], fetch)
    assert Counter(row.query_id for row in rows) == {"q1": 2500, "q2": 2500}
    assert cleaning == counted(5000, 2, unknown=2)
    assert asked == [1000, 1000, 501]
    with pytest.raises(BadInputError, match="of snippets that neither the corpus nor the index has: 1"):
        read_rows([beir(tmp_path / "gone", "q1 x 1\n")], fetch)


# titles and abstracts


def test_titles_are_queries(corpus_file, snippets):
    rows, cleaning = read_title_abstract([Source("corpus", corpus_file), Source("again", corpus_file)], 0)
    titled = [snippet for snippet in snippets if snippet.title]
    assert rows == [TrainingRow(s.title, s.content, positive_id=s.id) for s in titled]
    assert cleaning == counted(11, 11, duplicates=11, empty=2)


def test_cropping_takes_passages_of_all_texts_without_their_titles(tmp_path):
    texts = {f"s{n}": Snippet(f"s{n}", "A title." * (n % 2), f"First {n}. Second {n}. Third {n}.") for n in range(9)}
    file = write_medrag(tmp_path / "corpus.jsonl", list(texts.values()))
    rows, _ = read_title_abstract([Source("corpus", file)], 3, cropping=True)
    assert [row.positive_id for row in rows] == list(texts)
    for row in rows:
        assert row.query in texts[row.positive_id].content and row.positive in texts[row.positive_id].content
        assert row == title_abstract_row(replace(texts[row.positive_id], title=""), 3)


# splits

questions = st.lists(st.builds(TrainingRow, query=words, positive=words), max_size=20)


@given(rows=questions, fraction=st.floats(0, 1), seed=st.integers(0, 2**32), cut=st.integers(0, 20))
def test_a_split_is_whole_by_question_and_the_same_whatever_else_is_there(rows, fraction, seed, cut):
    training, validation = split(rows, fraction, seed)
    held_out = {normalised(row.query) for row in validation}
    assert held_out.isdisjoint(normalised(row.query) for row in training)
    assert training == [row for row in rows if normalised(row.query) not in held_out]
    assert validation == [row for row in rows if normalised(row.query) in held_out]
    # Another order, fewer rows, another spelling: the same questions are held out.
    part = [replace(row, query=unicodedata.normalize("NFKC", row.query) + " ?") for row in rows[cut:][::-1]]
    assert {normalised(row.query) for row in split(part, fraction, seed)[1]} == held_out & {
        normalised(row.query) for row in part
    }


# caps


@given(
    names=st.lists(st.sampled_from(["a", "A?", "b", "c"]), max_size=30),
    limit=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_a_cap_keeps_the_order_and_as_many_as_it_may(names, limit, seed):
    rows = [TrainingRow(name, f"positive {place}") for place, name in enumerate(names)]
    capped = cap_positives(rows, limit, seed)
    assert capped == [row for row in rows if row in capped]
    total = Counter(normalised(name) for name in names)
    assert Counter(normalised(row.query) for row in capped) == {name: min(limit, n) for name, n in total.items()}
    assert [row for row in rows if row in cap_positives(rows, limit + 1, seed) and row in capped] == capped


# real data


def test_a_positive_of_the_same_question_is_no_negative(tmp_path):
    lines = [
        {"query": "Q one", "positive": "p1", "negative_1": "p2", "negative_2": "n"},
        {"query": "q ONE?", "positive": "P2.", "negative_1": "n"},
        {"query": "q two", "positive": "p1", "negative_1": "p2"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows, cleaning = read_rows([tmp_path / "rows.jsonl"])
    assert [row.negatives for row in rows] == [("n",), ("n",), ("p2",)]
    assert (cleaning["rows"], cleaning["gold"]) == (3, 1)


@given(st.lists(st.sampled_from(["Aspirin lowers fever.", "Is it so?", "no end", "(See B)", "1.5 mg"]), max_size=7))
def test_disjoint_passages_are_sentences_in_sequence(parts):
    text = " ".join(parts)
    found = sentences(text)
    drawn = {disjoint_passages(text, Random(seed)) for seed in range(40)}
    if len(found) < 2:
        assert drawn == {("", text)}
        return
    ranges = [(a, b) for a in range(len(found)) for b in range(a + 1, len(found) + 1)]
    allowed = {(" ".join(found[a:b]), " ".join(found[c:d])) for a, b in ranges for c, d in ranges if b <= c or d <= a}
    assert drawn <= allowed


def test_all_disjoint_passages_are_equally_likely():
    text = "One is first. Two is second. Three is third. Four is fourth."
    drawn = Counter(disjoint_passages(text, Random(seed)) for seed in range(6000))
    assert len(drawn) == 30, "two ranges of four sentences, C(6, 4) of them, in two orders"
    assert all(140 < count < 260 for count in drawn.values())
