"""The JSON documents and files of every command have the frozen keys, their deterministic values the frozen ones."""

from __future__ import annotations

import pytest

from tests.compatibility.documents import CASES, REFUSED, prepare_refusals, prepared, refusal
from tests.compatibility.frozen import LanguageModel, differences, read_json

pytestmark = pytest.mark.slow
KEYS, VALUES = read_json("keys.json"), read_json("values.json")
REFUSALS = {tuple(frozen["command"]): frozen for frozen in read_json("refusals.json")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which all cases run, each of which may need what those before it wrote."""
    folder = tmp_path_factory.mktemp("frozen")
    prepared(folder)
    prepare_refusals(folder)
    return folder


@pytest.fixture(scope="module")
def observed(folder):
    """Run a case, and those before it that have not run."""
    server, done = LanguageModel(), {}

    def observe(case):
        for earlier in CASES[: CASES.index(case)]:
            if earlier.name not in done and earlier.needed:
                done[earlier.name] = earlier.observed(folder, server.url)
        if case.name not in done:
            done[case.name] = case.observed(folder, server.url)
        return done[case.name]

    yield observe
    server.close()


def test_all_is_frozen():
    assert [case.name for case in CASES] == sorted(KEYS, key=[case.name for case in CASES].index)
    assert [words for words, _ in REFUSED] == list(REFUSALS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_document_has_the_frozen_keys_and_values(observed, case):
    ours = observed(case)
    assert differences(ours["keys"], KEYS[case.name], may_grow=case.may_grow) == []
    assert differences(ours["values"], VALUES.get(case.name, {}), may_grow=case.may_grow) == []


@pytest.mark.parametrize("words", REFUSALS, ids=" ".join)
def test_what_is_refused_has_the_frozen_exit_code_and_names_the_same(folder, words):
    exit_code, sentence = refusal(words, folder)
    frozen = REFUSALS[words]
    assert exit_code == frozen["exit_code"], sentence
    assert [name for name in frozen["names"] if name not in sentence] == [], sentence
