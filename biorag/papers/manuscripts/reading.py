"""Manuscripts of each format, read as paragraphs, references and citing sentences; files beside them are read too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from biorag.corpus.budget import Budget, draw, within
from biorag.corpus.readers import FileReader, Record, read_text
from biorag.corpus.references import parse_csl
from biorag.corpus.sources import Source, reader_of
from biorag.errors import BadInputError, MissingError
from biorag.papers.files.documents import html_lines, of_word, web_page
from biorag.papers.files.headings import heads_list
from biorag.papers.files.pdf_layout import laid_out, plain
from biorag.papers.files.texts import FENCE, text_lines, without_front
from biorag.papers.manuscripts.citing import LATEX_CITE, Register, citing_sentences
from biorag.papers.manuscripts.listing import beginnings, items, parted
from biorag.papers.manuscripts.manuscript import (
    CLOSE,
    OPEN,
    CitedClaim,
    CitingSentence,
    ListedReference,
    Manuscript,
    Paragraph,
    bare,
)
from biorag.references.formats import citation
from biorag.references.reference import Genre, Reference, reference_of
from biorag.types import Snippet
from biorag.utils.parsing import parse_json

MOST_IN_FRONT = 1000  # references in front matter
BESIDE = (".bib", ".ris", ".nbib")  # files of references beside a manuscript that are read
_SUP = re.compile(r"<sup>([^<]{1,200})</sup>|\^([\d,;–\- ]{1,60})\^")
_SETEXT = re.compile(r"=+|-+")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*?)[\s#]*")
_NOTE = re.compile(r"\[\^[\w.-]{1,60}\]:")
_COMMENT = re.compile(r"(?<!\\)%.*")
_COMMAND = re.compile(r"\\[A-Za-z@]{1,30}\*?(?:\[[^\]]{0,200}\])?|[{}]")
_NOTHING = re.compile(
    r"\\(?:nocite|bibliographystyle|label|ref|input|include|usepackage)\*?(?:\[[^\]]{0,200}\])?\{[^{}]{0,400}\}"
)
_SECTION = re.compile(r"\\(?:part|chapter|(?:sub)*section|paragraph)\*?\{([^{}]{0,300})\}")
_BEGINNING = re.compile(rf"\\bibitem|\\end{{thebibliography}}|{_SECTION.pattern}")  # of a paragraph
_BIBITEM = re.compile(r"\\bibitem(?:\[[^\]]{0,300}\])?\{([^{}]{1,200})\}")
_BIBLIOGRAPHY = re.compile(r"\\(?:bibliography|addbibresource)(?:\[[^\]]{0,200}\])?\{([^{}]{1,400})\}")
_INCLUDED = re.compile(r"\\(?:input|include|subfile)\{([^{}]{1,200})\}")
_RAISED_DIGITS = re.compile(r"(?<=[^\W\d_]|[.,;:)\]%”\"])\d{1,3}(?:\s?[,–-]\s?\d{1,3}){0,30}")
LONGEST_LATEX = 20_000  # characters of a paragraph that is read as LaTeX; of a longer one commands are dropped


class Content(NamedTuple):
    """What a format gives: paragraphs, its list if it is apart from them, names of files of references, and notes.

    `records` are references in fields that the file holds itself.
    """

    paragraphs: Sequence[Paragraph]
    listed: Sequence[ListedReference] | None = None
    named: Sequence[str] = ()
    notes: Sequence[str] = ()
    records: Sequence[ListedReference] = ()


def read_manuscript(path: Path, references: Sequence[Path] = ()) -> Manuscript:
    """Read a manuscript, and the references in `references`, else in files beside it of its name, or the only one.

    Raises `MissingError` if a file is not there; `BadInputError` if it cannot be read, or cites nothing.
    """
    for file in (path, *references):
        if not file.is_file():
            raise MissingError(f"{file} is not there, or is not a file: name a manuscript")
    with Budget(str(path)):
        return _read(path, references)


def _read(path: Path, references: Sequence[Path]) -> Manuscript:
    name = path.name.lower()
    if name.endswith((".json", ".jsonl")):
        return _answers_of(path)
    if name.endswith(tuple(REFUSED)):
        raise BadInputError(f"{path}: {next(why for suffix, why in REFUSED.items() if name.endswith(suffix))}")
    read = next((read for suffix, read in FORMATS.items() if name.endswith(suffix)), None)
    if read is None:
        raise BadInputError(f"{path} is of no kind that 'check' reads: {', '.join(FORMATS)}, .json or .jsonl")
    content = read(Source(str(path), path))
    body, listed, ends = _listed(content)
    files = references or _beside(path, content.named, alone=not listed and not content.records)
    notes = [*content.notes, *ends]
    beside = [*content.records] + [one for file in files for one in records_of(file, notes)]
    register = Register([*listed, *beside], body)
    sentences = tuple(one for paragraph in body for one in citing_sentences(paragraph, register))
    cited = {claim.key for sentence in sentences for claim in sentence.claims}
    own = {one.key for one in listed}
    kept = tuple(one for one in register.all if one.key in own or one.key in cited)
    if not kept and not any(sentence.unlisted for sentence in sentences):
        raise BadInputError(
            f"{path}: no references and no citations in it; 'check' knows numbers, authors with a year, PMIDs, DOIs, "
            r"\cite and [@key], and a list under a heading such as References"
        )
    draw(references=len(kept))
    return Manuscript(str(path), kept, sentences, tuple(notes))


def _listed(content: Content) -> tuple[list[Paragraph], list[ListedReference], list[str]]:
    """Return the paragraphs that may cite, the references that the file itself lists, and notes."""
    if content.listed is not None:
        return [one for one in content.paragraphs if not one.is_heading], list(content.listed), []
    body, listed = parted(content.paragraphs)
    references = items(listed)
    double = len(references) - len({one.key for one in references})
    notes = [f"{double} references have a number that another one has: the first of each counts"] if double else []
    return [one for one in body if not one.is_heading], references, notes


def _beside(path: Path, named: Sequence[str], alone: bool) -> list[Path]:
    """Return the files of references that a manuscript names; if `alone`, else that of its name, or the only one."""
    folder = path.parent
    asked = [folder / Path(name).name for name in named]
    asked = [file if file.suffix else file.with_suffix(".bib") for file in asked]
    own = [path.with_suffix(suffix) for suffix in BESIDE]
    others = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in BESIDE]
    for files in (asked, own, others) if alone else (asked,):
        there = [file for file in files if file.is_file()]
        if there and (len(there) == 1 or files is asked or files is own):
            return there
    return []


def records_of(file: Path, notes: list[str]) -> Iterator[ListedReference]:
    """Yield the references of a file in BibTeX, RIS, CSL-JSON or MEDLINE; what cannot be read is noted."""
    source = Source(file.name, file)
    reader: FileReader = reader_of(source).load()
    for number, (line, record) in enumerate(within(source.name, reader.records(source)), 1):
        try:
            yield _of_record(record, reader.parse, f"{file.name} {number}", f"{file.name}, line {line}")
        except ValueError as error:
            notes.append(f"{file.name}, line {line}: {error}")


def _of_record(record: Record, parse: Callable[[Any], Any], key: str, place: str) -> ListedReference:
    """Return a reference in fields, by its own key if it has one; raises `ValueError` if it cannot be read."""
    read = reference_of(parse(record))
    return ListedReference(
        record.key or key, citation(read), replace(read, doi=read.doi.lower()), place=place, is_record=True
    )


# --- formats


def _word(source: Source) -> Content:
    from biorag.papers.manuscripts.word import word_notes, word_paragraphs

    def read(document: Any) -> Content:
        notes: Mapping[tuple[str, str], int] = {}
        texts: list[str] = []
        paragraphs = list(_of_word(word_paragraphs(document)))
        if not parted(paragraphs)[1]:
            notes, texts = word_notes(document)
        if not texts:
            return Content(paragraphs)
        place = len(paragraphs) + 1
        listed = items([Paragraph(f"{n}. {text}", 0, f"note {n}") for n, text in enumerate(texts, 1)])
        return Content(list(_of_word(word_paragraphs(document, notes)))[:place], listed)

    return of_word(source, read)


def _of_word(paragraphs: Iterable[Any]) -> Iterator[Paragraph]:
    for number, one in enumerate(paragraphs, 1):
        if one.text.strip():
            is_heading = one.style.startswith("heading") or one.style == "title"
            yield Paragraph(one.text, number, f"paragraph {number}", 0, is_heading)


def _page(source: Source) -> Content:
    page = web_page(source)
    for element in page.iter("sup"):
        _enclose(element)
    for element in page.iter("div"):
        if next(element.iterdescendants("div", "p", "li", "table", "h1", "h2", "h3", "h4", "h5", "h6"), None) is None:
            element.tag = "p"  # text without a paragraph of its own
    lines = [(line, text) for line, text in html_lines(page) if text]
    return Content(
        [
            Paragraph(text.lstrip("# "), number, f"line {line}", line, text.startswith("#"))
            for number, (line, text) in enumerate(lines, 1)
        ]
    )


def _enclose(element: Any) -> None:
    """Put raised letters of a page into their signs."""
    element.text = OPEN + (element.text or "")
    if len(element):
        element[-1].tail = (element[-1].tail or "") + CLOSE
    else:
        element.text += CLOSE


def _markdown(source: Source) -> Content:
    lines, front = without_front(text_lines(source))
    paragraphs = _of_markdown(lines)
    values = front.get("bibliography")
    named = [str(name) for name in (values if isinstance(values, list) else [values]) if isinstance(name, str)]
    records, faults = _of_front(front.get("references"))
    notes = [one for one in paragraphs if _NOTE.match(one.text)]
    if notes and not parted(paragraphs)[1]:
        return Content([one for one in paragraphs if not _NOTE.match(one.text)], items(notes), named, faults, records)
    return Content(paragraphs, None, named, faults, records)


def _of_front(references: Any) -> tuple[list[ListedReference], list[str]]:
    """Return the references that front matter lists as CSL, and what is wrong with those that cannot be read."""
    records, faults = [], []
    for number, item in enumerate(references[:MOST_IN_FRONT] if isinstance(references, list) else [], 1):
        place = f"front matter, reference {number}"
        try:
            fields = dict(item) if isinstance(item, dict) else {}
            issued = fields.get("issued")
            issued = issued[0] if isinstance(issued, list) and issued else issued
            year = issued.get("year") if isinstance(issued, dict) else issued
            fields |= {"issued": {"raw": str(year)}} if isinstance(year, str | int | date) else {}
            record = Record(place, fields, "", str(fields.get("id") or ""))
            records.append(_of_record(record, parse_csl, place, place))
        except ValueError as error:
            faults.append(f"{place}: {error}")
    return records, faults


class _Blocks:
    """Collects the lines of a file as paragraphs, each at its first line; `plain` makes text of one."""

    def __init__(self, plain: Callable[[str], str] = str) -> None:
        self.paragraphs: list[Paragraph] = []
        self.lines: list[str] = []
        self._first, self._plain = 0, plain

    def add(self, number: int, line: str) -> None:
        """Add a line to the paragraph."""
        self._first = self._first if self.lines else number
        self.lines.append(line)

    def end(self, is_heading: bool = False) -> None:
        """End the paragraph, if it has a line."""
        if self.lines:
            text, number = self._plain("\n".join(self.lines)), len(self.paragraphs) + 1
            self.paragraphs.append(Paragraph(text, number, f"line {self._first}", self._first, is_heading))
            self.lines = []


def _of_markdown(lines: Iterable[tuple[int, str]]) -> list[Paragraph]:
    """Return the paragraphs and headings of Markdown or plain text; code is left out."""
    blocks, in_code = _Blocks(_plain_markdown), False
    for number, line in lines:
        heading = _HEADING.fullmatch(line[:1000])
        is_list = heads_list(line)  # its items may follow at once
        if FENCE.match(line):
            in_code = not in_code
        if in_code or FENCE.match(line):
            continue
        is_division = line.startswith(":::")  # of pandoc
        if heading or is_list or is_division or not line.strip() or _NOTE.match(line):
            blocks.end()
        if heading or is_list:
            blocks.add(number, heading[1] if heading else line)
            blocks.end(is_heading=True)
        elif _SETEXT.fullmatch(line.strip()) and len(blocks.lines) == 1:
            blocks.end(is_heading=True)
        elif line.strip() and not is_division:
            blocks.add(number, line)
    blocks.end()
    return blocks.paragraphs


def _plain_markdown(text: str) -> str:
    """Return Markdown with its raised letters in signs, and without escapes."""
    signed = _SUP.sub(lambda match: f"{OPEN}{match[1] or match[2]}{CLOSE}", _without_signs(text))
    return re.sub(r"\\([\[\]()*_@^])", r"\1", signed)


def _without_signs(text: str) -> str:
    return text.replace(OPEN, "").replace(CLOSE, "")


def _latex(source: Source) -> Content:
    numbered = [(number, _COMMENT.sub("", line)) for number, line in text_lines(source)]
    whole = "\n".join(line for _, line in numbered)
    named = [name.strip() for match in _BIBLIOGRAPHY.finditer(whole) for name in match[1].split(",")]
    notes = [f"\\input of {name} is not read: check that file too" for name in _INCLUDED.findall(whole)]
    begin = r"\begin{document}"
    start = next((n for n, (_, line) in enumerate(numbered) if begin in line), 0)
    first = [(number, line.rpartition(begin)[2]) for number, line in numbered[start : start + 1]]
    paragraphs = _of_latex([*first, *numbered[start + 1 :]])
    listed = [
        replace(item, key=key)
        for one in paragraphs
        for key, text in _bibitems(one.text)
        for item in items([Paragraph(text, one.number, one.place, one.line)])[:1]
    ]
    body = [replace(one, text=_plain_latex(one.text)) for one in paragraphs if not _BIBITEM.search(one.text)]
    return Content(body, listed, named, notes)


def _of_latex(lines: Iterable[tuple[int, str]]) -> list[Paragraph]:
    """Return the paragraphs of LaTeX as they stand, headings and items of the bibliography apart."""
    blocks = _Blocks()
    for number, line in lines:
        if not line.strip() or _BEGINNING.search(line):
            blocks.end()
        if line.strip():
            blocks.add(number, line)
        if _SECTION.fullmatch(line.strip()):
            blocks.end(is_heading=True)
    blocks.end()
    return blocks.paragraphs


def _bibitems(text: str) -> Iterator[tuple[str, str]]:
    parts = _BIBITEM.split(text)
    for key, content in zip(parts[1::2], parts[2::2], strict=True):
        yield key, _plain_latex(content)


@cache
def _latex_contexts() -> tuple[Any, Any]:
    """Return the commands that pylatexenc parses and their texts, which take a while to list."""
    from pylatexenc import latex2text, latexwalker

    return latexwalker.get_default_latex_context_db(), latex2text.get_default_latex_context_db()


def _plain_latex(text: str) -> str:
    """Return LaTeX as text, its citing commands in the signs of marks; a very long one loses its other commands."""
    from pylatexenc.latex2text import LatexNodes2Text

    draw()
    commands: list[str] = []

    def kept(match: re.Match[str]) -> str:
        commands.append(match[0])
        return f"{OPEN}{len(commands) - 1}{CLOSE}"

    text = LATEX_CITE.sub(kept, _NOTHING.sub("", _without_signs(text)))
    text = _SECTION.sub(r"\1", text)
    plain = _COMMAND.sub("", text)
    if len(text) <= LONGEST_LATEX:
        parsed, texts = _latex_contexts()
        with suppress(Exception):  # whatever pylatexenc raises at LaTeX that is none: the words stay
            plain = LatexNodes2Text(texts).latex_to_text(text, latex_context=parsed)
    return re.sub(rf"{OPEN}(\d+){CLOSE}", lambda match: commands[int(match[1])], plain)


def _pdf(source: Source) -> Content:
    from biorag.papers.files.pdf import NO_TEXT, TOO_MUCH, read_pdf

    paper = read_pdf(source)
    pages = [[line._replace(text=_with_signs(line.text, line.level)) for line in page] for page in paper.lines]
    notes = [f"page {number}: {fault}" for number, fault in paper.faults.items()]
    notes += [f"pages from {len(pages) + 1} on are not read: {TOO_MUCH}"] * (len(pages) < paper.pages)
    if not any(pages):
        raise BadInputError(f"{source.name}: {notes[0] if notes else NO_TEXT}")
    layout = laid_out(pages)

    def of_pages(pages: Iterable[Iterable[str]]) -> list[Paragraph]:
        return [Paragraph(text, n, f"page {n}") for n, texts in enumerate(pages, 1) for text in texts if text]

    body = of_pages(page.split("\n\n") for page in layout.texts)
    listed = of_pages([line.text for line in page] for page in layout.references)
    starts = beginnings([line.text for line in listed], [n == 0 for n in range(len(listed))])
    pieces = (listed[start:end] for start, end in pairwise([*starts, len(listed)]))
    texts = (("\n".join(line.text for line in lines), lines[0]) for lines in pieces if lines)
    return Content(body, items([replace(line, text=plain(text, layout.words)) for text, line in texts]), (), notes)


def _with_signs(text: str, level: str) -> str:
    """Return a line of a PDF with its raised numbers in signs: those that its level text does not have there."""
    bare_level = "".join(level.split())

    def signed(match: re.Match[str]) -> str:
        around = text[max(0, match.start() - 20) : match.start()].rpartition(" ")[2] + "".join(match[0].split())
        return match[0] if around in bare_level else f"{OPEN}{match[0]}{CLOSE}"

    return text if "".join(text.split()) == bare_level else _RAISED_DIGITS.sub(signed, text)


FORMATS: Mapping[str, Callable[[Source], Content]] = {
    ".docx": _word,
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": _markdown,
    ".tex": _latex,
    ".html": _page,
    ".htm": _page,
    ".pdf": _pdf,
}
REFUSED = {
    ".docm": "a Word document with macros, which are never run: save it as .docx",
    ".doc": "a Word document of before 2007: save it as .docx",
    ".odt": "an OpenDocument text: save it as .docx",
    ".rtf": "Rich Text: save it as .docx",
}


# --- answers in JSON: biorag's own, those of TREC BioGen, and sentences with the PMIDs that they cite

DEEPEST = 8  # objects inside one another in which sentences are looked for
_CITED = ("citations", "supported_citations", "existing_supported_citations", "references", "pmids")
FORMS = 'give the JSON of \'biorag ask --json\', or {"sentences": [{"text": "…", "citations": [12345678]}]}'


def _answers_of(path: Path) -> Manuscript:
    """Read the answers of a file of JSON, or of one a line; raises `BadInputError` if it has no cited sentences."""
    references: dict[str, ListedReference] = {}
    sentences: list[CitingSentence] = []
    for line, answer in _answers(path):
        hits = _hits(answer)
        for text, cited in _cited_sentences(answer, DEEPEST):
            draw()
            place = f"sentence {len(sentences) + 1}" if not line else f"line {line}"
            keys = [key for item in cited if (key := _key(item, hits, references))]
            claims = tuple(CitedClaim(key, bare(text)) for key in dict.fromkeys(keys))
            paragraph = Paragraph(text, len(sentences) + 1, place, line)
            if claims:
                sentences.append(CitingSentence(bare(text), paragraph, (0, len(text)), claims))
    if not sentences:
        raise BadInputError(f"{path}: no sentences with citations in it: {FORMS}")
    return Manuscript(str(path), tuple(references.values()), tuple(sentences))


def _answers(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the documents of a file, with their lines if there is one a line."""
    text = read_text(Source(str(path), path))
    draw(characters=len(text))
    is_one = path.name.lower().endswith(".json")
    documents = [(0, text)] if is_one else list(enumerate(text.splitlines(), 1))
    try:
        yield from ((line, parse_json(document.encode())) for line, document in documents if document.strip() or is_one)
    except ValueError as error:
        raise BadInputError(f"{path}: not JSON ({error}): {FORMS}") from None


def _hits(answer: Any) -> dict[int, Snippet]:
    """Return the hits of an answer of biorag's own by rank, which its citations name."""
    hits = answer.get("hits") if isinstance(answer, dict) else None
    by_rank = {}
    for hit in hits if isinstance(hits, list) else []:
        if isinstance(hit, dict) and isinstance(hit.get("rank"), int):
            pmid, metadata = hit.get("pmid"), hit.get("metadata")
            fields = metadata if isinstance(metadata, dict) else {}
            title = hit["title"] if isinstance(hit.get("title"), str) else ""
            by_rank[hit["rank"]] = Snippet(
                str(hit.get("id", "")), title, "", pmid if isinstance(pmid, int) else None, fields
            )
    return by_rank


def _cited_sentences(value: Any, depth: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the texts that have citations beside them, wherever they stand; a hit or a citation is none."""
    if isinstance(value, list) and depth:
        for item in value:
            yield from _cited_sentences(item, depth - 1)
    elif isinstance(value, dict) and depth:
        cited = next((value[name] for name in _CITED if isinstance(value.get(name), list)), None)
        text = next((value[name] for name in ("text", "sentence") if isinstance(value.get(name), str)), "")
        if text.strip() and cited is not None:
            yield text, cited
            return
        for name, item in value.items():
            if name not in ("hits", "citations", "items", "metadata"):
                yield from _cited_sentences(item, depth - 1)


def _key(item: Any, hits: Mapping[int, Snippet], references: dict[str, ListedReference]) -> str:
    """Return the key of what a sentence cites: a hit's number, a PMID, or an object with one; "" for anything else."""
    if isinstance(item, dict):
        item = next((item[name] for name in ("pmid", "PMID", "id", "n") if item.get(name)), None)
    digits = re.fullmatch(r"(?:PMID:?\s*)?(\d{1,9})", str(item).strip(), re.IGNORECASE)
    if not digits or isinstance(item, bool) or not int(digits[1]):
        return ""
    number = int(digits[1])
    if number in hits:
        read = reference_of(hits[number])
        key, text = str(number), citation(read) if read.title else f"PMID {read.pmid or read.id}"
    else:
        read = Reference("", "", "", Genre.OTHER, number)
        key = text = f"PMID {number}"
    references.setdefault(key, ListedReference(key, text, read, is_record=True))
    return key
