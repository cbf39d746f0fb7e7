"""Cross-encoders against the library's own predictions, and models that are none."""

import numpy as np
import pytest

from biorag.errors import MissingError
from biorag.models.cross_encoder import CrossEncoderReranker
from biorag.models.finding import find_encoder
from biorag.types import Snippet
from tests.fakes import scores_of

pytestmark = pytest.mark.models

QUERIES = ["aspirin for fever and pain?", "heparin?", "gene"]
SNIPPETS = [
    Snippet("a", "Aspirin", "aspirin lowers fever."),
    Snippet("b", "", "heparin, liver; kidney"),
    Snippet("c", "Pain", "pain " * 300),  # longer than the model's window
    Snippet("d", "", "fever"),
]


def predicted(folder, query: str, snippet: Snippet) -> float:
    """Return the log-odds of one pair alone, by sentence-transformers."""
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu")
    return float(model.predict([(query, snippet.contents)], activation_fn=torch.nn.Identity())[0])


def test_scores_are_the_log_odds_that_the_library_predicts(tiny_cross_encoder):
    candidates = [SNIPPETS, [], SNIPPETS[:2]]
    found = CrossEncoderReranker(find_encoder(str(tiny_cross_encoder)), "fp32").score_all(QUERIES, candidates)
    assert [scores.shape for scores in found] == [(4,), (0,), (2,)]
    for query, snippets, scores in zip(QUERIES, candidates, found, strict=True):
        expected = [predicted(tiny_cross_encoder, query, snippet) for snippet in snippets]
        np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert len({round(float(score), 5) for score in found[0]}) == 4


def test_a_bi_encoder_and_a_classifier_of_several_labels_are_refused(tmp_path, tiny_encoder):
    from sentence_transformers import CrossEncoder

    with pytest.raises(MissingError, match="no trained head"):
        CrossEncoderReranker(find_encoder(str(tiny_encoder)))
    CrossEncoder(str(tiny_encoder), num_labels=3, device="cpu").save(str(tmp_path / "nli"))
    with pytest.raises(MissingError, match="3 outputs"):
        CrossEncoderReranker(find_encoder(str(tmp_path / "nli")))


def test_a_long_text_is_cut_and_the_short_one_beside_it_stays(tiny_cross_encoder):
    reranker = CrossEncoderReranker(find_encoder(str(tiny_cross_encoder)), "fp32")
    question, texts = "heart " * 500, ["liver pain", "liver gene"]
    longer = scores_of(reranker, question + "blood " * 500, texts)
    np.testing.assert_allclose(scores_of(reranker, question, texts), longer, atol=1e-5)
    assert abs(longer[0] - longer[1]) > 1e-6, "the passage is read"
