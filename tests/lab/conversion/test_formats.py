"""Each published layout becomes what biorag's own readers read, with the values of the file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from biorag.benchmarks.golden import load_answers, read_golden, read_golden_answers
from biorag.corpus.datasets import load_dataset, read_qrels
from biorag.corpus.readers import read_snippets
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import Source
from biorag.errors import BadInputError, UsageError
from biorag.lab.conversion.run import convert, request_of
from biorag.registries import FORMATS
from biorag.training.rows import read_rows, read_title_abstract
from biorag.types import Snippet
from tests.lab.conversion.published import (
    MEDRAG,
    PQAL,
    TEST_GROUND_TRUTH,
    bioasq,
    write_beir,
    write_lines,
)


def write(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record, indent=4), encoding="utf-8")
    return path


def converted(format: str, out: Path, *names: Path, skip: bool = False, **options: Any):
    rejects = RejectsFile(out / "rejects.jsonl") if skip else None
    request = request_of(FORMATS[format], [str(name) for name in names], out / "home", **options)
    return convert(format, request, out, rejects, lambda count: None)


def snippets(folder: Path) -> list[Snippet]:
    return list(read_snippets(Source("corpus", folder / "corpus.jsonl")))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_pubmedqa_is_a_beir_folder_with_the_answers(tmp_path):
    manifest = converted("pubmedqa", tmp_path / "out", write(tmp_path / "ori_pqal.json", PQAL))
    data = load_answers(tmp_path / "out")
    assert [question.id for question in data.questions] == list(PQAL)
    assert [question.text for question in data.questions] == [record["QUESTION"] for record in PQAL.values()]
    assert [question.expert.decision for question in data.questions] == ["yes", "no", "maybe"]
    assert data.questions[0].expert.ideal == (PQAL["21645374"]["LONG_ANSWER"],)
    passages = [" ".join(record["CONTEXTS"]).strip() for record in PQAL.values()]
    assert snippets(tmp_path / "out") == [
        Snippet(id, "", text, int(id)) for id, text in zip(PQAL, passages, strict=True)
    ]
    assert load_dataset(tmp_path / "out").qrels == {id: {id: 1} for id in PQAL}
    rows, _ = read_rows([tmp_path / "out"])
    assert [(row.query, row.positive) for row in rows] == list(
        zip([record["QUESTION"] for record in PQAL.values()], passages, strict=True)
    )
    assert manifest["counts"]["questions"] == manifest["counts"]["judgements"] == 3


def test_the_official_test_set_of_pubmedqa_is_by_its_pmids(tmp_path):
    file, ids = write(tmp_path / "ori_pqal.json", PQAL), write(tmp_path / "test_ground_truth.json", TEST_GROUND_TRUTH)
    converted("pubmedqa", tmp_path / "both", file, test_ids=ids)
    parts = {part: list(read_qrels(tmp_path / "both" / "qrels" / f"{part}.tsv")) for part in ("train", "test")}
    assert parts == {"train": ["21645374"], "test": ["16418930", "9488747"]}
    for split, expected in (("train", ["21645374"]), ("test", ["16418930", "9488747"])):
        out = tmp_path / split
        converted("pubmedqa", out, file, test_ids=ids, split=split)
        assert [question.id for question in load_dataset(out).questions] == expected
        assert [record["_id"] for record in lines(out / "queries.jsonl")] == expected
        assert sorted(path.name for path in (out / "qrels").iterdir()) == ["test.tsv"]
        assert [snippet.id for snippet in snippets(out)] == expected
    with pytest.raises(UsageError, match="--test-ids"):
        converted("pubmedqa", tmp_path / "none", file, split="test")
    with pytest.raises(BadInputError, match="PMIDs as keys"):
        converted("pubmedqa", tmp_path / "none", file, test_ids=write(tmp_path / "b.json", {"x": "yes"}))


def test_pqa_a_and_pqa_u_have_fewer_fields(tmp_path):
    artificial = {"1": {**PQAL["21645374"], "final_decision": "yes"}}
    unlabelled = {"2": {key: PQAL["16418930"][key] for key in ("QUESTION", "CONTEXTS", "LONG_ANSWER")}}
    files = [write(tmp_path / "ori_pqaa.json", artificial), write(tmp_path / "ori_pqau.json", unlabelled)]
    converted("pubmedqa", tmp_path / "out", *files)
    answers = [question.expert for question in load_answers(tmp_path / "out").questions]
    assert [(answer.type, answer.decision) for answer in answers] == [("yesno", "yes"), ("summary", None)]
    assert answers[1].ideal == (PQAL["16418930"]["LONG_ANSWER"],)


def test_bioasq_is_golden_files_and_a_beir_folder(tmp_path):
    data, earlier = bioasq(), write(tmp_path / "training7b.json", bioasq(3))
    files = (write(tmp_path / "training8b.json", data), earlier)
    manifest = converted("bioasq", tmp_path / "out", *files, id_prefix="pubmed_")
    golden = read_golden(tmp_path / "out" / "test_golden.json").questions
    assert golden == read_golden(tmp_path / "training8b.json").questions
    assert json.loads((tmp_path / "out" / "test_golden.json").read_text()) == data
    assert read_golden_answers(tmp_path / "out" / "test_golden.json").questions[1].expert.things == (("ABCC11",),)
    dataset = load_answers(tmp_path / "out")
    assert [question.text for question in dataset.questions] == [record["body"] for record in data["questions"]]
    assert dataset.questions[2].relevant == ("pubmed_20000002", "pubmed_20000052")
    assert [question.expert.type for question in dataset.questions[:4]] == ["yesno", "factoid", "list", "summary"]
    assert (manifest["counts"]["answers"], manifest["counts"]["duplicates"]) == (6, 3), "written once"


def test_the_last_questions_of_bioasq_are_for_development(tmp_path):
    file = write(tmp_path / "training8b.json", bioasq(6))
    ids = [record["id"] for record in bioasq(6)["questions"]]
    converted("bioasq", tmp_path / "both", file, last=2)
    parts = {part: list(read_qrels(tmp_path / "both" / "qrels" / f"{part}.tsv")) for part in ("train", "dev")}
    assert parts == {"train": ids[:4], "dev": ids[4:]}
    assert [question.id for question in read_golden(tmp_path / "both" / "dev_golden.json").questions] == ids[4:]
    converted("bioasq", tmp_path / "dev", file, last=2, split="dev")
    assert [question.id for question in load_dataset(tmp_path / "dev").questions] == ids[4:]
    with pytest.raises(UsageError, match="--last 6 leaves no question"):
        converted("bioasq", tmp_path / "none", file, last=6)
    with pytest.raises(UsageError, match="--last 200"):
        converted("bioasq", tmp_path / "none", file, split="dev")


def test_titles_and_abstracts_are_the_rows_that_training_makes_of_them(tmp_path):
    records = [*MEDRAG, {"id": "h", "title": "", "content": "First half. Second half."}, {"id": "d", "content": "One."}]
    file = write_lines(tmp_path / "chunk.jsonl", records)
    counts = converted("title-abstract", tmp_path / "out", file)["counts"]
    assert read_rows([tmp_path / "out" / "rows.jsonl"])[0] == read_title_abstract([Source("f", file)], 0)[0]
    assert (counts["rows"], counts["dropped"]) == (7, 1)


def test_claims_are_queries_of_the_texts_that_they_are_judged_by(tmp_path):
    text = {"title": "Cilia.", "sentences": ["Cilia beat.", "They clear mucus."]}
    records = [
        {"id": "a", "claim": "Cilia clear mucus [<|cit|>].", **text, "label": "supports"},
        {"id": "b", "claim": "Cilia never beat.", **text, "label": "contradicts"},
        {"id": "c", "claim": "Cilia glow."},
    ]
    counts = converted("claims", tmp_path / "out", write_lines(tmp_path / "claims.jsonl", records))["counts"]
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
    counts = converted("conclusions", tmp_path / "out", write_lines(tmp_path / "chunk.jsonl", records))["counts"]
    assert lines(tmp_path / "out" / "rows.jsonl") == [
        {"query": last, "positive": "Metformin. We gave it. Glucose fell.", "positive_id": "a"}
    ]
    assert (counts["rows"], counts["dropped"]) == (1, 2)


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
    with pytest.raises(UsageError, match="unknown --split 'train': use one of dev, test"):
        converted("beir", tmp_path / "none", folder, split="train")
    with pytest.raises(UsageError, match="one folder"):
        converted("beir", tmp_path / "none", folder / "corpus.jsonl.gz")


TASK = "Given a question, retrieve Pubmed passages that answer the question"
PAIRS = [
    {"query": "Why?", "positive": "Because of it.", "negative": "No idea."},
    {
        "query": f"Instruct: {TASK}\nQuery: Why?",
        "pos": ["Represent this passage\npassage: Because of it."],
        "neg": ["No idea."],
    },
    {
        "query_id": "7",
        "query": "Why?",
        "positive_passages": [{"docid": "1", "title": "", "text": "Because of it."}],
        "negative_passages": [
            {"docid": "2", "title": "No", "text": "idea."},
            {"docid": "3", "title": "", "text": "because of IT"},
        ],
    },
]


@pytest.mark.parametrize("record", PAIRS, ids=["columns", "templates", "Tevatron"])
@pytest.mark.parametrize("as_array", [True, False])
def test_pairs_of_bmretriever_are_rows(tmp_path, record, as_array):
    path = tmp_path / "ft_data.json"
    path.write_text(json.dumps([record]) if as_array else json.dumps(record) + "\n")
    converted("bmretriever", tmp_path / "out", path)
    (row,), _ = read_rows([tmp_path / "out" / "rows.jsonl"])
    assert (row.query, row.positive, row.negatives) == ("Why?", "Because of it.", ("No idea.",))
    assert lines(tmp_path / "out" / "rows.jsonl")[0].get("instruction") == (TASK if record == PAIRS[1] else None)


def test_bmretrievers_pairs_are_parted_by_their_instructions(tmp_path):
    from biorag.training.instructions import dataset_key, read_tasks

    tasks = read_tasks("bmretriever")
    told = {name: tasks[dataset_key(name)] for name in ("MQP", "MS Marco", "FEVER", "PubMed")}
    told["a task of its own"] = "Find trials of a drug"
    records = [{"instruction": text.upper(), "query": name, "positive": f"On {name}."} for name, text in told.items()]
    path = write_lines(tmp_path / "ft_data.jsonl", records)
    parts = {}
    for part in ("med-synth", "med-real", "search", "nlu"):
        converted("bmretriever", tmp_path / part, path, split=part)
        parts[part] = [row["query"] for row in lines(tmp_path / part / "rows.jsonl")]
    assert parts == {
        "med-synth": ["PubMed", "a task of its own"],
        "med-real": ["MQP"],
        "search": ["MS Marco"],
        "nlu": ["FEVER"],
    }


def test_rows_become_judged_questions(tmp_path):
    rows = [
        {"query": "Why?", "positive": "Because.", "negatives": ["No idea."]},
        {"query": "How?", "positive": "So.", "negative": "Because."},
        {"query": "Why?", "positive": "Therefore."},
    ]
    counts = converted("rows", tmp_path / "out", write_lines(tmp_path / "rows.jsonl", rows))["counts"]
    assert (counts["questions"], counts["snippets"], counts["judgements"]) == (2, 4, 3)
    data, texts = (
        load_dataset(tmp_path / "out"),
        {row["_id"]: row["text"] for row in lines(tmp_path / "out" / "corpus.jsonl")},
    )
    relevant = {question.text: [texts[id] for id in data.qrels[question.id]] for question in data.questions}
    assert relevant == {"Why?": ["Because.", "Therefore."], "How?": ["So."]}


def test_records_with_a_title_alone_are_dropped(tmp_path):
    articles = ["<ArticleTitle>T</ArticleTitle><Abstract><AbstractText>C</AbstractText></Abstract>"]
    articles += ["<ArticleTitle>Only a title</ArticleTitle>"]
    citations = [
        f'<MedlineCitation><PMID Version="1">{pmid}</PMID><Article>{article}</Article></MedlineCitation>'
        for pmid, article in enumerate(articles, 7)
    ]
    records = "".join(f"<PubmedArticle>{citation}</PubmedArticle>" for citation in citations)
    path = tmp_path / "pubmed20n0001.xml"
    path.write_text(f"<PubmedArticleSet>{records}</PubmedArticleSet>")
    counts = converted("abstracts", tmp_path / "out", path)["counts"]
    assert (counts["snippets"], counts["dropped"]) == (1, 1)
    assert [(row["_id"], row["title"], row["text"]) for row in lines(tmp_path / "out" / "corpus.jsonl")] == [
        ("7", "T", "C")
    ]


BAD = {
    "pubmedqa": ({"1": {"QUESTION": " ", "CONTEXTS": ["x"]}, **PQAL}, "'QUESTION' is not a text", "questions", 3),
    "bioasq": (
        {"questions": [{"id": "b", "body": "What?"}, *bioasq(2)["questions"]]},
        "'b': documents: Field required",
        "questions",
        2,
    ),
    "bmretriever": ([{"query": 3, "positive": "x"}, PAIRS[0]], "'query' is neither a text", "rows", 1),
    "title-abstract": ({"id": "x"}, "has no text", "rows", 6),
}


@pytest.mark.parametrize("format", BAD)
def test_a_bad_record_stops_with_its_place_or_is_skipped_and_counted(tmp_path, format):
    record, reason, counted, good = BAD[format]
    path = tmp_path / "file.json"
    if format == "title-abstract":
        path = write_lines(tmp_path / "file.jsonl", [record, *MEDRAG])
    else:
        write(path, record)
    with pytest.raises(BadInputError) as caught:
        converted(format, tmp_path / "out", path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert "--on-bad-line skip" in str(caught.value)
    counts = converted(format, tmp_path / "out", path, skip=True)["counts"]
    assert (counts[counted], counts["rejected"]) == (good, 1)
    (reject,) = lines(tmp_path / "out" / "rejects.jsonl")
    assert reason in reject["reason"]


@pytest.mark.parametrize(
    ("format", "names", "options", "part"),
    [
        ("bioasq", ["x"], {"test_ids": Path("x")}, "--test-ids is not for format bioasq"),
        ("title-abstract", ["x"], {"split": "dev"}, "format title-abstract has no parts: leave out --split"),
        ("bioasq", ["x"], {"split": "test", "last": 1}, "--split test is not of format bioasq: use one of train, dev"),
        ("beir", ["x", "y"], {}, "reads one folder"),
    ],
)
def test_what_a_format_does_not_take_is_refused(tmp_path, format, names, options, part):
    with pytest.raises(UsageError, match=part):
        converted(format, tmp_path / "out", *names, **options)
