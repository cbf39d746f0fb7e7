"""The page of the papers' tables and figures."""

import pytest

from biorag.lab.recipes import papers
from biorag.lab.recipes.recipe import load_recipe
from biorag.lab.recipes.run import recipe_of
from scripts.reproduction_page import PAGE, SCALES, page, rows

PAPERS = [paper for paper in papers() if SCALES[0] in load_recipe(recipe_of(paper)).scales]


def test_the_page_is_written_from_the_recipes():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m scripts.reproduction_page"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_item_of_a_paper_has_a_step_that_runs_or_a_reason(paper):
    items = rows(load_recipe(recipe_of(paper)))
    assert items and len({item for item, *_ in items}) == len(items)
    for item, _, command, steps, _, how, why in items:
        assert (command and steps) or (how == "cannot be had" and why), item


def test_a_table_needs_the_inputs_of_the_steps_behind_its_own():
    items = {
        item: (command, data) for item, _, command, _, data, *_ in rows(load_recipe(recipe_of("modernbert-colbert")))
    }
    assert items["Table 5"] == ("`bench retrieval`", "documents, questions")
    assert items["Table 1"] == ("`bench mirage`", "documents, questions, mirage")
