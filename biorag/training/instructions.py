"""Instructions: the text before a query and before a passage, kept in the model as its prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from random import Random
from typing import Protocol

from biorag.errors import BadInputError, MissingError, UsageError, unknown_name
from biorag.types import TrainingRow
from biorag.utils.parsing import parse_json, parse_toml

TASK = "Given a biomedical question, retrieve passages that answer it"
QUERY, PASSAGE = "{query}", "{passage}"
TASK_FILES = {"bmretriever": "bmretriever_tasks.toml"}  # packaged: data set -> task
TUNED = "tuned"  # before the folder of a tuned instruction


# BMRetriever's "{task}\nQuery: ", E5's and Qwen3's "Instruct: {task}\nQuery:"; else the instruction is the prompt.
_FORM = re.compile(r"(?P<start>Instruct: )?(?P<task>.*?)(?P<end>\nQuery: ?|\s*)", re.DOTALL)


class PromptedEncoder(Protocol):
    """An encoder whose query prompt may be changed."""

    query_prompt: str


@dataclass(frozen=True, slots=True)
class PromptForm:
    """The parts before and after the instruction in a query prompt."""

    start: str = ""
    end: str = "\nQuery: "

    def prompt(self, instruction: str) -> str:
        """Return the query prompt; empty without an instruction."""
        return f"{self.start}{instruction}{self.end}" if instruction else ""


def parted(prompt: str) -> tuple[str, PromptForm]:
    """Return the instruction in a query prompt, and the form that makes the prompt of it.

    An empty prompt has BMRetriever's form.

    Xu et al. (2024), BMRetriever, arXiv:2404.18443.
    """
    match = _FORM.fullmatch(prompt)
    assert match is not None, "every text has the form"
    if not match["task"]:
        return (prompt, PromptForm(end="")) if prompt else ("", PromptForm())
    return match["task"], PromptForm(match["start"] or "", match["end"])


def form_of(prompt: str) -> PromptForm | None:
    """Return the form of a model's query prompt if an instruction stands in it plainly, as in BMRetriever's or E5's."""
    instruction, form = parted(prompt)
    return form if instruction and (form.start or form.end.strip()) else None


@contextmanager
def instructed(encoder: PromptedEncoder | None, instruction: str) -> Iterator[None]:
    """Encode queries under another instruction, if there is one and the encoder's query prompt has a place for it."""
    form = form_of(encoder.query_prompt) if encoder and instruction else None
    if not encoder or not form:
        yield
        return
    before, encoder.query_prompt = encoder.query_prompt, form.prompt(instruction)
    try:
        yield
    finally:
        encoder.query_prompt = before


@dataclass(frozen=True, slots=True)
class Instructions:
    """The text before a query and the text before a passage; empty for none.

    Where there are texts in `drawn`, training puts one of them before each query in place of `query`. With a `form` a
    row's own instruction stands in place of that of `query`.
    """

    query: str = ""
    passage: str = ""
    drawn: tuple[str, ...] = ()
    form: PromptForm | None = None

    def before(self, rows: Sequence[TrainingRow]) -> list[str] | None:
        """Return the text before each row's query; None if no row has one of its own."""
        if self.form is None or not any(row.instruction for row in rows):
            return None
        return [self.form.prompt(row.instruction) or self.query for row in rows]

    def prompts(self) -> dict[str, str]:
        """Return them by the names that sentence-transformers gives queries and passages."""
        return {"query": self.query, "document": self.passage}


# After BMRetriever (Xu et al. 2024, arXiv:2404.18443, appendix B), which prints "… Query: {}" and "Represent this
# passage. Passage: {}": line breaks and small letters are not in it.
TEMPLATES = {
    "bmretriever": ("{task}\nQuery: {query}", "Represent this passage\npassage: {passage}"),
    # As E5 was trained (Wang et al. 2022, arXiv:2212.03533), whose checkpoints do not keep them.
    "e5": ("query: {query}", "passage: {passage}"),
    "none": (QUERY, PASSAGE),
}


def generic_tasks(number: int, seed: int, file: Path | None = None) -> tuple[str, ...]:
    """Return `number` of 100 tasks that fit any search, or of a file's lines, drawn with the seed, in their order.

    The 100 tasks are ours, one short sentence each. The idea is Synthesize-Train-Merge's (section 3.1.2), whose 10, 20,
    50 or 100 generic prompts are paragraphs that LLaMA 70B wrote (appendix B.2.1).

    Raises MissingError if the file is not there; BadInputError if it is not UTF-8, or has too few different lines.
    """
    if file is not None and not file.is_file():
        raise MissingError(f"{file} is not there: --prompt names a file of generic tasks, one a line")
    packaged = resources.files("biorag.prompts").joinpath("generic_tasks.txt")
    try:
        lines = (file or packaged).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise BadInputError(f"{file} is not UTF-8") from None
    tasks = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if number > len(tasks):
        raise BadInputError(f"{file or 'biorag'} has {len(tasks)} different tasks, and --random-prompts asks {number}")
    return tuple(tasks[index] for index in sorted(Random(seed).sample(range(len(tasks)), number)))


def dataset_key(name: str) -> str:
    """Return a data set's name as names are compared: its letters and digits alone, casefolded."""
    return re.sub(r"[\W_]+", "", name.casefold())


def read_tasks(spec: str) -> dict[str, str]:
    """Return data set (`dataset_key` of its name) -> task, of a packaged list or a TOML file `"name" = "task"`.

    Raises MissingError if it is neither a name nor a file; BadInputError if the file is not such a list.
    """
    path = Path(spec)
    if spec in TASK_FILES:
        content = resources.files("biorag.prompts").joinpath(TASK_FILES[spec]).read_bytes()
    elif path.is_file():
        content = path.read_bytes()
    else:
        raise MissingError(f"instructions {spec!r} are not a file: name one, or use {', '.join(TASK_FILES)}")
    values = parse_toml(content, f"list of tasks {spec}")
    if not values or not all(isinstance(value, str) and value.strip() for value in values.values()):
        raise BadInputError(f'{spec} must give each data set a task, "NAME" = "TASK", and nothing else')
    return {dataset_key(name): task.strip() for name, task in values.items()}


def named_task(task: str) -> str:
    """Return a task; of `LIST:DATASET` that of a packaged list, as `bmretriever:MedQuad`.

    `tuned:FOLDER` is the instruction that `biorag tune prompt --out FOLDER` chose.

    Raises UsageError if the list has no such data set; MissingError, BadInputError if the folder has no such report.
    """
    source, colon, name = task.partition(":")
    if colon and source == TUNED:
        return _tuned(Path(name))
    if not colon or source not in TASK_FILES:
        return task
    tasks = read_tasks(source)
    if dataset_key(name) not in tasks:
        raise unknown_name(f"data set of {source}", name, tasks)
    return tasks[dataset_key(name)]


def _tuned(folder: Path) -> str:
    path = folder / "report.json"
    if not path.is_file():
        raise MissingError(f"task {TUNED}:{folder}: {path} is not there: write it with `biorag tune prompt`")
    try:
        winner = parse_json(path.read_bytes())["winner"]
    except (ValueError, KeyError, TypeError):
        winner = None
    if not isinstance(winner, str) or not winner.strip():
        raise BadInputError(f"{path} has no instruction under 'winner': it is not a report of `biorag tune prompt`")
    return winner.strip()


def read_instructions(spec: str, task: str = TASK, drawn: Sequence[str] = ()) -> Instructions:
    """Return the instructions of a template by its name, or of a TOML file that sets `query` and `passage`.

    `{task}` becomes the task (see `named_task`), in `Instructions.drawn` each of the tasks `drawn`; the templates end
    with `{query}` and `{passage}`, since a model keeps prefixes.

    Raises MissingError if it is neither a name nor a file; BadInputError if the file is not such a template; UsageError
    if there are tasks to draw from and the template does not have `{task}`.
    """
    query, passage = TEMPLATES[spec] if spec in TEMPLATES else _read(spec)
    task = named_task(task)
    if drawn and "{task}" not in query:
        raise UsageError(
            f"--random-prompts fill {{task}}, which the query of template {spec!r} does not have: give another"
        )
    start, placeholder, end = _before(query, QUERY, spec, "{task}").partition("{task}")
    return Instructions(
        _before(query, QUERY, spec, task),
        _before(passage, PASSAGE, spec, task),
        tuple(_before(query, QUERY, spec, other) for other in drawn),
        PromptForm(start, end) if placeholder and not drawn else None,
    )


def _read(spec: str) -> tuple[str, str]:
    """Return the two templates of a TOML file."""
    path = Path(spec)
    if not path.is_file():
        raise MissingError(f"--instruct {spec!r} is not a file: name one, or use one of {', '.join(TEMPLATES)}")
    values = parse_toml(path.read_bytes(), f"template {path}")
    if values.keys() != {"query", "passage"} or not all(isinstance(value, str) for value in values.values()):
        raise BadInputError(f"template {path} must set the texts query and passage, and nothing else")
    return values["query"], values["passage"]


def _before(template: str, placeholder: str, name: str, task: str) -> str:
    """Return the text before the placeholder of a template."""
    if template.count(placeholder) != 1 or not template.endswith(placeholder):
        raise BadInputError(
            f"template {name} must end with {placeholder}, once: a model keeps only what stands before a text"
        )
    return template.removesuffix(placeholder).replace("{task}", task)
