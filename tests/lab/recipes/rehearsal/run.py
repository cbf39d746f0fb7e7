"""A rehearsal: every step of a plan on stand-ins for its models, inputs and servers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from biorag.errors import BadInputError, BioragError
from biorag.lab.recipes.plan import Choices, RecipePlan
from biorag.lab.recipes.recipe import AxisValue, ExperimentRecipe, Figure, models_of, named_in
from biorag.lab.recipes.steps import Step, StepRunner, unique
from biorag.types import Progress
from tests import cli
from tests.lab.recipes.rehearsal.inputs import texts, write_input
from tests.lab.recipes.rehearsal.models import write_model
from tests.lab.recipes.rehearsal.servers import stand_ins

DATA, HUB, RUN = "data", "hub", "run"
# What a rehearsal adds to commands, by their first words: real options stay, and work ends after a little.
BOUNDS: Mapping[tuple[str, ...], Sequence[str]] = {
    ("train",): ("--max-steps", "2", "--warmup-steps", "1", "--eval-steps", "1"),
    ("tune", "prompt"): ("--calls", "6", "--questions", "8"),
    ("bench", "latency"): ("--repetitions", "2", "--seconds", "0", "--index-limit", "4", "--limit", "4"),
    ("merge",): ("--sample-questions", "3", "--sample-passages", "6"),
}
LARGEST = (("--batch-size", 8), ("--nproc-per-node", 2))  # of an option's value: stand-ins fill no larger batch
SHARE = ("--batch-size", "4")  # of each of several processes
OK, FAILED, ALIKE, BLOCKED = "ok", "failed", "like", "not run"


class Rehearsal(StepRunner):
    """Runs the steps of a rehearsed plan; a step whose like runs is skipped, and one that fails stops no other."""

    def __init__(
        self, folder: Path, plan: RecipePlan, likes: Mapping[str, Step], urls: Mapping[str, str], jobs: int
    ) -> None:
        super().__init__(folder / RUN, {**plan.settings, "offline": True}, urls, jobs)
        self.likes = likes
        self.errors: dict[str, BioragError] = {}
        threads = {"OMP_NUM_THREADS": "1", "BIORAG_THREADS": "1"}
        self.environment |= {**threads, "HF_HUB_CACHE": str(folder / HUB), "HF_HUB_OFFLINE": "1"}

    def failed(self, step: Step, error: BioragError) -> None:
        """Keep the error."""
        self.errors[step.key] = error

    def standing(self, step: Step) -> Step:
        """Return the step that runs: a step's like, or itself."""
        return self.likes.get(step.key, step)

    def command(self, step: Step) -> list[str]:
        """Return a command that ends after a little work."""
        *words, as_json = super().command(step)
        for option, most in LARGEST if step.arguments[0] == "train" else ():
            if option in words:
                place = words.index(option) + 1
                words[place] = str(min(most, int(words[place])))
        bounds = next((bounds for first, bounds in BOUNDS.items() if step.arguments[: len(first)] == first), ())
        return [*words, *bounds, *(SHARE if step.processes > 1 else ()), as_json]

    def execute(self, command: Sequence[str], log: Path, variables: Mapping[str, str]) -> tuple[int, bytes]:
        """Run a command in a process forked from one that has the libraries loaded, or by torchrun in its own."""
        if command[0] != "biorag":
            return super().execute(command, log, variables)
        with Rehearsed(list(command[1:]), {**self.environment, **variables}) as process:
            code, reply, messages = process.communicate()
        log.write_text(messages, encoding="utf-8")
        return code, reply.encode()


class Rehearsed(cli.Running):
    """A command that finds the tiny models, and stand-ins of mteb's data."""

    def __init__(self, words: list[str], variables: dict[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        Path(self._folder.name, "stdin").touch()
        self._process = cli.forked(_command, words, variables, Path.cwd(), self._folder.name)


def _command(words: list[str], variables: dict[str, str], *more: Any) -> None:
    constants.HF_HUB_CACHE, constants.HF_HUB_OFFLINE = variables["HF_HUB_CACHE"], True
    if "mteb" in words:
        from tests.lab.recipes.rehearsal.tasks import use_stand_ins

        use_stand_ins()
    cli._main(words, variables, *more)


def alike(plan: RecipePlan, groups: Mapping[str, Sequence[Sequence[AxisValue]]]) -> dict[str, Step]:
    """Return the step that runs in place of each that is like it, by groups of values of axes."""
    first: dict[tuple[Any, ...], Step] = {}
    likes = {}
    for instance in plan.instances:
        point = []
        for axis, value in instance.at:
            group = next((tuple(group) for group in groups.get(axis, ()) if value in group), None)
            point.append((axis, group or value))
        known = first.setdefault((id(instance.template), *point), instance.step)
        if known.key != instance.step.key:
            likes[instance.step.key] = known
    return likes


def rehearse(
    recipe: ExperimentRecipe,
    scale: str,
    choices: Choices,
    small: Mapping[str, Any],
    out: Path | None,
    jobs: int,
    progress: Progress,
) -> dict[str, Any]:
    """Run every step on stand-ins, and return what became of each, with the figures that no report has.

    `small` is the recipe's part of `small.toml`.

    Without `out` the files are kept nowhere. Raises as `RecipePlan`, `MissingError` if a step names a model that has no
    stand-in, and BadInputError if an input has no format.
    """
    with tempfile.TemporaryDirectory(prefix="biorag-") if out is None else nullcontext(str(out)) as place:
        folder = Path(place).resolve()
        choices = replace(choices, data=folder / DATA)
        recipe = with_values(recipe, scale, small.get("values", {}))
        for name, path in RecipePlan(recipe, scale, choices).inputs.items():
            if not Path(path).exists():
                write_input(name, recipe.inputs[name], Path(path))
        plan = RecipePlan(recipe, scale, choices)  # again, since keys have the inputs' contents
        with stand_ins(plan.servers) as urls:
            rehearsal = Rehearsal(folder, plan, alike(plan, small.get("alike", {})), urls, jobs)
            with rehearsal.held():
                _write_models(plan, folder / HUB)
                ran = [step for step in unique(plan.steps) if step.key not in rehearsal.likes]
                with progress("Steps", len(ran)) as advance:
                    rehearsal.run_all(ran, advance)
                return {
                    "scale": scale,
                    "steps": _outcomes(plan, rehearsal),
                    "figures": list(_missing_figures(plan, rehearsal)),
                }


def with_values(recipe: ExperimentRecipe, scale: str, values: Mapping[str, Any]) -> ExperimentRecipe:
    """Return a recipe with other values at a scale."""
    listed = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    changed = recipe.scales[scale]
    changed = changed.model_copy(update={"values": {**changed.values, **listed}})
    return recipe.model_copy(update={"scales": {**recipe.scales, scale: changed}})


def _write_models(plan: RecipePlan, hub: Path) -> None:
    """Write the tiny models; one that has no stand-in fails its step."""
    known = models_of(plan.recipe)
    for id in dict.fromkeys(id for step in plan.steps for id in named_in(step.arguments) if id in known):
        write_model(id, known[id], hub, [text.content for text in texts()])


def _outcomes(plan: RecipePlan, rehearsal: Rehearsal) -> list[dict[str, Any]]:
    outcomes: list[dict[str, Any]] = []
    for step in plan.steps:
        outcome: dict[str, Any] = {"name": step.name, "outcome": OK}
        if (like := rehearsal.likes.get(step.key)) is not None:
            outcome = {"name": step.name, "outcome": ALIKE, "like": like.name}
        elif error := rehearsal.errors.get(step.key):
            outcome |= {"outcome": FAILED, "error": str(error), "code": error.exit_code}
        elif (record := rehearsal.finished(step)) is None:
            outcome |= {"outcome": BLOCKED}
        else:
            outcome |= {"seconds": record["seconds"]}
        outcomes.append(outcome)
    return outcomes


def _missing_figures(plan: RecipePlan, rehearsal: Rehearsal) -> Iterator[str]:
    """Yield what tables and findings ask for and reports do not have; each once."""
    asked: list[tuple[str, Figure]] = []
    for table in plan.recipe.tables:
        columns = [column for column in table.columns if not column.scales or plan.scale_name in column.scales]
        cells = (row.figure(column) for row in plan.recipe.rows(table) for column in columns)
        asked += [(table.title, figure) for figure in cells if figure]
    asked += [(finding.text, figure) for finding in plan.recipe.compared() for figure in finding.both]
    told = set()
    values = ((title, figure, figure.value) for title, figure in asked)
    each = ((title, figure, path) for title, figure, of in values for path in ([of] if isinstance(of, str) else of))
    for title, figure, path in each:
        for instance in plan.at(figure.step, figure.at):
            if rehearsal.finished(instance.step):
                try:
                    rehearsal.reported(instance.step, path)
                except BadInputError as error:
                    if (sentence := f"{title!r}: {error}") not in told:
                        told.add(sentence)
                        yield sentence
