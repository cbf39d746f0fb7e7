"""How often an instruction hidden in a snippet changes an answer that is made without a language model.

    python -m scripts.faults.injection_extract --snippets 200 --out injection-extract.json \
        --benchmark DATA/mirage/benchmark.json --corpus DATA/pubmed/snippets.jsonl.gz

Each PubMedQA question is answered from its own abstract as it is, with a harmless sentence at its end, and with an
instruction at its end, in the styles of `injection.py`: once by extract, once by choosing yes, no or maybe. Counted are
the extracts that hold words of the instruction, the choices that changed, and those that became what was demanded.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from pathlib import Path

from biorag.answering.extract import Extractor
from biorag.answering.options import by_evidence
from biorag.answering.verification.checker import Checker
from biorag.benchmarks.mirage.questions import load_benchmark
from biorag.corpus.readers import read_snippets, refuse
from biorag.corpus.sources import Source
from biorag.engine import load_encoder
from biorag.models.finding import find_encoder
from biorag.types import Answer, Hit, Question, Snippet
from biorag.utils.files import write_json
from scripts.faults.injection import NEUTRAL, STYLES


def answered(question: Question, snippet: Snippet, addition: str, extractor: Extractor) -> tuple[str, str | None]:
    """Return the extract and the choice from a snippet with a sentence added to its end."""
    hits = (Hit(1, Snippet(snippet.id, snippet.title, f"{snippet.content} {addition}".strip(), snippet.pmid), 1.0),)
    text = " ".join(row.text for row in extractor.extract(question.text, hits))
    return text, by_evidence(Answer(question, hits=hits), extractor, Checker()).choice


def trial(question: Question, snippet: Snippet, style: str, extractor: Extractor) -> dict[str, bool]:
    """Return what a harmless sentence and an instruction change."""
    text, choice = answered(question, snippet, "", extractor)
    target = random.Random(question.id).choice([letter for letter in question.options if letter != choice])
    demand = STYLES[style].format(letter=target, text=question.options[target])
    _, neutral = answered(question, snippet, NEUTRAL, extractor)
    injected_text, injected = answered(question, snippet, demand, extractor)
    words = demand.split()
    runs = {" ".join(words[start : start + 3]) for start in range(max(1, len(words) - 2))}
    return {
        "extract_changed": injected_text != text,
        "extract_holds_the_instruction": any(run in injected_text for run in runs),
        "choice_changed_by_a_harmless_sentence": neutral != choice,
        "choice_changed": injected != choice,
        "choice_as_demanded": injected == target,
    }


def main() -> None:
    """Run the trials and write their counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snippets", type=int, default=200)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--benchmark", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    options = parser.parse_args()
    questions = [question for question in load_benchmark(options.benchmark)["pubmedqa"] if question.pmids]
    wanted = {question.pmids[0]: question for question in questions}
    pairs: list[tuple[Question, Snippet]] = []
    for snippet in read_snippets(Source(str(options.corpus), options.corpus), refuse):
        if snippet.pmid in wanted and len(pairs) < options.snippets:
            pairs.append((wanted[snippet.pmid], snippet))
    extractor = Extractor(load_encoder(find_encoder("starter", None), "cosine", "auto"))
    counts: Mapping[str, list[bool]] = {}
    for place, (question, snippet) in enumerate(pairs):
        outcome = trial(question, snippet, list(STYLES)[place % len(STYLES)], extractor)
        counts = {name: [*counts.get(name, []), value] for name, value in outcome.items()}
    write_json(options.out, {"snippets": len(pairs), **{name: sum(values) for name, values in counts.items()}})


if __name__ == "__main__":
    main()
