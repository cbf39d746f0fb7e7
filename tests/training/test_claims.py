"""Claims that a judge learns from: near misses and their mirrors by hand, evidence, what is kept out, one training."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from biorag.answering.reversal import replaced
from biorag.corpus.claims import ClaimRow, read_claims
from biorag.corpus.sentences import sentences, terms
from biorag.errors import BadInputError
from biorag.models.cross_encoder import CrossEncoderJudge
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.training.claims.making import CHANGERS, Change, changed_alike, kind_of, names_by_kind, names_of
from biorag.training.claims.preparation import ClaimPreparation, ClaimSources, counts_of, in_turn, limited, unseen
from biorag.training.claims.rows import (
    ClaimMaker,
    ExpertStatement,
    LabelledClaim,
    chosen,
    is_assertion,
    of_experts,
    of_people,
    of_snippets,
    rarity_of,
    without_lead,
)
from biorag.training.contamination import ContaminationError, ContaminationPolicy
from biorag.types import LABELS, Snippet
from tests.cli import done, failed, invoke, succeeded
from tests.conftest import WORDS

NAMES = {"mab": ["rituximab", "infliximab"], "letters": ["TNF", "EGFR"]}
TEXT = (
    "Rituximab was given to 40 adults. TNF activates MAPK in the liver of mice. Serum levels were higher in women. "
    "These data suggest that fatigue may be associated with poor sleep."
)
SNIPPETS = [
    Snippet("a", "Rituximab is effective in adults with lupus.", TEXT),
    Snippet("b", "", "Metformin is used to treat diabetes. Doses are raised. The drug was stopped in 12 patients."),
    Snippet("c", "Does it work?", "Isoniazid inhibits the synthesis of mycolic acid in mycobacteria."),
]


def changed(kind: str, sentence: str, seed: int = 0) -> str | None:
    change = CHANGERS[kind](sentence, random.Random(seed), NAMES)
    return change and change.text


@pytest.mark.parametrize(
    ("kind", "sentence", "expected"),
    [
        ("direction", "Serum levels were higher in both.", "Serum levels were lower in both."),
        ("direction", "Benign and malignant lesions differ.", None),
        ("direction", "Nothing of the kind.", None),
        ("negation", "It is effective.", {"It is not effective.", "It is never effective."}),
        ("negation", "It was not effective.", "It was effective."),
        ("negation", "There was no effect of age.", "There was an effect of age."),
        ("negation", "It inhibits growth.", {"It does not inhibit growth.", "It fails to inhibit growth."}),
        ("negation", "It led to death.", {"It did not lead to death.", "It failed to lead to death."}),
        ("negation", "It is not without risk.", None),
        ("number", "We gave it to 40.", {f"We gave it to {n}." for n in (4, 20, 80, 120, 400)}),
        ("number", "In 1990 it was found.", {f"In {n} it was found." for n in (1981, 1986, 1993, 1996)}),
        ("number", "IL-6 and 5'-ends.", None),
        ("exchange", "TNF activates MAPK.", "MAPK activates TNF."),
        ("exchange", "TNF and MAPK rise.", None),
        ("exchange", "TNF is associated with the level of MAPK.", None),
        ("name", "Adalimumab works.", None),
        ("name", "We gave adalimumab.", {"We gave rituximab.", "We gave infliximab."}),
        ("hedge", "It may be toxic.", "It will be toxic."),
        ("hedge", "Obesity is associated with cancer.", "Obesity causes cancer."),
        ("population", "Seen in Women.", "Seen in Men."),
        ("population", "Seen in stones.", None),
    ],
)
def test_near_misses_by_hand(kind, sentence, expected):
    allowed = expected if isinstance(expected, set) else {expected}
    assert {changed(kind, sentence, seed) for seed in range(20)} <= allowed


def test_names_are_known_by_their_form():
    assert names_of("TNF, IL6 and adalimumab in DNA of patients.") == ["TNF", "IL6", "adalimumab"]
    assert list(map(kind_of, ("TNF", "IL6", "adalimumab"))) == ["letters", "numbered", "mab"]
    assert names_by_kind(["TNF and EGFR", "TNF"]) == {"letters": ["EGFR", "TNF"]}


def test_evidence_is_changed_alike():
    both = Change("MAPK activates TNF.", "contradicts", {"TNF": "MAPK", "MAPK": "TNF"})
    assert changed_alike(both, "TNF activates MAPK.", ["TNF rose.", "Then MAPK fell.", "So."]) == (
        "MAPK rose.", "Then TNF fell.", "So.",
    )  # fmt: skip
    denied = Change("It is not so.", "contradicts", {})
    assert changed_alike(denied, "It is so.", ["Here.", "It is so."]) == ("Here.", "It is not so.")
    assert changed_alike(denied, "It is so.", ["Here it is so."]) is None
    assert replaced("Higher in TNFR, higher.", {"higher": "lower", "TNF": "x"}) == "Lower in TNFR, lower."


def claims_of(snippets=SNIPPETS, seed=0) -> list[LabelledClaim]:
    return list(of_snippets(snippets, random.Random(seed)))


def test_no_made_claim_gives_its_label_away():
    """As many evidences support a claim as do each other thing to it, where they do it at all."""
    true = claims_of()
    kinds = set()
    for seed in range(60):
        maker = ClaimMaker(true, random.Random(seed), 300)
        for claim in true:
            by_claim = {}
            for made in maker.near_misses(claim):
                by_claim.setdefault(made.claim, Counter())[made.label] += 1
            assert len(by_claim) in (0, 2)
            for labels in by_claim.values():
                assert labels["supports"] == 1 and len(labels) > 1 and set(labels.values()) == {1}
            kinds |= {frozenset(labels) for labels in by_claim.values()}
    assert kinds == {frozenset(LABELS), frozenset({"supports", "neither"})}


def test_true_claims_of_snippets():
    by_source = {(claim.source, claim.id): claim for claim in claims_of()}
    assert set(by_source) == {
        ("titles", "a"), ("conclusions", "a"), ("sentences", "a"), ("conclusions", "b"), ("sentences", "b"),
        ("sentences", "c"),
    }  # fmt: skip
    conclusion = by_source["conclusions", "a"]
    assert conclusion.claim == "Fatigue may be associated with poor sleep."
    assert conclusion.sentences == tuple(sentences(TEXT)[:-1])
    sentence = by_source["sentences", "b"]
    assert sentence.sentences[sentence.rationale[0]] == sentence.claim
    assert without_lead("In conclusion, these results show that it works.") == "It works."
    assert not is_assertion("The aim of this study was to find out more.") and not is_assertion(
        "Is it a gene or is it?"
    )


def statement(decision, number) -> ExpertStatement:
    return ExpertStatement(f"Does drug {number} prevent colds?", decision, ["Yes, it is."], [SNIPPETS[number % 3]])


def test_questions_are_as_often_true_as_false():
    asked = [statement("yes", number) for number in range(5)] + [statement("no", 7), statement("maybe", 8)]
    claims = list(of_experts(asked, random.Random(0)))
    assert Counter(claim.label for claim in claims) == {"supports": 1, "contradicts": 1, "neither": 1}
    assert claims[-1].claim == "drug 8 prevent colds."


def slowly_chosen(claim, rarity, room):
    """The same one sentence at a time, over all that could be next."""
    positions = list(claim.rationale)
    while True:
        covered = set().union(*(terms(claim.sentences[index]) for index in positions))
        used = sum(len(claim.sentences[index]) + 1 for index in positions)
        options = []
        for index, text in enumerate(claim.sentences):
            gain = sum(rarity.get(word, 1.0) for word in (terms(claim.claim) & terms(text)) - covered)
            if index not in positions and (not positions or (gain > 0 and used + len(text) <= room)):
                options.append((round(gain, 9), -index))
        if not options:
            return sorted(positions)
        positions.append(-max(options)[1])


@pytest.mark.parametrize("seed", range(30))
def test_evidence_is_what_a_slow_search_chooses(seed):
    rng = random.Random(seed)
    texts = tuple(" ".join(rng.sample(WORDS, rng.randint(1, 4))) + "." for _ in range(7))
    rarity = rarity_of(texts)
    rationale = tuple(rng.sample(range(7), rng.choice([0, 0, 2])))
    claim = LabelledClaim(" ".join(rng.sample(WORDS, 5)), texts, "supports", "s", "d", rationale)
    room = rng.choice([10, 40, 1000])
    assert chosen(claim, rarity, room) == slowly_chosen(claim, rarity, room)
    assert rarity.keys() == set().union(*map(terms, texts)) and all(0 <= weight <= 1 for weight in rarity.values())


def test_hard_neutrals_share_little_and_are_no_rationale():
    claims = claims_of()
    maker = ClaimMaker(claims, random.Random(0), 1000)
    claim = next(claim for claim in claims if claim.source == "sentences" and claim.id == "a")
    for _ in range(20):
        neutral = maker.neutral(claim)
        assert neutral.label == "neither" and neutral.claim == claim.claim
        assert claim.claim not in neutral.sentences and maker.share(claim.claim, neutral.sentences) < 0.5
    assert maker.share(claim.claim, [claim.claim]) == 1
    alone = LabelledClaim("Gene.", ("Gene.",), "supports", "", "d")
    assert ClaimMaker([alone], random.Random(0), 1000).neutral(alone) is None


def test_windows_of_a_claim_decide_it_or_are_the_nearest_others():
    texts = ("Zinc is a metal.", "Zinc shortens colds.", "Colds end a day sooner.", "Mice drank zinc.", "It was safe.")
    claim = LabelledClaim("Zinc shortens the common cold", texts, "supports", "s", "d", (1, 2, 4))
    maker = ClaimMaker([claim], random.Random(0), 1000)
    windows = [(window.label, window.sentences) for window in maker.windows(claim)]
    assert windows == [("supports", texts[1:3]), ("supports", texts[4:]), ("neither", texts[:1])]
    undecided = replace(claim, label="neither", rationale=())
    assert [(window.label, window.sentences) for window in maker.windows(undecided)] == [
        ("neither", texts[1:2]),
        ("neither", texts[2:3]),
    ]
    assert not list(maker.windows(replace(claim, rationale=()))), "nobody said what decides it"


def people(count=12) -> list[ClaimRow]:
    return [
        ClaimRow(
            f"p{n}",
            f"Gene {n} causes pain.",
            title=f"On gene {n}",
            sentences=(f"Gene {n} is rare.", f"It causes pain {n}."),
            label=LABELS[n % 3],
            rationale=(1,),
        )
        for n in range(count)
    ]


def prepared(policy=None, made=0, claim_only=False, **sources):
    settings = Settings.of(train_max_tokens=64, train_validation=0.3)
    prepare = ClaimPreparation(policy or ContaminationPolicy(), settings, made, claim_only)
    return prepare.read(ClaimSources(**{"people": [("people", people())], **sources}))


def test_rows_are_of_people_their_neutrals_and_made_ones_and_split_by_document():
    split, facts = prepared(made=50, snippets=SNIPPETS)
    assert facts["data"]["sources"] == counts_of(split.training)
    assert set(facts["data"]["sources"]) > {"people", "people, neutral"}
    (stated,) = [claim for claim in of_people(people(3)[2:], "s")]
    assert stated.rationale == (2,) and stated.sentences == ("On gene 2", "Gene 2 is rare.", "It causes pain 2.")
    apart = {pair.claim for pair in split.training if pair.source == "people"}
    assert apart and apart.isdisjoint(pair.claim for pair in split.validation)
    assert len(apart) + len({pair.claim for pair in split.validation if pair.source == "people"}) == 12
    labels = {}
    for pair in split.training:
        if not pair.source.startswith("people"):
            labels.setdefault(pair.claim, Counter())[pair.label] += 1
    assert labels and all(len(counts) > 1 and set(counts.values()) == {1} for counts in labels.values())
    bare, _ = prepared(claim_only=True)
    assert {pair.evidence for pair in bare.training} == {""}
    with pytest.raises(BadInputError, match="no claim"):
        prepared(people=[])


def test_nothing_held_out_is_trained_on():
    dev = [*people(4), ClaimRow("x", "New.", None, "", (sentences(TEXT)[1],), "neither")]
    split, _ = prepared(made=200, snippets=SNIPPETS, held_out=dev)
    claims = {pair.claim for pair in split.training}
    assert {row.claim for row in people(12)[4:]} <= claims and claims.isdisjoint(row.claim for row in dev)
    assert not any("MAPK" in pair.evidence + pair.claim for pair in split.training)
    assert [pair.claim for pair in split.validation] == [row.claim for row in dev]
    same_id = LabelledClaim("Other words.", ("A.",), "supports", "s", "d", id="p1")
    assert unseen([same_id], list(of_people(dev, "dev"))) == []


def test_no_question_of_a_benchmark_is_trained_on(tmp_path):
    guard = tmp_path / "benchmark.jsonl"
    guard.write_text(json.dumps({"question": "Does drug 1 prevent colds?"}) + "\n")
    statements = [statement("yes", 1), statement("no", 2), statement("maybe", 4)]
    with pytest.raises(ContaminationError, match="drug 1"):
        prepared(ContaminationPolicy((guard,)), statements=statements)
    split, facts = prepared(ContaminationPolicy((guard,), drop=True), statements=statements)
    assert [match["query"] for match in facts["guard"]["dropped"]] == ["Does drug 1 prevent colds?"]
    assert "drug 1 prevent colds." not in {pair.claim for pair in (*split.training, *split.validation)}
    assert "drug 2 prevent colds." not in {pair.claim for pair in split.training}, "no 'yes' is left to balance it"


def test_claims_are_taken_in_turn_in_whole_groups():
    one, two = (LabelledClaim(name, (), "supports", name[0], "") for name in ("a1", "b1"))
    three = LabelledClaim("a2", (), "supports", "a", "")
    assert [claim.claim for claim in in_turn([one, three, two])] == ["a1", "b1", "a2"]
    assert list(limited([[one, two], [three, three]], 3)) == [one, two] and list(limited([[one]], 0)) == []


def test_the_development_data_keeps_its_sets_apart(shared_data):
    read = {
        (part, path.name): list(read_claims(path))
        for part in ("train", "dev")
        for path in sorted((shared_data / "claims" / part).glob("scifact.*"))
    }
    if not read:
        pytest.skip("there are no claims in the shared data")
    (train,), (dev,) = ([rows for (part, _), rows in read.items() if part == asked] for asked in ("train", "dev"))
    split, _ = prepared(people=[("scifact", train[:80])], held_out=dev, made=40)
    assert len(split.validation) > 300
    assert {pair.claim for pair in split.training}.isdisjoint(row.claim for row in dev)


def toy(path, count=400):
    """Claims whose label the evidence alone tells: it names the claim's word, denies it, or names another."""
    rng, rows = random.Random(0), []
    for number in range(count):
        one, other = rng.sample(WORDS[4:], 2)
        label = LABELS[number % 3]
        evidence = {"supports": "aspirin", "contradicts": "warfarin", "neither": "heparin"}[label]
        rows.append({"id": str(number), "claim": f"{one} pain", "label": label,
                     "sentences": [f"{evidence} {one} {other} {number}"]})  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.models
def test_a_judge_learns_a_toy_task_resumes_and_judges(tmp_path, tiny_encoder, tiny_cross_encoder):
    out, claims = tmp_path / "judge", toy(tmp_path / "toy.jsonl")
    fast = ("--precision", "fp32", "--max-tokens", 32, "--learning-rate", 5e-3, "--epochs", 8, "--evaluations", 2)
    train = ("train", "verifier", claims, "--base", tiny_encoder, *fast, "--out")
    manifest = done(invoke(*train, out, "--json", home=tmp_path))
    assert manifest["best"]["metric"] == "macro-f1" and manifest["best"]["value"] > 0.9
    assert manifest["data"]["sources"]["toy"].keys() == set(LABELS)
    assert manifest["identity"]["labels"] == list(LABELS)
    judge = CrossEncoderJudge(find_encoder(str(out)), "fp32")
    pairs = [(f"{word} liver gene", "liver pain") for word in ("aspirin", "warfarin", "heparin")]
    assert judge.judge(pairs).argmax(axis=1).tolist() == [0, 1, 2]
    settings = json.loads((out / "config.json").read_text())
    assert settings["id2label"] == {str(n): label for n, label in enumerate(LABELS)}
    assert "100%" not in succeeded(invoke(*train, out, home=tmp_path)).stdout, "people's and neutral ones"
    blind = done(invoke(*train, tmp_path / "blind", "--claim-only", "--json", home=tmp_path))
    assert blind["best"]["value"] < 0.6, "a claim alone does not tell"
    again = ("--base", out, "--max-steps", 1, "--out", tmp_path / "again", "--json")
    assert done(invoke(*train[:3], *again, home=tmp_path))["best"]["value"] > 0.9, "the head is kept"
    failed(invoke(*train[:3], "--base", tiny_cross_encoder, "--out", tmp_path / "x", home=tmp_path), 3, "one output")
    failed(invoke(*train[:3], "--answers", tmp_path, "--out", tmp_path / "x", home=tmp_path), 2, "--snippets")
    failed(invoke(*train[:3], "--snippets", claims, "--out", tmp_path / "x", home=tmp_path), 2, "--made")
