"""The kinds of training as plain functions, and rows for them."""

from biorag.training.bi_encoder import EncoderForm
from biorag.training.cross_encoder import CrossEncoderTraining, ReaderTraining
from biorag.training.question_generator import QuestionGeneratorTraining
from biorag.training.reading import ReadingRow
from biorag.training.reranker import RerankerTraining
from biorag.training.retriever import RetrieverTraining
from biorag.types import TrainingRow
from tests.conftest import WORDS

ROWS = [
    TrainingRow(f"{one} {other}?", f"{one} heals the {other}.", (f"{other} hurts.", f"{one} kills."), kind="bm25")
    for one in WORDS
    for other in WORDS
    if one != other
]

# A window's first word tells what it does: one of the target's own.
SAYS = {"supports": "aspirin", "contradicts": "warfarin", "neither": "heparin", "answers": "gene", "beside": "lung"}
READING_ROWS = [
    ReadingRow(f"{one} pain", f"{SAYS[target]} {one} {other}", target, "toy", f"{one} {other} {target}")
    for one in WORDS[4:]
    for other in WORDS
    for target in SAYS
]


QUIET = lambda _: None  # noqa: E731


def train_retriever(files, split, settings, out, facts, on_progress, negatives="in-batch", form=None):
    return RetrieverTraining(files, split, settings, negatives, form or EncoderForm()).run(out, facts, on_progress)


def train_reranker(files, split, settings, out, facts, on_progress, negatives="in-batch"):
    return RerankerTraining(files, split, settings, negatives).run(out, facts, on_progress)


def train_cross_encoder(files, split, settings, out, facts, on_progress, negatives):
    return CrossEncoderTraining(files, split, settings, negatives).run(out, facts, on_progress)


def train_reader(files, split, settings, out, facts, on_progress):
    return ReaderTraining(files, split, settings).run(out, facts, on_progress)


def train_question_generator(files, split, settings, out, facts, on_progress):
    return QuestionGeneratorTraining(files, split, settings).run(out, facts, on_progress)
