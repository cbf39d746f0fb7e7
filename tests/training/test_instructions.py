"""Instruction templates: what is put before a text, and what is no template."""

import json
from functools import wraps

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, LlamaModel

from biorag.errors import BadInputError, MissingError
from biorag.models.bi_encoder import BiEncoder
from biorag.models.finding import find_encoder
from biorag.training import retriever
from biorag.training.data import SetFile, instructions_of
from biorag.training.instructions import (
    Instructions,
    PromptForm,
    named_task,
    read_instructions,
    read_tasks,
)
from biorag.training.rows import read_rows
from biorag.types import TrainingRow
from tests.cli import done, invoke, succeeded

shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
prefixes = st.text(st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="{}"), max_size=20)


@shared
@given(prefixes, prefixes, prefixes, prefixes)
def test_a_file_gives_what_stands_before_its_places(tmp_path, before, after, passage, task):
    path = tmp_path / "template.toml"
    texts = {"query": f"{before}{{task}}{after}{{query}}", "passage": passage + "{passage}"}
    lines = [f"{name} = {json.dumps(text, ensure_ascii=False)}\n" for name, text in texts.items()]
    path.write_text("".join(lines), encoding="utf-8")
    form = PromptForm(before, after)
    assert read_instructions(str(path), task) == Instructions(before + task + after, passage, form=form)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ('query = "{query}"', "must set the texts query and passage"),
        ('query = "{query}"\npassage = "{passage}"\nother = "x"', "and nothing else"),
        ('query = 1\npassage = "{passage}"', "must set the texts"),
        ('query = "{query}?"\npassage = "{passage}"', r"must end with \{query\}"),
        ('query = "{query}"\npassage = "passage"', r"must end with \{passage\}"),
        ('query = "{query}{query}"\npassage = "{passage}"', r"must end with \{query\}, once"),
    ],
)
def test_what_is_no_template(tmp_path, written, reason):
    path = tmp_path / "template.toml"
    path.write_text(written)
    with pytest.raises(BadInputError, match=reason):
        read_instructions(str(path))


def test_tasks_of_a_list(tmp_path):
    assert named_task("bmretriever:MS MARCO") == read_tasks("bmretriever")["msmarco"]
    assert named_task("Find this: that") == "Find this: that"
    task = "Given a question, retrieve relevant documents that answer the question"
    assert read_instructions("bmretriever", "bmretriever:MedQuAD").query == f"{task}\nQuery: "
    path = tmp_path / "tasks.toml"
    path.write_text('"Trec-COVID" = " Find it "\nmine = "Find mine"\n')
    assert read_tasks(str(path)) == {"treccovid": "Find it", "mine": "Find mine"}


def test_a_tuned_instruction(tmp_path):
    (tmp_path / "report.json").write_text('{"winner": " Find it ", "prompt": {}}')
    assert named_task(f"tuned:{tmp_path}") == "Find it"
    assert read_instructions("bmretriever", f"tuned:{tmp_path}").query == "Find it\nQuery: "
    with pytest.raises(MissingError, match="biorag tune prompt"):
        named_task(f"tuned:{tmp_path / 'none'}")


@pytest.mark.parametrize("written", ["", "[]", "{}", '{"winner": ""}', '{"winner": 1}'])
def test_what_is_no_report_of_tuning(tmp_path, written):
    (tmp_path / "report.json").write_text(written)
    with pytest.raises(BadInputError, match="no instruction under 'winner'"):
        named_task(f"tuned:{tmp_path}")


# --- rows with an instruction of their own ------------------------------------------------------------------

ASKED = [("Find the gene", "Aspirin fever", "s0"), ("Find pain", "Warfarin", "s1"), ("Find pain", "Heparin", "s2")]


@pytest.fixture
def published(tmp_path, snippets):
    """BMRetriever's file: a query under its task, its positive under the passage's; the last record has none."""
    contents = {snippet.id: snippet.contents for snippet in snippets}
    records = [
        {
            "query": f"Instruct: {task}\nQuery: {query}",
            "positive": f"Represent this passage\npassage: {contents[id]}",
            "negative": f"Represent this passage\npassage: Something else than {query}.",
        }
        for task, query, id in ASKED
    ]
    records.append({"query": "Metformin", "positive": contents["s3"], "negative": "Kidney."})
    path = tmp_path / "ft_data.json"
    path.write_text(json.dumps(records))
    return path


@pytest.mark.models
def test_a_row_keeps_its_instruction_from_the_file_to_the_model(
    published, tmp_path, tiny_encoder, small_home, monkeypatch
):
    """Converted, mined for, trained: each query is read under its own task, or else under `--task`."""
    succeeded(invoke("data", "convert", "bmretriever", published, "--out", tmp_path / "converted"))
    rows, made = tmp_path / "converted" / "rows.jsonl", tmp_path / "made.jsonl"
    done(invoke("mine", rows, "--negatives", "retriever", "--per-row", 1, "--out", made, "--json", home=small_home))
    kept = {row.query: row.instruction for row in read_rows([made])[0]}
    assert kept == {query: task for task, query, _ in ASKED} | {"Metformin": ""}

    read = []
    compute = retriever.RetrieverTrainer.compute_loss

    def recorded(trainer, model, inputs, *arguments, **options):
        read.extend(tuple(filter(None, ids)) for ids in inputs["query_input_ids"].tolist())
        return compute(trainer, model, inputs, *arguments, **options)

    monkeypatch.setattr(retriever.RetrieverTrainer, "compute_loss", recorded)
    options = ["--instruct", "bmretriever", "--task", "Find liver", "--validation", 0, "--batch-size", 1]
    asked = ["train", "retriever", made, "--base", tiny_encoder, "--negatives", "retriever", *options]
    done(invoke(*asked, "--out", tmp_path / "m", "--json"))
    tokenizer = BiEncoder(find_encoder(str(tiny_encoder))).model.tokenizer
    texts = [f"{task}\nQuery: {query}" for task, query, _ in ASKED] + ["Find liver\nQuery: Metformin"]
    assert sorted(read) == sorted(tuple(tokenizer(text).input_ids) for text in texts)
    prompts = json.loads((tmp_path / "m" / "config_sentence_transformers.json").read_text())["prompts"]
    assert prompts["query"] == "Find liver\nQuery: "


@pytest.mark.models
def test_a_decoder_receives_the_published_rows_as_tokenized_by_hand(published, tmp_path, tiny_decoder, monkeypatch):
    """BOS, the row's task, its query, EOS; the passages under theirs: from BMRetriever's file to token ids."""
    succeeded(invoke("data", "convert", "bmretriever", published, "--out", tmp_path / "converted"))
    received, forward = [], LlamaModel.forward

    @wraps(forward)
    def recorded(model, input_ids, attention_mask, **options):
        received.extend(ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True))
        return forward(model, input_ids=input_ids, attention_mask=attention_mask, **options)

    monkeypatch.setattr(LlamaModel, "forward", recorded)
    options = ["--instruct", "bmretriever", "--task", "Find liver", "--validation", 0, "--epochs", 1, "--batch-size", 4]
    rows = tmp_path / "converted" / "rows.jsonl"
    done(invoke("train", "retriever", rows, "--base", tiny_decoder, *options, "--out", tmp_path / "m", "--json"))

    tokenizer = AutoTokenizer.from_pretrained(tiny_decoder)
    records = json.loads(published.read_text())
    passages = [record[side].split("passage: ")[-1] for record in records for side in ("positive", "negative")]
    texts = [f"{task}\nQuery: {query}" for task, query, _ in ASKED] + ["Find liver\nQuery: Metformin"]
    texts += [f"Represent this passage\npassage: {passage}" for passage in passages]
    by_hand = [[0, *tokenizer(text, add_special_tokens=False).input_ids, 1] for text in texts]
    assert sorted(received) == sorted(by_hand)


ROWS = [TrainingRow("gene", "lung", instruction="Find it"), TrainingRow("pain", "liver")]


def test_a_task_of_the_set_or_drawn_ones_replace_those_of_rows():
    assert read_instructions("bmretriever", "Find all").before(ROWS) == ["Find it\nQuery: ", "Find all\nQuery: "]
    assert read_instructions("bmretriever", "Find all").before(ROWS[1:]) is None
    assert read_instructions("bmretriever", "Find all", ["A", "B"]).before(ROWS) is None
    assert read_instructions("none").before(ROWS) is None
    sets = [SetFile(rows=("a",), task="Find this"), SetFile(rows=("b",))]
    _, (of_task, own) = instructions_of(sets, "bmretriever", "Find all")
    assert of_task.before(ROWS) is None
    assert own.before(ROWS) == ["Find it\nQuery: ", "Find all\nQuery: "]
