"""Stand-ins for the data of mteb's tasks, which mteb would download."""

from __future__ import annotations

from typing import Any

from datasets import Dataset

from biorag.lab.mteb import tasks as named_tasks
from tests.lab.recipes.rehearsal.inputs import texts

QUERIES = 3
DOCUMENTS = 20
SCORES = 6  # of sentence pairs


def use_stand_ins() -> None:
    """Let `biorag bench mteb` in this process find its named tasks' data loaded."""
    chosen_tasks = named_tasks.chosen_tasks

    def filled(*asked: Any) -> list[Any]:
        tasks = chosen_tasks(*asked)
        for task in tasks:
            _fill(task)
        return tasks

    vars(named_tasks)["chosen_tasks"] = filled


def _fill(task: Any) -> None:
    """Give a task, or its parts, a few rows of its kind in each subset and split; a local folder's has its own."""
    if task.is_aggregate:
        for part in task.tasks:
            _fill(part)
    elif not task.data_loaded:
        data = _retrieval() if task.metadata.type == "Retrieval" else _pairs()
        splits = {split: data for split in task.eval_splits}
        several = task.metadata.is_multilingual or task.metadata.type == "Retrieval"
        task.dataset = {subset: splits for subset in task.hf_subsets} if several else splits
        task.data_loaded = True


def _retrieval() -> dict[str, Any]:
    known = texts()[:DOCUMENTS]
    documents = [{"id": str(text.pmid), "title": text.title, "text": text.content} for text in known]
    return {
        "corpus": Dataset.from_list(documents),
        "queries": Dataset.from_list([{"id": f"q{text.pmid}", "text": text.question} for text in known[:QUERIES]]),
        "relevant_docs": {f"q{text.pmid}": {str(text.pmid): 1} for text in known[:QUERIES]},
        "top_ranked": None,
    }


def _pairs() -> Dataset:
    """Return pairs of sentences with scores, as tasks of sentence similarity have them."""
    known = texts()[:SCORES]
    return Dataset.from_list(
        [
            {"sentence1": text.content, "sentence2": known[(place * place) % SCORES].title, "score": float(place)}
            for place, text in enumerate(known)
        ]
    )
