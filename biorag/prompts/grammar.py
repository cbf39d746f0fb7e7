"""From a reply's JSON schema to llama.cpp grammars (GBNF), in two parts.

A reply is free texts, mostly one, then fields with finitely many values. Each text is generated under a token cap;
the rest always ends. Decoding them apart lets a capped text be closed, so that the JSON always parses.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from biorag.utils.text import whole

# No \uXXXX escapes: a model writes any character as itself, and half a surrogate pair cannot arise.
FREE_TEXT_GRAMMAR = r"""root ::= char* "\""
char ::= [^"\\\x7F\x00-\x1F] | "\\" ["\\/bfnrt]
"""
_CUT_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(u[0-9a-fA-F]{0,3})?\Z")
_OPENING = re.compile(r'\s*\{\s*"[^"\\]*"\s*:\s*"')
_HALF_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


def free_text_openings(schema: Mapping[str, Any]) -> list[str]:
    """Return the text before each free text of a reply, up to its opening quote.

    Free texts are the first fields of a schema: strings, or lists of a fixed number of strings (`maxItems`).
    """
    openings = []
    before = "{"
    for name, field in schema["properties"].items():
        if not _is_text(field):
            break
        listed = "items" in field
        openings.append(f'{before}{json.dumps(name)}: {"[" * listed}"')
        openings += [', "'] * (field["maxItems"] - 1 if listed else 0)
        before = "]" * listed + ", "
    return openings


def rest_grammar(schema: Mapping[str, Any]) -> str:
    """Return the grammar of the reply after its free texts: enumerations and lists of them."""
    fields = list(schema["properties"].items())
    texts = list(itertools.takewhile(lambda item: _is_text(item[1]), fields))
    parts = [_literal("]")] if "items" in texts[-1][1] else []
    for name, field in fields[len(texts) :]:
        parts += [_literal(f", {json.dumps(name)}: "), _values(field)]
    return f"root ::= {' '.join(parts)} {_literal('}')}\n"


def close_text(partial: str) -> str:
    """Return a capped first field, closed: a cut escape is dropped, the quote is added."""
    return _CUT_ESCAPE.sub(r"\1", partial) + '"'


def growing_text(reply: str) -> str:
    """Return the first field of a reply that is still growing, as far as it can be shown."""
    opening = _OPENING.match(reply)
    if not opening:
        return ""
    text = reply[opening.end() :]
    end = re.search(r'(?<!\\)(?:\\\\)*"', text)
    body = text[: end.end() - 1] if end else _HALF_PAIR.sub(r"\1", _CUT_ESCAPE.sub(r"\1", text))
    try:
        return whole(str(json.loads(f'"{body}"', strict=False)))
    except ValueError:
        return ""


def _is_text(field: Mapping[str, Any]) -> bool:
    return "string" in (field.get("type"), field.get("items", {}).get("type"))


def _values(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return "(" + " | ".join(_literal(json.dumps(value)) for value in field["enum"]) + ")"
    item, most = _values(field["items"]), field["maxItems"]
    more = f" ({_literal(', ')} {item}){{0,{most - 1}}}" if most > 1 else ""
    return f"{_literal('[')} {item}{more} {_literal(']')}"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
