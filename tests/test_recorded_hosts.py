"""Which bytes go where: the attacks of `scripts/attacks/recorded_hosts.py`, in this process and with a tiny encoder."""

from __future__ import annotations

from contextlib import chdir, closing

import pytest

from scripts.attacks import recorded_hosts as attacked
from scripts.attacks.recorded_hosts import Attack, Ended, Range
from tests.cli import invoke


def in_this_process(arguments, folder, variables) -> Ended:
    with chdir(folder):
        result = invoke(*arguments, **variables)
    return Ended(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module")
def shooting(tmp_path_factory, tiny_encoder):
    root = tmp_path_factory.mktemp("range")
    (root / "out").mkdir()
    with closing(Range(root, in_this_process, str(tiny_encoder))) as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr("biorag.utils.http.BACKOFF", 0.0005)
        yield made


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("part", ["untrusted folder", "copied manifest", "keys", "loopback", "offline", "echoes"])
def test_nothing_goes_where_it_must_not(shooting, part):
    for attack in attacked.attacks(shooting.home.parent, shooting.host.url)[part]:
        ended, faults = shooting.faults(attack)
        assert faults == [], (attack.name, attack.arguments, ended.stdout[-3000:], ended.stderr[-3000:])


def test_the_range_sees_an_attack_that_succeeds(shooting):
    """Were nothing recorded, every attack would seem to fail."""
    llm = f"http://{attacked.LLM}/v1"
    options = ["--name", "mine", "--llm", llm, "--llm-model", "m", "--no-cache", "--answer-anyway"]
    ask = ["ask", attacked.QUESTION, *options]
    _, faults = shooting.faults(Attack("sent", ask, attacked.KEYS))
    assert f"{attacked.LLM} was reached" in faults
    assert f"canary-llm-key was sent to {attacked.LLM}" in faults
    assert any(attacked.QUESTION in sent.text for sent in shooting.proxy.sent)
    _, faults = shooting.faults(Attack("silent", ["info"], must=frozenset({attacked.LLM}), says="nothing of the kind"))
    assert faults == [f"{attacked.LLM} was not reached", "it was not said: nothing of the kind"]
