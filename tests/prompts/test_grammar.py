"""Closing capped texts, and the grammars that llama.cpp is given."""

import ctypes
import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from biorag.prompts.grammar import FREE_TEXT_GRAMMAR, close_text, free_text_openings, growing_text, rest_grammar
from biorag.prompts.template import schema_for
from biorag.types import Question

CHOICE = Question("q", "?", {"A": "one", "B": "two", "C": "three"})
OPEN = Question("q", "?")
CHARACTERS = st.sampled_from(
    [*'ab"\\/\n\t\x00\x1f', "é", "β", "\N{GRINNING FACE}", "\u2028", "\ud83d", "\ude00", "u", "0"]
)
TEXTS = st.one_of(st.text(CHARACTERS), st.text())


def is_part_of(part: str, whole: str) -> bool:
    """Tell whether one text begins the other, a pair of surrogates being one character or two."""
    units = [text.encode("utf-16-le", "surrogatepass") for text in (part, whole)]
    return units[1].startswith(units[0])


@given(TEXTS, st.booleans(), st.data())
@example('say "', True, None)
@example("\\", True, None)
def test_any_cut_of_a_json_string_can_be_closed(text, ascii_only, data):
    body = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    places = range(len(body) + 1) if data is None else [data.draw(st.integers(0, len(body)))]
    for place in places:
        closed = close_text('"' + body[:place])
        assert closed.endswith('"')
        assert is_part_of(json.loads(closed), text), "what was cut is the beginning of what was written"


@given(st.text(), st.booleans())
def test_growing_text_shows_the_text_so_far_and_nothing_after_it(text, ascii_only):
    """Each state of a reply shows a beginning of the text, never less than the state before."""
    opening, rest = '{"answer": ', ', "citations": [1, 2]}'
    reply = opening + json.dumps(text, ensure_ascii=ascii_only) + rest
    shown = ""
    for length in range(len(opening) + 1, len(reply) + 1):
        now = growing_text(reply[:length])
        assert text.startswith(now)
        assert now.startswith(shown)
        shown = now
    assert shown == text


CITED = ("[]", "[4]", "[0]", "[1, 1, 1, 1]", "1", '["1"]')
# Schemas, llama.cpp's grammar of a reply between its free text and its end, endings that it takes, and others.
REST = {
    "choice with documents": (
        schema_for(CHOICE, 2),
        r"""", \"relevant_context\": " ("\"YES\"" | "\"NOT\"") ", \"answer_choice\": " """
        r"""("\"A\"" | "\"B\"" | "\"C\"")""",
        [f', "relevant_context": "{said}", "answer_choice": "B"}}' for said in ("YES", "NOT")],
        [
            *(f', "relevant_context": "YES", "answer_choice": {choice}}}' for choice in ('"D"', '"AB"', '""', "A")),
            ', "relevant_context": "MAYBE", "answer_choice": "A"}',
        ],
    ),
    "choice without documents": (
        schema_for(CHOICE, 0),
        r"""", \"answer_choice\": " ("\"A\"" | "\"B\"" | "\"C\"")""",
        [f', "answer_choice": "{letter}"}}' for letter in "ABC"],
        [', "answer_choice": "D"}', "}"],
    ),
    "open with three documents": (
        schema_for(OPEN, 3),
        r"""", \"citations\": " "[" ("1" | "2" | "3") (", " ("1" | "2" | "3")){0,2} "]" """.strip(),
        [f', "citations": {cited}}}' for cited in ("[1]", "[3, 1]", "[1, 2, 3]")],
        [f', "citations": {cited}}}' for cited in CITED],
    ),
    "open with one document": (
        schema_for(OPEN, 1),
        r"""", \"citations\": " "[" ("1") "]" """.strip(),
        [', "citations": [1]}'],
        [', "citations": [1, 1]}'],
    ),
    "open without documents": (schema_for(OPEN, 0), "", ["}"], ["", ', "citations": [1]}', "}}"]),
}


TEXT = {"type": "string"}
# Fields, what opens their texts, and how a reply ends.
SEVERAL = {
    "texts": ({"query": TEXT, "positive": TEXT}, ['{"query": "', ', "positive": "'], "}"),
    "a list": ({"found": {"type": "array", "items": TEXT, "maxItems": 3}}, ['{"found": ["', ', "', ', "'], "]}"),
    "a list and a text": (
        {"found": {"type": "array", "items": TEXT, "maxItems": 2}, "said": TEXT, "sure": {"enum": [1]}},
        ['{"found": ["', ', "', '], "said": "'],
        ', "sure": 1}',
    ),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_several_free_texts_are_opened_in_turn(case):
    properties, openings, ending = SEVERAL[case]
    assert free_text_openings({"properties": properties}) == openings
    written = "".join(f'{opening}text {n}"' for n, opening in enumerate(openings)) + ending
    assert list(json.loads(written)) == list(properties)


# --- llama.cpp's own reading of the grammars; it needs a vocabulary, which the starter generator brings ---


@pytest.fixture(scope="module")
def llama():
    llama_cpp = pytest.importorskip("llama_cpp")
    from biorag.models.finding import find_gguf

    model = llama_cpp.Llama(str(find_gguf("starter")), vocab_only=True, verbose=False)
    yield model
    model.close()


def follows(llama, grammar: str, text: str, whole: bool = True) -> bool:
    """Tell whether llama.cpp lets `text` through: as a complete reply, or as the beginning of one."""
    import llama_cpp as lib

    vocabulary = lib.llama_model_get_vocab(llama.model)
    sampler = lib.llama_sampler_init_grammar(vocabulary, grammar.encode(), b"root")
    assert sampler, f"llama.cpp cannot read the grammar {grammar}"
    try:
        tokens = llama.tokenize(text.encode("utf-8", "surrogatepass"), add_bos=False)
        for token in [*tokens, *([llama.token_eos()] if whole else [])]:
            candidates = (lib.llama_token_data * 1)(lib.llama_token_data(token, 0.0, 0.0))
            array = lib.llama_token_data_array(candidates, 1, -1, False)
            lib.llama_sampler_apply(sampler, ctypes.byref(array))
            if candidates[0].logit == -math.inf:
                return False
            if token != llama.token_eos():
                lib.llama_sampler_accept(sampler, token)
        return True
    finally:
        lib.llama_sampler_free(sampler)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('Pyridoxine is given."', True),
        ('"', True),
        ('He said \\"yes\\" \\\\ \\/ \\n\\t é β \N{GRINNING FACE}"', True),
        ("no end", False),
        ('ends"and goes on', False),
        ('bare\nnewline"', False),
        ('bad \\x escape"', False),
        ('unicode \\u00e9 escape"', False),
        ('delete \x7f"', False),
    ],
)
def test_llama_cpp_takes_free_texts_that_are_json_strings(llama, text, fits):
    assert follows(llama, FREE_TEXT_GRAMMAR, text) is fits
    if fits:
        json.loads('"' + text)


@pytest.mark.parametrize("case", REST)
def test_rest_grammar_is_the_golden_one(case):
    schema, golden, *_ = REST[case]
    assert rest_grammar(schema) == f'root ::= {golden} "}}"\n'


@pytest.mark.slow
@pytest.mark.parametrize("case", REST)
def test_llama_cpp_takes_exactly_the_schemas_endings(llama, case):
    schema, _, good, bad = REST[case]
    grammar = rest_grammar(schema)
    first = free_text_openings(schema)[0] + 'text"'
    for rest in good:
        assert follows(llama, grammar, rest), rest
        assert list(json.loads(first + rest)) == list(schema["properties"])
    for rest in bad:
        assert not follows(llama, grammar, rest), rest
    assert not follows(llama, grammar, good[0][:-1]), "an unfinished reply does not end"
    assert follows(llama, grammar, good[0][:-1], whole=False)
