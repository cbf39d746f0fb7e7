"""Control strings that a document must not contain: our fence, and the turns of the model's chat format.

They are found however they are disguised: by characters without width, full-width or look-alike letters and brackets.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from biorag.utils.text import INVISIBLE

DEFUSED = "‹"
SHORTEST_TOKEN, LONGEST_TOKEN = 3, 80  # characters
# Brackets, bars and letters that NFKC leaves apart though they look the same.
_LOOKALIKES = str.maketrans(
    "‹〈⟨〈˂❮❰᚜ᐸ≺›〉⟩〉˃❯❱᚛ᐳ≻∣│┃❘ǀ⏐▏∕⁄⧸╱【〔⟦❲】〕⟧❳▁ˍавекмнорстухіјѕԁԛԝһӏαεικνορτυχıɩɡᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",
    "<<<<<<<<<<>>>>>>>>>>|||||||////[[[[]]]]__abekmhopctyxijsdqwhlaeikvoptuxiigabcdefghijklmnoprstuvwyz",
)
# The look-aheads are bounded, or a text of "<" alone would take quadratic time.
_KNOWN = re.compile(
    r"<(?=[\W_]{0,8}document(?![^\W_])|[|]|<?/?sys>|</sys>"
    r"|/?(?:s|bos|eos|unk|pad|mask|cls|sep|eot|eod|think|system|user|assistant|human|tool)>"
    r"|/?[a-z0-9]{1,20}(?:_[a-z0-9]{1,20}){1,4}>)"
    r"|\[(?=/?(?:inst|system_prompt|available_tools|tool_results|tool_calls)\])"
)


@lru_cache(maxsize=1 << 7)  # a prompt is made again until it fits the window
def defused(text: str, controls: tuple[str, ...] = ()) -> str:
    """Return a document's text in which nothing begins our fence, a control token or a turn.

    `controls` are the model's own, of `control_strings`.
    """
    skeleton, places = _skeleton(text)
    starts = {match.start() for match in _KNOWN.finditer(skeleton)}
    if controls:  # some begin a line; then the letter after the line's end is meant
        lines = f"\n{skeleton}"
        beginnings = (match.start() for match in _beginnings(controls).finditer(lines))
        starts |= {start - (lines[start] != "\n") for start in beginnings}
    if not starts:
        return text
    letters = list(text)
    for start in starts:
        position = places[start] if places else start
        letters[position] = DEFUSED + letters[position] if letters[position].isalnum() else DEFUSED
    return "".join(letters)


def control_strings(tokens: Iterable[str], turns: Iterable[str]) -> tuple[str, ...]:
    """Return the control strings of a model, normalised as `defused` compares them.

    `tokens` are the texts of the vocabulary's control tokens, `turns` the parts of a chat that its template writes; of
    these the marks of a turn, such as "USER:" at the beginning of a line.
    """
    lines = [line.strip() for part in turns for line in part.splitlines()]
    named = [f"\n{line}" for line in lines if line[:1].isalnum() and line.endswith(":")]
    marked = [line for line in lines if line and not line[0].isalnum()]
    strings = (_skeleton(string)[0] for string in [*tokens, *named, *marked])
    return tuple(sorted({bare for string in strings if _is_control(bare := string.strip(" _"))}))


def _is_control(string: str) -> bool:
    """Whether it is neither a word, as some vocabularies have for control tokens, nor white space, nor a mark alone."""
    fits = SHORTEST_TOKEN <= len(string) <= LONGEST_TOKEN
    return fits and not string.isalnum() and any(letter.isalnum() for letter in string)


@lru_cache(maxsize=8)
def _beginnings(controls: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern, without width, of the beginnings of control strings; first letters are tried first."""
    first = "".join(sorted({re.escape(string[0]) for string in controls}))
    return re.compile(f"(?=[{first}])(?={'|'.join(map(re.escape, controls))})")


def _skeleton(text: str) -> tuple[str, list[int]]:
    """Return text as it looks, in lower case, and where each of its letters stands; no places where all stay."""
    if text.isascii():
        return text.lower(), []
    letters: list[str] = []
    places: list[int] = []
    for position, letter in enumerate(text):
        if letter.isascii():
            seen = letter.lower()
        elif INVISIBLE.match(letter) or unicodedata.combining(letter):
            continue
        else:
            seen = _seen(letter)
        letters.append(seen)
        places += [position] * len(seen)
    return "".join(letters), places


@lru_cache(maxsize=1 << 12)
def _seen(letter: str) -> str:
    plain = unicodedata.normalize("NFKC", letter).casefold().translate(_LOOKALIKES)
    return "".join(part for part in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(part))
