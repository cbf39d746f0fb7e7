"""Make the table of everyday words, brands and synonyms that questions are read by: phrase, and what PubMed writes.

    python -m scripts.fit_vocabulary --data ../shared/data --out biorag/answering/vocabulary.tsv.gz

The names are of the same thing: of related words, such as MedQuAD's, myopia stood for its opposite. Of a name and its
synonyms the rarer stands for the commoner: a pair is kept where a corpus of PubMed records has the name at least
`OFTEN` times as often as the phrase, and where the phrase is no common word. `everyday.tsv` is taken as it is. A line
is `phrase<TAB>names`, the names in order, with `|` between; `--` opens the source of what follows, and `--*` one whose
names are searched and not read, since some are wider than the phrase.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from biorag.answering.guards.words import rarity, stems
from biorag.answering.vocabulary import LONGEST, key_of

CORPORA = (
    *("pubmed/snippets", "scifact/corpus", "qa/bioasq_1_6_docs", "qa/evidence_inference_docs", "qa/med1250_docs"),
    "qa/ncbi_disease_docs",
)
GENERAL = ("nli/train/mnli_train_sample", "nli/train/snli_train_sample")  # English of all kinds
COMMON = 3  # general texts from which a word has a meaning of its own: "horse" is no heroin
OFTEN = 3  # times as often a corpus has the name
NAMES = 3  # of a phrase
RARE = 0.6  # rarity of a phrase of one word
_PHRASE = re.compile(rf"(?=.{{4}})[a-z][^\W_]+(?: [^\W_]+){{,{LONGEST - 1}}}")
_NAME = re.compile(r"(?![A-Z\d-]+$)[A-Za-z][\w' -]{3,59}")  # abbreviations have many meanings
Pair = tuple[str, str]


def table(path: Path) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a gzipped table with a header."""
    yield from csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode()), delimiter="\t")


def texts(data: Path) -> Iterator[str]:
    """Yield the texts of PubMed records in which phrases are counted."""
    for name in CORPORA:
        for line in gzip.decompress((data / f"{name}.jsonl.gz").read_bytes()).splitlines():
            record = json.loads(line)
            yield f"{record.get('title') or ''}. {record.get('content') or record.get('text') or ''}"


def brands(vocab: Path) -> Iterator[Pair]:
    """Yield brands of drugs of one ingredient; salts are left out."""
    salts = {"hydrochloride", "sodium", "sulfate", "acetate", "phosphate", "maleate", "tartrate", "citrate", "mesylate"}
    salts |= {"potassium", "calcium", "bromide", "fumarate", "succinate", "besylate", "chloride", "nitrate", "tosylate"}
    for row in table(vocab / "drug_brands_fda.tsv.gz"):
        ingredients = [
            " ".join(word for word in one.split() if word not in salts) for one in row["ingredients"].split("|")
        ]
        brand = row["brand"]
        for ingredient in ingredients if len(ingredients) == 1 else ():
            if not set(key_of(ingredient).split()) <= set(key_of(brand).split()):
                yield brand, ingredient


def drugs(vocab: Path) -> Iterator[Pair]:
    """Yield other names of drugs."""
    for row in table(vocab / "drugbank_open.tsv.gz"):
        yield from ((other, row["common_name"]) for other in row["synonyms"].split("|"))


def diseases(vocab: Path) -> Iterator[Pair]:
    """Yield other names of diseases."""
    groups: dict[str, list[str]] = defaultdict(list)
    for row in table(vocab / "disease_synonyms_do.tsv.gz"):
        if row["kind"] == "exact-synonym":
            groups[row["doid"]] += [row["name"], row["synonym"].removesuffix(" (disorder)")]
    for names in groups.values():
        yield from ((one, other) for one in dict.fromkeys(names) for other in dict.fromkeys(names))


def symptoms(vocab: Path) -> Iterator[Pair]:
    """Yield what patients write of symptoms, where at least two wrote it."""
    for row in table(vocab / "lay_phrases_psytar.tsv.gz"):
        if int(row["count"]) > 1 and row["semantic_type"] in ("sign or symptom", "disease or syndrome", "finding"):
            yield row["phrase"], row["concept"].removesuffix(" (finding)")


def everyday(file: Path) -> dict[str, list[str]]:
    """Return the words of `everyday.tsv`."""
    rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    return {key_of(phrase): names.split("|") for phrase, names in rows}


def common_words(data: Path) -> frozenset[str]:
    """Return the words of general English."""
    counts: Counter[str] = Counter()
    for name in GENERAL:
        for line in gzip.decompress((data / f"{name}.jsonl.gz").read_bytes()).splitlines():
            counts.update(set(key_of(json.loads(line)["premise"]).split()))
    return frozenset(word for word, count in counts.items() if count >= COMMON)


def kept(pairs: Iterable[Pair], counts: Mapping[str, int], common: frozenset[str]) -> dict[str, list[str]]:
    """Return the names of each phrase that a corpus has oftener than the phrase; none of a common word."""
    names: dict[str, dict[str, str]] = defaultdict(dict)
    for phrase, name in pairs:
        ours, theirs = key_of(phrase), key_of(name)
        if not (_PHRASE.fullmatch(ours) and _NAME.fullmatch(name)) or is_part(ours, theirs):
            continue
        if counts[theirs] >= max(2, OFTEN * counts[ours]) and (" " in ours or (is_rare(ours) and ours not in common)):
            names[ours].setdefault(theirs, name)
    return {
        phrase: sorted(found.values(), key=lambda name: -counts[key_of(name)])[:NAMES]
        for phrase, found in names.items()
    }


def is_rare(word: str) -> bool:
    """Whether a word is hardly seen in PubMed."""
    return all(rarity(stem) >= RARE for stem in stems(word)) and not word.isdigit()


def is_part(phrase: str, name: str) -> bool:
    """Whether all words of a name stand in the phrase, or all of the phrase in the name: nothing is added by it."""
    ours, theirs = set(stems(phrase)), set(stems(name))
    return ours <= theirs or theirs <= ours


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    vocab = asked.data / "qa/vocab"
    sources = {name: list(read(vocab)) for name, read in SOURCES.items()}
    wanted = {key_of(text) for pair in chain(*sources.values()) for text in pair}
    counts: Counter[str] = Counter()
    for text in texts(asked.data):
        words = key_of(text).split()
        grams = (" ".join(words[n : n + size]) for size in range(1, LONGEST + 1) for n in range(len(words) - size + 1))
        counts.update(gram for gram in grams if gram in wanted)
    plain = everyday(Path(__file__).parent / "vocabulary/everyday.tsv")
    found: dict[str, list[str]] = dict(plain)
    common = common_words(asked.data)
    lines = [f"{phrase}\t{'|'.join(names)}" for phrase, names in plain.items()]
    for name, pairs in sources.items():
        rows = {phrase: names for phrase, names in kept(pairs, counts, common).items() if phrase not in found}
        found |= rows
        lines += [f"--{name}", *(f"{phrase}\t{'|'.join(rows[phrase])}" for phrase in sorted(rows))]
        sys.stdout.write(f"{name}: {len(rows)}\n")
    asked.out.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    sys.stdout.write(f"{asked.out}: {asked.out.stat().st_size} bytes, {len(found)} phrases\n")


SOURCES = {
    "Drugs@FDA (public domain)": brands,
    "DrugBank open names (CC0)": drugs,
    "PsyTAR (CC BY 4.0)": symptoms,
    "* Disease Ontology (CC BY 3.0)": diseases,  # the last one: what follows is searched alone
}

if __name__ == "__main__":
    main()
