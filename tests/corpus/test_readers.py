"""Lines to snippets: both record forms, every kind of bad line, round trips, damaged files."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.corpus.readers import Reject, parse_snippet, read_snippets
from biorag.corpus.sources import Source
from biorag.errors import BadInputError
from biorag.types import Snippet

RESERVED = {"id", "_id", "title", "content", "contents", "text", "metadata", "PMID", "pmid"}
GOOD = b'{"id": "g%d", "title": "T", "content": "good", "contents": "T. good", "PMID": 7}'
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n"

texts = st.text(st.characters(codec="utf-8"), max_size=20)
ids = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1, max_size=20)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
json_values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
)
snippets = st.builds(
    Snippet,
    id=ids,
    title=texts,
    content=texts.filter(str.strip),
    pmid=st.none() | st.integers(1, 2**53 - 1),
    metadata=st.dictionaries(texts.filter(lambda key: key not in RESERVED), json_values, max_size=4),
)


def source(path, data: bytes) -> Source:
    path.write_bytes(data)
    return Source(str(path), path)


def line_of(record, ensure_ascii: bool = True) -> bytes:
    return json.dumps(record, ensure_ascii=ensure_ascii).encode("utf-8")


def medrag(snippet: Snippet) -> dict:
    """The record by MedRAG's own rule, written out here again."""
    whole = snippet.content
    if snippet.title:
        joint = " " if snippet.title[-1] in ".?!" else ". "
        whole = snippet.title + joint + snippet.content
    base = {"id": snippet.id, "title": snippet.title, "content": snippet.content, "contents": whole}
    return {**base, "PMID": snippet.pmid, **snippet.metadata}


def beir(snippet: Snippet) -> dict:
    pmid = {} if snippet.pmid is None else {"pmid": snippet.pmid}
    return {
        "_id": snippet.id,
        "title": snippet.title,
        "text": snippet.content,
        "metadata": {**pmid, **snippet.metadata},
    }


# --- good records


@pytest.mark.parametrize(
    "record",
    [
        {"_id": "4", "title": "T", "text": "Text.", "metadata": {"pmid": "12"}, "year": 2001},
        {"id": "4", "title": "T", "text": "Text.", "year": 2001, "PMID": 12},
    ],
)
def test_forms_of_beir(record):
    assert parse_snippet(line_of(record)) == Snippet("4", "T", "Text.", 12, {"year": 2001})


@pytest.mark.parametrize("content", [None, "", "  "])
def test_a_record_with_contents_alone_is_not_given_its_title_twice(content):
    record = {"id": "a", "title": "Aspirin", "content": content, "contents": "Aspirin. It lowers fever."}
    assert parse_snippet(line_of(record)).contents == "Aspirin. It lowers fever."


@pytest.mark.parametrize("form", [{"id": "a", "content": ""}, {"_id": "a", "text": ""}])
def test_tags_that_style_words_are_left_out_and_comparisons_are_not(form):
    text = "<b>AIM</b>: <i>E. coli</i>, 10<sup>6</sup> of CO<sub>2</sub>;\n p<0.05, a < b > c."
    record = {**form, "title": "The <em>TP53</em> gene", list(form)[1]: text}
    snippet = parse_snippet(line_of(record))
    assert (snippet.title, snippet.content) == (
        "The TP53 gene", "AIM: E. coli, 10^6 of CO2;\n p<0.05, a < b > c.",
    )  # fmt: skip


@pytest.mark.parametrize(("key", "value", "pmid"), [("PMID", 12, 12), ("pmid", "00012", 12), ("PMID", "", None)])
def test_pmid_as_number_or_digits(key, value, pmid):
    snippet = parse_snippet(line_of({"id": "a", "content": "Text", key: value}))
    assert (snippet.pmid, snippet.metadata) == (pmid, {})


def test_shared_pubmed_lines_are_read_whole(shared_data):
    """Their own `contents` differ from MedRAG's rule by full stops (two after a title, none at the end)."""
    path = shared_data / "pubmed" / "snippets.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        records = [json.loads(next(stream)) for _ in range(500)]
    reader = read_snippets(Source("pubmed", path))
    for record in records:
        snippet = next(reader)
        assert (snippet.id, snippet.title, snippet.content) == (record["id"], record["title"], record["content"])
        assert snippet.pmid == record["PMID"]
        assert snippet.contents == medrag(snippet)["contents"]


# --- bad lines

BAD_LINES = {
    "not JSON": (b"id: 1, content: text", "not JSON"),
    "a list": (b'["a", "b"]', "not a JSON object but list"),
    "nested too deeply": (b"[" * 100_000, "recursion limit"),
    "no id": (b'{"content": "Text"}', "no 'id'"),
    "no text": (b'{"id": "a", "title": "T"}', "snippet 'a' has no text"),
    "title a number": (b'{"id": "a", "title": 5, "content": "Text"}', "'title' is int, not a string"),
    "not UTF-8": (b'{"id": "a", "content": "na\xefve"}', "invalid unicode"),
    "NaN": (b'{"id": "a", "content": "Text", "x": NaN}', "not JSON"),
    "number of 5000 digits": (b'{"id": "a", "content": "Text", "x": ' + b"9" * 5000 + b"}", "number out of range"),
    "escape sequence in id": (b'{"id": "\\u001b[2J", "content": "Text"}', "'id' has a control character"),
    "id of 1025 characters": (b'{"id": "' + b"a" * 1025 + b'", "content": "Text"}', "'id' is longer than 1,024"),
    "surrogate in id": (b'{"id": "\\ud800", "content": "Text"}', "not JSON"),
    "PMID other digits": ('{"id": "a", "content": "Text", "PMID": "²"}'.encode(), "is not a positive whole number"),
    "PMID over 2**53": (b'{"id": "a", "content": "Text", "PMID": 9007199254740992}', "is not a positive whole number"),
    # A store keeps whole numbers in 64 bits and JSON 128 levels deep; beyond that it changes or loses them.
    "number over 64 bits": (b'{"id": "a", "content": "Text", "x": 1000000000000000000000}', ""),
    "field nested too deeply": (b'{"id": "a", "content": "Text", "x": ' + b"[" * 200 + b"]" * 200 + b"}", ""),
}


def test_a_bad_line_stops_with_file_line_and_reason(tmp_path):
    bad = source(tmp_path / "corpus.jsonl", b"\n".join([GOOD % 1, b"", b"id: 1", GOOD % 2]))
    reader = read_snippets(bad)
    assert next(reader).id == "g1"
    with pytest.raises(BadInputError, match=r"corpus\.jsonl, line 3: not JSON .* skip it with --on-bad-line skip"):
        next(reader)


def test_on_reject_collects_every_bad_line_and_the_good_ones_go_on(tmp_path):
    rows, ids = [], []
    for place, (line, _) in enumerate(BAD_LINES.values()):
        rows += [line, GOOD % place, b""]
        ids.append(f"g{place}")
    rejects: list[Reject] = []
    found = list(read_snippets(source(tmp_path / "corpus.jsonl", b"\n".join(rows)), rejects.append))
    assert [snippet.id for snippet in found] == ids
    assert [reject.line for reject in rejects] == [1 + 3 * place for place in range(len(BAD_LINES))]
    for reject, (line, reason) in zip(rejects, BAD_LINES.values(), strict=True):
        assert reject.file == str(tmp_path / "corpus.jsonl")
        assert reason in reject.reason
        assert reject.text == line[:2000].decode("utf-8", "replace")


# --- damaged files, with and without a place for rejects


def test_a_gzip_truncated_anywhere_gives_whole_snippets_then_the_error(tmp_path):
    lines = [GOOD % place for place in range(40)]
    whole = [f"g{place}" for place in range(40)]
    blob = gzip.compress(b"\n".join(lines) + b"\n")
    for length in range(1, len(blob), 7):
        path = tmp_path / "corpus.jsonl.gz"
        found = []
        with pytest.raises(BadInputError) as caught:
            for snippet in read_snippets(source(path, blob[:length])):
                found.append(snippet.id)
        assert found == whole[: len(found)]
        assert str(path) in str(caught.value)
        if length >= 2:
            assert "truncated gzip" in str(caught.value)


# --- properties


@given(snippet=snippets, form=st.sampled_from([medrag, beir]), ascii_only=st.booleans())
def test_a_line_of_either_form_gives_the_snippet_back(snippet, form, ascii_only):
    back = parse_snippet(line_of(form(snippet), ascii_only))
    assert (back, back.digest) == (snippet, snippet.digest)
    assert back.contents == medrag(snippet)["contents"]


@given(corpus=st.lists(snippets, max_size=6), zipped=st.booleans(), ends=st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
def test_a_file_gives_its_snippets_back_in_order(tmp_path_factory, corpus, zipped, ends):
    data = ends.join(line_of(medrag(snippet)) for snippet in corpus)
    path = tmp_path_factory.mktemp("round") / "corpus"
    assert list(read_snippets(source(path, gzip.compress(data) if zipped else data))) == corpus


wild_texts = st.text(max_size=8)  # surrogates too
wild_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.integers(2**62, 2**70) | wild_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(wild_texts, inner, max_size=3),
    max_leaves=6,
)
near_records = st.fixed_dictionaries(
    {"id": wild_texts | wild_json, "content": wild_texts},
    optional={"title": wild_texts, "PMID": wild_json, "pmid": wild_json, "_id": wild_texts, "metadata": wild_json},
)
wild_lines = (
    st.binary(max_size=60)
    | st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
    | (near_records | wild_json).map(line_of)
    | st.tuples(st.builds(medrag, snippets).map(line_of), st.integers(0, 300)).map(lambda cut: cut[0][: cut[1]])
)


@given(line=wild_lines)
def test_any_line_is_a_sound_snippet_or_a_value_error(line):
    try:
        snippet = parse_snippet(line)
    except ValueError as error:
        assert str(error)
        return
    assert isinstance(snippet.id, str) and snippet.id
    assert isinstance(snippet.title, str)
    assert snippet.content.strip()
    assert snippet.pmid is None or (type(snippet.pmid) is int and snippet.pmid > 0)
    whole = [snippet.id, snippet.title, snippet.content, dict(snippet.metadata)]
    json.dumps(whole, ensure_ascii=False, allow_nan=False).encode("utf-8")


def test_a_line_that_says_it_is_a_block_is_refused():
    line = b'{"id": "a#0", "content": "A.", "document": "a", "block": 0}'
    with pytest.raises(ValueError, match="make snippet 'a#0' a block, which biorag makes itself"):
        parse_snippet(line)
