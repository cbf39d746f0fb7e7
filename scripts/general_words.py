"""Lists the words of general English, for verification.

    python scripts/general_words.py FOLDER... > biorag/answering/verification/data/general.txt

A FOLDER holds Python packages; their docstrings are the English. A stem is general if it stands in the docstrings of
at least MINIMUM modules. What is rare in a biomedical corpus (scripts/stem_frequencies.py) and not general counts as a
name, of a drug, a disease or a method, which a claim may not exchange.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from biorag.answering.verification.words import stem

MINIMUM = 15  # modules
SHORTEST = 200  # characters of docstrings
_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_WORD = re.compile(r"(?<![\w.])[A-Za-z]?[a-z]+(?![\w(=\[])")
HEADER = """\
# Stems of general English, one a line.
#
# Source: the docstrings of Python's standard library and of the packages that biorag is developed with, counted by
# scripts/general_words.py.
"""


def main(folders: list[str]) -> None:
    """Count and print."""
    modules: Counter[str] = Counter()
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*.py") if "test" not in str(path)):
        text = " ".join(_DOCSTRING.findall(path.read_text(encoding="utf-8", errors="ignore")))
        if len(text) >= SHORTEST:
            modules.update({stem(word.lower()) for word in _WORD.findall(text)})
    general = sorted(word for word, count in modules.items() if count >= MINIMUM)
    sys.stdout.write(HEADER + "\n".join(general) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
