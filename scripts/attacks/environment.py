"""Variables made to do harm: `BIORAG_*`, the folders of a user, locales, terminals, and Python's own.

    python -m scripts.attacks.environment --cases 300 --out environment.json

Variables that act when Python starts, and what is not UTF-8 in them, are tried in a new interpreter each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from biorag.settings.settings import PLACES
from scripts.attacks.harness import Case, copy_home, draws, index_of, main

COMMANDS = (
    *(("info", "--settings", "--json"), ("search", "asthma drug", "--json", "--mode", "bm25", "--no-rerank")),
    *(("search", "asthma drug", "--mode", "bm25", "--no-rerank"), ("info",), ("models",), ("search", "--help")),
)
VALUES = (
    *("", " ", "0", "-1", "1", "nan", "NaN", "inf", "-inf", "1e999", "1e-999", "9" * 400, "9" * 5000, "0x10", "١٢"),
    *("9223372036854775808", "1024", "1025", "4294967296", "true", "yes", "no", "None", "null", "[]", "{}", "a,b,,"),
    *("starter", "hybrid", "encoder@99999999999999999999", "cross:", ",", "/", "/dev/zero", "/dev/null", "../..", "~"),
    *(
        "~nosuchuser",
        "x" * 300,
        "x" * 100_000,
        "\x1b[2J",
        "\u202e",
        "é",
        "a\nb",
        "http://[::1",
        "http://",
        "https://a:b",
    ),
    *("\udcff", "\udcfe\udcff/x", "http://\udcff", "%s%n", "$(touch EXECUTED)", "{0.__class__}", "'; --"),
)
SHELL = {  # other variables with values that have misled programs
    "HOME": (None, "", "/", "/nonexistent", "/dev/null", "relative", "\udcff", "x" * 5000),
    "BIORAG_HOME": ("", "/dev/null", "/dev/null/x", "/proc/1", "\udcff", "home/../home", "~nosuchuser", "x" * 5000),
    "XDG_DATA_HOME": ("", "/dev/null", "relative", "\udcff", "/nonexistent"),
    "XDG_CACHE_HOME": ("", "/dev/null", "\udcff"),
    "TMPDIR": ("", "/nonexistent", "/dev/null", "\udcff"),
    "COLUMNS": ("", "0", "-1", "1", "2", "nan", "9" * 30, "100000"),
    "LINES": ("0", "-5", "x"),
    "TERM": ("", "dumb", "xterm-256color", "../../etc", "\udcff", None),
    "NO_COLOR": ("", "1"),
    "FORCE_COLOR": ("1", "x"),
    "LANG": ("C", "POSIX", "de_DE.ISO-8859-1", "tr_TR.UTF-8", "xx_YY", "\udcff", None),
    "LC_ALL": ("C", "POSIX", "ja_JP.SJIS", "xx", ""),
    "PYTHONIOENCODING": ("ascii", "latin-1", "utf-16", "ascii:strict"),
    "PYTHONUTF8": ("0", "1"),
    "PYTHONHASHSEED": ("0", "4294967295"),
    "PYTHONOPTIMIZE": ("1", "2"),
    "PYTHONWARNINGS": ("error", "always", "x"),
    "TZ": ("", "../../etc/passwd", "XYZ99", "\udcff"),
    "OMP_NUM_THREADS": ("0", "-1", "x", "", "9" * 20),
    "HF_HOME": ("", "/dev/null", "\udcff"),
    "HF_HUB_OFFLINE": ("0", "x"),
    "HTTP_PROXY": ("", "http://[::1", "socks9://x", "\udcff"),
    "NCBI_API_KEY": ("\udcff", "a\nb", "x" * 100_000),
    "QDRANT_API_KEY": ("\udcff", "é", "a\r\nX: y"),
    "PAGER": ("touch EXECUTED",),
    "BROWSER": ("touch EXECUTED",),
}
AT_START = frozenset(name for name in SHELL if name.startswith(("PYTHON", "LC_", "LANG", "OMP_")))


def cases(count: int, seed: int, work: Path) -> Iterator[Case]:
    """Yield cases of one to three variables each."""
    index_of(work)
    for number, draw in draws(count, seed, "environment"):
        values: dict[str, str | None] = {}
        for _ in range(draw.choice((1, 1, 2, 3))):
            if draw.random() < 0.6:
                values[f"BIORAG_{draw.choice(list(PLACES)).upper()}"] = draw.choice(VALUES)
            else:
                name = draw.choice(list(SHELL))
                values[name] = draw.choice(SHELL[name])
        command = draw.choice(COMMANDS)
        named = " ".join(f"{name}={ascii(value)[:40]}" for name, value in values.items())
        fresh = bool(AT_START & values.keys()) or draw.random() < 0.02
        yield Case(f"{number} {named}", _made(command, work), values, fresh)


def _made(command: tuple[str, ...], work: Path) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        copy_home(work, folder)
        return list(command)

    return make


if __name__ == "__main__":
    main("environment", cases)
