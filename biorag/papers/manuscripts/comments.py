"""A copy of a Word document with the findings as comments at the sentences that they are of."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from biorag.corpus.sources import Source
from biorag.papers.files.documents import of_word
from biorag.papers.manuscripts.checking import CheckReport, Finding
from biorag.papers.manuscripts.report import parts

AUTHOR, INITIALS = "biorag", "br"


def commented(report: CheckReport) -> bytes:
    """Return the manuscript's file with a comment for each sentence or reference that something was found of.

    Raises `DamagedSourceError` if it cannot be read.
    """
    by_place: dict[tuple[int, tuple[int, int]], list[Finding]] = {}
    for finding in report.findings:
        by_place.setdefault((finding.paragraph, finding.span), []).append(finding)
    path = Path(report.manuscript.file)
    return of_word(Source(str(path), path), lambda document: _with_comments(document, by_place))


def _with_comments(document: Any, by_place: dict[tuple[int, tuple[int, int]], list[Finding]]) -> bytes:
    from docx.text.paragraph import Paragraph
    from docx.text.run import Run

    from biorag.papers.manuscripts.word import word_notes, word_paragraphs

    paragraphs = dict(enumerate(word_paragraphs(document), 1))
    if any(not _runs(paragraphs[number].runs, span) for number, span in by_place if number in paragraphs):
        paragraphs = dict(enumerate(word_paragraphs(document, word_notes(document)[0]), 1))
    for (number, span), findings in sorted(by_place.items(), key=lambda item: item[0]):
        if number not in paragraphs:
            continue
        paragraph = paragraphs[number]
        runs = [Run(run, Paragraph(paragraph.element, document)) for run in _runs(paragraph.runs, span)]
        if runs:
            document.add_comment([runs[0], runs[-1]], _text(findings), AUTHOR, INITIALS)
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def _runs(runs: Iterable[tuple[Any, int, int]], span: tuple[int, int]) -> list[Any]:
    """Return the runs that a span touches; all if it is empty."""
    return [run for run, start, end in runs if span == (0, 0) or (start < span[1] and end > span[0])]


def _text(findings: Iterable[Finding]) -> str:
    texts = []
    for finding in findings:
        label = finding.kind.shown if finding.kind else ""
        details = [f"{name}: {text}" for name, text in parts(finding) if name != "Sentence"]
        texts.append("\n".join([f"{label}: {finding.message}.", *details]))
    return "\n".join(texts)
