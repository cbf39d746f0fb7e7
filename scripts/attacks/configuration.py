"""A `biorag.toml` or a prompt template made to do harm: values, types, sizes, nesting, bytes.

    python -m scripts.attacks.configuration --cases 300 --out configuration.json

The file is the one in the working directory, or the one that `--config` names; templates are named by `--prompt`, by
a variable, or in the file. A file that is a link, a pipe or a device is among them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from biorag.settings.settings import PLACES
from scripts.attacks.harness import Case, copy_home, damaged, draws, index_of, main

SEARCH = ("search", "asthma drug", "--json", "--mode", "bm25", "--no-rerank")
COMMANDS = (("info", "--settings", "--json"), ("info", "--settings"), SEARCH, ("models", "--json"))
VALUES = (  # TOML values, and what only looks like one
    *("0", "-1", "1", "2.5", "1e308", "1e309", "nan", "-nan", "inf", "-inf", "true", "false", '""', "''", "[]", "{}"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 400, "9" * 5000, "0x" + "f" * 300),
    *("1_000_000_000", "0o777", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", '"nan"', '"inf"', '"1e999"', '"-0"'),
    *('"\\u0000"', '"a\\u0000b"', '"\\u001b[31m"', '"\\u202e"', '"\\U0010FFFF"', '"../../x"', '"/dev/zero"', '"/"'),
    *('"~nosuchuser/x"', '"~"', '"http://[::1"', '"http://a:99999999/"', '"https://u:p@h/"', '"encoder@99999999999"'),
    *(
        '"cross:@5"',
        '","',
        '"starter"',
        '"none"',
        '"dense"',
        '"%s%n{0}"',
        '"' + "x" * 100_000 + '"',
        '"é"',
        '"\\ud800"',
    ),
    *("[" * 500 + "]" * 500, "{a=" * 300 + "1" + "}" * 300, "[" + "1," * 50_000 + "]", '[{k = 1}, "x"]', '"""\n"""'),
    *("", "=", "undefined", "'''", "\x00", "\ud800", "+nan", "1.", ".1", "00"),
)
TEMPLATES = (
    *("", "[system]\n", "[user]\n{question}", "[system]\ns\n[user]\n{question}", "[system]\n[user]\n{evidence}"),
    *("[system]\n[user]\n{question.__class__}", "[system]\n[user]\n{question!r}{0}", "[system]\n[user]\n{question:>9}"),
    *("[system]\n[user]\n{{question}}", "[system]\n[user]\n{", "[system]\n[user]\n}", "[user]\n[system]\n{question}"),
    *("[system]\n[user]\n" + "{question}" * 10_000, "[system]\n[user]\n{question:>99999999999}", "[system]" * 100_000),
    *(
        "[system]\n{question}\n[user]\n{documents}{question}{options}",
        "\ufeff[system]\r\nx\r\n[user]\r\n{question}\r\n",
    ),
    *("[system]\n\x00\n[user]\n{question}\x1b[2J", "[system]\n" + "a" * 3_000_000 + "\n[user]\n{question}"),
)


def cases(count: int, seed: int, work: Path) -> Iterator[Case]:
    """Yield cases: mostly values of settings, some whole files, templates and paths."""
    index_of(work)
    for number, draw in draws(count, seed, "configuration"):
        kind = draw.choice(("values", "values", "values", "bytes", "template", "path"))
        yield Case(f"{number} {kind}", _made(KINDS[kind], draw.getrandbits(64), work), {"BIORAG_RETRIES": "0"})


def _made(write: Callable[[random.Random, Path], Sequence[str]], seed: int, work: Path) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        draw = random.Random(seed)
        copy_home(work, folder)
        arguments = write(draw, folder)
        return [*arguments, *([] if "ask" in arguments else draw.choice(COMMANDS))]

    return make


def _toml(draw: random.Random) -> bytes:
    """Return a file that sets one to four settings, some that do not exist."""
    names = [*PLACES, *PLACES, "unknown", "retrieval", '""', '"k\\u0000"', "a.b", "K", "lambda_"]
    lines = [f"{draw.choice(names)} = {draw.choice(VALUES)}" for _ in range(draw.choice((1, 1, 1, 2, 4)))]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def _placed(draw: random.Random, folder: Path, content: bytes) -> list[str]:
    """Write a configuration file where it is found, or where `--config` says."""
    name = draw.choice(("biorag.toml", "other.toml"))
    (folder / name).write_bytes(content)
    return [] if name == "biorag.toml" else ["--config", name]


def _values(draw: random.Random, folder: Path) -> Sequence[str]:
    return _placed(draw, folder, _toml(draw))


def _bytes(draw: random.Random, folder: Path) -> Sequence[str]:
    good = b'k = 5\nmode = "hybrid"\n# a comment\nlambda = 0.03\n'
    whole = draw.choice((b"\xff\xfe" + good, b"\xef\xbb\xbf" + good, b"k = 1\nk = 2\n", b"[k]\n" * 2, b"a" * 5_000_000))
    return _placed(draw, folder, draw.choice((damaged(draw, good), whole, b"[" * 100_000, b'x = "' + b"\\" * 99_999)))


def _template(draw: random.Random, folder: Path) -> Sequence[str]:
    text = draw.choice(TEMPLATES).encode()
    (folder / "prompt.txt").write_bytes(damaged(draw, text) if draw.random() < 0.3 else text)
    named = draw.choice((["--prompt", "prompt.txt"], []))
    if not named:
        (folder / "biorag.toml").write_text('prompt = "prompt.txt"\n', encoding="utf-8")
    return ["ask", "Which drug treats asthma?", "--mode", "bm25", "--no-rerank", "--llm", "http://127.0.0.1:9", *named]


def _path(draw: random.Random, folder: Path) -> Sequence[str]:
    """Name something that is not a plain file as the configuration file."""
    kind = draw.choice(("pipe", "folder", "link", "loop", "device", "missing", "long", "unreadable"))
    path = folder / draw.choice(("biorag.toml", "other.toml"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("link", "loop"):
        path.symlink_to("/dev/zero" if kind == "link" else path.name)
    elif kind == "unreadable":
        path.write_text("k = 3\n", encoding="utf-8")
        path.chmod(0)
    named = {"device": "/dev/zero", "missing": "no/such.toml", "long": "x" * 5000}.get(kind, path.name)
    return ["--config", named]


KINDS: dict[str, Callable[[random.Random, Path], Sequence[str]]] = {
    **{"values": _values, "bytes": _bytes},
    **{"template": _template, "path": _path},
}

if __name__ == "__main__":
    main("configuration", cases)
