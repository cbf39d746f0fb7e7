"""The page in a real browser: ask, read, export, browse, by keyboard alone and on a narrow screen."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("selenium", reason="the package selenium is not installed")

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.server.conftest import QUESTION, serving

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no chromium with chromedriver here")

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
SECONDS = 120
PICTURES = os.environ.get("BIORAG_TEST_SCREENSHOTS")  # a folder into which the documentation's pictures are taken
TOKEN = "a-token-of-this-test-alone"
NARROW, WIDE, LARGE = (380, 800), (900, 1000), (1280, 900)


@pytest.fixture(scope="module")
def served(demo_home):
    with serving(demo_home) as process:
        yield process


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.add_argument("--disable-background-networking")
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


def asked(browser, served, question: str = QUESTION) -> None:
    browser.get(served.url)
    field = found(browser, "#question")
    field.clear()
    field.send_keys(question)
    browser.find_element(By.CSS_SELECTOR, "#ask .asking button").click()
    found(browser, "#answer .verdict")


def picture(browser, name: str) -> None:
    if PICTURES:
        browser.save_screenshot(str(Path(PICTURES) / name))


def faults(browser) -> list[str]:
    """Return what axe finds that is serious or critical."""
    browser.execute_script(AXE)
    result = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert result["passes"], "axe looked at something"
    return [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in result["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


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
    assert "Extract: 2 sentences of the evidence, verbatim" in answer.text
    assert [link.text for link in browser.find_elements(By.CSS_SELECTOR, "a.citation")] == ["[1]", "[1]"]
    marked = [mark.text for mark in browser.find_elements(By.CSS_SELECTOR, "#hit-1 mark")]
    assert marked[0].startswith("Isoniazid interferes with the metabolism of vitamin B6")
    assert browser.current_url == f"{served.url}ask?question={quote(QUESTION)}", "the answer has an address"
    picture(browser, "serve-answer.png")
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
    for _ in range(6):
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
    assert "demo_254" not in found(browser, "#answer").text
    browser.find_element(By.CSS_SELECTOR, ".cite summary").click()
    link = browser.find_element(By.LINK_TEXT, "ris").get_attribute("href")
    text = browser.execute_async_script("fetch(arguments[0]).then(reply => reply.text()).then(arguments[1])", link)
    assert text.startswith("TY  - ")
    browser.find_element(By.ID, "filter").send_keys(" and colour=blue")
    browser.find_element(By.CSS_SELECTOR, "#ask .asking button").click()
    assert "colour" in found(browser, "#answer .fault").text


def test_an_answer_has_an_address_and_the_browser_remembers_its_question(browser, served):
    sized(browser, LARGE)
    asked(browser, served)
    address = browser.current_url
    browser.find_element(By.ID, "question").clear()
    browser.find_element(By.ID, "question").send_keys("Who won the 1998 football world cup?", Keys.ENTER)
    until(browser, lambda driver: "found nothing" in driver.find_element(By.ID, "answer").text)
    assert "--" not in found(browser, "#answer .said").text, "options of the command line are no help here"
    assert not browser.find_element(By.CSS_SELECTOR, "#hit-1 h4").is_displayed(), "what does not answer is folded"
    browser.back()
    until(browser, lambda driver: "vitamin B6" in driver.find_element(By.ID, "answer").text)
    assert browser.current_url == address
    browser.refresh()
    assert "vitamin B6" in found(browser, "#answer .text").text
    text, sources = (found(browser, selector).rect for selector in ("#answer .said", "#answer .sources"))
    assert text["x"] + text["width"] <= sources["x"], "the sources stand beside the answer"
    assert faults(browser) == []
    picture(browser, "serve-wide.png")
    browser.get(served.url)
    recent = until(browser, lambda driver: driver.find_elements(By.CSS_SELECTOR, "#recent a"))
    assert [link.text for link in recent][:2] == [QUESTION, "Who won the 1998 football world cup?"]
    browser.find_element(By.CSS_SELECTOR, "#recent button").click()
    browser.refresh()
    assert browser.find_elements(By.CSS_SELECTOR, "#recent a") == []


def test_the_first_page_says_what_the_index_holds_and_what_to_ask(browser, served):
    sized(browser, LARGE)
    browser.get(served.url)
    assert "263 snippets, last changed 20" in found(browser, "main").text
    examples = browser.find_elements(By.CSS_SELECTOR, "#examples a")
    assert examples[0].text == "Do antibiotics help the common cold?"
    assert faults(browser) == []
    picture(browser, "serve-home.png")
    examples[0].click()
    assert found(browser, "#answer .text").text.startswith("No. Randomised trials show that antibiotics neither")
    assert not browser.find_elements(By.CSS_SELECTOR, "#examples a")


@pytest.mark.parametrize("scripts", [True, False])
def test_a_follow_up_is_asked_below_the_answer(browser, served, scripts):
    sized(browser, LARGE)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    try:
        browser.get(f"{served.url}ask?question={quote('Does metformin lower blood glucose?')}")
        found(browser, "#next").send_keys("and its adverse effects?", Keys.ENTER)
        until(browser, lambda driver: "Searched for" in driver.find_element(By.ID, "answer").text)
        answer = found(browser, "#answer")
        assert found(browser, "#answer h2").text == "and its adverse effects?"
        assert "metformin" in answer.text.lower()
        assert "after=Does" in browser.current_url, "a follow-up has an address too"
        found(browser, "#next").send_keys("and in astronauts?", Keys.ENTER)
        until(browser, lambda driver: "astronauts" in driver.find_element(By.CSS_SELECTOR, "#answer h2").text)
        assert "nothing" in found(browser, "#answer .said").text
        picture(browser, "serve-follow-up.png")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_an_answer_is_copied_with_its_sources(browser, served):
    sized(browser, LARGE)
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": served.url.rstrip("/")}
    browser.execute_cdp_cmd("Browser.grantPermissions", allowed)
    asked(browser, served)
    found(browser, "#copy").click()
    until(browser, lambda driver: driver.find_element(By.ID, "copy").text == "Copied")
    copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])").splitlines()
    assert copied[0] == QUESTION
    assert copied[-1] == "[1] Isoniazid neuropathy and pyridoxine"
    assert any(line.startswith("Isoniazid interferes") for line in copied)


def test_it_fits_a_narrow_screen(browser, served):
    sized(browser, NARROW)
    asked(browser, served)
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= NARROW[0], "nothing is wider than the screen"
    assert faults(browser) == []
    picture(browser, "serve-narrow.png")


def test_it_is_readable_in_the_dark(browser, served):
    sized(browser, LARGE)
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        asked(browser, served)
        assert faults(browser) == []
        picture(browser, "serve-dark.png")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


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
    assert f'maxlength="4000">{QUESTION}</textarea>' in reply.text


@pytest.fixture(scope="module")
def locked(demo_home):
    with serving(demo_home, BIORAG_SERVE_TOKEN=TOKEN) as process:
        yield process


@pytest.mark.parametrize("scripts", [True, False])
def test_one_logs_in_with_the_token_and_asks(browser, locked, scripts):
    """A browser sends the origin of a form by the page's referrer policy, and another client none."""
    sized(browser, WIDE)
    browser.delete_all_cookies()
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    try:
        browser.get(locked.url)
        assert browser.current_url == f"{locked.url}login"
        browser.find_element(By.ID, "token").send_keys("wrong")
        browser.find_element(By.CSS_SELECTOR, "main button").click()
        assert found(browser, ".fault").text == "This is not the token."
        browser.find_element(By.ID, "token").send_keys(TOKEN)
        browser.find_element(By.CSS_SELECTOR, "main button").click()
        found(browser, "#question").send_keys(QUESTION)
        browser.find_element(By.CSS_SELECTOR, "#ask .asking button").click()
        assert "vitamin B6" in found(browser, "#answer .text").text
        browser.find_element(By.CSS_SELECTOR, "nav button").click()
        until(browser, lambda driver: driver.current_url == f"{locked.url}login")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
