"""`biorag data convert`: each published layout becomes what biorag's own readers read, with the values of the file."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.benchmarks.golden import load_answers, read_golden, read_golden_answers
from biorag.corpus.datasets import load_dataset, read_qrels
from biorag.corpus.readers import read_snippets
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, UsageError
from biorag.lab.conversion.items import read_array_or_lines, read_each, read_object
from biorag.lab.conversion.run import convert, request_of
from biorag.registries import FORMATS
from biorag.training.rows import read_rows, read_title_abstract
from biorag.types import Snippet, TrainingRow
from tests.cli import done, failed, invoke
from tests.lab.published import MEDRAG, PQAL, TEST_GROUND_TRUTH, bioasq, write_beir, write_lines
from tests.pubmed_records import article, file_of


def write(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record, indent=4), encoding="utf-8")
    return path


def converted(format: str, out: Path, *names: Path, skip: bool = False, **options: Any) -> dict[str, Any]:
    """Convert a set, and return the manifest's counts."""
    rejects = RejectsFile(out / "rejects.jsonl") if skip else None
    request = request_of(FORMATS[format], [str(name) for name in names], out / "home", **options)
    return convert(format, request, out, rejects, lambda count: None)["counts"]


def snippets(folder: Path) -> list[Snippet]:
    return list(read_snippets(Source("corpus", folder / "corpus.jsonl")))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def question_ids(folder: Path) -> list[str]:
    return [question.id for question in load_dataset(folder).questions]


# --- PubMedQA ---


def test_pubmedqa_is_indexed_measured_and_mined(tmp_path, tiny_encoder):
    out, home = tmp_path / "out", tmp_path / "home"
    words = ("data", "convert", "pubmedqa", write(tmp_path / "ori_pqal.json", PQAL), "--out", out)
    report = done(invoke(*words, "--json", home=home))
    counts = {"questions": 3, "snippets": 3, "answers": 3, "judgements": 3, "rejected": 0}
    assert {key: report[key] for key in counts} == counts
    assert report["files"] == ["answers.jsonl", "corpus.jsonl", "qrels/test.tsv", "queries.jsonl"]
    data = load_answers(out)
    assert [question.text for question in data.questions] == [record["QUESTION"] for record in PQAL.values()]
    assert [question.expert.decision for question in data.questions] == ["yes", "no", "maybe"]
    assert data.questions[0].expert.ideal == (PQAL["21645374"]["LONG_ANSWER"],)
    passages = [" ".join(record["CONTEXTS"]).strip() for record in PQAL.values()]
    assert snippets(out) == [Snippet(id, "", text, int(id)) for id, text in zip(PQAL, passages, strict=True)]
    assert load_dataset(out).qrels == {id: {id: 1} for id in PQAL}
    assert [row.positive for row in read_rows([out])[0]] == passages
    assert done(invoke("index", out, "--encoder", tiny_encoder, "--json", home=home))["snippets"] == 3
    measured = done(invoke("bench", "retrieval", out, "--mode", "bm25", "--no-rerank", "--json", home=home))
    assert (measured["questions"], measured["metrics"]["success@10"]) == (3, 1.0)
    mined = invoke("mine", out, "--negatives", "random", "--out", tmp_path / "m.jsonl", "--json", home=home)
    assert done(mined)["rows"] == 3


def test_the_official_test_set_of_pubmedqa_is_by_its_pmids(tmp_path):
    file, ids = write(tmp_path / "ori_pqal.json", PQAL), write(tmp_path / "test_ground_truth.json", TEST_GROUND_TRUTH)
    converted("pubmedqa", tmp_path / "both", file, test_ids=ids)
    parts = {part: list(read_qrels(tmp_path / "both" / "qrels" / f"{part}.tsv")) for part in ("train", "test")}
    assert parts == {"train": ["21645374"], "test": ["16418930", "9488747"]}
    for split, expected in parts.items():
        out = tmp_path / split
        converted("pubmedqa", out, file, test_ids=ids, split=split)
        assert question_ids(out) == [record["_id"] for record in lines(out / "queries.jsonl")] == expected
        assert sorted(path.name for path in (out / "qrels").iterdir()) == ["test.tsv"]
        assert [snippet.id for snippet in snippets(out)] == expected
    with pytest.raises(BadInputError, match="PMIDs as keys"):
        converted("pubmedqa", tmp_path / "none", file, test_ids=write(tmp_path / "b.json", {"x": "yes"}))


def test_pqa_a_and_pqa_u_have_fewer_fields(tmp_path):
    unlabelled = {"2": {key: PQAL["16418930"][key] for key in ("QUESTION", "CONTEXTS", "LONG_ANSWER")}}
    files = [write(tmp_path / "a.json", {"1": PQAL["21645374"]}), write(tmp_path / "u.json", unlabelled)]
    converted("pubmedqa", tmp_path / "out", *files)
    answers = [question.expert for question in load_answers(tmp_path / "out").questions]
    assert [(answer.type, answer.decision) for answer in answers] == [("yesno", "yes"), ("summary", None)]
    assert answers[1].ideal == (PQAL["16418930"]["LONG_ANSWER"],)


# --- BioASQ ---


def test_bioasq_is_golden_files_and_a_beir_folder(tmp_path):
    data, out = bioasq(), tmp_path / "out"
    files = (write(tmp_path / "training8b.json", data), write(tmp_path / "training7b.json", bioasq(3)))
    counts = converted("bioasq", out, *files, id_prefix="pubmed_")
    golden = out / "test_golden.json"
    assert json.loads(golden.read_text()) == data
    assert read_golden(golden).questions == read_golden(files[0]).questions
    assert read_golden_answers(golden).questions[1].expert.things == (("ABCC11",),)
    questions = load_answers(out).questions
    assert [question.text for question in questions] == [record["body"] for record in data["questions"]]
    assert questions[2].relevant == ("pubmed_20000002", "pubmed_20000052")
    assert [question.expert.type for question in questions[:4]] == ["yesno", "factoid", "list", "summary"]
    assert (counts["answers"], counts["duplicates"]) == (6, 3), "written once"


def test_the_last_questions_of_bioasq_are_for_development(tmp_path):
    file = write(tmp_path / "training8b.json", bioasq(6))
    ids = [record["id"] for record in bioasq(6)["questions"]]
    converted("bioasq", tmp_path / "both", file, last=2)
    parts = {part: list(read_qrels(tmp_path / "both" / "qrels" / f"{part}.tsv")) for part in ("train", "dev")}
    assert parts == {"train": ids[:4], "dev": ids[4:]}
    assert [question.id for question in read_golden(tmp_path / "both" / "dev_golden.json").questions] == ids[4:]
    converted("bioasq", tmp_path / "dev", file, last=2, split="dev")
    assert question_ids(tmp_path / "dev") == ids[4:]


# --- BEIR, corpora, claims, rows ---


def test_a_beir_folder_keeps_its_parts_and_grades(tmp_path):
    folder = write_beir(tmp_path / "nfcorpus")
    converted("beir", tmp_path / "out", folder)
    for part in ("test", "dev"):
        ours, theirs = (read_qrels(base / "qrels" / f"{part}.tsv", 0) for base in (tmp_path / "out", folder))
        assert ours == theirs
    assert snippets(tmp_path / "out") == snippets(folder)
    assert [record["_id"] for record in lines(tmp_path / "out" / "queries.jsonl")] == ["q1", "q2", "q0"]
    for name in ("corpus", "queries"):
        plain = folder / f"{name}.jsonl"
        plain.with_suffix(".jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    converted("beir", tmp_path / "dev", folder, split="dev")
    assert load_dataset(tmp_path / "dev").qrels == {"q1": {"d0": 1}, "q2": {"d3": 1}}


def test_a_beir_folder_has_the_corpus_that_is_named_behind_it(tmp_path):
    folder, corpus = write_beir(tmp_path / "bioasq"), write_lines(tmp_path / "pubmed.jsonl", MEDRAG)
    (folder / "corpus.jsonl").unlink()
    request = request_of(FORMATS["beir"], [str(folder), str(corpus)], tmp_path)
    convert("beir", request, tmp_path / "out", None, lambda _: None)
    assert [record["_id"] for record in lines(tmp_path / "out" / "corpus.jsonl")] == [row["id"] for row in MEDRAG]
    assert read_qrels(tmp_path / "out" / "qrels" / "test.tsv", 0) == read_qrels(folder / "qrels" / "test.tsv", 0)
    assert "pubmed.jsonl" in (tmp_path / "out" / "manifest.json").read_text()


def test_records_of_medi_are_rows_under_their_querys_instruction(tmp_path):
    medi = [
        {"query": ["Represent the claim: ", "a b"], "pos": ["Represent: ", "c"], "neg": ["Represent: ", "d"]},
        {"query": ["Classify: ", "e"], "pos": ["Represent: ", "Yes."], "neg": ["Represent: ", "yes"]},
    ]
    counts = converted("medi", tmp_path / "out", write(tmp_path / "medi-data.json", medi))
    assert read_rows([tmp_path / "out" / "rows.jsonl"])[0] == [
        TrainingRow("a b", "c", ("d",), instruction="Represent the claim:")
    ]
    assert (counts["rows"], counts["dropped"]) == (1, 1)
    with pytest.raises(BadInputError, match="'pos' is not an instruction and a text"):
        converted("medi", tmp_path / "bad", write(tmp_path / "bad.json", [{**medi[0], "pos": "c"}]))


def test_titles_and_abstracts_are_the_rows_that_training_makes_of_them(tmp_path):
    records = [*MEDRAG, {"id": "h", "title": "", "content": "First half. Second half."}, {"id": "d", "content": "One."}]
    file = write_lines(tmp_path / "chunk.jsonl", records)
    counts = converted("title-abstract", tmp_path / "out", file)
    assert read_rows([tmp_path / "out" / "rows.jsonl"])[0] == read_title_abstract([Source("f", file)], 0)[0]
    assert (counts["rows"], counts["dropped"]) == (7, 1)


def test_claims_are_queries_of_the_texts_that_they_are_judged_by(tmp_path):
    text = {"title": "Cilia.", "sentences": ["Cilia beat.", "They clear mucus."]}
    records = [
        {"id": "a", "claim": "Cilia clear mucus [<|cit|>].", **text, "label": "supports"},
        {"id": "b", "claim": "Cilia never beat.", **text, "label": "contradicts"},
        {"id": "c", "claim": "Cilia glow."},
    ]
    counts = converted("claims", tmp_path / "out", write_lines(tmp_path / "claims.jsonl", records))
    contents = "Cilia. Cilia beat. They clear mucus."
    assert lines(tmp_path / "out" / "rows.jsonl") == [
        {"query": "Cilia clear mucus.", "positive": contents, "positive_id": "a"},
        {"query": "Cilia never beat.", "positive": contents, "positive_id": "b"},
    ]
    assert [snippet.contents for snippet in snippets(tmp_path / "out")] == [contents]
    assert (counts["rows"], counts["snippets"], counts["dropped"]) == (2, 1, 1)


def test_conclusions_are_queries_of_the_rest_of_their_abstracts(tmp_path):
    last = "So metformin lowers glucose in all of them."
    records = [
        {"id": "a", "title": "Metformin", "content": f"We gave it. Glucose fell. {last}"},
        {"id": "b", "title": "", "content": f"Glucose fell. {last}"},
        {"id": "c", "title": "", "content": "We gave it. Glucose fell. Done."},
    ]
    counts = converted("conclusions", tmp_path / "out", write_lines(tmp_path / "chunk.jsonl", records))
    row = {"query": last, "positive": "Metformin. We gave it. Glucose fell.", "positive_id": "a"}
    assert lines(tmp_path / "out" / "rows.jsonl") == [row]
    assert counts["dropped"] == 2


def test_rows_become_judged_questions(tmp_path):
    rows = [
        {"query": "Why?", "positive": "Because.", "negatives": ["No idea."]},
        {"query": "How?", "positive": "So.", "negative": "Because."},
        {"query": "Why?", "positive": "Therefore."},
    ]
    counts = converted("rows", tmp_path / "out", write_lines(tmp_path / "rows.jsonl", rows))
    assert (counts["questions"], counts["snippets"], counts["judgements"]) == (2, 4, 3)
    data, texts = load_dataset(tmp_path / "out"), {one.id: one.content for one in snippets(tmp_path / "out")}
    relevant = {question.text: [texts[id] for id in data.qrels[question.id]] for question in data.questions}
    assert relevant == {"Why?": ["Because.", "Therefore."], "How?": ["So."]}


def test_questions_are_judged_by_the_papers_of_their_passages(tmp_path):
    cilia = {"pmid": "7", "title": "Cilia.", "text": "Cilia beat."}
    records = [
        {"id": "a", "question": "Do cilia\nbeat?", "passages": [cilia, {"pmid": None, "text": "They do."}]},
        {"id": "b", "question": "Why?", "passages": [{**cilia, "text": "They clear mucus."}, cilia]},
        {"id": "c", "question": "What is it?", "passages": [cilia], "boilerplate": True},
        {"id": "d", "question": "And?", "passages": []},
    ]
    file = write_lines(tmp_path / "qa.jsonl", records)
    counts = converted("questions", tmp_path / "out", file, id_prefix="pubmed_")
    assert (counts["questions"], counts["judgements"], counts["snippets"]) == (2, 3, 2)
    texts = {one.id: one.contents for one in snippets(tmp_path / "out")}
    assert texts["pubmed_7"] == "Cilia. Cilia beat. They clear mucus."
    assert [one.pmid for one in snippets(tmp_path / "out")] == [7, None]
    relevant = {id: {texts[one] for one in judged} for id, judged in load_dataset(tmp_path / "out").qrels.items()}
    assert relevant == {"a": {texts["pubmed_7"], "They do."}, "b": {texts["pubmed_7"]}}


def test_records_with_a_title_alone_are_dropped(tmp_path):
    path = tmp_path / "pubmed20n0001.xml"
    path.write_bytes(file_of(article(7, "T", "C"), article(8, "Only a title")))
    counts = converted("abstracts", tmp_path / "out", path)
    assert (counts["snippets"], counts["dropped"]) == (1, 1)
    assert [(snippet.id, snippet.title, snippet.content) for snippet in snippets(tmp_path / "out")] == [("7", "T", "C")]


# --- BMRetriever's pairs ---

TASK = "Given a question, retrieve Pubmed passages that answer the question"
PAIRS = {
    "columns": {"query": "Why?", "positive": "Because of it.", "negative": "No idea."},
    "templates": {
        "query": f"Instruct: {TASK}\nQuery: Why?",
        "pos": ["Represent this passage\npassage: Because of it."],
        "neg": ["No idea."],
    },
    "Tevatron": {
        "query": "Why?",
        "positive_passages": [{"docid": "1", "title": "", "text": "Because of it."}],
        "negative_passages": [{"title": "No", "text": "idea."}, {"title": "", "text": "because of IT"}],
    },
    "passages": {
        "question": "Why?",
        "passages": [{"pmid": 1, "title": "Because", "text": "of it."}],
        "negative": "No idea.",
    },
}


@pytest.mark.parametrize(
    ("layout", "as_array"), [("columns", True), ("templates", False), ("Tevatron", True), ("passages", False)]
)
def test_pairs_of_bmretriever_are_rows(tmp_path, layout, as_array):
    path = tmp_path / "ft_data.json"
    path.write_text(json.dumps([PAIRS[layout]]) if as_array else json.dumps(PAIRS[layout]) + "\n")
    converted("bmretriever", tmp_path / "out", path)
    (row,), _ = read_rows([tmp_path / "out" / "rows.jsonl"])
    assert (row.query, row.positive, row.negatives) == ("Why?", "Because of it.", ("No idea.",))
    assert row.instruction == (TASK if layout == "templates" else "")


def test_bmretrievers_pairs_are_parted_by_their_instructions(tmp_path):
    from biorag.training.instructions import dataset_key, read_tasks

    tasks = read_tasks("bmretriever")
    instructions = {name: tasks[dataset_key(name)] for name in ("MQP", "MS Marco", "FEVER", "PubMed")}
    instructions["a task of its own"] = "Find trials of a drug"
    records = [
        {"instruction": text.upper(), "query": name, "positive": f"On {name}."} for name, text in instructions.items()
    ]
    path = write_lines(tmp_path / "ft_data.jsonl", records)
    for part, expected in {
        "med-synth": ["PubMed", "a task of its own"],
        "med-real": ["MQP"],
        "search": ["MS Marco"],
        "nlu": ["FEVER"],
    }.items():
        converted("bmretriever", tmp_path / part, path, split=part)
        assert [row["query"] for row in lines(tmp_path / part / "rows.jsonl")] == expected


# --- bad records, wrong options ---

NO_DOCUMENTS = {"questions": [{"id": "b", "body": "What?"}, *bioasq(2)["questions"]]}
NOT_A_TEXT = [{"query": 3, "positive": "x"}, PAIRS["columns"]]


@pytest.mark.parametrize(
    ("format", "record", "reason", "counted", "good"),
    [
        ("pubmedqa", {"1": {"QUESTION": " ", "CONTEXTS": ["x"]}, **PQAL}, "'QUESTION' is not a text", "questions", 3),
        ("bioasq", NO_DOCUMENTS, "'b': documents: Field required", "questions", 2),
        ("bmretriever", NOT_A_TEXT, "'query' is neither a text", "rows", 1),
        ("title-abstract", [{"id": "x"}, *MEDRAG], "has no text", "rows", 6),
    ],
)
def test_a_bad_record_stops_with_its_place_or_is_skipped_and_counted(tmp_path, format, record, reason, counted, good):
    of_lines = format == "title-abstract"
    path = write_lines(tmp_path / "x.jsonl", record) if of_lines else write(tmp_path / "x.json", record)
    words, out = ("data", "convert", format, path, "--out", tmp_path / "out"), tmp_path / "out"
    failed(invoke(*words), 3, str(path), reason, "--on-bad-line skip")
    result = invoke(*words, "--on-bad-line", "skip", "--json")
    assert "1 bad line was skipped" in result.stderr
    report = done(result)
    assert (report[counted], report["rejected"]) == (good, 1)
    assert [reason in reject["reason"] for reject in lines(out / "rejects.jsonl")] == [True]


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("pubmedqa", {"split": "test"}, "--test-ids"),
        ("bioasq", {"test_ids": Path("x")}, "--test-ids is not for format bioasq"),
        ("bioasq", {"split": "test", "last": 1}, "--split test is not of format bioasq: use one of train, dev"),
        ("bioasq", {"split": "dev"}, "--last 200"),
        ("bioasq", {"last": 6}, "--last 6 leaves no question"),
        ("title-abstract", {"split": "dev"}, "format title-abstract has no parts: leave out --split"),
        ("beir", {"split": "train"}, "unknown --split 'train': use one of dev, test"),
    ],
)
def test_what_a_format_does_not_take_is_refused(tmp_path, format, options, message):
    path = write_beir(tmp_path / "beir") if format == "beir" else write(tmp_path / "x.json", bioasq(6))
    with pytest.raises(UsageError, match=message):
        converted(format, tmp_path / "out", path, **options)
    with pytest.raises(UsageError, match="reads a folder"):
        converted("beir", tmp_path / "out", write(tmp_path / "y.json", bioasq(6)))
    failed(invoke("data", "convert", "bioask", "x", "--out", "o"), 2, "unknown format 'bioask': use one of abstracts")


# --- the entries of a file ---


def entries(path: Path, content: bytes) -> Source:
    path.write_bytes(content)
    return Source(path.name, path)


@given(st.binary(max_size=60) | st.text('{}[]":,0 1e\\ué\n', max_size=40).map(str.encode))
def test_whatever_the_bytes_are_there_is_no_error_but_ours(tmp_path_factory, content):
    source = entries(tmp_path_factory.getbasetemp() / "x.json", content)
    for read in (read_object, read_array_or_lines):
        rejects: list[Any] = []
        list(read_each("x.json", read(source), lambda entry: entry.json_object(), rejects.append))
        with suppress(BadInputError):
            list(read_each("x.json", read(source), lambda entry: entry.json_object(), None))
            assert not rejects


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda content: b"\xef\xbb\xbf" + content])
def test_objects_arrays_and_lines(tmp_path, pack):
    records = {"a": {"x": 12345678901234567890}, "bé": {"y": ["x" * 40, {"c": 1.5e3}]}}
    rows, path = list(records.values()), tmp_path / "x.json"
    read = list(read_object(entries(path, pack(json.dumps(records, indent=1).encode()))))
    assert {entry.key: entry.json_object() for entry in read} == records
    array = entries(path, pack(json.dumps(rows, indent=1).encode()))
    assert [entry.json_object() for entry in read_array_or_lines(array)] == rows
    by_line = entries(path, pack("\n\n".join(map(json.dumps, rows)).encode()))
    numbered = [(entry.number, entry.json_object()) for entry in read_array_or_lines(by_line)]
    assert numbered == [(1, rows[0]), (3, rows[1])]
    for content, reason in ((b"[1]", "not a JSON object"), (b'{"a": 1,\n "b": [1, 2', "not JSON .*line 2")):
        with pytest.raises(BadInputError, match=rf"(?s)x\.json, line 1: .*{reason}"):
            list(read_object(entries(path, content)))
