"""Runs that generate training rows: questions of snippets, negatives of rows, pairs of scenarios; each resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biorag.engine import OpenGenerator, open_generator, open_passages, open_snippets
from biorag.errors import UsageError
from biorag.models.finding import find_encoder
from biorag.prompts.template import FIELDS, load_template
from biorag.settings.settings import Settings
from biorag.training.rows import read_rows
from biorag.training.synthesis import negatives, pairs, questions, scenarios
from biorag.training.synthesis.attributes import Attributes
from biorag.training.synthesis.writers import Draws, PromptedWriter, Seq2SeqWriter, Writer
from biorag.types import Progress, Snippet
from biorag.utils.files import check_is_no_folder
from biorag.utils.versions import installed_versions

SEQ2SEQ = "seq2seq:"
SEQ2SEQ_BATCH = 16
SCENARIO_TOKENS = 40
SCENARIO_TEMPERATURE = 0.7


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """Where generated rows go, how their texts are drawn, and the template in place of the built-in one."""

    settings: Settings
    out: Path
    draws: Draws
    template: Path | None
    progress: Progress

    def check(self, option: str) -> None:
        """Refuse an output that is a folder, and several texts that would all be the same.

        Parameters
        ----------
        option : the flag that says how many texts of a subject there are
        """
        check_is_no_folder(self.out)
        if self.draws.each > 1 and self.draws.temperature == 0:
            raise UsageError(f"--temperature 0 writes the same every time: give {option} 1")


def generate_questions(
    job: GenerationJob,
    corpus: Sequence[str],
    name: str | None,
    limit: int | None,
    model: str | None,
    dataset: str | None = None,
) -> questions.QuestionCounts:
    """Generate questions of a corpus's snippets, or else of an index's.

    Parameters
    ----------
    limit : snippets, drawn with the seed
    model : `seq2seq:ID` in place of the configured generator
    dataset : what the prompt calls the snippets' source, as BMRetriever's (Listing 1); None: nothing
    """
    job.check("--per-snippet")
    with open_snippets(job.settings, corpus, name) as (source, snippets):
        writer, writer_identity = _question_writer(job, model, dataset)
        identity = {**asdict(job.draws), "limit": limit, "source": source, **writer_identity}
        file = questions.QuestionFile(job.out, identity)
        if counts := file.finished():
            return counts
        chosen, too_short = questions.draw(snippets, limit, job.draws.seed)
        with job.progress("Writing questions", len(chosen)) as advance:
            return file.generate(chosen, questions.QuestionCounts(len(chosen), too_short), writer, advance)


def _question_writer(
    job: GenerationJob, model: str | None, dataset: str | None
) -> tuple[Writer[Snippet], dict[str, Any]]:
    """Load what writes the questions; and return what determines what it writes."""
    if model is None:
        if dataset:
            template = load_template("question_of", job.template, "documents", (*FIELDS, "dataset"))
            template = template.bound("dataset", dataset)
        else:
            template = load_template("question", job.template, needed="documents")
        opened = open_generator(job.settings)
        writer = PromptedWriter(opened.generator, questions.draft_form(template), job.draws, opened.at_a_time)
        return writer, {"generator": opened.identity, "prompt": template.sha256}
    if not model.startswith(SEQ2SEQ):
        raise UsageError(f"--model {model!r} is not of a known kind: write {SEQ2SEQ}ID, or name a generator with --llm")
    from biorag.generators.seq2seq import Seq2SeqGenerator

    files, precision = find_encoder(model.removeprefix(SEQ2SEQ)), job.settings.retrieval.precision
    identity = {
        "generator": {"name": files.id, "sha256": files.sha256, "precision": precision},
        "batch": SEQ2SEQ_BATCH,
        "versions": installed_versions(),
    }
    return Seq2SeqWriter(Seq2SeqGenerator(files, precision), job.draws, SEQ2SEQ_BATCH), identity


def generate_negatives(
    job: GenerationJob, paths: Sequence[Path], name: str | None, keep_mined: bool
) -> negatives.NegativeCounts:
    """Generate hard negatives of training rows; BEIR folders' passages may come from the named index."""
    job.check("--per-row")
    with open_passages(job.settings, name) as fetch:
        rows, _ = read_rows(paths, fetch)
    subjects = [negatives.MinedPair(row) for row in rows]
    template = load_template("negative", job.template)
    opened = open_generator(job.settings)
    identity = {
        **asdict(job.draws),
        "keep_mined": keep_mined,
        "rows": negatives.fingerprint(subjects),
        "generator": opened.identity,
        "prompt": template.sha256,
    }
    file = negatives.NegativeFile(job.out, identity, template.system)
    if counts := file.finished():
        return counts
    unmined = sum(not subject.row.negatives for subject in subjects)
    writer = PromptedWriter(opened.generator, negatives.draft_form(template), job.draws, opened.at_a_time)
    with job.progress("Writing negatives", len(subjects)) as advance:
        return file.generate(subjects, negatives.NegativeCounts(len(subjects), unmined), writer, advance)


def generate_pairs(
    job: GenerationJob, scenario_file: Path | None, count: int | None, attributes: Attributes | None = None
) -> pairs.PairCounts:
    """Generate pairs of the scenarios of a file, or else of those that the model lists.

    Parameters
    ----------
    count : of scenarios; None: all of the file
    attributes : drawn for each pair, for a template with their names as fields
    """
    job.check("--per-scenario")
    built_in, fields = ("pair_attributes", tuple(attributes.values)) if attributes else ("pair", ())
    template = load_template(built_in, job.template, "scenario", ("scenario", *fields))
    provided = None if scenario_file is None else scenarios.read_scenarios(scenario_file, count)
    opened = open_generator(job.settings)
    identity = {
        **asdict(job.draws),
        "scenarios": scenarios.fingerprint(provided) if provided else count,
        "generator": opened.identity,
        "prompt": template.sha256,
        **({"attributes": dict(attributes.values)} if attributes else {}),
    }
    file = pairs.PairFile(job.out, identity, template.system, attributes)
    if counts := file.finished():
        return counts
    if provided:
        listed = scenarios.Listed(provided)
    else:
        assert count, "a model is asked for a number of scenarios"
        listed = _listed_scenarios(job, count, opened, long=attributes is not None)
    counts = pairs.PairCounts(
        len(listed.scenarios), prompt_tokens=listed.prompt_tokens, completion_tokens=listed.completion_tokens
    )
    writer = PromptedWriter(opened.generator, pairs.draft_form(template, attributes), job.draws, opened.at_a_time)
    with job.progress("Writing pairs", len(listed.scenarios)) as advance:
        return file.generate(listed.scenarios, counts, writer, advance)


def _listed_scenarios(job: GenerationJob, count: int, opened: OpenGenerator, long: bool) -> scenarios.Listed:
    """Return the scenarios that the model lists for the pairs, or has listed before; in `long` lists or short ones."""
    built_in, per_list = ("scenario_list", scenarios.LISTED_LONG) if long else ("scenario", scenarios.LISTED)
    template, seed = load_template(built_in, needed="count", known=("count",)), job.draws.seed
    identity = {"scenarios": count, "seed": seed, "generator": opened.identity, "prompt": template.sha256}
    file = scenarios.ScenarioFile(
        job.out.with_name(f"{job.out.name}.scenarios.txt"), identity, template.system, per_list
    )
    draws = Draws(1, SCENARIO_TOKENS, SCENARIO_TEMPERATURE, seed)
    writer = PromptedWriter(opened.generator, scenarios.draft_form(template, per_list), draws, opened.at_a_time)
    with job.progress("Listing scenarios", count) as advance:
        return file.listed(count, writer, advance)
