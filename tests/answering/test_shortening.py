"""Snippets cut to their nearest sentences: which, in which order, and that citations are held to whole ones."""

import pytest

from biorag.answering.answerer import Answerer
from biorag.answering.extract import Extractor
from biorag.answering.shortening import shortened
from biorag.settings.settings import Settings
from biorag.types import Hit, Question, Snippet
from tests.fakes import ScriptedGenerator

CONTENT = (
    "Fever is common. Aspirin lowers fever in children. The study had many visits. "
    "Costs were not counted. Aspirin is cheap."
)
QUESTION = "Does aspirin lower fever?"


def hits(*contents: str) -> list[Hit]:
    return [Hit(n, Snippet(str(n), f"Title {n}", content), 1.0 / n) for n, content in enumerate(contents, 1)]


@pytest.mark.parametrize(
    ("most", "content"),
    [
        (0, CONTENT),
        (1, "… Aspirin lowers fever in children. …"),
        (2, "Fever is common. Aspirin lowers fever in children. …"),
        (3, "Fever is common. Aspirin lowers fever in children. … Aspirin is cheap."),
        (5, CONTENT),
    ],
)
def test_the_nearest_sentences_stay_in_their_order(most, content):
    """By words, without an encoder; `fever` is in as many sentences as `aspirin`, and the first of equals stays."""
    (snippet,) = shortened(QUESTION, hits(CONTENT), most, Extractor())
    assert snippet.content == content
    assert snippet.title == "Title 1"


def test_each_snippet_is_cut_for_itself_and_short_ones_stay_whole():
    whole, cut = shortened(QUESTION, hits("RESULTS: Nothing of it.", CONTENT), 1, Extractor())
    assert whole.content == "RESULTS: Nothing of it."
    assert cut.content == "… Aspirin lowers fever in children. …"
    (title,) = shortened(QUESTION, hits(""), 1, Extractor())
    assert (title.title, title.content) == ("Title 1", "")


class Ranked:
    """What was retrieved."""

    def __init__(self, hits) -> None:
        self.hits, self.timings_ms = tuple(hits), {}


def test_the_prompt_is_cut_and_a_quote_is_held_to_the_whole_snippet():
    generator = ScriptedGenerator(['{"answer": "The study had many visits [1].", "citations": [1]}'])
    answerer = Answerer(None, generator, Settings.of(sentences=1, llm="starter"))
    answer = answerer.answer_from(Question("q", QUESTION), Ranked(hits(CONTENT)))
    (prompt,) = generator.prompts
    assert "… Aspirin lowers fever in children. …" in prompt.user
    assert "many visits" not in prompt.user
    assert answer.hits[0].snippet.content == CONTENT
    assert answer.citations[0].quote == "The study had many visits."


def test_the_number_of_sentences_is_part_of_a_runs_identity_only_where_snippets_are_cut():
    assert "sentences" not in Settings.of().generation.identity()
    assert Settings.of(sentences=2).generation.identity()["sentences"] == 2
