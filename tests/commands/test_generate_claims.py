"""`biorag generate claims`: which claims a model writes and repeats the label of, and what becomes of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial

import pytest

from biorag.corpus.claims import read_claims
from biorag.prompts.template import load_template
from biorag.settings.settings import Settings
from biorag.training.claims.preparation import ClaimPreparation, ClaimSources
from biorag.training.contamination import ContaminationPolicy
from biorag.training.synthesis import claims as synthesis
from biorag.types import Snippet
from tests.cli import done, failed, invoke

AT_A_TIME = 4  # a killed run resumes after batches of four times as many
SNIPPETS = 18
# What is said of a drug, in the words of its sentence and of a claim.
LOWERS = {"possible": "may lower", "denied": "may not lower", "certain": "lowers"}
GETS = {"possible": "may get lower", "denied": "may not get lower", "certain": "gets lower"}


@pytest.fixture
def ask(tmp_path, server):
    def ask(count=SNIPPETS, out="claims.jsonl"):
        corpus = tmp_path / f"{count}.jsonl"
        texts = [f"{sentence(n)} It is cheap." for n in range(count)]
        rows = [{"id": f"s{n}", "title": "", "content": text} for n, text in enumerate(texts)]
        corpus.write_text("\n".join(map(json.dumps, rows)))
        model = ["--llm", server.url, "--llm-model", "m", "--no-cache"]
        arguments = ["generate", "claims", corpus, *model, "--out", tmp_path / out, "--json"]
        return invoke(*arguments, home=tmp_path / "home", BIORAG_RETRIES=0, BIORAG_CONCURRENCY=AT_A_TIME)

    server.rule = partial(replied, wrong={})
    return ask


def sentence(n, kind="possible"):
    return f"Drug{n} {LOWERS[kind]} fever in adults who have gout."


def stated(n, kind="possible"):
    return f"In adults who have gout, fever {GETS[kind]} with Drug{n}."


def replied(body, wrong):
    """Write claims of a drug, of a kind by its number, or judge one by what both say; `wrong` has other replies."""
    asked = body["messages"][1]["content"]
    drug = int(re.search(r"Drug(\d+)", asked)[1])
    if "Claim:" not in asked:
        near_miss, kind = (("denied", "negation"), ("certain", "hedge"))[drug % 2]
        texts = {"rewording": stated(drug), "near_miss": stated(drug, near_miss), "changed": sentence(drug, near_miss)}
        return json.dumps(texts | {"kind": kind} | wrong.get(drug, {}))
    evidence, claim = asked.split("Claim:")
    says = next((kind for kind, words in LOWERS.items() if f" {words} fever" in evidence), None)
    claims = next(kind for kind, words in GETS.items() if f"fever {words}" in claim)
    label = "neither" if says is None or (says, claims) == ("possible", "certain") else "contradicts"
    label = "supports" if says == claims or (says, claims) == ("certain", "possible") else label
    quote = "" if label == "neither" else sentence(drug, says)
    return json.dumps({"quote": quote, "verdict": label} | wrong.get((drug, label), {}))


def test_rows_are_those_whose_label_the_model_repeats(ask, server, tmp_path):
    wrong = {
        0: {"rewording": sentence(0)},  # a copy
        1: {"kind": "other"},
        2: {"changed": ""},
        3: {"rewording": stated(13)},  # another drug, which the rules notice
        (4, "contradicts"): {"verdict": "neither"},
        (5, "supports"): {"quote": "Drug5 reduces fever"},
        (6, "supports"): {"verdict": "probably"},
        (7, "neither"): {"verdict": "supports", "quote": "It is cheap"},
    }
    server.rule = partial(replied, wrong=wrong)
    report = done(ask(10))
    own = {"snippets": 10, "unsuitable": 0, "copied": 1, "empty": 2, "written": 7, "generated": 10 + 7 * 4}
    assert {key: report[key] for key in own} == own
    rows = list(read_claims(tmp_path / "claims.jsonl"))
    assert Counter(row.id.split(":")[0] for row in rows) == {"s3": 2, "s8": 4, "s9": 4}
    # A claim is kept with both of its rows. Two of each of 4 to 7 are not agreed on, two lack a twin; one of 3's does.
    assert (report["rows"], report["disagreed"], report["vetoed"], report["unpaired"]) == (10, 8, 1, 9)
    assert (tmp_path / "claims.jsonl.written").is_file()


def test_a_claim_stands_beside_evidence_of_two_labels_and_trains(ask, tmp_path):
    done(ask())
    rows = list(read_claims(tmp_path / "claims.jsonl"))
    assert len({row.id for row in rows}) == len(rows) == 4 * SNIPPETS
    beside = {row.id: (row.claim, row.sentences[:-1], row.label, row.rationale) for row in rows[:8]}
    assert list(beside.values()) == [
        (stated(0), (sentence(0),), "supports", (0,)),
        (stated(0), (sentence(0, "denied"),), "contradicts", (0,)),
        (stated(0, "denied"), (sentence(0, "denied"),), "supports", (0,)),
        (stated(0, "denied"), (sentence(0),), "contradicts", (0,)),
        (stated(1), (sentence(1),), "supports", (0,)),
        (stated(1), (), "neither", ()),  # what is certain is possible: the sentence is left out
        (stated(1, "certain"), (sentence(1, "certain"),), "supports", (0,)),
        (stated(1, "certain"), (sentence(1),), "neither", ()),
    ]
    prepare = ClaimPreparation(ContaminationPolicy(), Settings.of(train_validation=0.3))
    split, facts = prepare.read(ClaimSources([("claims", rows)]))
    labels = {(pair.claim, pair.label) for pair in split.training if pair.source == "claims"}
    assert min(Counter(claim for claim, _ in labels).values()) > 1, "a claim alone does not give the label away"
    assert set(facts["data"]["sources"]) == {"claims", "claims, neutral"}
    drugs = [{re.search(r"Drug\d+", pair.claim)[0] for pair in side} for side in (split.training, split.validation)]
    assert all(drugs) and drugs[0].isdisjoint(drugs[1]), "the rows of a text are on one side"


def test_an_interrupted_run_resumes(ask, server, tmp_path):
    expected = done(ask(out="whole.jsonl"))
    assert len(server.bodies) == expected["generated"] == 5 * SNIPPETS
    server.rule = lambda body: (500, {}) if len(server.bodies) > 10 * SNIPPETS - 3 else replied(body, {})
    failed(ask(), 6, "500")
    server.rule = partial(replied, wrong={})
    server.asked.clear()
    report = done(ask())
    assert len(server.bodies) == 4 * (SNIPPETS - 4 * AT_A_TIME), "what was written is not asked for again"
    assert (report["resumed"], report["rows"]) == (4 * AT_A_TIME, 4 * SNIPPETS)
    assert (tmp_path / "claims.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert {key for key in report if report[key] != expected[key]} <= {"out", "seconds", "resumed"}
    assert done(ask())["resumed"] == SNIPPETS


def test_sentences_and_kinds_are_drawn_one_after_the_other():
    own = [f"Drug{n} is {{effective}} in adults with gout." for n in range(3)]
    snippet = Snippet("s", "Title", " ".join(["Is this one a question or is it not?", *own]))
    assert synthesis.claimable(snippet) == [1, 2, 3]
    assert synthesis.claimable(Snippet("s", "", " ".join(own * (synthesis.MOST_CHARACTERS // 100)))) == []
    assert {synthesis.drawn_position(snippet, number, 0) for number in range(3)} == {1, 2, 3}
    kinds, template = synthesis.read_kinds(), load_template("claim", None, "sentence", synthesis.FIELDS)
    prompts = [next(synthesis.draft_form(template, kinds, 0).prompts(snippet, number)) for number in range(3)]
    assert {own.index(re.search(r"\nSentence: (.*)\n", prompt.user)[1]) for prompt in prompts} == {0, 1, 2}
    orders = [re.search(r"\nKinds in order: (.*)\n", prompt.user)[1].split(", ") for prompt in prompts]
    assert len(set(map(tuple, orders))) == 3 and all(set(order) == set(kinds) for order in orders)
    assert all(f"{name}: {kind.change}\n" in prompts[0].system for name, kind in kinds.items())
    alone = synthesis.kinds_for(Snippet("s", "", own[0]), kinds)
    assert {*kinds} - {*alone} == {"hedge", "cause", "subgroup", "class"}, "evidence without the sentence is none"
