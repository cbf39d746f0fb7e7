"""Instruction templates: what is put before a text, and what is no template."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biorag.errors import BadInputError, MissingError
from biorag.training.instructions import (
    TASK,
    Instructions,
    generic_tasks,
    named_task,
    read_instructions,
    read_tasks,
)

shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
prefixes = st.text(st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="{}"), max_size=20)


def test_named_templates():
    passage = "Represent this passage\npassage: "
    assert read_instructions("bmretriever") == Instructions(f"{TASK}\nQuery: ", passage)
    assert read_instructions("bmretriever", "Find it {query}") == Instructions("Find it {query}\nQuery: ", passage)
    assert read_instructions("none", "Find it") == Instructions("", "")


@shared
@given(prefixes, prefixes, prefixes, prefixes)
def test_a_file_gives_what_stands_before_its_places(tmp_path, before, after, passage, task):
    path = tmp_path / "template.toml"
    texts = {"query": f"{before}{{task}}{after}{{query}}", "passage": passage + "{passage}"}
    lines = [f"{name} = {json.dumps(text, ensure_ascii=False)}\n" for name, text in texts.items()]
    path.write_text("".join(lines), encoding="utf-8")
    assert read_instructions(str(path), task) == Instructions(before + task + after, passage)


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


def test_generic_tasks_are_drawn_from_ours_or_from_a_file(tmp_path):
    ours = generic_tasks(10, 0)
    assert len(set(ours)) == 10 and ours == generic_tasks(10, 0) != generic_tasks(10, 1)
    assert len(generic_tasks(100, 0)) == 100
    with pytest.raises(BadInputError, match="biorag has 100 different tasks, and --random-prompts asks 101"):
        generic_tasks(101, 0)
    file = tmp_path / "tasks.txt"
    file.write_text("Imagine a librarian.\n\n  Find it.  \nFind it.\nRank them.\n")
    assert generic_tasks(3, 5, file) == ("Imagine a librarian.", "Find it.", "Rank them.")
    assert set(generic_tasks(2, 0, file)) < {"Imagine a librarian.", "Find it.", "Rank them."}
    with pytest.raises(BadInputError, match="3 different tasks"):
        generic_tasks(4, 0, file)
    file.write_bytes(b"\xff")
    with pytest.raises(BadInputError, match="not UTF-8"):
        generic_tasks(1, 0, file)
    with pytest.raises(MissingError, match="one a line"):
        generic_tasks(1, 0, tmp_path / "absent.txt")
