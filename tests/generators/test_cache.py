"""Replies kept from before: the same ones, for the same question alone, whatever happens to the files."""

import json
import logging
import os
from dataclasses import replace

import pytest

from biorag.generators.cache import CachedGenerator
from biorag.generators.source import generator_identity, load_generator
from biorag.prompts.template import schema_for
from biorag.settings.settings import Settings
from biorag.types import Generation, GenerationRequest, Prompt, Question, Sampling, Scores
from tests.fakes import ScriptedGenerator
from tests.loopback import Script

PROMPT = Prompt("You are careful.", "Which drug lowers fever?")
SCHEMA = schema_for(Question("q", "?", {"A": "insulin", "B": "aspirin"}), 2)
IDENTITY = {"name": "scripted", "sha256": "0" * 64, "context_window": 4096, "versions": {"biorag": "1"}}


def reply(n: int) -> str:
    return json.dumps({"answer_choice": f"{n} β"}, ensure_ascii=False)


class Counting:
    """A cached generator over replies that are numbered as they are made."""

    def __init__(self, folder, identity=IDENTITY, **options):
        self.inner = ScriptedGenerator(replies=[reply(n) for n in range(100)], **options)
        self.cached = CachedGenerator(self.inner, folder, identity)

    def asked(self) -> int:
        return len(self.inner.prompts)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "replies"


def entries(folder):
    return sorted(folder.rglob("*.json"))


REQUEST = GenerationRequest(PROMPT, SCHEMA, 9)


def test_a_reply_is_made_once_and_shown_whole_when_it_is_kept(folder):
    first, other, shown = Counting(folder, capped=True), Counting(folder), []
    made = first.cached.generate(REQUEST, shown.append)
    assert made == Generation(reply(0), True, cached=False)
    for cached in (first.cached, other.cached):
        assert cached.generate(REQUEST, shown.append) == made._replace(cached=True)
    assert shown == [made.text] * 3
    assert (first.asked(), other.asked()) == (1, 0)


REORDERED = {**SCHEMA, "properties": dict(reversed(SCHEMA["properties"].items()))}
OTHERS = {
    "system": replace(REQUEST, prompt=Prompt("Other.", PROMPT.user)),
    "user": replace(REQUEST, prompt=Prompt(PROMPT.system, "Other.")),
    "between": replace(REQUEST, prompt=Prompt(PROMPT.system + PROMPT.user, "")),
    "schema": replace(REQUEST, schema=schema_for(Question("q", "?", {"A": "", "C": ""}), 2)),
    "order of fields": replace(REQUEST, schema=REORDERED),
    "cap": replace(REQUEST, max_tokens=10),
    "temperature": replace(REQUEST, sampling=Sampling(0.5)),
    "seed": replace(REQUEST, sampling=Sampling(0.5, 1)),
    "free": replace(REQUEST, constrained=False),
}


def test_whatever_is_asked_differently_is_asked_anew(folder):
    made = Counting(folder)
    made.cached.generate(REQUEST)
    asking = [lambda request=request: made.cached.generate(request) for request in OTHERS.values()]
    asking += [lambda choices=choices: made.cached.score(PROMPT, choices) for choices in ("AB", "AC", "A")]
    for count, ask in enumerate(asking, 2):
        assert not ask().cached
        assert made.asked() == count
    assert all(ask().cached for ask in asking)


DAMAGED = [
    b"",
    b"\xff\xfe",
    b'{"text": 1, "capped": false}',
    b'{"text": "x", "capped": false, "tokens": [1, -2]}',
    b'{"text": "x", "capped": false, "tokens": [1, 2], "more": 1}',
    b'{"logprobs": {"A": NaN}}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_entry_is_made_again(folder, content):
    made = Counting(folder)
    for ask in (
        lambda: made.cached.generate(REQUEST),
        lambda: made.cached.score(PROMPT, ["A", "B"]),
    ):
        made.inner.replies[:0] = [reply(0)] * 2
        first = ask()
        (entry,) = set(entries(folder))
        entry.write_bytes(content)
        assert ask() == first, "asked again"
        assert ask() == first._replace(cached=True)
        entry.unlink()


def test_a_pipe_in_place_of_an_entry_is_not_waited_on(folder, caplog):
    made = Counting(folder)
    first = made.cached.generate(REQUEST)
    (entry,) = entries(folder)
    entry.unlink()
    os.mkfifo(entry)
    assert made.cached.generate(REQUEST).text == reply(1)
    assert "not a regular file" in caplog.text
    assert made.cached.generate(REQUEST) == Generation(reply(1), False, cached=True)
    assert first.text == reply(0)


def test_replies_are_their_owners_alone_also_those_that_are_there(folder):
    made = Counting(folder)
    made.cached.generate(REQUEST)
    (entry,) = entries(folder)

    def modes() -> list[int]:
        return [path.stat().st_mode & 0o777 for path in (folder, entry.parent, entry)]

    assert modes()[::2] == [0o700, 0o600]
    for path, mode in ((entry, 0o644), (entry.parent, 0o755), (folder, 0o755)):
        path.chmod(mode)
    (folder / "link.json").symlink_to(outside := folder.parent / "outside")
    outside.touch(0o644)
    Counting(folder)
    assert modes() == [0o700, 0o700, 0o600]
    assert outside.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("bad", ["", "I do not know", "[1]", "{}"])
def test_what_is_no_json_object_or_no_score_is_asked_for_again(folder, monkeypatch, bad):
    made = Counting(folder)
    made.inner.replies.insert(0, bad)
    assert made.cached.generate(REQUEST) == Generation(bad, False)
    with monkeypatch.context() as unseen:
        unseen.setattr(made.inner, "score", lambda prompt, choices: Scores({}))
        assert made.cached.score(PROMPT, ["A", "B"]) == Scores({})
    assert entries(folder) == []
    assert made.cached.generate(REQUEST) == Generation(reply(0), False)
    assert made.cached.generate(REQUEST) == Generation(reply(0), False, cached=True)
    assert made.cached.score(PROMPT, ["A", "B"]) == Scores({"A": -1.0, "B": -2.0})


def test_replies_that_cannot_be_kept_are_warned_of_and_given(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    made = Counting(tmp_path / "file" / "replies")
    with caplog.at_level(logging.WARNING):
        assert made.cached.generate(REQUEST).text == reply(0)
        assert made.cached.generate(REQUEST).text == reply(1)
    assert "--no-cache" in caplog.text


# --- as the commands build it ---


def test_replies_of_another_server_model_or_window_are_not_used(tmp_path):
    first, second = Script(), Script()
    for script in (first, second):
        script.rule = lambda body: json.dumps({"step_by_step_thinking": "x", "answer_choice": "A"})
    settings = Settings.of(home=tmp_path, llm=first.url, llm_model="m")
    try:
        for changed, asked in [
            ({}, True),
            ({}, False),
            ({"timeout": 5.0, "threads": 1, "k": 3, "seed": 7}, False),
            ({"llm_model": "other"}, True),
            ({"context_window": 4096}, True),
            ({"llm": second.url}, True),
            ({"cache": False}, True),
            ({}, False),
        ]:
            before = len(first.asked) + len(second.asked)
            generation = load_generator(settings.replace(**changed)).generate(REQUEST)
            assert (len(first.asked) + len(second.asked) - before, generation.cached) == (int(asked), not asked)
    finally:
        first.close()
        second.close()
    assert len(entries(settings.cache / "replies")) == 4


def test_a_gguf_file_is_known_by_its_place_size_and_time_and_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("biorag.models.finding.sha256_of", lambda path: pytest.fail(f"{path} was read"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.gguf"

    def identity(spec=file):
        return generator_identity(Settings.of(llm=str(spec)), ScriptedGenerator())

    file.write_bytes(b"a")
    (tmp_path / "link.gguf").symlink_to(file)
    (tmp_path / "copy.gguf").write_bytes(b"a")
    first = identity()
    assert first == identity() == identity("model.gguf") == identity("link.gguf") != identity("copy.gguf")
    assert {"biorag", "llama-cpp-python"} == set(first["versions"])
    changed = file.stat().st_mtime_ns
    file.write_bytes(b"ab")
    os.utime(file, ns=(changed, changed))
    longer = identity()
    os.utime(file, ns=(changed, changed + 1))
    assert first != longer != identity()
