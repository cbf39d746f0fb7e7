"""A surveyed corpus on its way into an index: what that will take, or the writing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from biorag.corpus.blocks import Splitter
from biorag.corpus.rejects import RejectsFile
from biorag.corpus.sources import FoundFiles
from biorag.indexes.estimating import IndexEstimate, estimate
from biorag.indexes.manifest import Manifest, TokenParameters
from biorag.indexes.store import Store
from biorag.indexes.surveying import Survey
from biorag.indexes.writing import IndexReport, surveyed_changes, write_index
from biorag.types import Encoded, Encoder, Progress, Snippet


class SnippetEncoding(Protocol):
    """What snippets are encoded with: the bi-encoder, and a token model if an index stores its vectors."""

    @property
    def encoder(self) -> Encoder:
        """The bi-encoder."""

    @property
    def parameters(self) -> TokenParameters | None:
        """Whose token vectors are stored."""

    def __call__(self, snippets: Sequence[Snippet]) -> Encoded:
        """Encode snippets."""


@dataclass(frozen=True, slots=True)
class SurveyedCorpus:
    """A corpus that was found and read once, and the index that it is to go into.

    Parameters
    ----------
    manifest : the index's; None of one yet to be made
    load_encoding : gives the models, which are loaded at the first call
    rejects : takes the bad lines; None where the first one stops the reading
    """

    store: Store
    manifest: Manifest | None
    files: FoundFiles
    survey: Survey
    split: Splitter
    load_encoding: Callable[[], SnippetEncoding]
    rejects: RejectsFile | None

    def _planned(self) -> Manifest:
        """Return the manifest of the index, or of the one to be made."""
        if self.manifest is not None:
            return self.manifest
        encoding = self.load_encoding()
        return self.store.new_manifest(encoding.encoder.identity, self.survey.avg_len, encoding.parameters)

    def estimate(self) -> IndexEstimate:
        """Return what indexing it would take; nothing is written."""
        return estimate(self._planned(), self.survey, self.load_encoding(), self.store.settings.index.batch_size)

    def write(self, progress: Progress) -> IndexReport:
        """Bring it into the index; see `write_index`."""
        on_reject = (lambda _: None) if self.rejects else None
        with progress("Indexing", self.survey.changes) as advance:
            incoming = surveyed_changes(self.files.sources, self.survey, on_reject, self.split)
            report = write_index(self.store, self._planned(), incoming, self.load_encoding, advance)
        return replace(report, files={"taken": self.files.taken, "left": self.files.left})
