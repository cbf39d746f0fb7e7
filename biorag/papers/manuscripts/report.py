"""The report on a manuscript: as Markdown, a page, JSON, and comments.

Comments stand in a copy of a Word document, at the sentences that findings are of.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from biorag.api.session import Session
from biorag.corpus.sources import Source
from biorag.errors import check_name
from biorag.papers.files.documents import of_word
from biorag.papers.manuscripts.checking import CheckReport, Finding, FindingKind, check_manuscript
from biorag.references.escaping import in_html, in_markdown
from biorag.references.reference import reference_of
from biorag.types import Progress
from biorag.utils.files import BEGINNING, json_text
from biorag.utils.outputs import begins_with_key

CAUTION = (
    "“Not found” means that no record is at hand; the reference may still be right. Verdicts rest on the abstracts at "
    "hand and may be wrong."
)
LEVELS = {FindingKind.WRONG_METADATA: "warning", FindingKind.UNSUPPORTED: "warning"}
NOT_SURE, UNLISTED, UNCITED = "Not sure", "is in no list of references", "is listed and never cited"
AUTHOR, INITIALS = "biorag", "br"  # of comments
_TEMPLATE = Path(__file__).with_name("report.html")


def written(report: CheckReport, format: str) -> str:
    """Return a report in a format; raise `UsageError` for an unknown one."""
    check_name("format of a report", format, REPORTS)
    return REPORTS[format](report)


def summary(report: CheckReport) -> str:
    """Return one sentence on a report: how much was checked, how much is wrong, and what was not judged, and why."""
    sentences, references = len(report.manuscript.sentences), len(report.manuscript.references)
    counts = [f"{count} {name.replace('_', ' ')}" for name, count in report.counts.items() if count]
    wrong = [one for one in counts if not one.endswith(" not judged")]
    unjudged = ", ".join(f"{what} ({count})" for what, count in report.not_judged.items())
    return (
        f"{references} references, {sentences} citing sentences, checked in index {report.index!r}: "
        f"{', '.join(wrong) or 'nothing is said'}{f'; not judged: {unjudged}' if unjudged else ''}"
    )


def parts(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield what a report says of a finding, label by label."""
    yield "Reference", f"[{finding.reference.key}] {finding.reference.text}"
    if finding.sentence:
        yield "Sentence", f"{finding.sentence} ({finding.place})"
    if finding.claim and finding.claim.rstrip(".") not in finding.sentence:
        yield "Claim", finding.claim
    if finding.stance and finding.stance.quote:
        record = reference_of(finding.record) if finding.record else None
        source = (f" (PMID {record.pmid})" if record.pmid else f" ({record.id})") if record else ""
        yield "The paper", f"“{finding.stance.quote}”{source}"


def sections(report: CheckReport) -> Iterator[tuple[str, str, list[Finding]]]:
    """Yield the kinds of findings with their levels, the worst first; those that are not sure last."""
    for kind, findings in groupby(report.findings, key=lambda one: one.kind):
        assert kind is not None
        yield kind.shown, LEVELS.get(kind, "error"), list(findings)
    if report.not_sure:
        yield NOT_SURE, "note", list(report.not_sure)


def markdown(report: CheckReport) -> str:
    """Return a report as Markdown."""
    name = in_markdown(Path(report.manuscript.file).name)
    lines = [f"# Citations of {name}", "", in_markdown(summary(report)), "", CAUTION, ""]
    for title, _, findings in sections(report):
        lines += [f"## {title} ({len(findings)})", ""]
        for finding in findings:
            lines.append(f"- **{in_markdown(finding.message)}**")
            lines += [f"  - {label}: {in_markdown(text)}" for label, text in parts(finding)]
        lines.append("")
    lines += [f"- note: {in_markdown(note)}" for note in notes(report)]
    return "\n".join(lines).rstrip() + "\n"


def notes(report: CheckReport) -> Iterator[str]:
    """Yield what a report says besides findings."""
    yield from report.notes
    for sentence in report.manuscript.sentences:
        yield from (f"{mark} {UNLISTED} ({sentence.paragraph.place})" for mark in sentence.unlisted)
    yield from (f"reference {one.key} {UNCITED} ({one.place})" for one in report.uncited)


def as_html(report: CheckReport) -> str:
    """Return the content of a page on a report, without scripts and styles."""
    name = in_html(Path(report.manuscript.file).name)
    body = [f"<h1>Citations of {name}</h1>", f"<p>{in_html(summary(report))}</p>", f"<p class=dim>{CAUTION}</p>"]
    for title, level, findings in sections(report):
        body.append(f"<h2>{title} ({len(findings)})</h2>")
        for finding in findings:
            rows = [f"<p><b>{in_html(finding.message)}</b></p>"]
            for label, text in parts(finding):
                tag = "blockquote" if label == "The paper" else "p"
                rows.append(f"<{tag}><span class=dim>{label}:</span> {in_html(text)}</{tag}>")
            body.append(f'<article class="{level}">{"".join(rows)}</article>')
    body += [f"<p class=dim>note: {in_html(note)}</p>" for note in notes(report)]
    return "\n".join(body)


def page(report: CheckReport) -> str:
    """Return a report as one page of HTML without scripts, which loads nothing."""
    name = in_html(Path(report.manuscript.file).name)
    return Template(_TEMPLATE.read_text("utf-8")).substitute(name=name, content=as_html(report))


def as_json(report: CheckReport) -> str:
    """Return a report as one JSON document."""
    return json_text(report.to_json(), indent=2) + "\n"


REPORTS: Mapping[str, Callable[[CheckReport], str]] = {"md": markdown, "html": page, "json": as_json}


def is_report(beginning: bytes) -> bool:
    """Return whether a file that begins so is such a report."""
    title = beginning.startswith(b"# Citations of ") or b"<title>Citations of " in beginning
    return (title and CAUTION.encode() in beginning) or (
        begins_with_key("file")(beginning) and b'\n  "citing_sentences": ' in beginning
    )


def checked_files(
    session: Session, file: Path, references: Sequence[Path], progress: Progress
) -> tuple[str, dict[str, bytes]]:
    """Check a manuscript; return the content of a page on it, and its reports and commented copy by their names.

    Raises as `check_manuscript` does.
    """
    report = check_manuscript(session, file, references, progress=progress)
    copies = {f"{file.stem}-checked.docx": commented(report)} if file.suffix.lower() == ".docx" else {}
    report = replace(report, manuscript=replace(report.manuscript, file=file.name))
    reports = {f"{file.stem}-report.{format}": written(report, format).encode() for format in REPORTS}
    return as_html(report), {**copies, **reports}


# --- the copy of a Word document


def commented(report: CheckReport) -> bytes:
    """Return the manuscript's file with a comment for each sentence or reference of which a report says something.

    Raises `DamagedSourceError` if it cannot be read.
    """
    said = [(one.span, _comment(one)) for one in (*report.findings, *report.not_sure)]
    for sentence in report.manuscript.sentences:
        said += [((sentence.paragraph.number, *sentence.span), f"{mark} {UNLISTED}.") for mark in sentence.unlisted]
    said += [((one.paragraph, 0, 0), f"Reference {one.key} {UNCITED}.") for one in report.uncited]
    by_span: dict[tuple[int, int, int], list[str]] = {}
    for span, comment in said:
        by_span.setdefault(span, []).append(comment)
    path = Path(report.manuscript.file)
    return of_word(Source(str(path), path), lambda document: _with_comments(document, by_span))


def _with_comments(document: Any, by_span: Mapping[tuple[int, int, int], Sequence[str]]) -> bytes:
    from docx.text.paragraph import Paragraph
    from docx.text.run import Run

    from biorag.papers.manuscripts.word import word_notes, word_paragraphs

    paragraphs = dict(enumerate(word_paragraphs(document), 1))
    if any(not _runs(paragraphs[number].runs, *span) for number, *span in by_span if number in paragraphs):
        paragraphs = dict(enumerate(word_paragraphs(document, word_notes(document)[0]), 1))
    for (number, *span), comments in sorted(by_span.items()):
        paragraph = paragraphs.get(number)
        runs = _runs(paragraph.runs, *span) if paragraph else []
        if paragraph and runs:
            ends = [Run(run, Paragraph(paragraph.element, document)) for run in (runs[0], runs[-1])]
            document.add_comment(ends, "\n".join(comments), AUTHOR, INITIALS)
    document.core_properties.last_modified_by = AUTHOR  # until somebody edits it
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def is_commented(content: bytes) -> bool:
    """Return whether a file is such a copy, which nobody has saved since."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open("docProps/core.xml") as properties:
            return f"lastModifiedBy>{AUTHOR}</".encode() in properties.read(BEGINNING)
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, RuntimeError, EOFError):
        return False


def _runs(runs: Iterable[tuple[Any, int, int]], start: int, end: int) -> list[Any]:
    """Return the runs that a span touches; all if it is empty."""
    return [run for run, first, last in runs if end == 0 or (first < end and last > start)]


def _comment(finding: Finding) -> str:
    details = [f"{name}: {text}" for name, text in parts(finding) if name != "Sentence"]
    label = f"{finding.kind.shown}: {finding.message}" if finding.kind else finding.message.capitalize()
    return "\n".join([f"{label}.", *details])
