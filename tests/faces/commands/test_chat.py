"""`biorag chat`: lines that are piped in, and a person at a pseudo-terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import threading

import pexpect
import pytest

from biorag.retrieval.last_hits import last_hits
from biorag.settings.settings import Settings
from tests.cli import environment, invoke, succeeded
from tests.loopback import Script

SECONDS = 200
PROMPT = "biorag> "
ASPIRIN = "Does aspirin lower fever?"


@pytest.fixture(autouse=True)
def answered_by_words(monkeypatch):
    """No answer is withheld, and nothing reads the evidence."""
    monkeypatch.setenv("BIORAG_ANSWER_ANYWAY", "true")
    monkeypatch.setenv("BIORAG_READER", "none")


@pytest.fixture(scope="module")
def home(small_home):
    return small_home


@pytest.fixture
def chat(home):
    """Pipe lines into a conversation that searches words alone."""

    def run(*lines: str, code: int = 0, options=()):
        words = ["chat", "--mode", "bm25", "--no-rerank", *options]
        result = invoke(*words, home=home, input="\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))
        assert result.exit_code == code, (result.output, result.exception)
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def script():
    script = Script()
    yield script
    script.close()


def answer(text: str) -> str:
    return json.dumps({"answer": text, "citations": [1]})


# --- lines that are piped in --------------------------------------------------------------------------------


def test_each_line_is_answered_as_ask_answers_it(chat, home):
    asked = succeeded(invoke("ask", ASPIRIN, "--mode", "bm25", "--no-rerank", home=home)).stdout
    result = chat(ASPIRIN, "", "What does warfarin block?")
    assert result.stdout.startswith(f"{PROMPT}{ASPIRIN}\n{asked}{PROMPT}What does warfarin block?\n")
    assert "searched:" not in result.stderr


def test_a_follow_up_is_searched_with_what_it_lacks_and_says_so(chat):
    result = chat(ASPIRIN, "and pain?", "/new", "and pain?")
    (searched,) = (line for line in result.stderr.splitlines() if line.startswith("searched:"))
    assert "aspirin" in searched and searched.endswith("pain?")


def test_a_generator_makes_a_follow_up_stand_alone(chat, script):
    def reply(body):
        if not body:
            return 200, {"data": [{"id": "m"}]}
        if "Follow-up:" in body["messages"][-1]["content"]:
            return json.dumps({"question": "Does aspirin relieve pain?"})
        return answer("Aspirin lowers fever and relieves pain by blocking cyclooxygenase.")

    script.rule = reply
    result = chat(ASPIRIN, "and pain?", options=("--llm", script.url, "--no-cache"))
    assert "searched: Does aspirin relieve pain?" in result.stderr
    assert "Does aspirin relieve pain?" in script.bodies[-1]["messages"][-1]["content"]
    assert result.stdout.count("Stated by [1]") == 2


def test_hits_are_shown_and_cited_by_their_numbers(chat, home):
    result = chat(ASPIRIN, "/show 1", "/cite 1", "/cite 1 bibtex", "/cite", "/show 1001", "/show s2")
    parts = [part.partition("\n")[2] for part in result.stdout.split(PROMPT)[2:]]
    shown, vancouver, bibtex, cited, by_pmid, by_id = parts
    assert shown.startswith("Aspirin and fever\n\nAspirin lowers fever and relieves pain")
    assert vancouver == "1. Aspirin and fever. 2000. PMID: 1000.\n"
    assert cited.startswith(vancouver)
    assert bibtex.startswith("@")
    assert by_pmid.startswith("Warfarin\n")
    assert by_id.startswith("Heparin\n")
    assert last_hits(Settings.of(home=home)).ids[0] == "s0", "biorag show 1 shows the same"


def test_a_filter_is_checked_at_once_and_holds_until_it_is_cleared(chat):
    result = chat(
        *("/filter year>=2005", "Does warfarin thin the blood?", "/filter year>", "/filter nowhere=1", "/filter"),
        *("/filter off", "Does warfarin thin the blood?"),
        code=2,
    )
    said = [line for line in result.stderr.splitlines() if line.startswith(("filter: ", "error: "))]
    assert said[0] == "filter: year>=2005"
    assert "'year>'" in said[1]
    assert "nowhere" in said[2]
    assert said[3:] == ["filter: year>=2005", "filter: none"]
    filtered, unfiltered = result.stdout.split(f"{PROMPT}Does warfarin thin the blood?\n")[1:]
    assert "1001" not in filtered
    assert "1001" in unfiltered


def test_the_conversation_is_saved_as_markdown_once(chat, tmp_path, home):
    path = tmp_path / "said.md"
    own = [home / name for name in ("biorag.toml", "indexes/said.md")]
    asked = (ASPIRIN, "/filter year>=1990", "and *pain*?")
    result = chat(*asked, *(f"/save {name}" for name in (path, path, *own)), code=2)
    assert [name.exists() for name in own] == [False, False]
    assert result.stderr.count("is biorag's own: name another file to write") == 2
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# Questions to the index default\n\n## {ASPIRIN}\n")
    searched = r"## and \\\*pain\\\*\?\n\n\*Searched: [^\n]*aspirin[^\n]*pain\?\*\n\n\*Filter: year\\>=1990\*"
    assert re.search(searched, text)
    assert text.count("- \\[1\\] Aspirin and fever.") == 2
    assert "<https://pubmed.ncbi.nlm.nih.gov/1000/>" in text
    assert f"saved to {path}" in result.stderr
    assert f"{path} cannot be written (File exists)" in result.stderr


def test_a_line_that_cannot_be_done_is_said_and_the_rest_is_done(chat):
    wrong = {
        "/sav x": "did you mean /save?",
        "/show": "/show 2",
        "/show 99999": "no snippet '99999': give the id, PMID or DOI of one, or the number of one of 0 hits",
        "/cite": "nothing was asked",
        "/cite 1 2 3": "/cite 2 bibtex",
        "/save": "/save asthma.md",
        "/save x.md": "nothing was asked",
        "/filter year>>1": "year>>1",
        "caf\udce9?": "not UTF-8",
    }
    result = chat(*wrong, "What does warfarin block?", code=2)
    sentences = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert [part for part, sentence in zip(wrong.values(), sentences, strict=True) if part not in sentence] == []
    assert "1001" in result.stdout


def test_quit_ends_before_the_lines_after_it_and_help_names_every_command(chat):
    assert "fever" not in chat("EXIT", ASPIRIN).stdout
    result = chat("/help", "/quit", ASPIRIN)
    assert {"/show N", "/cite N [FORMAT]", "/save FILE", "/quit"} <= set(re.split(r"[\t\n]", result.stdout))
    assert "fever" not in result.stdout


# --- at a terminal ------------------------------------------------------------------------------------------


class Terminal:
    """A conversation in a pseudo-terminal."""

    def __init__(self, home, folder, *options: str) -> None:
        command = ["-m", "biorag", "chat", "--mode", "bm25", "--no-rerank", *options]
        variables = {**os.environ, **environment(home, {}), "TERM": "xterm", "INPUTRC": "/dev/null", "COLUMNS": "120"}
        self.process = pexpect.spawn(
            sys.executable,
            command,
            env=variables,
            cwd=str(folder),
            timeout=SECONDS,
            encoding="utf-8",
            dimensions=(40, 120),
        )
        self.read()

    def read(self) -> str:
        """Return what is shown up to the next prompt, without colours."""
        self.process.expect_exact(PROMPT)
        return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", self.process.before)

    def type(self, text: str) -> str:
        """Type a line; return what is shown up to the next prompt."""
        self.process.sendline(text)
        return self.read()

    def ended(self) -> int:
        """Wait for the end; return the exit code."""
        self.process.expect(pexpect.EOF)
        self.process.close()
        return self.process.exitstatus


@pytest.fixture
def terminal(home, tmp_path):
    """Start conversations at a terminal, in a scratch folder; they are ended with the test."""
    started: list[Terminal] = []

    def start(*options: str) -> Terminal:
        started.append(Terminal(home, tmp_path, *options))
        return started[-1]

    yield start
    for one in started:
        one.process.close(force=True)


def test_ctrl_c_stops_an_answer_and_the_next_question_is_answered(terminal, script):
    asked = threading.Event()

    def reply(body):
        if not body:
            return 200, {"data": [{"id": "m"}]}
        if "warfarin" in body["messages"][-1]["content"].rpartition("## Question")[2]:
            return answer("Warfarin blocks vitamin K recycling and thins the blood.")
        asked.set()
        threading.Event().wait()  # as long as the tests run

    script.rule = reply
    talk = terminal("--llm", script.url, "--no-cache")
    talk.process.sendline(ASPIRIN)
    assert asked.wait(SECONDS)
    talk.process.sendintr()
    assert "stopped" in talk.read()
    assert "nothing was asked yet" in talk.type("/cite")
    assert "Warfarin blocks vitamin K recycling and thins the blood. [1]" in talk.type("What does warfarin block?")
    talk.process.sendline("/quit")
    assert talk.ended() == 0


def test_a_line_that_is_too_long_is_refused(chat):
    assert "longer than 10,000 characters" in chat("aspirin " * 2000, code=2).stderr
