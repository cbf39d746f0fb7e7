"""Sections: where each setting stands, and which of them identify a run."""

import pytest

from biorag.settings.abstention import AbstentionSettings
from biorag.settings.section import Effect, Flag, marked
from biorag.settings.settings import PLACES, SECRETS, SECTIONS, Settings

RETRIEVAL = {
    "precision": "auto",
    "mode": "hybrid",
    "fusion": "linear",
    "lambda": 0.03,
    "rrf_k": 60,
    "depth": 100,
    "rerank": True,
    "reranker": "encoder",
    "interpolation": 0.5,
    "k_init": 20,
    "k": 5,
    "include_retracted": False,
}
FIRST_STAGE = ("precision", "mode", "fusion", "lambda", "rrf_k", "depth")
TRAINING = {
    "train_epochs": 1.0,
    "train_batch_size": 32,
    "train_learning_rate": 3e-5,
    "train_warmup": 0.1,
    "train_max_tokens": 256,
    "train_query_tokens": 32,
    "train_hard_negatives": 1,
    "train_mini_batch_size": None,
    "train_gradient_checkpointing": False,
    "train_lora_rank": 16,
    "train_lora_alpha": 32.0,
    "train_validation": 0.1,
    "train_evaluations": 4,
}


def test_every_setting_stands_in_one_section_under_one_name():
    names = [info.alias or name for section in SECTIONS.values() for name, info in section.model_fields.items()]
    assert len(names) == len(set(names))
    assert (
        set(names) | {"home", "graph", "seed"} == set(PLACES) == set(Settings().flat()) == set(Settings().flat_json())
    )
    assert set(SECTIONS) == {"services", "index", "retrieval", "generation", "abstention", "training"}


def test_flat_values_make_the_same_settings_again():
    settings = Settings.of(lambda_=0.5, train_epochs=2, llm_login="user:word", qdrant="http://user:p@host:1", k=7)
    assert Settings.of(**settings.flat()) == settings
    assert settings.replace() == settings
    assert (settings.retrieval.lambda_, settings.training.epochs, settings.retrieval.k) == (0.5, 2, 7)


@pytest.mark.parametrize(
    ("changes", "also"),
    [
        ({}, {}),
        ({"reranker": "encoder,cross:models/ce"}, {"cross_interpolation": 10.0}),
        ({"reranker": "cross:models/ce", "rerank": False}, {}),
        ({"name": "other", "timeout": 1, "threads": 3, "llm": "none", "train_epochs": 9, "seed": 4}, {}),
        ({"precision": "fp32", "lambda_": 0.2, "include_retracted": True}, {}),
    ],
)
def test_a_ranking_is_identified_by_the_retrieval_section_and_a_cross_encoder_s_weight_by_its_use(changes, also):
    own = {name.removesuffix("_"): value for name, value in changes.items() if name.removesuffix("_") in RETRIEVAL}
    assert Settings.of(**changes).retrieval.identity() == {**RETRIEVAL, **own, **also}


def test_candidates_are_identified_by_the_first_stage():
    settings = Settings.of(mode="dense", k_init=7, reranker="cross:x", lambda_=0.5)
    expected = {name: RETRIEVAL[name] for name in FIRST_STAGE} | {"mode": "dense", "lambda": 0.5}
    assert settings.retrieval.first_stage() == expected


def test_generation_is_identified_by_its_limits_for_models_and_prompts_are_identified_by_their_hashes():
    settings = Settings.of(llm="none", prompt="p.txt", threads=3, cache=False, max_tokens=9)
    assert settings.generation.identity() == {"max_tokens": 9, "context_window": 8192}


def test_training_is_identified_by_its_section_precision_and_seed():
    settings = Settings.of(train_epochs=3, seed=5, precision="bf16", k=9)
    assert settings.training_identity() == {**TRAINING, "train_epochs": 3.0, "seed": 5, "precision": "bf16"}
    stepped = Settings.of(train_max_steps=9, train_warmup_steps=0)
    assert stepped.training.identity() == {**TRAINING, "train_max_steps": 9, "train_warmup_steps": 0}


def test_reports_show_neither_secrets_nor_this_machine_nor_training():
    given = {"timeout": 9, "threads": 2, "llm_api_key": "key", "qdrant": "http://host:1", "train_epochs": 4}
    settings = Settings.of(home="/h", bm25_terms="pieces", **given)
    shown = settings.public()
    hidden = {name for name, place in PLACES.items() if marked(place.field, Effect) is Effect.NONE}
    assert hidden >= SECRETS | {"home", "graph", "timeout", "retries", "threads", "offline", "batch_size", "cache"}
    # No benchmark withholds an answer.
    assert set(shown) == set(PLACES) - hidden - set(SECTIONS["training"]().flat()) - set(
        AbstentionSettings.model_fields
    )
    assert (shown["qdrant"], shown["k_init"], shown["seed"]) == ("http://host:1", 20, 0)
    assert "bm25_terms" not in Settings.of().public(), "runs from before these settings had none"


def test_every_setting_says_what_it_is_and_no_two_of_a_section_share_a_flag():
    assert all(place.field.description for place in PLACES.values())
    for name in [*SECTIONS, None]:
        flags = [marked(place.field, Flag) for place in PLACES.values() if place.section == name]
        words = [word for flag in flags if flag for word in flag.names]
        assert len(words) == len(set(words))


def test_the_longest_option_names_a_flag():
    assert Flag("--k", "-k").longest == "--k"
    assert Flag("--rerank/--no-rerank").longest == "--rerank"
