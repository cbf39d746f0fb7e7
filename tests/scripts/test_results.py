"""The figures of README and docs/results are those that were measured."""

from __future__ import annotations

import json
import re

import pytest

from scripts.results import BLOCKS, PAGES, ROOT, STORE, stored_figures, written

_BLOCK = re.compile(r"<!-- figures: ([a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)
_FIGURE = re.compile(r"(?<![0-9])0?\.[0-9]{2,}\b|\b[0-9.]+ m?s\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_holds_the_stored_figures_and_no_others(page):
    text = page.read_text(encoding="utf-8")
    assert written(text, stored_figures()) == text, "write the pages: python -m scripts.results"
    assert _BLOCK.findall(text)
    assert _FIGURE.findall(_BLOCK.sub("", text)) == []


def test_every_table_stands_on_a_page():
    used = [name for page in PAGES for name in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    assert sorted(used) == sorted(BLOCKS)


def test_a_figure_that_is_not_the_stored_one_is_found():
    page = ROOT / "docs/results/retrieval.md"
    text = page.read_text(encoding="utf-8")
    figure = re.search(r"\| 0\.[0-9]{3} \|", text)
    changed = text.replace(figure[0], "| 0.999 |", 1)
    assert written(changed, stored_figures()) == text != changed


def test_every_measurement_names_its_commands():
    for name, measurement in json.loads(STORE.read_text(encoding="utf-8")).items():
        assert measurement["commands"], name
        assert all(line.startswith("biorag ") for line in measurement["commands"])
