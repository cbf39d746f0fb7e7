"""The chain of rerankers as a setting writes it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.errors import UsageError
from biorag.registries import RERANKERS
from biorag.settings.retrieval import Stage, parse_stages
from biorag.settings.settings import Settings, checked

ENCODER, COLBERT, CROSS = RERANKERS["encoder"], RERANKERS["colbert"], RERANKERS["cross-encoder"]
NAMES = st.text(st.characters(exclude_characters=",@"), min_size=1).filter(
    lambda name: name == name.strip() and not name.startswith("cross:") and name != "encoder"
)
STAGES = st.sampled_from([("encoder", ENCODER)]) | st.tuples(NAMES, st.sampled_from([COLBERT, CROSS]))


@st.composite
def chains(draw):
    """A chain with all depths written out, none deeper than the one before; and the deepest."""
    depths = sorted(draw(st.lists(st.integers(1, 500), min_size=1, max_size=4)), reverse=True)
    return tuple(Stage(*draw(STAGES), depth) for depth in depths), depths[0]


@given(chains(), st.integers(0, 100), st.sampled_from(["", " "]))
def test_a_chain_written_out_is_read_back(chain, more, space):
    stages, deepest = chain
    text = f",{space}".join(f"{stage.kind.prefix}{stage.name}@{stage.depth}" for stage in stages)
    assert parse_stages(text, deepest + more) == stages


@pytest.mark.parametrize(
    ("text", "k_init", "stages"),
    [
        ("encoder", 20, [Stage("encoder", ENCODER, 20)]),
        ("encoder,cross:org/name", 20, [Stage("encoder", ENCODER, 20), Stage("org/name", CROSS, 10)]),
        ("encoder,cross:a", 4, [Stage("encoder", ENCODER, 4), Stage("a", CROSS, 4)]),
        ("me@home/models", 20, [Stage("me@home/models", COLBERT, 20)]),
    ],
)
def test_depths_that_are_left_out(text, k_init, stages):
    assert checked({"reranker": text, "k_init": k_init}).retrieval.stages == tuple(stages)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("encoder,", "STAGE[,STAGE...]"),
        ("cross:@5", "STAGE[,STAGE...]"),
        ("encoder@0", "'encoder@0' reranks nothing"),
        (
            "encoder@21",
            "'encoder@21' cannot rerank 21 candidates where k_init is 20: give it 20 at most, or k_init 21 or more",
        ),
        ("encoder@5,cross:a@6", "stage 1 leaves it 5: give it 5 at most, or the stages before it 6 or more"),
    ],
)
def test_an_impossible_chain_is_refused_with_what_to_write(text, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        checked({"reranker": text})


def test_a_smaller_k_init_is_held_against_the_chain():
    settings = Settings.of(reranker="encoder@15,cross:a")
    assert [stage.depth for stage in settings.replace(k_init=15).retrieval.stages] == [15, 10]
    with pytest.raises(UsageError, match="k_init is 14"):
        settings.replace(k_init=14)
