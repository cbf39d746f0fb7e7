"""Hold conversations that were written without knowledge of the chat, and count what became of each follow-up.

    python -m scripts.conversations --name pubmed [--set FILE] [--show] > outcomes.json

The index is that of the 14,448 PubMed snippets in DATA/pubmed. A turn names, by regular expressions, the subject that
the answer or a cited snippet must hold, and the aspect that the answer must tell. No generator is asked, as in `biorag
chat` by default.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import biorag
from biorag.api.results import AnswerResult
from biorag.chat.conversation import Conversation

CONVERSATIONS = Path(__file__).parent / "conversations.jsonl"


def outcome(turn: Mapping[str, Any], answer: AnswerResult, said: str) -> str:
    """Return what became of a turn, given what was `said` before."""
    if answer.abstained:
        return "withheld, held" if turn["answerable"] else "withheld, not held"
    cited = {citation.n for citation in answer.citations}
    snippets = " ".join(f"{hit.snippet.title} {hit.snippet.content}" for hit in answer.hits if hit.rank in cited)
    if not re.search(turn["subject"], f"{answer.text} {snippets}", re.IGNORECASE):
        return "lost"
    if re.search(turn["aspect"], answer.text, re.IGNORECASE):
        return "right"
    return "repeated" if answer.text == said else "aspect not told"


def main() -> None:
    """Hold the conversations, and print how many follow-ups of each kind had which outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="pubmed")
    parser.add_argument("--set", type=Path, default=CONVERSATIONS, help="the conversations, a line each")
    parser.add_argument("--show", action="store_true", help="print each turn to stderr")
    chosen = parser.parse_args()
    counts: dict[str, Counter[str]] = {"first": Counter(), "follow-up": Counter()}
    with biorag.open(chosen.name) as session:
        for line in chosen.set.read_text(encoding="utf-8").splitlines():
            conversation, said = Conversation(session), ""
            for number, turn in enumerate(json.loads(line)["turns"]):
                asked = conversation.ask(turn["question"], conversation.standalone(turn["question"]))
                result = outcome(turn, asked.answer, said)
                counts["follow-up" if number else "first"][result] += 1
                said = asked.answer.text
                if chosen.show:
                    sys.stderr.write(f"{result:18} {turn['question']!r} as {asked.searched!r}\n    {said[:300]}\n")
    sys.stdout.write(json.dumps(counts, indent=1) + "\n")


if __name__ == "__main__":
    main()
