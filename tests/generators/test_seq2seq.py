"""A tiny T5 through the real loading: what is sampled is the seed's, within the cap; what is refused."""

import pytest
import torch
from transformers import AutoTokenizer, T5ForConditionalGeneration

from biorag.errors import MissingError
from biorag.generators.seq2seq import TOP_K, Seq2SeqGenerator
from biorag.models.finding import find_encoder
from biorag.types import Sampling
from tests.tiny_t5 import WORDS, write_tiny_t5

pytestmark = pytest.mark.models

TEXTS = ["aspirin lower fever", "warfarin cause pain in the liver"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_t5(tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="module")
def generator(folder):
    return Seq2SeqGenerator(find_encoder(str(folder)), "fp32")


def test_sampled_texts_are_the_seeds(generator):
    first = generator.sample(TEXTS, 4, 6, Sampling(1.0, 5))
    assert [len(drafts) for drafts in first] == [4, 4]
    assert generator.sample(TEXTS, 4, 6, Sampling(1.0, 6)) != first
    assert generator.sample(TEXTS, 4, 6, Sampling(1.0, 5)) == first
    texts = [draft.text for drafts in first for draft in drafts]
    assert len(set(texts)) > 4
    assert {word for text in texts for word in text.split()} <= {*WORDS, "<unk>"}


def test_tokens_of_passages_and_texts_are_counted(generator, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text, drafts in zip(TEXTS, generator.sample(TEXTS, 9, 6, Sampling(1.0, 5)), strict=True):
        assert [draft.prompt_tokens for draft in drafts] == [len(tokenizer(text)["input_ids"]), *[0] * 8]
        for draft in drafts:
            shown = len(draft.text.split())  # special tokens are not
            assert draft.completion_tokens == 6 if draft.capped else shown < draft.completion_tokens <= 6


def test_greedy_and_sampled_first_tokens_are_the_models(generator, folder):
    """The first token against the logits of the model itself: the likeliest, and among the `TOP_K` likeliest."""
    model = T5ForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    (greedy,) = generator.sample(TEXTS[:1], 1, 1, Sampling(0.0, 0))[0]
    features = tokenizer(TEXTS[:1], return_tensors="pt")
    with torch.inference_mode():
        logits = model(**features, decoder_input_ids=torch.zeros((1, 1), dtype=torch.long)).logits[0, -1]
    best = tokenizer.batch_decode(logits.topk(TOP_K).indices[:, None], skip_special_tokens=True)
    assert greedy.text == best[0]
    drawn = {draft.text for draft in generator.sample(TEXTS[:1], 200, 1, Sampling(1.0, 0))[0]}
    assert 3 < len(drawn) <= TOP_K
    assert drawn <= set(best)


def test_what_is_no_such_model_is_refused(tmp_path, folder, tiny_encoder):
    with pytest.raises(MissingError, match="as a sequence-to-sequence model"):
        Seq2SeqGenerator(find_encoder(str(tiny_encoder)), "fp32")
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(MissingError, match="has no tokenizer"):
        Seq2SeqGenerator(find_encoder(str(bare)), "fp32")
