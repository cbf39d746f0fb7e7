"""The page in a real browser: ask, read, export, browse, by keyboard alone and on a narrow screen."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

pytest.importorskip("selenium", reason="the package selenium is not installed")

from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import biorag
from tests.faces.server.conftest import QUESTION, serving

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no chromium with chromedriver here")

STARTER_READER = Path(biorag.__file__).parent / "models" / "reader"
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
SECONDS = 120
PICTURES = os.environ.get("BIORAG_TEST_SCREENSHOTS")  # a folder into which the documentation's pictures are taken
COLOURS = 96  # of a picture, so that it is small
TOKEN = "a-token-of-this-test-alone"
NARROW, WIDE, LARGE, LARGEST = (380, 800), (900, 1000), (1280, 900), (1440, 900)
WEIGHED = (
    "Budesonide-formoterol taken as needed prevented two thirds of the severe exacerbations that occurred with "
    "terbutaline alone."
)
KNOWN = "What is known of exacerbations of asthma?"
INHALERS = "Does budesonide-formoterol as needed prevent exacerbations of mild asthma?"


@pytest.fixture(scope="module")
def served(demo_home):
    with serving(demo_home) as process:
        yield process


@pytest.fixture(scope="module")
def library(demo_home):
    """A server over all indexes of a home."""
    with serving(demo_home, name=None) as process:
        yield process


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.add_argument("--disable-background-networking")
    options.add_argument("--hide-scrollbars")  # on pictures
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    os.environ["SE_OFFLINE"] = "true"
    try:
        driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    except WebDriverException as error:  # a browser that is installed by half, or lacks its libraries
        pytest.skip(f"Chromium does not start: {error.msg}")
    yield driver
    driver.quit()


def sized(browser, size: tuple[int, int]) -> None:
    """Show the page in a window of this size, which a headless browser makes no narrower than 500 by itself."""
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def until(browser, holds):
    """Wait until a function of the browser holds, also while its page is replaced by another."""
    return WebDriverWait(
        browser, SECONDS, ignored_exceptions=(NoSuchElementException, StaleElementReferenceException)
    ).until(holds)


def found(browser, selector: str):
    """Wait for an element."""
    return until(browser, lambda driver: driver.find_element(By.CSS_SELECTOR, selector))


def texts_of(browser, selector: str) -> list[str]:
    """Return the texts of elements."""
    return [element.text for element in browser.find_elements(By.CSS_SELECTOR, selector)]


def asked(browser, served, question: str = QUESTION) -> None:
    browser.get(served.url)
    field = found(browser, "#question")
    field.clear()
    field.send_keys(question)
    browser.find_element(By.CSS_SELECTOR, "#ask .asking button").click()
    found(browser, "#answer .verdict")


def picture(browser, name: str) -> None:
    if PICTURES:
        image = Image.open(BytesIO(browser.get_screenshot_as_png())).convert("RGB")
        image.quantize(COLOURS).save(Path(PICTURES) / name, optimize=True)


@contextmanager
def media(browser, **features: str):
    """Show pages as a medium, or with features, such as prefers_color_scheme="dark"."""
    named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@contextmanager
def without_scripts(browser, off: bool = True):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": off})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def address_of(question: str, **fields: str) -> str:
    return "ask?" + urlencode({**fields, "question": question})


def faults(browser) -> list[str]:
    """Return what axe finds, of whatever impact."""
    browser.execute_script(AXE)
    result = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert result["passes"], "axe looked at something"
    return [f"{fault['id']}: {node['html'][:200]}" for fault in result["violations"] for node in fault["nodes"]]


def requested(browser) -> set[str]:
    """Return the hosts that were asked for anything since this was last asked."""
    hosts = set()
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if url.startswith("http"):
                hosts.add(url.split("/")[2].split(":")[0])
    return hosts


def test_a_question_is_answered_with_marks_and_quotes(browser, served):
    sized(browser, WIDE)
    asked(browser, served)
    answer = found(browser, "#answer")
    assert re.search(r"Extract: \d sentences? of the evidence, verbatim", answer.text)
    assert {link.text for link in browser.find_elements(By.CSS_SELECTOR, "a.citation")} == {"[1]"}
    marked = [mark.text for mark in browser.find_elements(By.CSS_SELECTOR, "#hit-1 mark")]
    assert marked[0].startswith("Isoniazid interferes with the metabolism of vitamin B6")
    assert browser.current_url == f"{served.url}ask?question={quote(QUESTION)}", "the answer has an address"
    assert faults(browser) == []


def test_the_keyboard_alone_is_enough(browser, served):
    sized(browser, WIDE)
    browser.get(served.url)
    until(
        browser, lambda driver: driver.switch_to.active_element.get_attribute("id") == "question"
    )  # one may type at once
    keys = webdriver.ActionChains(browser)
    keys.send_keys(QUESTION, Keys.ENTER).perform()
    found(browser, "#answer .verdict")
    reached = []
    for _ in range(10):
        webdriver.ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.append(browser.switch_to.active_element.text)
    assert "[1]" in reached
    assert "Cite" in reached[reached.index("[1]") :], "the exports come after the citations"


def test_filters_exports_and_options(browser, served):
    sized(browser, WIDE)
    browser.get(served.url)
    found(browser, "summary").click()
    browser.find_element(By.ID, "question").send_keys("Which vitamin is given with isoniazid?")
    browser.find_element(By.ID, "options").send_keys("A=thiamine\nB=pyridoxine\nC=folate")
    browser.find_element(By.ID, "filter").send_keys("not id=demo_254")
    browser.find_element(By.CSS_SELECTOR, "#ask .asking button").click()
    assert "B." in found(browser, "#answer .text").text
    assert "demo_254" not in found(browser, "#answer .sources").get_attribute("textContent")
    browser.find_element(By.CSS_SELECTOR, ".menu summary").click()
    format = browser.find_element(By.PARTIAL_LINK_TEXT, "ris")
    link = format.get_attribute("href")
    text = browser.execute_async_script("fetch(arguments[0]).then(reply => reply.text()).then(arguments[1])", link)
    assert text.startswith("TY  - ")
    webdriver.ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    assert not format.is_displayed(), "Escape closes the list"
    assert "not id=demo_254" in found(browser, "#answer .said").text, "an answer names its filter"
    found(browser, "#ask summary").click()
    browser.find_element(By.ID, "filter").send_keys(" and colour=blue")
    browser.find_element(By.CSS_SELECTOR, "#ask .asking button").click()
    fault = found(browser, "#answer .fault")
    assert "colour" in fault.text
    seen = "const box = arguments[0].getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight"
    assert browser.execute_script(seen, fault), "it is not below what is shown"


def test_an_answer_has_an_address_and_the_browser_remembers_its_question(browser, served):
    sized(browser, LARGE)
    asked(browser, served)
    address = browser.current_url
    browser.find_element(By.ID, "question").clear()
    browser.find_element(By.ID, "question").send_keys("Who won the 1998 football world cup?", Keys.ENTER)
    until(browser, lambda driver: "found nothing" in driver.find_element(By.ID, "answer").text)
    assert "--" not in found(browser, "#answer .said").text, "options of the command line are no help here"
    assert not browser.find_element(By.CSS_SELECTOR, "#hit-1 h3").is_displayed(), "what does not answer is folded"
    assert not browser.find_elements(By.CSS_SELECTOR, ".actions"), "there is nothing to cite"
    browser.back()
    until(browser, lambda driver: "vitamin B6" in driver.find_element(By.ID, "answer").text)
    assert browser.current_url == address
    browser.refresh()
    assert "vitamin B6" in found(browser, "#answer .text").text
    text, sources = (found(browser, selector).rect for selector in ("#answer .said", "#answer .sources"))
    assert text["x"] + text["width"] <= sources["x"], "the sources stand beside the answer"
    assert faults(browser) == []
    browser.get(served.url)
    recent = until(browser, lambda driver: driver.find_elements(By.CSS_SELECTOR, "#recent a"))
    assert [link.text for link in recent][:2] == [QUESTION, "Who won the 1998 football world cup?"]
    browser.find_element(By.CSS_SELECTOR, "#recent button").click()
    browser.refresh()
    assert browser.find_elements(By.CSS_SELECTOR, "#recent a") == []


def test_the_first_page_says_what_the_index_holds_and_what_to_ask(browser, served):
    sized(browser, LARGE)
    browser.get(served.url)
    assert re.search(r"263 snippets, last changed \d{1,2} \w+ 20\d\d\.", found(browser, ".hero").text)
    examples = browser.find_elements(By.CSS_SELECTOR, "#examples a")
    assert examples[0].text == "Do antibiotics help the common cold?"
    assert faults(browser) == []
    examples[0].click()
    assert "common cold" in found(browser, "#answer .text").text
    assert not browser.find_elements(By.CSS_SELECTOR, "#examples a")


@pytest.mark.parametrize("scripts", [True, False])
def test_a_follow_up_is_asked_below_the_answer(browser, served, scripts):
    sized(browser, LARGE)
    with without_scripts(browser, not scripts):
        browser.get(served.url)
        assert found(browser, "#question").accessible_name == "New question"
        browser.get(served.url + address_of("Does metformin lower blood glucose?", filter="not id=demo_254"))
        assert found(browser, "#ask label").text == "New question (ask a follow-up below the answer)"
        found(browser, "#next").send_keys("and its adverse effects?", Keys.ENTER)
        until(browser, lambda driver: "Searched for" in driver.find_element(By.ID, "answer").text)
        answer = found(browser, "#answer")
        assert found(browser, "#answer h1").text == "and its adverse effects?"
        assert "metformin" in answer.text.lower()
        assert "Only where not id=demo_254" in answer.text, "it keeps the filters"
        first, second = "Does metformin lower blood glucose?", "and its adverse effects?"
        assert first in found(browser, "#turns").text, "the conversation stays"
        assert "after=Does" in browser.current_url, "a follow-up has an address too"
        if scripts:
            picture(browser, "serve-follow-up.png")
        found(browser, "#next").send_keys("and in astronauts?", Keys.ENTER)
        until(browser, lambda driver: "astronauts" in driver.find_element(By.CSS_SELECTOR, "#answer h1").text)
        assert "This may answer it" in found(browser, "#answer .said").text
        assert browser.find_element(By.ID, "question").get_attribute("value") == "", "a new question is another one"
        if scripts:
            turns = "#turns details"
            for _ in range(2):
                questions = [turn.text.split("\n")[0] for turn in browser.find_elements(By.CSS_SELECTOR, turns)]
                assert questions == [first, second]
                assert len(found(browser, f"{turns}:last-child p").text) > 20, "the last answer is shown"
                assert not browser.find_element(By.CSS_SELECTOR, f"{turns}:first-child p").is_displayed()
                browser.refresh()
                found(browser, turns)
            browser.back()
            until(browser, lambda driver: driver.find_element(By.CSS_SELECTOR, "#answer h1").text == second)
            assert [turn.text for turn in browser.find_elements(By.CSS_SELECTOR, f"{turns} summary")] == [first]
            found(browser, f"{turns} a").click()
            until(browser, lambda driver: not driver.find_elements(By.ID, "turns"))
            assert found(browser, "#question").get_attribute("value") == first


def test_an_answer_is_copied_with_its_sources(browser, served):
    sized(browser, LARGE)
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": served.url.rstrip("/")}
    browser.execute_cdp_cmd("Browser.grantPermissions", allowed)
    asked(browser, served)
    found(browser, "#copy").click()
    until(browser, lambda driver: driver.find_element(By.ID, "copy").text == "Copied")
    copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])").splitlines()
    assert copied[0] == QUESTION
    assert copied[-2:] == ["[1] Isoniazid neuropathy and pyridoxine.", browser.current_url]
    assert any(line.startswith("Isoniazid interferes") for line in copied)


@pytest.mark.parametrize(("size", "scheme"), [(NARROW, "dark"), (LARGE, "light"), (LARGEST, "dark")], ids=str)
def test_every_page_fits_each_screen_and_axe_finds_nothing(browser, library, size, scheme):
    sized(browser, size)
    pages = {
        "": "#indexes",
        address_of(INHALERS, index="inhalers"): ".said .text",
        address_of(INHALERS, index="inhalers", include_retracted="1"): "#hit-1",
        address_of("Who won the 1998 football world cup?"): ".withheld",
        address_of("Does zinc help?", filter="colour=blue"): ".fault",
        address_of("Does zinc help?", index="nowhere"): ".fault",
        f"weigh?{urlencode({'claim': WEIGHED, 'index': 'inhalers'})}": ".supporting blockquote",
        f"weigh?{urlencode({'question': KNOWN, 'index': 'inhalers', 'include_retracted': '1'})}": ".studies table",
        "weigh": "#claim",
        "login": "#token",
    }
    with media(browser, prefers_color_scheme=scheme):
        for address, selector in pages.items():
            browser.get(library.url + address)
            found(browser, selector)
            for folded in browser.find_elements(By.CSS_SELECTOR, "details:not([open])"):
                browser.execute_script("arguments[0].open = true", folded)
            width = browser.execute_script("return document.documentElement.scrollWidth")
            assert width <= size[0], f"nothing of {address or 'the first page'} is wider than the screen"
            assert faults(browser) == [], address


@pytest.mark.long
def test_pictures_of_the_documentation(browser, library):
    """Each picture is of what the page shows, also where none is taken."""
    browser.get(library.url)
    browser.execute_script("localStorage.clear()")
    question = address_of(INHALERS, index="inhalers")
    for name, size, scheme, address in (
        ("serve-wide.png", LARGE, "light", question),
        ("serve-dark.png", LARGE, "dark", question),
        ("serve-answer.png", WIDE, "light", address_of("Which drugs cause lupus?")),
        ("serve-narrow.png", NARROW, "light", question),
        ("serve-home.png", LARGE, "light", "?index=inhalers"),
    ):
        sized(browser, size)
        with media(browser, prefers_color_scheme=scheme):
            browser.get(library.url + address)
            assert browser.find_elements(By.CSS_SELECTOR, ".said a.citation" if "question" in address else "#indexes a")
            picture(browser, name)


@pytest.mark.parametrize("scripts", [True, False])
def test_one_chooses_among_the_indexes_of_the_home(browser, library, scripts):
    assert "Index 'default' is asked where a request names none" in "".join(library.lines)
    sized(browser, LARGE)
    with without_scripts(browser, not scripts):
        browser.get(library.url)
        # Without scripts nothing tells the browser's driver that a page is loaded.
        until(browser, lambda driver: "default" in [name.split("\n")[0] for name in texts_of(driver, "#indexes a")])
        cards = {card.text.split("\n")[0]: card for card in browser.find_elements(By.CSS_SELECTOR, "#indexes a")}
        assert "263 snippets" in cards["default"].text and re.search(r"MB\n\d+ \w+ 20\d\d$", cards["default"].text)
        cards["inhalers"].click()
        until(browser, lambda driver: driver.current_url == f"{library.url}?index=inhalers")
        chosen = found(browser, "#indexes [aria-current]")
        assert chosen.text.startswith("inhalers\n5 snippets")
        browser.find_element(By.ID, "question").send_keys("Does hoarseness occur with inhalers?")
        browser.find_element(By.CSS_SELECTOR, "#ask .asking button").click()
        assert "Haas M · 2016" in found(browser, "#hit-1 .line").text
        assert "index=inhalers" in browser.current_url, "the address of an answer names its index"
        browser.refresh()
        assert "Haas M · 2016" in found(browser, "#hit-1 .line").text
        found(browser, "#next").send_keys("and in adolescents?", Keys.ENTER)
        until(browser, lambda driver: "adolescents" in driver.find_element(By.CSS_SELECTOR, ".said h1").text)
        assert "index=inhalers" in browser.current_url and "Answered from inhalers" in found(browser, ".others").text
        browser.find_element(By.LINK_TEXT, "default").click()
        until(browser, lambda driver: "index=default" in driver.current_url)
        assert "Answered from default" in found(browser, ".others").text
        browser.back()
        until(browser, lambda driver: "Answered from inhalers" in driver.find_element(By.CSS_SELECTOR, ".others").text)


def test_a_source_is_a_line_with_chips_and_its_title_is_the_link(browser, library):
    sized(browser, LARGE)
    browser.get(library.url + address_of(INHALERS, index="inhalers", include_retracted="1", k="5"))
    found(browser, "#hit-1")
    lines = {
        hit.find_element(By.TAG_NAME, "h3").text[4:20]: hit
        for hit in browser.find_elements(By.CSS_SELECTOR, ".evidence > li")
    }
    shown = {title: " ".join(hit.find_element(By.CSS_SELECTOR, ".line").text.split()) for title, hit in lines.items()}
    assert shown == {
        "Budesonide-formo": "Okafor PM, et al. · 2018 · J Ward Med · RCT n = 3,849 cited",
        "Inhalers as need": "Crossley I, et al. · 2021 · Rev Respir Evid · Meta-analysis, Systematic review n = 9,565",
        "High doses of in": "Roe R, et al. · 2012 · Annals of Swift Cures · Journal Article RETRACTED ARTICLE n = 64",
        "Smartphone remin": "Nowak E, et al. · 2023 preprint n = 120",
        "Dry mouth and ho": "Haas M · 2016 · Airway Letters · Observational study n = 412",
    }
    link = lines["Smartphone remin"].find_element(By.CSS_SELECTOR, "h3 a")
    assert link.get_attribute("href") == "https://doi.org/10.5555/inhaler.4"
    hit = lines["Budesonide-formo"]
    hit.find_element(By.CSS_SELECTOR, ".more summary").click()
    assert "Okafor PM, Lindqvist J, Moreau A. Budesonide-formoterol as needed" in hit.text


def test_words_that_match_the_question_are_coloured_by_how_near_they_are(browser, library):
    sized(browser, NARROW)
    browser.get(library.url + address_of(INHALERS, index="inhalers"))
    hit = found(browser, "#hit-1")
    grades = {
        word.text.lower(): (word.get_attribute("class"), word.get_attribute("title"))
        for word in hit.find_elements(By.CSS_SELECTOR, "[class^=m]:not(mark)")
        if word.tag_name == "span"
    }
    assert grades["asthma"][0] == "m5" and grades["asthma"][1].startswith("asthma: 0.9")
    assert "terbutaline" not in grades
    hit.find_element(By.CSS_SELECTOR, ".more summary").click()
    assert re.search(r"Words by cosine: asthma – asthma 0\.9\d, .*prevent – prevented 0\.\d\d", hit.text)
    shades = [found(browser, f".legend .m{grade}").value_of_css_property("background-color") for grade in range(1, 6)]
    assert len(set(shades)) == 5


def test_a_citation_lights_its_sentence_and_the_quote(browser, served):
    sized(browser, LARGE)
    browser.get(served.url + address_of(QUESTION, answer_anyway="1"))
    citations = until(browser, lambda driver: driver.find_elements(By.CSS_SELECTOR, ".text a.citation"))

    def lit() -> list[str]:
        return [part.get_attribute("id") or part.text[:9] for part in browser.find_elements(By.CSS_SELECTOR, ".lit")]

    assert len(citations) == 3
    for number, (citation, quoted) in enumerate(zip(citations, ["Isoniazid", "Pyridoxin"], strict=False), 1):
        webdriver.ActionChains(browser).move_to_element(citation).perform()
        assert lit() == [f"s{number}", "hit-1", quoted], "pointed at"
        webdriver.ActionChains(browser).move_to_element(found(browser, ".brand")).perform()
        assert lit() == []
        browser.execute_script("arguments[0].focus()", citation)
        assert lit() == [f"s{number}", "hit-1", quoted], "reached by the keyboard"
        browser.execute_script("arguments[0].blur()", citation)
    assert citations[0].get_attribute("title") == "Isoniazid neuropathy and pyridoxine"
    webdriver.ActionChains(browser).move_to_element(found(browser, "#hit-1 mark:nth-of-type(2)")).perform()
    assert lit() == ["s2"], "a quote lights the sentence that rests on it"
    citations[0].click()
    assert browser.switch_to.active_element.get_attribute("id") == "hit-1"


def test_of_a_long_text_the_quote_is_shown_first(browser, library):
    sized(browser, NARROW)
    question = "Does budesonide-formoterol as needed prevent severe exacerbations?"
    browser.get(library.url + address_of(question, index="inhalers"))
    passage = found(browser, "#hit-1 .passage.long")
    quoted, label = passage.find_element(By.TAG_NAME, "mark"), passage.find_element(By.CSS_SELECTOR, ".section")
    assert label.get_attribute("textContent") == "BACKGROUND:"
    top = passage.rect["y"]
    until(browser, lambda _: label.rect["y"] < top <= quoted.rect["y"] < top + passage.rect["height"])
    found(browser, "#hit-1 .passage + button").click()
    assert label.rect["y"] >= passage.rect["y"]
    assert not browser.find_elements(By.CSS_SELECTOR, "#hit-1 .long, #hit-1 .passage + button")


def test_a_quote_stays_in_sight_where_its_lines_change(browser, library):
    sized(browser, (1100, 900))
    browser.get(f"{library.url}?index=inhalers")
    found(browser, "#question").send_keys(INHALERS, Keys.ENTER)
    for size in ((1100, 900), NARROW, (460, 800)):  # as asked, beside the answer, then in other windows
        sized(browser, size)
        until(browser, quote_is_in_sight)


def quote_is_in_sight(browser) -> bool:
    passage, quoted = (browser.find_element(By.CSS_SELECTOR, f"#hit-1 {part}").rect for part in (".long", "mark"))
    return 0 <= quoted["y"] - passage["y"] <= passage["height"] - quoted["height"]


def test_on_paper_stand_the_question_the_answer_and_its_sources(browser, served):
    sized(browser, LARGE)
    browser.get(served.url + address_of(QUESTION))
    found(browser, "#hit-1")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert found(browser, ".said h1").text == QUESTION
        assert found(browser, "#hit-1 mark").is_displayed()
        for selector in ("header", "#ask", "#follow", ".actions", "footer"):
            assert not browser.find_element(By.CSS_SELECTOR, selector).is_displayed(), selector
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def columns_of(browser, *numbers: int) -> list[tuple[str, ...]]:
    """Return columns of the table of studies, a row a study."""
    rows = browser.find_elements(By.CSS_SELECTOR, ".studies tbody tr:nth-child(2)")
    cells = [row.find_elements(By.TAG_NAME, "td") for row in rows]
    return [tuple(row[number].text for number in numbers) for row in cells]


@pytest.fixture(scope="module")
def trusting(demo_home, tmp_path_factory):
    """A server whose reader is trusted with both verdicts: the packaged one, with other thresholds."""
    folder = shutil.copytree(STARTER_READER, tmp_path_factory.mktemp("reader") / "trusted")
    trust = json.loads((folder / "trust.json").read_text())
    trust["trust"] |= {"supports": 0.3, "contradicts": 0.3, "polar": 0.3}
    (folder / "trust.json").write_text(json.dumps(trust))
    with serving(demo_home, "--reader", folder, name="inhalers") as process:
        yield process


def test_the_studies_that_answer_are_a_table_that_the_keyboard_sorts(browser, library):
    sized(browser, LARGE)
    browser.get(library.url + address_of(KNOWN, index="inhalers", include_retracted="1"))
    assert found(browser, ".studies h2").text == "3 studies, the nearest first"
    assert not browser.find_elements(By.CSS_SELECTOR, ".studies .meter"), "no reader is trusted"
    head = [heading.text.split()[0] for heading in browser.find_elements(By.CSS_SELECTOR, ".studies thead th")]
    assert head == ["Author", "Year", "Design", "n"], "nor is there a direction"
    nearest = columns_of(browser, 1, 3)
    browser.execute_script("arguments[0].focus()", browser.find_elements(By.CSS_SELECTOR, ".sort")[3])
    for order in ("ascending", "descending"):
        webdriver.ActionChains(browser).send_keys(Keys.ENTER).perform()
        (sorted_by,) = browser.find_elements(By.CSS_SELECTOR, ".studies [aria-sort]")
        assert (sorted_by.text.split()[0], sorted_by.get_attribute("aria-sort")) == ("n", order)
        assert columns_of(browser, 1, 3) == sorted(
            nearest, key=lambda row: int(row[1].replace(",", "")), reverse=order == "descending"
        )
    assert faults(browser) == []
    link = browser.find_element(By.LINK_TEXT, "Table as CSV").get_attribute("href")
    text = browser.execute_async_script("fetch(arguments[0]).then(reply => reply.text()).then(arguments[1])", link)
    assert text.startswith("id,pmid,title,author,year,type,participants,effect,retracted,quote,location\ninhaler_")
    assert len(text.splitlines()) == 4


@pytest.mark.parametrize("scripts", [True, False])
def test_one_study_is_no_table_below_its_answer_and_is_shown_where_studies_are_asked_for(browser, library, scripts):
    hoarse = {"question": "Which adults reported hoarseness with steroid inhalers?", "index": "inhalers"}
    sized(browser, LARGE)
    with without_scripts(browser, not scripts):
        browser.get(f"{library.url}ask?{urlencode(hoarse)}")
        if scripts:
            until(browser, lambda driver: not driver.find_elements(By.CSS_SELECTOR, ".studied *"))
            browser.get(f"{library.url}weigh?{urlencode(hoarse)}")
        else:
            found(browser, ".studied a").click()
        assert found(browser, ".studies h2").text == "Only one study comes near enough to this question"
        assert "Hoarseness was reported by a third" in found(browser, ".studies blockquote").text
        browser.get(f"{library.url}weigh?{urlencode({**hoarse, 'since': 2099})}")
        none = "No study comes near enough to this: try other words, or a wider filter."
        assert found(browser, ".studies").text == none


def test_yes_no_and_directions_are_told_in_a_trusted_reader_s_name(browser, trusting, library):
    import httpx

    lead, studies = ".text strong", ".studies table"
    sized(browser, NARROW)
    browser.get(trusting.url + address_of(INHALERS))
    found(browser, studies)
    assert found(browser, lead).text == "Yes."
    assert re.match(r"Yes: 2 No: 0 Not sure: 0\s+Neither: 2", found(browser, ".sides").text.replace("\n", " "))
    assert "read by" in found(browser, ".studies .help").text and found(browser, ".meter").is_displayed()
    assert columns_of(browser, 1, 4)[0][0] == "2018" and re.fullmatch(r"Yes \d\d %", columns_of(browser, 4)[0][0])
    assert faults(browser) == []
    browser.get(library.url + address_of(INHALERS, index="inhalers"))
    assert not browser.find_elements(By.CSS_SELECTOR, lead)
    for server, said in ((trusting, "yes"), (library, "")):
        answer = httpx.post(f"{server.url}api/ask", json={"question": INHALERS}, timeout=60).json()
        assert answer["short_answer"] == said, "the API agrees"


@pytest.mark.parametrize("scripts", [True, False])
def test_an_answer_is_weighed_on_a_page_of_its_own(browser, served, scripts):
    with without_scripts(browser, not scripts):
        browser.get(f"{served.url}ask?{urlencode({'question': QUESTION})}")
        sentence = found(browser, "#s1").text
        (link,) = browser.find_elements(By.LINK_TEXT, "Weigh")
        link.click()
        assert found(browser, "#claim").get_attribute("value") == sentence
        assert found(browser, "main.weighed .sides").text.startswith("Supporting: 1\nOpposing: 0\n")
        study = found(browser, "tbody.supporting")
        assert "Supporting in these words" in study.text and sentence in study.text
        assert found(browser, ".new").is_displayed()


def test_nothing_left_this_machine_and_the_console_is_empty(browser, served):
    browser.get_log("browser")
    requested(browser)
    asked(browser, served)
    assert requested(browser) == {"127.0.0.1"}
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_without_scripts_it_is_a_page_like_any_other(served):
    import httpx

    reply = httpx.post(f"{served.url}ask", data={"question": QUESTION}, timeout=60)
    assert reply.text.startswith("<!DOCTYPE html>")
    assert "vitamin B6" in reply.text
    assert f">{QUESTION}</textarea>" in reply.text
    wrong = httpx.get(f"{served.url}ask", params={"question": QUESTION, "k": "999"}, timeout=60)
    said, form = wrong.text.index("Number of sources: give at most 200"), wrong.text.index('<form id="ask"')
    assert (wrong.status_code, said < form) == (400, True)
    unknown = httpx.get(f"{served.url}nowhere", headers={"accept": "text/html"})
    assert (unknown.status_code, "There is no such page" in unknown.text) == (404, True)
    assert 'href="/"' in unknown.text


@pytest.fixture(scope="module")
def locked(demo_home):
    with serving(demo_home, BIORAG_SERVE_TOKEN=TOKEN) as process:
        yield process


@pytest.mark.parametrize("scripts", [True, False])
def test_one_logs_in_with_the_token_and_asks(browser, locked, scripts):
    """A browser sends the origin of a form by the page's referrer policy, and another client none."""
    sized(browser, WIDE)
    browser.delete_all_cookies()
    with without_scripts(browser, not scripts):
        asked = locked.url + address_of(QUESTION)
        browser.get(asked)
        assert browser.current_url.startswith(f"{locked.url}login?next=")
        browser.find_element(By.ID, "token").send_keys("wrong")
        browser.find_element(By.CSS_SELECTOR, "main button").click()
        assert found(browser, ".fault").text == "This is not the token."
        browser.find_element(By.ID, "token").send_keys(TOKEN)
        browser.find_element(By.CSS_SELECTOR, "main button").click()
        assert "vitamin B6" in found(browser, "#answer .text").text, "it leads to the question that was asked"
        assert browser.current_url == asked
        browser.find_element(By.CSS_SELECTOR, "nav button").click()
        until(browser, lambda driver: driver.current_url == f"{locked.url}login")
