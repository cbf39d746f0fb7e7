"""The filter grammar, held against cases and against a plain way of writing conditions down."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from biorag.errors import UsageError
from biorag.retrieval.filters import parse_filter
from biorag.types import FieldFilter

CASES = {
    "year=2015": [FieldFilter("year", "=", 2015)],
    "year:2015": [FieldFilter("year", "=", 2015)],
    "year>=2015": [FieldFilter("year", ">=", 2015)],
    "year <= 2015": [FieldFilter("year", "<=", 2015)],
    "  year\t>\n2015  ": [FieldFilter("year", ">", 2015)],
    "year<-3": [FieldFilter("year", "<", -3)],
    "impact>2.5": [FieldFilter("impact", ">", 2.5)],
    "impact=1e3": [FieldFilter("impact", "=", 1000.0)],
    "impact=.5": [FieldFilter("impact", "=", 0.5)],
    "journal=Lancet": [FieldFilter("journal", "=", "Lancet")],
    'journal="The Lancet"': [FieldFilter("journal", "=", "The Lancet")],
    'journal = "Cœur et vaisseaux"': [FieldFilter("journal", "=", "Cœur et vaisseaux")],
    'year="2015"': [FieldFilter("year", "=", "2015")],
    'open="true"': [FieldFilter("open", "=", "true")],
    'journal=""': [FieldFilter("journal", "=", "")],
    'title="salt and pepper=spice"': [FieldFilter("title", "=", "salt and pepper=spice")],
    "open=true": [FieldFilter("open", "=", True)],
    "open=False": [FieldFilter("open", "=", False)],
    "not retracted=true": [FieldFilter("retracted", "=", True, negated=True)],
    "NOT year>=2015": [FieldFilter("year", ">=", 2015, negated=True)],
    "notes=x": [FieldFilter("notes", "=", "x")],
    "android=x": [FieldFilter("android", "=", "x")],
    "mesh.major=Liver": [FieldFilter("mesh.major", "=", "Liver")],
    '"Study Design"=RCT and not "p-value">0.05': [
        FieldFilter('"Study Design"', "=", "RCT"),
        FieldFilter('"p-value"', ">", 0.05, negated=True),
    ],
    'design."a.b"=x': [FieldFilter('design."a.b"', "=", "x")],
    '"open access"': [FieldFilter('"open access"', "=", True)],
    "_x1=2": [FieldFilter("_x1", "=", 2)],
    "type=Review-Article": [FieldFilter("type", "=", "Review-Article")],
    "year>=2015 and journal=Lancet and not retracted=true": [
        FieldFilter("year", ">=", 2015),
        FieldFilter("journal", "=", "Lancet"),
        FieldFilter("retracted", "=", True, negated=True),
    ],
    'journal="The Lancet" AND  year=1': [FieldFilter("journal", "=", "The Lancet"), FieldFilter("year", "=", 1)],
    "retracted": [FieldFilter("retracted", "=", True)],
    " not  retracted ": [FieldFilter("retracted", "=", True, negated=True)],
    "notes": [FieldFilter("notes", "=", True)],
    "mesh.major and year=1": [FieldFilter("mesh.major", "=", True), FieldFilter("year", "=", 1)],
    'year>=2015 and type:"Randomized Controlled Trial" and mesh:Asthma and not retracted': [
        FieldFilter("year", ">=", 2015),
        FieldFilter("type", "=", "Randomized Controlled Trial"),
        FieldFilter("mesh", "=", "Asthma"),
        FieldFilter("retracted", "=", True, negated=True),
    ],
    "year>=2000 and year<2010": [FieldFilter("year", ">=", 2000), FieldFilter("year", "<", 2010)],
}


@pytest.mark.parametrize("text", CASES)
def test_grammar(text):
    found = parse_filter(text)
    assert list(found) == CASES[text]
    assert [type(condition.value) for condition in found] == [type(condition.value) for condition in CASES[text]]


REFUSED = {
    "": "cannot be read at ''",
    "   ": "cannot be read at",
    "not": "cannot be read at 'not'",
    "and": "cannot be read at 'and'",
    "not not": "cannot be read at",
    "retracted and": "cannot be read at",
    "open access": "cannot be read at",
    "year=": "cannot be read at 'year='",
    "=2015": "cannot be read at '=2015'",
    "2015=year": "cannot be read at '2015=year'",
    "year!=2015": "cannot be read at",
    "not not year=1": "cannot be read at",
    "and year=1": "cannot be read at",
    "year=1 and": "",
    "year=1 and ": "cannot be read at",
    "year=1 and and x=1": "cannot be read at",
    "year=1 or x=1": "expected \"and\" before 'or x=1'",
    "year=1, x=1": "expected \"and\" before 'x=1'",
    "year=1 x=1": "expected \"and\" before 'x=1'",
    "journal=The Lancet": "expected \"and\" before 'Lancet'",
    'journal="The Lancet': "",
    'journal="The" Lancet"': 'expected "and" before',
    "year>=recent": "compares 'year' with 'recent', which is not a number",
    'year>="2015"': "compares 'year' with '2015', which is not a number",
    "open>=true": "compares 'open' with True, which is not a number",
    "year<>2015": "'year<>2015'",
    "a b=1": "cannot be read at",
    "pub-date=1": "cannot be read at",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_naming_filter_and_place(text):
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert repr(text) in str(caught.value)
    assert REFUSED[text] in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ['journal="Lancet', 'journal="', 'a=1 and journal="Lancet', 'journal="The "Lancet"'])
def test_a_quote_that_is_not_closed_is_refused(text):
    with pytest.raises(UsageError):
        parse_filter(text)


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf", "Infinity", "1_000", "1e999", "٣"])
def test_words_that_only_python_takes_for_numbers_are_texts(word):
    """`gene=NAN` or `grant=12_34` name texts; compared by size they are no numbers."""
    (found,) = parse_filter(f"field={word}")
    assert (found.value, type(found.value)) == (word, str)
    with pytest.raises(UsageError):
        parse_filter(f"field>={word}")


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    text=st.text(max_size=30)
    | st.lists(
        st.sampled_from(
            ["year", "not ", "and ", " and ", ">=", "=", "<", ":", '"', '"a b"', "1", "2.5", "true", "é", " "]
        )
    ).map("".join)
)
@example("year=" + "9" * 5000)
@example("year>=" + "9" * 5000)
@example("year>=" + "9" * 400)
@example("\ud800=1")
@example("a=\ud800")
def test_any_text_is_conditions_or_a_usage_error(text):
    try:
        found = parse_filter(text)
    except UsageError as error:
        assert str(error)
        return
    assert found
    for condition in found:
        assert condition.op in ("=", ">=", "<=", ">", "<")
        assert re.fullmatch(r"""([A-Za-z_]\w*|"[^"]+")(\.(\w+|"[^"]+"))*""", condition.field)
        if condition.op != "=":
            float(condition.value)  # what the stores do with it


@st.composite
def written(draw):
    """A condition with one way of writing it."""
    field = draw(st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,3})?", fullmatch=True).filter(lambda name: name != "not"))
    op = draw(st.sampled_from(["=", ">=", "<=", ">", "<"]))
    values = st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6)
    if op == "=":
        values |= st.booleans() | st.text(st.characters(codec="utf-8", exclude_characters='"'), max_size=8)
    value = draw(values)
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    negated, space = draw(st.booleans()), draw(st.sampled_from(["", " "]))
    return FieldFilter(field, op, value, negated), f"{'not ' * negated}{field}{space}{op}{space}{shown}"


@settings(derandomize=True, deadline=None, max_examples=40)
@given(terms=st.lists(written(), min_size=1, max_size=4), joint=st.sampled_from([" and ", "  AND\t"]))
def test_written_conditions_come_back(terms, joint):
    found = parse_filter(joint.join(text for _, text in terms))
    assert found == tuple(condition for condition, _ in terms)
    assert [type(c.value) for c in found] == [type(condition.value) for condition, _ in terms]
