"""The packaged Llama as a second reader: what it prefers, what its word counts, its copy in 8 bits."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from biorag.answering.extract import FLOOR, READ_AGAIN, SPREAD, Extractor, candidates
from biorag.answering.readers.records import open_second_reader
from biorag.api.session import Session
from biorag.engine import load_second_reader, packaged_reader
from biorag.generators.llama import in_8_bits
from biorag.models.finding import STARTER_GENERATOR, find_gguf
from biorag.settings.settings import Settings
from biorag.types import Hit, Snippet

pytestmark = pytest.mark.slow

QUESTION = "Does carvedilol lower mortality in heart failure?"
CONTENT = (
    "Carvedilol is a beta-blocker with vasodilating properties. We studied whether carvedilol lowers mortality in "
    "chronic heart failure. Patients were randomised to carvedilol or placebo for six months. Of those given "
    "carvedilol 3 % died, and of those given placebo 8 %. They had less often to be admitted. Dizziness was more "
    "frequent with carvedilol. Blood was taken at each visit. The trial ran in 65 hospitals."
)
HITS = [
    Hit(1, Snippet("a", "Carvedilol in chronic heart failure", CONTENT), 2.0),
    Hit(2, Snippet("b", "Digoxin", "Digoxin did not change mortality. It lowered admissions for heart failure."), 1.0),
]


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    reader = open_second_reader(1, tmp_path_factory.mktemp("cache"))
    assert reader is not None, "the starter is installed for tests"
    return reader


def test_a_finding_is_likelier_to_answer_than_aim_and_background(second):
    rows = candidates(HITS)
    said = second.log_odds(QUESTION, rows)
    of_first = [row.text for row in rows if row.n == 1]
    assert of_first[int(said[: len(of_first)].argmax())].startswith("Of those given carvedilol 3 %")
    apart = [second.log_odds(QUESTION, [row for row in rows if row.n == n]) for n in (1, 2)]
    np.testing.assert_allclose(said, np.concatenate(apart), atol=1e-4, err_msg="each record is read alone")
    order = np.random.default_rng(0).permutation(len(rows))
    np.testing.assert_allclose(second.log_odds(QUESTION, [rows[n] for n in order]), said[order], atol=1e-4)


def test_the_mean_of_both_readers_counts_of_the_best_sentences(second):
    reader = packaged_reader("starter")
    extractor = Extractor(load_reader=lambda: reader, load_second=lambda: second)
    scored = extractor.scored(QUESTION, HITS)
    again = extractor.read_again(QUESTION, scored)
    best = sorted(range(len(scored.rows)), key=lambda n: -scored.scores[n])[:READ_AGAIN]
    said = second.log_odds(QUESTION, [scored.rows[n] for n in best])
    for n, score in enumerate(scored.scores):
        first = max(scored.answers[scored.read.index(n)], FLOOR)
        then = max(said[best.index(n)], FLOOR) if n in best else FLOOR
        expected = SPREAD * (score + reader.trust.answers * ((first + then) / 2 - first))
        assert again.scores[n] == pytest.approx(expected, abs=1e-4)
    alone = Extractor(load_reader=lambda: reader)
    assert alone.read_again(QUESTION, scored) is scored


def test_a_question_does_without_while_others_wait(second, demo_home, monkeypatch):
    read: list[str] = []

    class Counted:
        def log_odds(self, question, rows):
            read.append(question)
            return second.log_odds(question, rows)

    monkeypatch.setattr("biorag.answering.readers.records.open_second_reader", lambda *_: Counted())
    with Session(Settings.of(home=demo_home)) as session, ThreadPoolExecutor(2) as pool:
        with session._answering:
            asked = [pool.submit(session.ask, question) for question in ("What does metformin do?", "What is gout?")]
            while session._answering.waiting < 2:
                time.sleep(0.01)
        assert all(answer.result().text for answer in asked)
    assert len(read) == 1, "of the one that was answered last"


def test_it_can_be_switched_off():
    assert load_second_reader(Settings.of(read_again=False)) is None


def test_the_copy_in_8_bits_is_made_once_and_does_without_a_place(tmp_path):
    model = find_gguf("starter")
    copy = in_8_bits(model, tmp_path / "models")
    assert copy.parent == tmp_path / "models" and copy.stat().st_size > model.stat().st_size
    made = copy.stat().st_mtime_ns
    assert in_8_bits(model, tmp_path / "models") == copy and copy.stat().st_mtime_ns == made
    assert [path.name for path in (tmp_path / "models").iterdir()] == [copy.name]
    (tmp_path / "file").write_text("")
    assert in_8_bits(model, tmp_path / "file") == model
    assert STARTER_GENERATOR.path() == model
