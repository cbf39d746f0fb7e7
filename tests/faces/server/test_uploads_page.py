"""In a real browser: a paper is sent, asked and opened at its page; a manuscript is checked; by keyboard, any width."""

from __future__ import annotations

import pytest

pytest.importorskip("selenium", reason="the package selenium is not installed")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.cli import invoke, succeeded
from tests.conftest import write_medrag
from tests.corpus.samples import searchable_pdf
from tests.faces.server.conftest import serving
from tests.faces.server.test_page import (
    LARGE,
    NARROW,
    address_of,
    browser,
    faults,
    found,
    media,
    picture,
    pytestmark,
    sized,
    until,
    without_scripts,
)
from tests.faces.server.test_uploads import MANUSCRIPT, PAPER, QUESTION, RECORD

__all__ = ["browser", "pytestmark"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory, tiny_encoder):
    """A server that takes files, over a home of its own."""
    folder = tmp_path_factory.mktemp("lab")
    corpus = write_medrag(folder / "corpus.jsonl", [RECORD])
    succeeded(invoke("index", corpus, "--name", "first", "--encoder", tiny_encoder, home=folder / "home"))
    (folder / "paper.pdf").write_bytes(searchable_pdf(PAPER))
    (folder / "other.pdf").write_bytes(searchable_pdf(["Gout is painful."]))
    (folder / "manuscript.md").write_text("# A paper\n\n" + MANUSCRIPT.replace("\n", "\n\n"))
    with serving(folder / "home", "--uploads", "--encoder", tiny_encoder, name=None) as process:
        process.folder = folder
        yield process


def looked_at(browser, name: str) -> None:
    """Hold that a page is as wide as each screen, and that axe finds nothing on it, in the light and the dark."""
    for size, scheme in ((NARROW, "light"), (LARGE, "dark")):
        sized(browser, size)
        with media(browser, prefers_color_scheme=scheme):
            assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0], name
            assert faults(browser) == [], name
            picture(browser, f"{name}-{size[0]}-{scheme}.png")


def test_a_paper_is_sent_asked_and_opened_at_its_page(browser, lab):
    sized(browser, LARGE)
    browser.get(lab.url)
    browser.find_element(By.LINK_TEXT, "Add papers").send_keys(Keys.ENTER)
    field = found(browser, "#index")
    looked_at(browser, "papers")
    field.clear()
    field.send_keys("mine", Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("id") == "files"
    browser.find_element(By.ID, "files").send_keys(f"{lab.folder / 'paper.pdf'}\n{lab.folder / 'other.pdf'}")
    field.send_keys(Keys.ENTER)
    until(browser, lambda driver: "mine is up to date" in driver.find_element(By.TAG_NAME, "main").text)
    assert [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")] == ["paper.pdf 2", "other.pdf 1"]
    looked_at(browser, "papers-added")
    browser.find_element(By.LINK_TEXT, "Ask mine").click()
    until(browser, lambda driver: driver.current_url == f"{lab.url}?index=mine")
    browser.get(lab.url + address_of(**QUESTION, index="mine"))
    link = found(browser, ".own a[href$='page=2']")
    assert link.text == "Open paper.pdf at page 2"
    link.send_keys(Keys.ENTER)
    until(browser, lambda driver: len(driver.window_handles) == 2)
    answer, paper = browser.window_handles
    browser.switch_to.window(paper)
    until(browser, lambda driver: driver.current_url.endswith("#page=2"))
    until(browser, lambda driver: "pdf_embedder" in driver.page_source)  # the browser's own viewer
    picture(browser, "paper.png")
    browser.close()
    browser.switch_to.window(answer)


@pytest.mark.parametrize("scripts", [True, False])
def test_a_manuscript_is_checked(browser, lab, scripts):
    sized(browser, LARGE)
    with without_scripts(browser, not scripts):
        browser.get(lab.url + "check?index=first")
        if scripts:
            looked_at(browser, "check")
        found(browser, "#manuscript").send_keys(str(lab.folder / "manuscript.md"))
        button = browser.find_element(By.CSS_SELECTOR, "form.box > button")
        webdriver.ActionChains(browser).move_to_element(button).perform()
        button.send_keys(Keys.ENTER)
        report = found(browser, ".report")
        assert report.find_element(By.TAG_NAME, "h1").text == "Citations of manuscript.md"
        assert "no record found: not in index 'first'" in report.text
        assert browser.find_element(By.LINK_TEXT, "manuscript-report.md")
    if scripts:
        looked_at(browser, "checked")


def test_more_than_the_limit_is_not_sent(browser, lab):
    browser.get(lab.url + "papers")
    browser.execute_script("document.getElementById('files').dataset.most = 10")
    files = found(browser, "#files")
    files.send_keys(str(lab.folder / "paper.pdf"))
    assert "send fewer at a time" in files.get_attribute("validationMessage")
