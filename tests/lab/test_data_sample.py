"""`biorag data sample` against a slow draw: in any order of files, with exclusion and repeats."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.benchmarks.golden import load_answers
from biorag.corpus.datasets import load_dataset
from biorag.corpus.readers import read_snippets
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, MismatchError, MissingError, UsageError
from biorag.lab.conversion.sampling import Draw, DrawnRecord, SampleRequest, number_of, read_keys, sample
from biorag.training.rows import read_rows
from tests.cli import done, failed, invoke, succeeded
from tests.lab.published import MEDRAG, PQAL, write_beir, write_lines


def sampled(
    out: Path, *names: Path, sizes: tuple[int, ...], seed: int = 0, exclude: tuple[Path, ...] = (), **options: Any
) -> dict:
    skip = options.pop("skip", False)
    rejects = RejectsFile(out / "rejects.jsonl") if skip else None
    request = SampleRequest(
        tuple(map(str, names)), sizes, seed, out.parent / "home", exclude, rejects=rejects, **options
    )
    return sample(request, out, lambda count: None)


def ids(path: Path) -> list[str]:
    return [snippet.id for snippet in read_snippets(Source("s", path / "corpus.jsonl"))]


def corpus(path: Path, count: int) -> Path:
    return write_lines(path, [{**MEDRAG[0], "id": f"s{n}", "PMID": 1000 + n} for n in range(count)])


def expected(names: list[str], sizes: tuple[int, ...], seed: int) -> list[list[str]]:
    """The samples, by sorting everything."""
    ordered = sorted(set(names), key=lambda id: number_of(seed, id))
    return [ordered[sum(sizes[:place]) : sum(sizes[: place + 1])] for place in range(len(sizes))]


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 12), st.integers(0, 3), st.randoms())
def test_a_draw_is_the_smallest_of_all_whatever_the_order(numbers, total, seed, shuffled):
    with tempfile.TemporaryDirectory() as folder:
        draw = Draw(total, seed, Path(folder), spare=2)
    shuffled.shuffle(numbers)
    for place, number in enumerate(numbers):
        draw.add(DrawnRecord(str(number), {"id": str(number), "place": place}))
    lines = [tuple(json.loads(line).values()) for line in draw.lines()]
    (smallest,) = expected(list(map(str, numbers)), (total,), seed)
    assert [id for id, _ in lines] == smallest
    last = {str(number): place for place, number in enumerate(numbers)}
    assert all(last[id] == place for id, place in lines), "of a repeated id the last record counts"


def test_samples_are_disjoint_and_do_not_depend_on_the_order_of_files(tmp_path):
    first, second = corpus(tmp_path / "a.jsonl", 90), tmp_path / "b.jsonl"
    lines = first.read_text().splitlines(keepends=True)
    first.write_text("".join(lines[:40]))
    second.write_text("".join(lines[40:]))
    for order, files in enumerate(((first, second), (second, first))):
        manifest = sampled(tmp_path / str(order), *files, sizes=(10, 25, 5), seed=7)
        drawn = [ids(tmp_path / str(order) / f"sample-{n}") for n in (1, 2, 3)]
        assert drawn == expected([f"s{n}" for n in range(90)], (10, 25, 5), 7)
        assert manifest["counts"] == {"read": 90, "excluded": 0, "samples": [10, 25, 5], "rejected": 0}
    assert (tmp_path / "0" / "sample-2" / "corpus.jsonl").read_bytes() == (
        tmp_path / "1" / "sample-2" / "corpus.jsonl"
    ).read_bytes()


def test_excluded_records_are_not_drawn_by_id_nor_by_pmid(tmp_path):
    file = corpus(tmp_path / "corpus.jsonl", 30)
    sampled(tmp_path / "first", file, sizes=(10,))
    write_lines(tmp_path / "pqa" / "queries.jsonl", [{"_id": "s5", "text": "?"}])
    write_lines(
        tmp_path / "pmids.jsonl", [{"_id": "other", "text": "t", "metadata": {"PMID": "1011"}}, {"positive_id": "s20"}]
    )
    excluded = (tmp_path / "first" / "sample-1", tmp_path / "pqa", tmp_path / "pmids.jsonl")
    assert read_keys(excluded[1:]) == {"s5", "other", 1011, "s20"}
    gone = {*ids(tmp_path / "first" / "sample-1"), "s5", "s11", "s20"}
    manifest = sampled(tmp_path / "second", file, sizes=(30 - len(gone),), exclude=excluded)
    assert set(ids(tmp_path / "second" / "sample-1")) == {f"s{n}" for n in range(30)} - gone
    assert manifest["counts"]["excluded"] == len(gone)
    with pytest.raises(
        BadInputError,
        match=rf"31 records were asked for, and there are {30 - len(gone)} .* besides {len(gone)} excluded",
    ):
        sampled(tmp_path / "third", file, sizes=(31,), exclude=excluded)


def test_judged_snippets_are_kept_and_the_rest_is_drawn(tmp_path):
    judged = ["s3", "s17", "s29"]
    (tmp_path / "asked" / "qrels").mkdir(parents=True)
    lines = "".join(f"q\t{id}\t1\n" for id in [*judged, "elsewhere"])
    (tmp_path / "asked" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    (tmp_path / "asked" / "queries.jsonl").write_text('{"_id": "q", "text": "?"}\n')
    file, keep = corpus(tmp_path / "c.jsonl", 40), (tmp_path / "asked",)
    manifest = sampled(tmp_path / "out", file, sizes=(8, 4), keep=keep)
    with pytest.raises(MismatchError, match=r"was made with other seed \(\d → \d\), sizes.*: choose another --out"):
        sampled(tmp_path / "out", file, sizes=(4,), seed=1, keep=keep)
    assert manifest["counts"]["kept"] == 3
    others = expected([f"s{n}" for n in range(40) if f"s{n}" not in judged], (5, 4), 0)
    assert set(ids(tmp_path / "out" / "sample-1")) == {*judged, *others[0]}
    assert ids(tmp_path / "out" / "sample-2") == others[1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"exclude": "rows.jsonl"}, BadInputError, "line 1: no _id, id"),
        ({"exclude": "no-file"}, MissingError, r"--exclude .*no-file is not there"),
        ({"exclude": "empty"}, UsageError, r"--exclude .* has none of"),
        ({"keep": "set"}, BadInputError, "asks for 3 snippets: raise the first of --sizes"),
        ({"keep": "set", "of": "set"}, UsageError, "--keep is for samples of snippets"),
        ({"keep": "empty"}, MissingError, r"has no qrels/test\.tsv"),
    ],
)
def test_what_is_refused(tmp_path, options, error, message):
    write_lines(tmp_path / "rows.jsonl", [{"a": 1}])
    (tmp_path / "empty").mkdir()
    write_lines(write_beir(tmp_path / "set") / "corpus.jsonl", [{"_id": f"d{n}", "text": "x"} for n in range(3)])
    source = tmp_path / "set" if "of" in options else tmp_path / "set" / "corpus.jsonl"
    named = {option: (tmp_path / name,) for option, name in options.items() if option != "of"}
    with pytest.raises(error, match=message):
        sampled(tmp_path / "out", source, sizes=(1,), **named)


def test_rows_are_sampled_whole(tmp_path):
    rows = [
        {"query": f"q{n}", "positive": f"p{n}", "negative_1": "n", "query_id": str(n), "extra": [n]} for n in range(20)
    ]
    sampled(tmp_path / "out", write_lines(tmp_path / "rows.jsonl", rows), sizes=(5, 15))
    files = [tmp_path / "out" / f"sample-{n}" / "rows.jsonl" for n in (1, 2)]
    drawn = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(drawn, key=lambda row: row["extra"]) == rows
    assert len(read_rows(files[:1])[0]) == 5
    write_lines(tmp_path / "set" / "rows.jsonl", random.Random(1).sample(rows, 20))
    sampled(tmp_path / "of-set", tmp_path / "set", sizes=(5,))
    assert (tmp_path / "of-set" / "sample-1" / "rows.jsonl").read_bytes() == files[0].read_bytes()


def test_questions_of_a_beir_folder_take_along_what_belongs_to_them(tmp_path):
    folder = write_beir(tmp_path / "set")
    write_lines(
        folder / "answers.jsonl", [{"_id": f"q{n}", "question": "?", "final_decision": "yes"} for n in range(4)]
    )
    sampled(tmp_path / "out", folder, sizes=(1, 1))
    drawn = {
        question.id: (n, load_dataset(tmp_path / "out" / f"sample-{n}"))
        for n in (1, 2)
        for question in load_dataset(tmp_path / "out" / f"sample-{n}").questions
    }
    assert set(drawn) == {"q0", "q1"}
    for id, (number, data) in drawn.items():
        assert data.qrels == {id: load_dataset(folder).qrels[id]}
        here = tmp_path / "out" / f"sample-{number}"
        assert ids(here) == {"q0": ["d0", "d1"], "q1": ["d2"]}[id], "those judged irrelevant too"
        assert [answer.expert.decision for answer in load_answers(here).questions] == ["yes"]


def test_what_a_killed_run_left_is_removed(tmp_path):
    file, left = corpus(tmp_path / "corpus.jsonl", 9), tmp_path / "out" / "sample-3"
    with pytest.raises(BadInputError):
        sampled(tmp_path / "out", file, sizes=(10,))
    write_lines(left / ".corpus.jsonl.0123456789abcdef", ["torn"])
    write_lines(left / "corpus.jsonl", [{"_id": "of another run"}])
    sampled(tmp_path / "out", file, sizes=(9,))
    files = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert files == ["corpus.jsonl", "manifest.json"]


def test_the_samples_of_the_paper_are_disjoint(tmp_path):
    """In small: questions, then documents for an index and for a first phase of training (M+C, section 3.2.1)."""
    (tmp_path / "ori_pqaa.json").write_text(json.dumps(PQAL))
    pmids = [*map(int, PQAL), *range(50, 90)]
    chunks = write_lines(tmp_path / "chunk.jsonl", [{**MEDRAG[0], "id": f"c{n}", "PMID": n} for n in pmids])
    succeeded(invoke("data", "convert", "pubmedqa", tmp_path / "ori_pqaa.json", "--out", tmp_path / "pqaa"))
    succeeded(invoke("data", "sample", tmp_path / "pqaa", "--sizes", 2, "--seed", 3, "--out", tmp_path / "pairs"))
    words = ("--sizes", "30,11", "--seed", 3, "--exclude", tmp_path / "pairs" / "sample-1", "--out", tmp_path / "mc")
    assert done(invoke("data", "sample", chunks, *words, "--json"))["excluded"] == 2
    drawn = [
        {snippet.pmid for snippet in read_snippets(Source("s", tmp_path / name / "corpus.jsonl"))}
        for name in ("pairs/sample-1", "mc/sample-1", "mc/sample-2")
    ]
    assert [len(numbers) for numbers in drawn] == [2, 30, 11]
    assert len(set.union(*drawn)) == 43
    failed(invoke("data", "sample", chunks, "--sizes", "3,0", "--out", tmp_path / "o"), 2, "--sizes '3,0'")
