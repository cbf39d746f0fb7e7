"""Random negatives: uniform over the corpus, without gold or repetitions, a row's own."""

import random
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.training.negatives.kinds import RandomNegatives, shuffled
from biorag.training.negatives.mining import Gold
from tests.training.negatives.small_corpus import NO_GOLD, corpus, indexed, row


@given(st.lists(st.text(max_size=3), unique=True, max_size=20), st.integers(), st.integers(0, 20))
def test_a_shuffle_is_all_items_and_any_part_of_it_its_beginning(items, seed, count):
    whole = list(shuffled(items, random.Random(seed)))
    assert sorted(whole) == sorted(items)
    assert list(islice(shuffled(items, random.Random(seed)), count)) == whole[:count]


@pytest.mark.parametrize("count", [1, 5, 77, 78, 200])
def test_draws_are_snippets_of_the_corpus_without_gold(count):
    snippets = corpus(80)
    gold = Gold(frozenset({"s03"}), frozenset({snippets[7].contents}))
    found = RandomNegatives(indexed(snippets), 0, count).window(row("pain"), gold)
    assert len(found) == min(count, 78)
    texts = {snippet.id: snippet.contents for snippet in snippets}
    assert all(one.text == texts[one.id] for one in found)
    assert len({one.id for one in found}) == len(found)
    assert not {"s03", "s07"} & {one.id for one in found}
    assert [one.rank for one in found] == list(range(1, len(found) + 1))
    assert all(one.score is None for one in found)


def test_draws_are_uniform_over_what_is_not_gold():
    snippets = corpus(10)
    kind = RandomNegatives(indexed(snippets), 0, 2)
    gold = Gold(frozenset({"s00", "s05"}), frozenset())
    counts = Counter(one.id for number in range(2000) for one in kind.window(row(f"question {number}"), gold))
    # 500 expected of each of the eight; five standard deviations are 97.
    assert set(counts) == {f"s{n:02}" for n in range(10)} - {"s00", "s05"}
    assert all(abs(count - 500) < 97 for count in counts.values())


def test_draws_depend_on_seed_and_row_alone():
    snippets = corpus(80)
    first = RandomNegatives(indexed(snippets), 0, 5)
    again = RandomNegatives(indexed(snippets[::-1]), 0, 5)
    again.window(row("another"), NO_GOLD)
    assert first.window(row("pain"), NO_GOLD) == again.window(row("PAIN "), NO_GOLD)
    assert first.window(row("pain"), NO_GOLD) != first.window(row("pain", "other"), NO_GOLD)
    assert first.window(row("pain"), NO_GOLD) != RandomNegatives(indexed(snippets), 1, 5).window(row("pain"), NO_GOLD)
