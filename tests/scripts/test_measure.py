"""scripts/measure: order of questions, and ratios."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

from scripts.measure.summary import ratio
from scripts.measure.warm import System, ask_all


def test_ratio_is_that_of_the_medians_and_its_interval_that_of_redrawn_rounds():
    base, new = [10.0, 12.0, 11.0, 30.0, 10.5], [2.0, 2.6, 2.2, 6.5, 2.0]
    rng = np.random.default_rng(1)
    drawn = []
    for _ in range(4000):
        rounds = rng.integers(0, 5, size=5)
        drawn.append(median(new[row] for row in rounds) / median(base[row] for row in rounds))
    low, high = np.quantile(drawn, [0.025, 0.975])
    found = ratio(base, new)
    assert found.value == 2.2 / 11
    assert found.low == pytest.approx(low, abs=0.004)
    assert found.high == pytest.approx(high, abs=0.004)
    assert ratio([2.0], [1.0]).low == ratio([2.0], [1.0]).high == 0.5


class Answering:
    """A worker that counts what it is asked, and takes as many milliseconds as it was asked questions."""

    def __init__(self, asked: list[str], name: str):
        self.asked, self.name, self.count = asked, name, 0

    def ask(self, **request):
        self.asked.append(self.name)
        self.count += 1
        return {"answers": [{"ms": self.count, "cpu_ms": 1.0, "stages": {"rerank": 2.0}, "texts": ["a", "b"]}]}


def test_every_question_goes_to_all_systems_in_turning_order():
    asked: list[str] = []
    systems = [System("base", 20), System("new", 20), System("new", 100)]
    workers = {system: Answering(asked, str(system)) for system in systems}
    answers = ask_all(workers, ["one", "two"])
    assert asked[:9] == [str(systems[place]) for place in (0, 1, 2, 1, 2, 0, 2, 0, 1)]
    assert [[answer["ms"] for answer in answers[system]] for system in systems] == [[3, 4]] * 3  # 1 and 2 warm up
