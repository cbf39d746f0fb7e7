"""The filter grammar, held against cases and against a plain way of writing conditions down."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from biorag.errors import UsageError
from biorag.indexes.fields import comparisons
from biorag.retrieval.filters import exclude_documents, parse_filter
from biorag.types import AnyOf, FieldFilter, Snippet

CASES = {
    "year>=2015": [FieldFilter("year", ">=", 2015)],
    "year<-3": [FieldFilter("year", "<", -3)],
    'journal="The Lancet"': [FieldFilter("journal", "=", "The Lancet")],
    'year="2015"': [FieldFilter("year", "=", "2015")],
    'title="salt and pepper=spice"': [FieldFilter("title", "=", "salt and pepper=spice")],
    "open=true": [FieldFilter("open", "=", True)],
    "not retracted=true": [FieldFilter("retracted", "=", True, negated=True)],
    '"Study Design"=RCT and not "p-value">0.05': [
        FieldFilter('"Study Design"', "=", "RCT"),
        FieldFilter('"p-value"', ">", 0.05, negated=True),
    ],
    'design."a.b"=x': [FieldFilter('design."a.b"', "=", "x")],
    '"open access"': [FieldFilter('"open access"', "=", True)],
    "year>=2015 and journal=Lancet and not retracted=true": [
        FieldFilter("year", ">=", 2015),
        FieldFilter("journal", "=", "Lancet"),
        FieldFilter("retracted", "=", True, negated=True),
    ],
    'journal="The Lancet" AND  year=1': [FieldFilter("journal", "=", "The Lancet"), FieldFilter("year", "=", 1)],
    'title~semaglutide and not authors ~ "De Vries"': [
        FieldFilter("title", "~", "semaglutide"),
        FieldFilter("authors", "~", "De Vries", negated=True),
    ],
    "retracted": [FieldFilter("retracted", "=", True)],
    " not  retracted ": [FieldFilter("retracted", "=", True, negated=True)],
    "mesh.major and year=1": [FieldFilter("mesh.major", "=", True), FieldFilter("year", "=", 1)],
    'year>=2015 and type:"Randomized Controlled Trial" and mesh:Asthma and not retracted': [
        FieldFilter("year", ">=", 2015),
        FieldFilter("type", "=", "Randomized Controlled Trial"),
        FieldFilter("mesh", "=", "Asthma"),
        FieldFilter("retracted", "=", True, negated=True),
    ],
    'year>=2015 and (type=Review or type="Meta-Analysis")': [
        FieldFilter("year", ">=", 2015),
        AnyOf(((FieldFilter("type", "=", "Review"),), (FieldFilter("type", "=", "Meta-Analysis"),))),
    ],
    "a=1 and b=2 OR c and not d": [
        AnyOf(
            (
                (FieldFilter("a", "=", 1), FieldFilter("b", "=", 2)),
                (FieldFilter("c", "=", True), FieldFilter("d", "=", True, negated=True)),
            )
        )
    ],
    "not(a=1 or b)and c<2": [
        AnyOf(((FieldFilter("a", "=", 1),), (FieldFilter("b", "=", True),)), negated=True),
        FieldFilter("c", "<", 2),
    ],
    "not (a=1 and b=2)": [AnyOf(((FieldFilter("a", "=", 1), FieldFilter("b", "=", 2)),), negated=True)],
    "((a=1 and (b=2)))": [FieldFilter("a", "=", 1), FieldFilter("b", "=", 2)],
    "( gene=HLA(A) or gene=p(53)x )": [
        AnyOf(((FieldFilter("gene", "=", "HLA(A)"),), (FieldFilter("gene", "=", "p(53)x"),)))
    ],
    'title="a (b" or oral=true': [AnyOf(((FieldFilter("title", "=", "a (b"),), (FieldFilter("oral", "=", True),)))],
}


def types_of(where):
    return [type(condition.value) for condition in comparisons(where)]


@pytest.mark.parametrize("text", CASES)
def test_grammar(text):
    found = parse_filter(text)
    assert list(found) == CASES[text]
    assert types_of(found) == types_of(CASES[text])


REFUSED = {
    "": "lacks a condition at its end: write FIELD=VALUE",
    "year>=2015, year<=2019": 'which is not a number: join conditions by "and"',
    "year between 2010 and 2020": "write FIELD>=NUMBER and FIELD<=NUMBER",
    "year=1 && x=1": "before '&& x=1': write \"and\"",
    "not": "cannot be read at 'not'",
    "retracted and": "lacks a condition at its end",
    "open access": "cannot be read at",
    "year!=2015": "cannot be read at 'year!=2015': write not FIELD=VALUE",
    "year=1 or": "lacks a condition at its end",
    "or year=1": "cannot be read at 'or year=1'",
    "year=1 or or x=1": "cannot be read at 'or x=1'",
    "journal=The Lancet": 'expected "and" or "or" before \'Lancet\': a value of several words is in double quotes',
    "year=1) or x=1": 'expected "and" or "or" before \') or x=1\'',
    "year=1 and (x=1 or y=2": "it lacks a \")\", for the parenthesis at '(x=1 or y=2'",
    "not (x=1 y=2)": 'expected "and", "or" or ")" before \'y=2)\'',
    "()": "cannot be read at ')'",
    "year=(2015 or 2016)": "cannot be read at 'year=(2015",
    "(" * 17 + "a" + ")" * 17: "more than 16 parentheses inside one another",
    "year>=recent": "compares 'year' with 'recent', which is not a number",
    'year>="2015"': "compares 'year' with '2015', which is not a number",
    "year<>2015": "'year<>2015'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_naming_filter_and_place(text):
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert repr(text) in str(caught.value)
    assert REFUSED[text] in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("word", ["nan", "-inf", "1_000", "1e999", "٣"])
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
            ["year", "not ", "and ", " or ", "(", ")", ">=", "=", "<", ":", '"', '"a b"', "1", "2.5", "true", "é", " "]
        )
    ).map("".join)
)
@example("year=" + "9" * 5000)
@example("year>=" + "9" * 5000)
@example("year>=" + "9" * 400)
@example("\ud800=1")
@example("a=\ud800")
@example("(" * 5000)
@example("(" * 5000 + "a")
@example("not(" * 5000)
@example("a=" + "(" * 5000)
def test_any_text_is_conditions_or_a_usage_error(text):
    try:
        found = parse_filter(text)
    except UsageError as error:
        assert str(error)
        return
    assert found
    for condition in comparisons(found):
        assert condition.op in ("=", ">=", "<=", ">", "<")
        assert re.fullmatch(r"""([A-Za-z_]\w*|"[^"]+")(\.(\w+|"[^"]+"))*""", condition.field)
        if condition.op != "=":
            float(condition.value)  # what the stores do with it


def test_a_field_that_is_absent_counts_as_false():
    assert parse_filter("retracted=false") == parse_filter("not retracted")
    assert parse_filter("not retracted:False") == parse_filter("retracted")


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
    text = f"{'not ' * negated}{field}{space}{op}{space}{shown}"
    # False holds where a record states nothing, too: it is "not true".
    return FieldFilter(field, op, True, not negated) if value is False else FieldFilter(field, op, value, negated), text


def grouped(parts):
    """Alternatives of several parts, in parentheses and perhaps negated, with one way of writing them."""
    alternatives = st.lists(st.lists(parts, min_size=1, max_size=2), min_size=2, max_size=3)
    return st.tuples(alternatives, st.booleans()).map(
        lambda drawn: (
            AnyOf(tuple(tuple(condition for condition, _ in conditions) for conditions in drawn[0]), drawn[1]),
            "not " * drawn[1] + f"({' or '.join(' and '.join(text for _, text in part) for part in drawn[0])})",
        )
    )


@settings(derandomize=True, deadline=None, max_examples=40)
@given(terms=st.lists(st.recursive(written(), grouped, max_leaves=5), min_size=1, max_size=3))
def test_written_alternatives_come_back(terms):
    found = parse_filter(" and ".join(text for _, text in terms))
    assert found == tuple(condition for condition, _ in terms)
    assert types_of(found) == types_of(condition for condition, _ in terms)


def test_documents_are_left_out_by_pmid_and_those_without_one_by_id():
    documents = [Snippet("b", "", "", 9), Snippet("a", "", "", 9), Snippet("c", "", ""), Snippet("d", "", "", 7)]
    assert exclude_documents(documents) == (
        FieldFilter("pmid", "in", (7, 9), negated=True),
        FieldFilter("id", "=", "c", negated=True),
    )
