"""Hostile and random text in every format: it comes out as text, read back by other libraries."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
import rispy
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from biorag.references.escaping import cell, in_html, in_markdown, in_url, one_line, separated
from biorag.references.formats import bibtex, csl_json, markdown, ris
from biorag.types import Hit, Snippet
from biorag.utils.text import showable

HOSTILE = st.sampled_from(
    [
        *("<img src=x onerror=alert(1)>", "![a](http://x.example/p.png)", "[a](javascript:x)", "<https://x.example>"),
        *(
            "https://x.example",
            "www.x.example",
            "a@b.example",
            "# h",
            "- l",
            "1. l",
            "12) l",
            "===",
            "---",
            "&lt;b&gt;",
        ),
        *(
            "```",
            "~~~",
            "| a |",
            "\n\n# h\n",
            "\r\n<b>",
            "\u2028# h",
            "> <script>",
            "[a]: http://x.example",
            "    code",
        ),
        *(
            "=1+1",
            "＝1+1",
            "＠a",
            "＋1",
            "－1",
            "\ufeff=1",
            "\u200b=1",
            "\t@a",
            "\x00-1",
            "−1",
            "'=1",
            '"=1',
            "\ud800",
            "</p>",
        ),
        *("..", ".", "../..", "%2e%2e", "?a=b", "#f", "//x.example", "\\", "\\<b>", "ER  - ", "},\n@misc{x,"),
    ]
)
TEXTS = st.lists(HOSTILE | st.text(max_size=12), max_size=4).map("".join)


def kinds(markdown: str) -> list[str]:
    """Return the kinds of the tokens of Markdown with GitHub's tables, those of texts left out."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    every = [child.type for token in tokens for child in (token, *(token.children or ()))]
    return [kind for kind in every if kind not in ("text", "text_special")]


@given(TEXTS.filter(one_line))
def test_markdown_shows_a_text_as_text(text):
    for before in ("", "Title\n\n", "Title\n", "- **x** ", "# ", "| a |\n|---|\n| "):
        assert kinds(before + in_markdown(text)) == kinds(f"{before}x")
    shown = "".join(token.content for token in MarkdownIt().parseInline(in_markdown(text))[0].children)
    assert shown == one_line(text)


@pytest.mark.parametrize("address", ["https://x.example", "www.x.example", "a@b.example"])
def test_markdown_of_github_makes_no_link_of_an_address(address):
    """An escaped mark ends what its extension takes for an address."""
    assert "\\" in in_markdown(address)


@given(TEXTS)
def test_html_shows_a_text_as_text(text):
    seen: list[str] = []
    parser = HTMLParser(convert_charrefs=True)
    parser.handle_starttag = parser.handle_endtag = lambda *tag: seen.append("a tag")  # type: ignore[method-assign]
    parser.handle_data = seen.append  # type: ignore[method-assign]
    parser.feed(in_html(text))
    parser.close()
    assert "".join(seen) == showable(text)
    assert not {"<", ">", '"', "'"} & set(in_html(text))


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(",\t"))
def test_a_spreadsheet_finds_no_formula(texts, delimiter):
    (row,) = list(
        csv.reader(io.StringIO(separated(["a"] * len(texts), [texts], delimiter), newline=""), delimiter=delimiter)
    )[1:]
    for value, text in zip(row, texts, strict=True):
        assert value in (one_line(text), f"'{one_line(text)}")
        visible = [mark for mark in value if mark.isprintable() and not mark.isspace()]
        assert not visible or visible[0] not in "=+-@＝＋－＠﹦﹢﹣﹫−"
    assert cell(-0.5) == -0.5


@given(TEXTS)
def test_an_identifier_stays_in_its_segment_of_a_url(text):
    segment = in_url(text)
    assert not set('/?#\\<>"% '.replace("%", "")) & set(segment) and segment.isascii()
    assert segment not in (".", "..") and unquote(segment) in ("_", text.encode("utf-8", "replace").decode())
    assert not {".", ".."} & set(in_url(text, slashes=True).split("/"))
    assert in_url("10.1016/S0140-6736(05)67483-1", slashes=True) == "10.1016/S0140-6736(05)67483-1"


@given(TEXTS, TEXTS)
def test_a_record_is_one_record_in_every_format(title, doi):
    fields = {"doi": doi, "journal": title, "authors": [title], "file": doi, "type": [title]}
    hit = Hit(1, Snippet("x", title, title, None, fields), 0.5)
    assert len(rispy.loads(ris([hit]))) == 1 and len(json.loads(csl_json([hit]))) == 1
    assert bibtex([hit]).count("\n@") == 0
    assert bibtex([hit]).count("{") == bibtex([hit]).count("}")
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown([hit]))
    assert kinds(markdown([hit])).count("td_open") == 7
    assert not {"image", "html_inline", "html_block", "heading_open", "code_inline"} & set(kinds(markdown([hit])))
    links = [child for token in tokens for child in token.children or () if child.type == "link_open"]
    assert all(str(link.attrs["href"]).startswith("https://doi.org/") for link in links)
