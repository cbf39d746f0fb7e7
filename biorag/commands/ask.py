"""`biorag ask`, `biorag search` and `biorag show`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from biorag.commands import options, show, show_answer
from biorag.commands.groups import CommandLine, Flags, expanded, is_named, with_index
from biorag.corpus.sentences import terms
from biorag.errors import UnsupportedError
from biorag.registries import TERMINAL
from biorag.settings.settings import Settings

RANK_DIGITS = 5  # of a rank, at most; longer numbers are PMIDs


@expanded
def ask(
    question: Annotated[list[str], Argument(help="Question, in quotes or not.")],
    settings: Annotated[Settings, options.INDEX, options.RANKING, options.WEIGHTS, options.GENERATOR, options.ANSWER],
    filter: options.Filters = None,
    option: Annotated[
        list[str] | None, Option("--option", "-o", help="Option of a multiple-choice question: A=text. Repeatable.")
    ] = None,
    fail_unsupported: Annotated[
        bool, Option("--fail-unsupported", help="Exit with code 7 unless the evidence supports the answer.")
    ] = False,
    output: options.Output = TERMINAL,
    as_json: options.Json = False,
) -> None:
    """Answer a question from the evidence, each sentence checked against it.

    Unless --llm names a generator, the answer is sentences of the evidence, verbatim, after a yes or no where one was
    asked for; with --option the one that the evidence supports best. Retracted articles are not evidence unless
    --include-retracted is given; those that were found are named.

    Examples:

      biorag ask "Why is pyridoxine given together with isoniazid?" --name demo
      biorag ask "Which vitamin is given with isoniazid?" -o A=thiamine -o B=pyridoxine -o C=folate
      biorag ask "Why is pyridoxine given together with isoniazid?" --llm starter
      biorag ask "Why is pyridoxine given together with isoniazid?" --format vancouver
      biorag ask "..." --llm http://localhost:8080 --json --fail-unsupported
    """
    from biorag.api.session import Session
    from biorag.retrieval.last_hits import keep_last_hits

    format, text = options.output_format(output, as_json), " ".join(question)
    with show_answer.waiting() as stage:
        stage("Opening the index")
        with Session(settings, eager=True) as session:
            stage("Writing, not checked yet" if settings.generation.llm else "Answering")
            answer = session.ask(text, options=option or (), filter=filter or (), on_text=stage.provisional)
    keep_last_hits(settings, answer.hits)
    if as_json:
        show.print_json(answer.to_json())
    elif format:
        show_answer.summary(answer)
        show.out.file.write(answer.to(format))
    else:
        show_answer.answer(answer)
    if fail_unsupported and not answer.supported:
        raise UnsupportedError("the evidence supports no answer: rephrase the question, or read the hits")


@expanded
def search(
    query: Annotated[list[str], Argument(help="Query, in quotes or not.")],
    settings: Annotated[Settings, options.INDEX, options.RANKING, options.WEIGHTS],
    filter: options.Filters = None,
    output: options.Output = TERMINAL,
    as_json: options.Json = False,
) -> None:
    """Find the snippets that are relevant to a query.

    Examples:

      biorag search "isoniazid neuropathy" --name demo
      biorag search "inhaled steroids" --filter 'year>=2015 and type:"Randomized Controlled Trial" and not retracted'
      biorag search "inhaled steroids in mild asthma" --format ris > asthma.ris
      biorag search "GDF15 in inflammation" --name pubmed --mode bm25 --no-rerank -k 10 --json
    """
    from biorag.api.session import Session
    from biorag.retrieval.last_hits import keep_last_hits

    format, text = options.output_format(output, as_json), " ".join(query)
    with Session(settings) as session:
        result = session.search(text, filter=filter or ())
    keep_last_hits(settings, result.hits)
    if as_json:
        show.print_json(result.to_json())
    elif format:
        show.out.file.write(result.to(format))
    elif result.hits:
        show_answer.evidence(text, result.hits)
    else:
        met = " meets the filter and" if filter else ""
        show.err.print(f"No snippet{met} matches: try other words, --mode hybrid, or a wider --filter.")


@expanded
def show_snippet(
    which: Annotated[
        str, Argument(metavar="ID|N", help="Id, PMID or DOI of a snippet, or N for the N-th hit of the last search.")
    ],
    settings: Annotated[Settings, options.NAMED_INDEX, Flags("qdrant", "graph")],
    line: CommandLine,
    mark: Annotated[str | None, Option(help="Words to mark in the text.")] = None,
    output: options.Output = TERMINAL,
    as_json: options.Json = False,
) -> None:
    """Print a whole snippet with its reference and the known facts of its study.

    A number up to that of the hits of the last 'biorag search' or 'biorag ask' is a rank, and the index is theirs; with
    --name of another index it is an id or a PMID.

    Examples:

      biorag show 1
      biorag show 1 --format vancouver
      biorag show 29768149 --name pubmed --mark "formoterol asthma"
      biorag show 29768149 --name pubmed --json
    """
    from biorag.api.session import Session

    format = options.output_format(output, as_json)
    settings, which = _of_last_hits(settings, which, line.value("name"))
    with Session(settings) as session:
        snippets = session.show(which)
    words = mark or ""
    if format:
        show.out.file.write(snippets.to(format))
        return
    show.result(snippets.to_json(words), as_json, lambda _: show_answer.snippets(snippets, terms(words)))


def _of_last_hits(settings: Settings, which: str, name: object) -> tuple[Settings, str]:
    """Return the index and the id of the last hit of a rank; the settings and the id as they are for all others.

    The last hits of another index than that of the flag `--name` have no ranks.
    """
    from biorag.retrieval.last_hits import last_hits

    is_rank = which.isascii() and which.isdigit() and len(which) <= RANK_DIGITS and int(which) > 0
    hits = last_hits(settings) if is_rank else None
    if hits is None or int(which) > len(hits.ids) or name not in (None, hits.index):
        return settings if is_named(settings) else with_index(settings), which
    return settings.replace(name=hits.index), hits.ids[int(which) - 1]
