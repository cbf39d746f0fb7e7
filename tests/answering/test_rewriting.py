"""The packaged Llama that rewrites follow-up questions: what it writes, and that it is asked once."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from biorag.answering.followups import open_rewriter
from biorag.errors import MismatchError
from biorag.models.finding import REWRITER

pytestmark = pytest.mark.slow

LAST = "Why is pyridoxine given together with isoniazid?"
ANSWER = "Isoniazid interferes with the metabolism of vitamin B6, and a peripheral neuropathy results."


@pytest.fixture(scope="module")
def rewrite(tmp_path_factory):
    opened = open_rewriter(1, tmp_path_factory.mktemp("cache"))
    assert opened is not None, "the starter is installed for tests"
    return opened


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("and in children?", {"pyridoxine", "isoniazid", "children"}),
        ("and with rifampicin?", {"pyridoxine", "rifampicin"}),
        ("how is that neuropathy treated", {"neuropathy", "treated"}),
        ("dose?", {"dose", "pyridoxine"}),
    ],
)
def test_a_follow_up_has_the_words_that_it_leaves_out(rewrite, question, words):
    assert words <= set(re.findall(r"\w+", rewrite(question, LAST, ANSWER).lower()))


def test_another_subject_stays_alone(rewrite):
    said = rewrite("Something else: what are the symptoms of measles?", LAST, ANSWER)
    assert "measles" in said and not re.search("isoniazid|pyridoxine", said)


def test_what_was_rewritten_is_kept(rewrite):
    first, hits = rewrite("and in adults?", LAST, ANSWER), rewrite.cache_info().hits
    assert rewrite("and in adults?", LAST, ANSWER) == first
    assert rewrite.cache_info().hits == hits + 1


def test_a_damaged_rewriter_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("biorag.answering.followups.REWRITER", replace(REWRITER, sha256="0" * 64))
    with pytest.raises(MismatchError, match="is not the published biorag-rewriter: install biorag again"):
        open_rewriter(1, tmp_path)
