"""What a training starts from, in words."""

from __future__ import annotations

from biorag.models.finding import STARTER_ENCODER, TRAINED_STARTER, ModelFiles
from biorag.models.formats.directory import MODULE_LIST
from biorag.models.labels import HEAD
from biorag.models.late_interaction import is_late_interaction
from biorag.training.run_directory import TrainingRun

PACKAGED = {
    TRAINED_STARTER.title: "the packaged default, a retriever trained on biomedical questions and claims",
    STARTER_ENCODER.title: "packaged, a retriever trained on general texts",
}


def described(files: ModelFiles) -> str:
    """Return the name of a base and what it is: what biorag trained it as, or else what its files are the form of."""
    if files.id in PACKAGED:
        return f"{files.id}, {PACKAGED[files.id]}"
    run = files.settings(TrainingRun.manifest_name)
    identity = run.get("identity")
    if isinstance(identity, dict) and run.get("complete"):
        return f"{files.id}, a {identity.get('kind')} that biorag trained from {run.get('base')}"
    return f"{files.id}, {_form(files)}"


def _form(files: ModelFiles) -> str:
    if files.path.is_file():
        return "a language model"
    if is_late_interaction(files):
        return "a reranker already (ColBERT)"
    if any(str(name).endswith(HEAD) for name in files.settings("config.json").get("architectures") or ()):
        return "a classifier, such as a cross-encoder"
    if (files.path / MODULE_LIST).is_file():
        return "a retriever already (bi-encoder)"
    return "a transformer that was not trained as a retriever or reranker"
