"""Evaluated beginnings of prompts on disk: whole, damaged, too many; and that no reply depends on them."""

import os

import pytest

from biorag.generators import prefixes
from biorag.generators.prefixes import PrefixStates
from biorag.models.finding import find_gguf
from biorag.prompts.template import schema_for
from biorag.types import GenerationRequest, Prompt, Question

PREFIX = [1, 2, 3]
IDENTITY = {"sha256": "a", "context_window": 512}


def files(folder):
    return sorted(folder.glob("*.state"))


def test_a_state_is_read_as_it_was_written(tmp_path):
    states = PrefixStates(tmp_path / "new", IDENTITY)
    assert states.read(PREFIX) is None
    states.write(PREFIX, b"state")
    assert PrefixStates(tmp_path / "new", dict(reversed(IDENTITY.items()))).read(PREFIX) == b"state"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("identity", [{"sha256": "b", "context_window": 512}, {"sha256": "a", "context_window": 1024}])
def test_another_identity_or_prefix_has_no_state(tmp_path, identity):
    states = PrefixStates(tmp_path, IDENTITY)
    states.write(PREFIX, b"state")
    assert PrefixStates(tmp_path, identity).read(PREFIX) is None
    assert states.read([1, 2]) is None


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: content[:-1] + b"x", lambda _: b""])
def test_a_damaged_state_is_ignored_and_replaced(tmp_path, damage):
    states = PrefixStates(tmp_path, IDENTITY)
    states.write(PREFIX, b"state")
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert states.read(PREFIX) is None
    states.write(PREFIX, b"state")
    assert states.read(PREFIX) == b"state"


def test_a_pipe_in_the_place_of_a_state_is_replaced(tmp_path):
    states = PrefixStates(tmp_path, IDENTITY)
    states.write(PREFIX, b"state")
    (path,) = files(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert states.read(PREFIX) is None
    states.write(PREFIX, b"state")
    assert states.read(PREFIX) == b"state"


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    states = PrefixStates(tmp_path / "file" / "folder", IDENTITY)
    states.write(PREFIX, b"state")
    assert states.read(PREFIX) is None


@pytest.mark.parametrize(("most", "most_bytes"), [(3, 1 << 20), (100, 3 * (32 + 5))])
def test_the_states_longest_unused_go(tmp_path, monkeypatch, most, most_bytes):
    monkeypatch.setattr(prefixes, "MOST", most)
    monkeypatch.setattr(prefixes, "MOST_BYTES", most_bytes)
    states = PrefixStates(tmp_path, IDENTITY)
    for token in range(3):
        states.write([token], b"state")
        (newest,) = [path for path in files(tmp_path) if path.stat().st_mtime > 1000]
        os.utime(newest, (token, token))
    assert states.read([0]) == b"state"
    states.write([3], b"state")
    assert [states.read([token]) for token in range(4)] == [b"state", None, b"state", b"state"]


def test_a_state_that_is_too_large_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(prefixes, "MOST_BYTES", 36)
    PrefixStates(tmp_path, IDENTITY).write(PREFIX, b"state")
    assert files(tmp_path) == []


# --- the starter ---


@pytest.mark.slow
def test_a_reply_is_the_same_with_and_without_a_kept_state(tmp_path, monkeypatch):
    """Token by token, under greedy decoding; with a state the prefix is not evaluated, with a damaged one it is."""
    pytest.importorskip("llama_cpp")
    from biorag.generators.llama import LlamaGenerator

    schema = schema_for(Question("q", "Which drug lowers fever?"), 0)
    request = GenerationRequest(Prompt("You answer in JSON.", "Which drug lowers fever?"), schema, 24)

    def seen(states):
        generator = LlamaGenerator(find_gguf("starter"), 512, threads=1, prefixes=states)
        evaluated, texts = [], []
        evaluate = generator._llama.eval
        monkeypatch.setattr(generator._llama, "eval", lambda tokens: (evaluated.append(len(tokens)), evaluate(tokens)))
        reply = generator.generate(request, texts.append)
        return reply, texts, evaluated

    states = PrefixStates(tmp_path, IDENTITY)
    plain = seen(None)
    first, second = seen(states), seen(states)
    assert plain == first
    assert second[:2] == first[:2]
    assert second[2] == first[2][1:], "the prefix, which was evaluated alone, is not evaluated again"
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"\0\1")
    assert seen(states) == first
    states.write(PREFIX, b"no state of llama.cpp's")
    foreign = files(tmp_path)
    monkeypatch.setattr(states, "read", lambda prefix: b"no state of llama.cpp's")
    assert seen(states) == first
    assert files(tmp_path) == foreign
