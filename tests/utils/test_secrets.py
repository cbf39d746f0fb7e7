"""Secrets taken out of texts: in every spelling, and nothing else."""

from __future__ import annotations

import base64
import html
import json
import logging
import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.commands.show import ConsoleHandler
from biorag.utils.files import write_json
from biorag.utils.secrets import DATA, FILES, forget, redacted, remember

SECRETS = ["s3cret-key", "sk-AbC+/=%20 x", "user:pässword/?#", "u:pass:word", 'quo"te\\back', "a" * 64]
ASCII = "".join(set(string.printable) - set(string.whitespace)) + " "


def spellings(secret: str) -> dict[str, str]:
    """Each spelling by an independent library call, apart from how the code under test makes them."""
    raw = secret.encode()
    lower = "".join(
        f"%{byte:02x}" if chr(byte) not in string.ascii_letters + string.digits + "_.-~" else chr(byte) for byte in raw
    )
    return {
        "plain": secret,
        "Bearer": f"Bearer {secret}",
        "Basic": "Basic " + base64.standard_b64encode(raw).decode(),
        "Base64 for URLs": base64.urlsafe_b64encode(raw).decode(),
        "Base64, no padding": base64.b64encode(raw).decode().rstrip("="),
        "Base64 in a URL": quote(base64.b64encode(raw).decode(), safe=""),
        "as a user": base64.b64encode(raw + b":").decode(),
        "as a password": base64.b64encode(b":" + raw).decode(),
        "URL": quote(secret),
        "URL, whole": quote(secret, safe=""),
        "URL, lower case": lower,
        "form": quote_plus(secret),
        "JSON": json.dumps(secret)[1:-1],
        "JSON, whole": json.dumps(secret, ensure_ascii=False)[1:-1],
        "JSON, slashes": json.dumps(secret)[1:-1].replace("/", "\\/"),
        "repr": repr(raw)[2:-1],
        "HTML": html.escape(secret),
    }  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_no_spelling_of_a_secret_stays(secret):
    remember(secret)
    for name, text in spellings(secret).items():
        for line in (text, f'{{"detail": "got <{text}>, try again"}}', f"x{text}y"):
            shown = redacted(line)
            assert text.removeprefix("Basic ").removeprefix("Bearer ") not in shown, name
            assert "…" in shown, name
        assert redacted(f"got <{text}>, try again").startswith("got <"), name


@given(st.text(ASCII, min_size=4, max_size=40), st.text(max_size=30))
def test_whatever_the_secret_it_is_gone_and_without_it_texts_stay(secret, text):
    forget()
    assert redacted(text) == text
    remember(secret)
    if not (secret.isalpha() or secret.isdigit()):
        assert secret not in redacted(f"{text}{secret}{text}").replace("…", "")
    forget()


def test_a_secret_that_is_a_word_is_taken_out_as_a_word_alone():
    remember("test")
    assert redacted("the latest test: contest, key=test") == "the latest …: contest, key=…"


def test_data_keep_names_that_a_secret_is_spelled_like():
    remember("pubmed")
    remember("u:pubmed")
    assert redacted('{"name": "pubmed"}', DATA) == '{"name": "pubmed"}'
    assert redacted(base64.b64encode(b"u:pubmed").decode(), FILES) == "…"
    remember("sk-0123456789abcdef")
    assert redacted('{"reply": "sk-0123456789abcdef"}', FILES) == '{"reply": "…"}'


def test_logs_tracebacks_and_reports_go_through_it(tmp_path, capsys):
    remember("s3cret-key-0123456789")
    try:
        raise ValueError("refused s3cret-key-0123456789")
    except ValueError as error:
        record = logging.LogRecord("x", 10, "", 0, "%r", ([(b"Authorization", b"Bearer s3cret-key-0123456789")],), None)
        record.exc_info = (ValueError, error, error.__traceback__)
    ConsoleHandler().handle(record)
    shown = capsys.readouterr().err
    assert "Bearer …" in shown and "refused …" in shown
    write_json(tmp_path / "report.json", {"reply": "s3cret-key-0123456789"})
    assert json.loads((tmp_path / "report.json").read_text()) == {"reply": "…"}
