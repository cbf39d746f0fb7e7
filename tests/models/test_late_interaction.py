"""Late interaction against slow loops, sentence-transformers and a checkpoint built by hand."""

import json
import math
import shutil
import string
from contextlib import closing

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from biorag.errors import MissingError
from biorag.indexes.manifest import TokenParameters
from biorag.indexes.store import Store
from biorag.models.bi_encoder import BiEncoder
from biorag.models.colbert import ColBERT
from biorag.models.colbert_ai import ColbertAI
from biorag.models.finding import find_encoder
from biorag.models.late_interaction import LateInteraction, StoredLateInteraction, mean_maxsim
from biorag.settings.settings import Settings
from biorag.types import Snippet
from tests.cli import done, invoke
from tests.conftest import write_medrag
from tests.fakes import scores_of
from tests.tiny_colbert import write_published

pytestmark = pytest.mark.models

QUERY = "aspirin for fever and pain?"
TEXTS = [
    "aspirin lowers fever.",
    "heparin, liver; kidney",
    "the gene protein of a virus in the lung (cell)",
    "pain " * 200,  # longer than the model's window
    "fever",
]


def slow_maxsim(query, document) -> float:
    """MaxSim as ColBERT defines it, one multiplication at a time."""
    total = 0.0
    for q in query:
        best = -math.inf
        for d in document:
            best = max(best, sum(float(a) * float(b) for a, b in zip(q, d, strict=True)))
        total += best
    return total


@st.composite
def bags(draw):
    """A query's token vectors and those of some documents, which may have none."""
    dim = draw(st.integers(1, 4))
    values = st.floats(-4, 4, width=16)
    query = draw(arrays(np.float32, (draw(st.integers(1, 4)), dim), elements=values))
    lengths = draw(st.lists(st.integers(0, 4), max_size=5))
    return query, [draw(arrays(np.float32, (length, dim), elements=values)) for length in lengths]


@given(bags())
def test_mean_maxsim_is_the_triple_loop_over_the_query_tokens(bag):
    query, documents = bag
    slow = [slow_maxsim(query, document) / len(query) if len(document) else 0.0 for document in documents]
    scores = mean_maxsim(query, documents)
    assert scores.dtype == np.float32
    assert scores.shape == (len(documents),)
    np.testing.assert_allclose(scores, slow, atol=1e-3, rtol=1e-4)


@pytest.fixture(scope="module")
def tiny(tiny_encoder) -> BiEncoder:
    return BiEncoder(find_encoder(str(tiny_encoder)), "cosine", "fp32")


def by_hand(model, query: str, texts: list[str]) -> list[float]:
    """Mean MaxSim of a bi-encoder's own token vectors, each of unit length."""

    def tokens(text: str):
        vectors = model.encode(text, output_value="token_embeddings").float().cpu().numpy()
        return [vector / np.linalg.norm(vector) for vector in vectors]

    return [slow_maxsim(tokens(query), tokens(text)) / len(tokens(query)) for text in texts]


WIDTH = 8
QUERY_LENGTH = 12
DOCUMENT_LENGTH = 20
POSITIONS = 128


@pytest.fixture(scope="module", params=[False, True], ids=["masks unattended", "masks attended"])
def stanford(request, tiny_encoder, tmp_path_factory):
    """An `HF_ColBERT` directory: BERT's weights under `bert.`, the projection as `linear.weight`."""
    from safetensors.torch import save_file
    from transformers import AutoModel, AutoTokenizer

    folder = tmp_path_factory.mktemp("colbert")
    bert = AutoModel.from_pretrained(tiny_encoder).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_encoder)
    torch.manual_seed(7)
    projection = torch.randn(WIDTH, 32)
    weights = {f"bert.{name}": value.contiguous() for name, value in bert.state_dict().items()}
    save_file({**weights, "linear.weight": projection}, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {**bert.config.to_dict(), "architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer.save_pretrained(folder)
    metadata = {
        "query_maxlen": QUERY_LENGTH,
        "doc_maxlen": DOCUMENT_LENGTH,
        "dim": WIDTH,
        "mask_punctuation": True,
        "attend_to_mask_tokens": request.param,
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "similarity": "cosine",
    }
    (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return folder, Reference(bert, tokenizer, projection, request.param)


class Reference:
    """ColBERT as its paper and code define it, written out with transformers alone."""

    def __init__(self, bert, tokenizer, projection, attend: bool) -> None:
        self.bert, self.tokenizer, self.projection, self.attend = bert, tokenizer, projection, attend

    def _vectors(self, text: str, marker: str, length: int, padded: int = 0):
        """Return vectors and pieces of `[CLS]`, marker, text and `[SEP]`, at most `length`, and of `[MASK]`s."""
        vocabulary = self.tokenizer.get_vocab()
        words = self.tokenizer.encode(text, add_special_tokens=False)[: length - 3]
        ids = [vocabulary["[CLS]"], vocabulary[marker], *words, vocabulary["[SEP]"]]
        masks = max(0, padded - len(ids))
        attended = torch.tensor([[1] * len(ids) + [int(self.attend)] * masks])
        ids += [self.tokenizer.mask_token_id] * masks
        with torch.no_grad():
            hidden = self.bert(torch.tensor([ids]), attention_mask=attended).last_hidden_state[0]
        projected = [[float(row @ token) for row in self.projection] for token in hidden]
        unit = [np.array(vector) / math.sqrt(sum(value**2 for value in vector)) for vector in projected]
        return unit, self.tokenizer.convert_ids_to_tokens(ids)

    def scores(self, query: str, texts: list[str]) -> list[float]:
        """A query counts to its end, and in full at 32 (here 12) positions; punctuation of passages does not count."""
        tokens, _ = self._vectors(query, "[unused0]", POSITIONS, QUERY_LENGTH)
        scores = []
        for text in texts:
            vectors, pieces = self._vectors(text, "[unused1]", DOCUMENT_LENGTH)
            scored = [vector for vector, piece in zip(vectors, pieces, strict=True) if piece not in string.punctuation]
            scores.append(slow_maxsim(tokens, scored) / len(tokens))
        return scores


@pytest.mark.parametrize("query", [QUERY, "fever", "aspirin " * 30])
def test_a_stanford_checkpoint_scores_as_colbert_defines(stanford, query):
    folder, reference = stanford
    reranker = LateInteraction(ColBERT(find_encoder(str(folder)), "fp32"))
    np.testing.assert_allclose(scores_of(reranker, query, TEXTS), reference.scores(query, TEXTS), atol=1e-4)


# Without signs that the tiny vocabulary lacks: to colbert-ai an unknown token is as punctuation then.
SPELLED = [text.replace(";", ",").strip(")").replace("(", "") for text in TEXTS]


@pytest.mark.parametrize("query", [QUERY, "a", "fever " * 30], ids=["short", "one token", "cut"])
def test_colbert_ai_scores_as_colbert_defines_and_cuts_long_queries(stanford, query):
    folder, reference = stanford
    words = reference.tokenizer.encode(query, add_special_tokens=False)[: QUERY_LENGTH - 3]
    kept = reference.tokenizer.decode(words)
    reranker = ColbertAI(find_encoder(str(folder)))
    scores = scores_of(reranker, query, SPELLED)
    np.testing.assert_allclose(scores, reference.scores(kept, SPELLED), atol=1e-4)
    ours = LateInteraction(ColBERT(find_encoder(str(folder)), "fp32"))
    np.testing.assert_allclose(scores, scores_of(ours, kept, SPELLED), atol=1e-5)
    none, again = reranker.score_all([query, query], [[], [Snippet("s", "", text) for text in SPELLED]])
    assert none.shape == (0,) and none.dtype == np.float32
    np.testing.assert_array_equal(again, scores)


def changed(folder, tmp_path, file: str, **values):
    """Return a copy of a model with some values of a JSON file changed."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / file).write_text(json.dumps({**json.loads((copy / file).read_text()), **values}))
    return find_encoder(str(copy))


def test_colbert_ai_loads_the_folder_and_no_other_model_that_its_metadata_names(tiny_encoder, tmp_path):
    folder = write_published(tmp_path / "published", tiny_encoder)
    own, ours = ColbertAI(find_encoder(str(folder))), LateInteraction(ColBERT(find_encoder(str(folder)), "fp32"))
    np.testing.assert_allclose(scores_of(own, QUERY, SPELLED), scores_of(ours, QUERY, SPELLED), atol=1e-5)
    files = changed(folder, tmp_path, "artifact.metadata", model_name="nobody/no-such-model")
    np.testing.assert_array_equal(scores_of(ColbertAI(files), QUERY, SPELLED), scores_of(own, QUERY, SPELLED))


@pytest.mark.parametrize(
    ("file", "values", "said"),
    [
        ("config.json", {"auto_map": {"AutoModel": "evil.EvilModel"}}, "names code of its own"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": "evil.T"}}, "names code of its own"),
        ("config.json", {"architectures": ["BertModel"]}, "not a ColBERT checkpoint"),
        ("config.json", {"model_type": "nothing"}, "cannot be loaded by colbert-ai"),
        ("artifact.metadata", {"similarity": "l2"}, "only with cosines and masked punctuation"),
        ("artifact.metadata", {"mask_punctuation": False}, "only with cosines and masked punctuation"),
    ],
)
def test_what_colbert_ai_is_not_given(stanford, tmp_path, file, values, said):
    with pytest.raises(MissingError, match=said):
        ColbertAI(changed(stanford[0], tmp_path, file, **values))


def test_a_search_reranked_by_colbert_ai_has_the_scores_of_the_same_weights(
    stanford, tiny_encoder, tmp_path, monkeypatch
):
    monkeypatch.setenv("BIORAG_PRECISION", "fp32")
    write_medrag(tmp_path / "texts.jsonl", [Snippet(f"s{place}", "", text) for place, text in enumerate(SPELLED)])
    home, asked = tmp_path / "home", ("search", "aspirin for fever", "--name", "mine", "-k", "5", "--json")
    index = ("index", tmp_path / "texts.jsonl", "--name", "mine", "--encoder", tiny_encoder, "--store-tokens", "none")
    done(invoke(*index, "--json", home=home))
    ours, theirs = (
        {hit["id"]: hit["score"] for hit in done(invoke(*asked, "--reranker", name, home=home))["hits"]}
        for name in (str(stanford[0]), f"colbert-ai:{stanford[0]}")
    )
    assert len(ours) == len(SPELLED)
    assert theirs == pytest.approx(ours, abs=1e-4)


def test_a_bi_encoder_is_refused_since_its_projection_would_be_random(tiny_encoder):
    with pytest.raises(MissingError, match="not a ColBERT checkpoint"):
        ColBERT(find_encoder(str(tiny_encoder)), "fp32")


SNIPPETS = [Snippet(f"s{place}", "", text) for place, text in enumerate(TEXTS)]
QUERIES = ["aspirin for fever", "the liver and the kidney of a virus", "gene"]
CANDIDATES = [SNIPPETS[:3], SNIPPETS, []]


def test_many_queries_score_as_one_by_one_and_as_stored_token_vectors(tiny, tmp_path):
    scored = LateInteraction(tiny).score_all(QUERIES, CANDIDATES)
    assert [len(scores) for scores in scored] == [3, 5, 0]
    for query, candidates, scores in zip(QUERIES, CANDIDATES, scored, strict=True):
        np.testing.assert_allclose(scores, by_hand(tiny.model, query, [s.contents for s in candidates]), atol=1e-4)
    store = Store(Settings.of(home=tmp_path, name="tokens"))
    parameters = TokenParameters("encoder", "", tiny.identity.sha256, 32, 1)
    with closing(store.open(store.new_manifest(tiny.identity, 5.0, parameters), writable=True)) as index:
        index.upsert(SNIPPETS, *tiny.encode_snippets_with_tokens(TEXTS))
        stored = StoredLateInteraction(tiny, index).score_all(QUERIES, CANDIDATES)
    for held, anew in zip(stored, scored, strict=True):
        assert held.dtype == np.float32
        np.testing.assert_allclose(held, anew, atol=1e-3)  # half precision


def test_queries_just_encoded_are_not_encoded_again(tiny, monkeypatch):
    vectors = tiny.encode_queries(QUERIES)
    with monkeypatch.context() as closed:
        closed.setattr(tiny.model, "forward", lambda *_, **__: pytest.fail("encoded again"))
        assert [tokens.shape[1] for tokens in tiny.query_tokens(QUERIES)] == [32, 32, 32]
        np.testing.assert_array_equal(tiny.encode_queries(QUERIES), vectors)
    assert len(tiny.query_tokens(["fever"])) == 1


def test_kept_token_vectors_are_not_encoded_again_and_score_alike(tiny, monkeypatch):
    expected = LateInteraction(tiny).score_all(QUERIES, CANDIDATES)
    asked: list[str] = []
    encode = tiny.snippet_tokens
    monkeypatch.setattr(tiny, "snippet_tokens", lambda texts: asked.extend(texts) or encode(texts))
    keeping, forgetful = LateInteraction(tiny).keeping(), LateInteraction(tiny).keeping(1)
    distinct = {snippet.contents for snippets in CANDIDATES for snippet in snippets}
    for reranker, rounds in ((keeping, 1), (forgetful, 2)):
        asked.clear()
        for _ in range(2):
            for scores, scored in zip(reranker.score_all(QUERIES, CANDIDATES), expected, strict=True):
                np.testing.assert_allclose(scores, scored, atol=1e-6)
        assert sorted(asked) == sorted([*distinct] * rounds)
