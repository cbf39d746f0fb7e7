"""`biorag check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Option

from biorag.commands import options, show
from biorag.commands.completion import choices
from biorag.commands.groups import Flags, expanded
from biorag.commands.outputs import Writes
from biorag.errors import UnsupportedError, UsageError, unknown_name
from biorag.registries import ENRICHERS
from biorag.settings.settings import Settings
from biorag.utils.files import replacing, write_text
from biorag.utils.text import showable

if TYPE_CHECKING:
    from biorag.papers.manuscripts.checking import CheckReport

LARGEST = 64 << 20  # bytes of a copy that is known again
STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


@dataclass(frozen=True, slots=True)
class CheckOutput:
    """Where the report goes, and in which form."""

    format: Annotated[
        str | None,
        Option(help="Report as md, html or json. Default: a list in the terminal."),
    ] = None
    out: Annotated[
        Path | None,
        Option(help="File to write the report to, in place of the terminal."),
        Writes("report", ".papers.manuscripts.report:is_report"),
    ] = None
    commented: Annotated[
        Path | None,
        Option(help="Copy of the .docx to write, with comments at the sentences; never the original."),
        Writes("commented copy", ".papers.manuscripts.report:is_commented", LARGEST),
    ] = None

    def check(self, file: Path, as_json: bool) -> str:
        """Return the format asked for, "" for none; raise `UsageError` if options exclude each other."""
        from biorag.papers.manuscripts.report import REPORTS

        if self.format is not None and self.format not in REPORTS:
            raise unknown_name("format of a report", self.format, REPORTS)
        if as_json and self.format not in (None, "json") and not self.out:
            raise UsageError(f"--json and --format {self.format} exclude each other: leave one out, or give --out")
        ending = self.out.suffix.lower().lstrip(".") if self.out else ""
        named = "html" if ending == "htm" else ending
        format = self.format or (named if named in REPORTS else "")
        if self.out and not format:
            raise UsageError(f"--out {self.out} needs --format: {', '.join(REPORTS)}")
        if self.commented and not file.name.lower().endswith(".docx"):
            raise UsageError(f"--commented copies a .docx, which {file} is not: leave it out")
        return format


@expanded
def check(
    file: Annotated[
        Path, Argument(help="Manuscript (.docx, .md, .txt, .tex, .html, .pdf) or answers (.json, .jsonl).")
    ],
    settings: Annotated[Settings, options.INDEX, options.READER, Flags("eutils", "crossref")],
    output: CheckOutput,
    references: Annotated[
        list[Path] | None,
        Option(
            help="Its references as BibTeX, RIS, CSL-JSON or .nbib. Repeatable. Default: files that it names or, "
            "if it has no list, that of its name, or the only one beside it."
        ),
    ] = None,
    enrich: Annotated[
        str | None,
        Option(
            help=f"Ask this service for references that the index lacks: {ENRICHERS.listed()}, which are sent there.",
            **choices(ENRICHERS),
        ),
    ] = None,
    fail_unsupported: Annotated[
        bool, Option("--fail-unsupported", help="Exit with code 7 if there is any finding.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Check whether a manuscript's citations hold: each reference, and what each sentence cites it for.

    References are looked for in the index, by PMID, DOI and title. Findings are listed by the harm that they do:
    retracted, not found, wrong identifier, contradicted, wrong metadata, unsupported. What the abstract does not decide
    is listed as "not sure". Nothing is sent anywhere unless --enrich names a service.

    Examples:

      biorag check paper.docx --name pubmed --commented paper-checked.docx
      biorag check paper.md --name pubmed --enrich pubmed --out report.html
      biorag check paper.tex --references refs.bib --name pubmed --fail-unsupported
      biorag check answer.json --name pubmed --json
    """
    from biorag.api.session import Session
    from biorag.papers.manuscripts.checking import check_manuscript
    from biorag.papers.manuscripts.report import commented, summary, written

    format = output.check(file, as_json)
    with Session(settings) as session:
        report = check_manuscript(session, file, references or (), enrich, show.progress)
    if output.out:
        write_text(output.out, written(report, format))
        show.err.print(f"{summary(report)}\nReport: {output.out}", soft_wrap=True)
    if output.commented:
        with replacing(output.commented, original=file) as stream:
            stream.write(commented(report))
        show.err.print(f"Commented copy: {output.commented}", soft_wrap=True)
    if as_json:
        show.print_json(report.to_json())
    elif format and not output.out:
        show.out.file.write(showable(written(report, format)))
    elif not output.out:
        _print(report)
    if fail_unsupported and report.findings:
        raise UnsupportedError(f"{len(report.findings)} findings in {file}: read them in the report")


def _print(report: CheckReport) -> None:
    from biorag.papers.manuscripts.report import CAUTION, notes, parts, sections, summary

    show.out.print(summary(report))
    for title, level, findings in sections(report):
        show.out.print(Text(f"\n{title} ({len(findings)})", style=STYLES[level]))
        for finding in findings:
            is_note = level == "note"
            said = f"[{finding.reference.key}] {finding.sentence} ({finding.place})" if is_note else finding.message
            show.out.print(Text(f"• {showable(said)}"))
            for label, text in parts(finding):
                if is_note and label in ("Reference", "Sentence"):
                    continue
                show.out.print(Text.assemble((f"  {label}: ", "dim"), showable(text)))
    for note in notes(report):
        show.err.print(f"note: {note}", soft_wrap=True)
    show.err.print(CAUTION, soft_wrap=True)
