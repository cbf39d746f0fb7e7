"""Every command, option, type, default and panel of the frozen code is there; more may have been added.

What was required need not be any more.
"""

from __future__ import annotations

import pytest

from tests.compatibility.frozen import read_json
from tests.compatibility.snapshots import commands

FROZEN = read_json("commands.json")


@pytest.fixture(scope="module")
def ours():
    return commands()


@pytest.mark.parametrize("command", FROZEN)
def test_the_options_of_a_command_are_those_that_were_frozen(ours, command):
    assert command in ours, f"the command {command!r} is gone"
    changed = {
        name: {"frozen": facts, "now": now}
        for name, facts in FROZEN[command].items()
        if (now := ours[command].get(name)) not in (facts, {key: facts[key] for key in facts if key != "required"})
    }
    assert not changed, f"options of {command!r} have changed: {changed}"
