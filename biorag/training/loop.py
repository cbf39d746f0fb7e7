"""One training run: the trainer's arguments, checkpoints, exact resume, curves and manifest."""

from __future__ import annotations

import csv
import io
import math
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import TrainerCallback, TrainerState
from transformers.trainer_callback import PrinterCallback

from biorag.errors import BadInputError, MissingError, ServiceError, UsageError
from biorag.models.finding import ModelFiles
from biorag.models.inference import prompt_of
from biorag.models.loading import best_device, uses_bf16
from biorag.models.resources import ModelShape, model_shape
from biorag.settings.settings import Settings
from biorag.settings.training import TrainingSettings
from biorag.training.bases import described
from biorag.training.data import LABEL, Split, write_columns
from biorag.training.estimating import (
    CHECKPOINTS_KEPT,
    TrainingBatch,
    TrainingEstimate,
    batch_of_rows,
    estimate,
    this_device,
)
from biorag.training.instructions import Instructions
from biorag.training.model_card import model_card
from biorag.training.run_directory import (
    CHECKPOINTS,
    ROWS,
    STATE,
    TrainingRun,
    first_decides,
    is_first_process,
    process_count,
    wait_for_processes,
)
from biorag.types import OnProgress
from biorag.utils.files import write_text
from biorag.utils.network import command_line
from biorag.utils.plots import LinePanel, write_plot
from biorag.utils.versions import installed_versions, require

FULL = ("allocate memory", "out of memory", "ALLOC_FAILED")  # how the CPU, MPS and cuBLAS word it
LOGGED = 100  # points on a loss curve
MAX_GRAD_NORM = 1.0
WEIGHT_DECAY = 0.01
CURVES = "curves.png"
LIKELIHOOD = "log_likelihood"  # of the held-out replies, a metric
UNPLOTTED = ("runtime", "per_second", "total_flos", "train_loss", "num_tokens")  # parts of names in a trainer's log
FIRST_COLUMNS = ("step", "epoch", "loss", "learning_rate", "grad_norm")


@dataclass(frozen=True, slots=True)
class TrainerJob:
    """The job of a trainer of the library: classes, model, loss, columns of texts, evaluator.

    `metric` is the evaluator's figure that the best checkpoint is chosen by; larger is better. `save` writes the
    trained model into a folder and returns more facts of the manifest. `columns` may be those of each set. `collator`
    replaces the trainer's. Without a loss the job is for a trainer of transformers, which takes no prompts either, and
    whose evaluator is the columns of the held-out rows.
    """

    trainer: type
    arguments: type
    model: Any
    loss: Any
    columns: Mapping[str, Any]
    evaluator: Any | None
    metric: str
    save: Callable[[Path], dict[str, Any]]
    extra_arguments: Mapping[str, Any] = field(default_factory=dict)
    collator: Callable[[Any], Any] | None = None


class Training(ABC):
    """A base, its training rows and those of held-out questions, and the settings; a subclass is a kind of model.

    `rows` are those of the training rows that are used, `choices` further options that determine the model.

    Raises MissingError for a base with two towers; UsageError in one of several processes, whose gradients would differ
    from those of one, unless the kind shares its batches among them.
    """

    kind: ClassVar[str]
    shares_batches: ClassVar[bool] = False

    def __init__(
        self, files: ModelFiles, split: Split[Any], settings: Settings, rows: Sequence[Any], **choices: Any
    ) -> None:
        if files.has_towers:
            raise MissingError(f"base {files.id!r} has two towers: name one of them, such as {files.reads_passages()}")
        self.files = files
        self._hold(split, settings, rows, **choices)

    def _hold(self, split: Split[Any], settings: Settings, rows: Sequence[Any], **choices: Any) -> None:
        if not self.shares_batches and process_count() > 1:
            raise UsageError(f"train {self.kind} trains in one process: start it without torchrun or accelerate launch")
        self.split, self.settings, self.rows, self.choices = split, settings, rows, choices
        self.facts = {"rows": len(rows), "without_negatives": len(split.training) - len(rows)}
        self.passes: Sequence[int] = [len(rows)]  # rows of each pass of an epoch

    @property
    def origin(self) -> str:
        """The base's name, or what training starts from without one."""
        return self.files.id

    def described(self) -> str:
        """Return what training starts from in words."""
        return described(self.files)

    def origin_identity(self) -> dict[str, Any]:
        """Return what identifies it."""
        return {"base_sha256": self.files.sha256}

    @property
    def steps(self) -> int:
        """The optimizer steps of the run."""
        return steps_of(self.passes, self.settings.training)

    def batch(self) -> TrainingBatch:
        """Return the longest batch, for the estimate: of rows of texts, if the kind does not override it."""
        return batch_of_rows(self.kind, self.rows, self.settings.training)

    def shape(self) -> ModelShape:
        """Return the shape of the base, as it is trained."""
        return model_shape(self.files)

    def estimate(self) -> TrainingEstimate:
        """Return about how much memory the run takes; raises ServiceError if it does not fit."""
        device = this_device(self.settings.retrieval.precision)
        estimated = estimate(self.shape(), self.batch(), self.settings.training, device)
        estimated.admit(self.origin, device.free)
        return estimated

    @abstractmethod
    def job(self, folder: TrainingRun, facts: Mapping[str, Any]) -> TrainerJob:
        """Load the base and return the job of the library's trainer."""

    def run(self, out: Path, facts: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """Train into the folder `out` and return its manifest, in which `facts` are kept; a killed run resumes.

        Raises MissingError if the base does not load, or a package is not installed; UsageError if the options do not
        fit the base, or each other; BadInputError if no row can be used; MismatchError if `out` holds something else;
        ServiceError if memory runs out, or the loss is not finite.
        """
        facts = {**facts, "base": self.origin, **self.facts}
        identity = {
            "kind": self.kind,
            **self.origin_identity(),
            **self.choices,
            **({"processes": process_count()} if process_count() > 1 else {}),
            "settings": self.settings.training_identity(),
            "data": self.split.fingerprint(),
        }
        folder = TrainingRun(out, identity)
        if manifest := folder.finished():
            return manifest
        with folder.locked():
            job = self.job(folder, facts)
            figures = _run(job, self, folder, facts, on_progress)
            if is_first_process():
                figures |= job.save(out)
                card = model_card(out.name, identity, figures, (out / CURVES).is_file())
                write_text(out / "README.md", card)
            return folder.finish(figures)


class NoModelCard:
    """Keeps a trainer from writing a model card, which would quote training questions that may be private."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add none."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        trainer: Any = self
        trainer.model.save(output_dir or trainer.args.output_dir, create_model_card=False)


class ReportsLikelihood:
    """Lets a trainer of transformers report the log-likelihood of held-out replies, of which larger is better."""

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **options: Any) -> Any:
        """Return the evaluation with its loss turned round."""
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **options)  # type: ignore[misc]
        output.metrics[f"{metric_key_prefix}_{LIKELIHOOD}"] = -output.metrics[f"{metric_key_prefix}_loss"]
        return output


def steps_of(passes: Sequence[int], settings: TrainingSettings) -> int:
    """Return the number of optimizer steps of a run, by the rows of each pass of an epoch."""
    steps = math.ceil(_batches(passes, settings) / settings.gradient_accumulation)
    return settings.max_steps or math.ceil(settings.epochs * steps)


def _batches(passes: Sequence[int], settings: TrainingSettings) -> int:
    """Return the number of batches of an epoch; several processes drop a last one that is not full."""
    rounded = math.ceil if process_count() == 1 else math.floor
    return sum(rounded(count / batch_size(settings)) for count in passes)


def batch_size(settings: TrainingSettings) -> int:
    """Return the rows of one batch, of all processes together."""
    return settings.batch_size * process_count()


def require_batch(passes: Sequence[int], settings: TrainingSettings) -> None:
    """Raise BadInputError for a set whose rows do not fill one batch of all processes: none would be trained on."""
    if not all(_batches([rows], settings) for rows in passes):
        raise BadInputError(
            f"{process_count()} processes take {batch_size(settings)} rows at a step, and there are {min(passes)}: "
            "lower --batch-size, or start fewer processes"
        )


def _run(
    job: TrainerJob, training: Training, folder: TrainingRun, facts: Mapping[str, Any], on_progress: OnProgress
) -> Any:
    """Train from the last whole checkpoint, if there is one, to the end, and return the manifest's figures."""
    settings, started = training.settings, time.perf_counter()
    require_batch(training.passes, settings.training)
    _check_schedule(training.steps, job, settings.training)
    folder.begin({**facts, "command": command_line()})
    resume = folder.last_checkpoint()
    trainer = _trainer(job, training, folder.path, resumes=resume is not None)
    trainer.remove_callback(PrinterCallback)
    metric = f"eval_{job.metric}" if job.evaluator else None
    watcher = _Watcher(folder.path, metric, on_progress, settings.training)
    trainer.add_callback(watcher)
    with _device_errors(settings.training):
        if resume and watcher.gives_up(stopped := TrainerState.load_from_json(str(resume / STATE))):
            trainer.state = stopped  # killed after its last checkpoint: the trainer would train one step more
            watcher.on_train_begin(trainer.args, stopped, trainer.control)
            trainer._load_best_model()
        else:
            trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    state, planned = trainer.state, "max_steps" if settings.training.max_steps else "epochs"
    losses = points(curve(state.log_history), "loss")
    return {
        **facts,
        "command": command_line(),
        "processes": process_count(),
        "batch_size": batch_size(settings.training) * settings.training.gradient_accumulation,
        "steps": state.global_step,
        "stopped_by": "patience" if state.global_step < state.max_steps else planned,
        "resumed_from_step": watcher.first_step,
        "final_loss": losses[-1][1] if losses else None,
        "best": {"metric": job.metric, "value": state.best_metric, "step": state.best_global_step},
        "seconds": round(time.perf_counter() - started, 3),  # since the last interruption
        "hardware": hardware(settings),
        "versions": installed_versions(),
    }


def _check_schedule(steps: int, job: TrainerJob, settings: TrainingSettings) -> None:
    if settings.warmup_steps is not None and settings.warmup_steps >= steps:
        raise UsageError(
            f"--warmup-steps {settings.warmup_steps} is not less than the {steps} steps of the run: the learning rate "
            "would never reach its peak"
        )
    if settings.patience and job.evaluator is None:
        raise UsageError(
            "--patience stops by the metric on held-out questions, and no question that has one is held out: raise "
            "--validation, or leave --patience out"
        )


def _trainer(job: TrainerJob, training: Training, out: Path, resumes: bool) -> Any:
    """Return the library's trainer of a job."""
    dataset_class = _datasets()
    args = job.arguments(**_arguments(job, training, out, resumes))
    args._n_gpu = min(args.n_gpu, 1)  # with several GPUs the library would silently multiply the batch
    of_sets = all(isinstance(columns, Mapping) for columns in job.columns.values())
    sets = job.columns if of_sets else {"": job.columns}
    files = {name: out / ROWS / f"{number}.arrow" for number, name in enumerate(sets)}
    if is_first_process():
        for name, file in files.items():
            write_columns(sets[name], file)
    wait_for_processes()
    mapped = {name: dataset_class.from_file(str(file)) for name, file in files.items()}
    dataset = mapped if of_sets else mapped[""]
    judged = {"loss": job.loss, "evaluator": job.evaluator}
    if job.loss is None:
        judged = {"eval_dataset": dataset_class.from_dict(job.evaluator) if job.evaluator else None}
    trainer = job.trainer(model=job.model, args=args, train_dataset=dataset, **judged)
    if job.collator:
        trainer.data_collator = job.collator(trainer)
    return trainer


def _arguments(job: TrainerJob, training: Training, out: Path, resumes: bool) -> dict[str, Any]:
    """Return the arguments of the library's trainer."""
    settings, precision = training.settings.training, training.settings.retrieval.precision
    logging_steps, saving_steps = _intervals(training.steps, settings)
    evaluated = job.evaluator is not None
    arguments = {
        "output_dir": str(out / CHECKPOINTS),
        "num_train_epochs": settings.epochs,
        "max_steps": settings.max_steps or -1,
        "gradient_accumulation_steps": settings.gradient_accumulation,
        "per_device_train_batch_size": batch_size(settings),  # the loader's: processes share its batches
        "learning_rate": settings.learning_rate,
        **_sharing(settings),
        # Below 1 the trainer takes a share of all steps.
        "warmup_steps": settings.warmup if settings.warmup_steps is None else settings.warmup_steps,
        "weight_decay": WEIGHT_DECAY,
        "max_grad_norm": MAX_GRAD_NORM,
        "bf16": uses_bf16(precision),
        "use_cpu": best_device() == "cpu",
        "seed": training.settings.seed,
        "data_seed": training.settings.seed,
        "logging_steps": logging_steps,
        "logging_nan_inf_filter": False,  # else a loss that is not finite is shown as the mean of those before
        "save_strategy": "steps",
        "save_steps": saving_steps,
        "save_total_limit": CHECKPOINTS_KEPT,
        "eval_strategy": "steps" if evaluated else "no",
        "eval_steps": saving_steps if evaluated else None,
        "eval_on_start": evaluated and not resumes,
        "load_best_model_at_end": evaluated,
        "metric_for_best_model": f"eval_{job.metric}" if evaluated else None,
        "greater_is_better": True if evaluated else None,
        "report_to": [],
        "disable_tqdm": True,
    }
    if settings.gradient_checkpointing:
        arguments["gradient_checkpointing"] = True
    if job.loss is not None:  # no_duplicates: a question's other positives must not be its negatives
        arguments |= {"prompts": prompts_of(job.model, job.columns), "batch_sampler": "no_duplicates"}
    return {**arguments, **job.extra_arguments}


def _sharing(settings: TrainingSettings) -> dict[str, Any]:
    """Return the arguments by which several processes take equal shares of each batch, no text twice among them.

    A weight's gradient is averaged when it is ready; the first step records which weights get one, by how many passes.
    With cached gradients the passes differ, and weights that a pass does not use count as ready.
    """
    if process_count() == 1:
        return {}
    static = not settings.mini_batch_size
    return {
        "accelerator_config": {"split_batches": True},
        "dataloader_drop_last": True,
        "ddp_static_graph": static,
        "ddp_find_unused_parameters": not static,
    }


def prompts_of(model: Any, columns: Iterable[str], instructions: Instructions | None = None) -> dict[str, str]:
    """Return the prompt of each column: training must use what searching puts before queries and passages.

    They are those of the instructions, but for drawn ones, or else the model's own. ColBERT's markers are such
    prompts; the trainer does not find them on its own.
    """
    prompts = {"query": prompt_of(model, "query"), "document": prompt_of(model, "document")}
    if instructions:
        prompts = {**instructions.prompts(), **({"query": ""} if instructions.drawn else {})}
    of_columns = {name: prompts["query" if name == "query" else "document"] for name in columns if name != LABEL}
    return {name: prompt for name, prompt in of_columns.items() if prompt}


def _intervals(steps: int, settings: TrainingSettings) -> tuple[int, int]:
    """Return the steps between log entries, and between checkpoints: a multiple, so that resuming loses no entry."""
    logging_steps = max(1, steps // LOGGED)
    if every := settings.eval_steps:
        return max(step for step in range(1, min(logging_steps, every) + 1) if every % step == 0), every
    return logging_steps, logging_steps * math.ceil(steps / settings.evaluations / logging_steps)


def _datasets() -> Any:
    require("train")
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    return Dataset


class _Watcher(TrainerCallback):  # type: ignore[misc]
    """Shows progress, writes the curves at each checkpoint, evaluates and saves after the last step.

    It saves too when `checkpoint_minutes` have gone by. With `patience` it stops the run after that many evaluations in
    a row without a better metric, by the trainer's log, which each checkpoint keeps.
    """

    def __init__(self, out: Path, metric: str | None, on_progress: OnProgress, settings: TrainingSettings) -> None:
        self._out = out
        self._metric = metric
        self._on_progress = on_progress
        self._patience = settings.patience
        self._interval = 60 * settings.checkpoint_minutes
        self._saved = time.monotonic()
        self.first_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.first_step = state.global_step
        self._saved = time.monotonic()
        self._on_progress(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        """Tell the sampler the epoch; the library does not where several processes resume within one."""
        sampler = train_dataloader.batch_sampler
        while inner := getattr(sampler, "batch_sampler", None):
            sampler = inner
        if hasattr(sampler, "set_epoch"):  # transformers tells its own samplers
            sampler.set_epoch(int(state.epoch or 0))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._on_progress(1)
        ends = state.global_step >= state.max_steps
        if ends or first_decides(time.monotonic() - self._saved >= self._interval):
            control.should_log = control.should_save = True  # what is not logged before a checkpoint is lost
        if ends:
            control.should_evaluate = self._metric is not None

    def gives_up(self, state: TrainerState) -> bool:
        """Return whether the last evaluations were no better than one before them; the base's own does not count."""
        values = [entry[self._metric] for entry in state.log_history if entry["step"] and self._metric in entry]
        return bool(self._patience and values) and len(values) - 1 - values.index(max(values)) >= (self._patience or 0)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.gives_up(state):
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            raise ServiceError(f"the loss is {loss} at step {state.global_step}: lower --learning-rate")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._saved = time.monotonic()
        if is_first_process():
            ends = state.global_step >= state.max_steps or control.should_training_stop
            write_curves(self._out, state.log_history, self._metric, drawn=ends)


def curve(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per step from a trainer's log, with its losses and metrics."""
    rows: dict[int, dict[str, Any]] = {}
    for entry in history:
        logged = {name: value for name, value in entry.items() if not any(unplotted in name for unplotted in UNPLOTTED)}
        rows.setdefault(int(entry["step"]), {}).update(logged)
    return [rows[step] for step in sorted(rows)]


def write_curves(folder: Path, history: Sequence[Mapping[str, Any]], metric: str | None, drawn: bool) -> None:
    """Write `curves.csv` with everything logged, and, `drawn`, `curves.png` with the loss and the chosen metric."""
    rows = curve(history)
    names = [*FIRST_COLUMNS, *sorted({name for row in rows for name in row} - set(FIRST_COLUMNS))]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "curves.csv", text.getvalue())
    if not drawn:
        return
    panels = [LinePanel("Training", "step", "loss", {"loss": points(rows, "loss")})]
    if metric:
        panels.append(LinePanel("Validation", "step", metric.removeprefix("eval_"), {metric: points(rows, metric)}))
    write_plot(folder / CURVES, panels)


def points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return the (step, value) points of one logged quantity."""
    return [(row["step"], float(row[name])) for row in rows if name in row]


@contextmanager
def _device_errors(settings: TrainingSettings) -> Iterator[None]:
    """Turn the several errors of a full memory into one sentence with the next step."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        full = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(phrase in str(error) for phrase in FULL)
        if not full:
            raise
        raise ServiceError(
            f"memory ran out with --batch-size {settings.batch_size}: lower it, set --gradient-checkpointing, "
            "lower --max-tokens, or with in-batch negatives set --mini-batch-size (the same batch with less memory)"
        ) from error


def hardware(settings: Settings) -> dict[str, Any]:
    """Return the hardware of the run."""
    device = best_device()
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "devices": torch.cuda.device_count() if device == "cuda" else 1,
        "precision": "bf16" if uses_bf16(settings.retrieval.precision) else "fp32",
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
