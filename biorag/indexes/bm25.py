"""BM25 sparse vectors, the same here and on a server, by Qdrant's tokenizer, stop words and stemmer, or by other terms.

Texts are tokenized as they are compared, so that "Sjögren" is found whether it is composed or not.

The BioASQ 8 hybrid paper first takes words by BioASQ's script bioclean (section 5.1): lower case, without most
punctuation. It calls its better BM25 "bigram BM25", with the tokenizer of its dual encoder (section 5.3). Here are the
encoder's word pieces, alone or with each pair of neighbours. The paper does not say how it forms and weighs pairs; of
all three, frequent words are terms, and of word pieces punctuation too, for it mentions no stop words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from qdrant_edge import Bm25, Bm25Config, DisabledStemmer, StopwordsSet, TokenizerType

from biorag.errors import MismatchError
from biorag.indexes.manifest import BIGRAMS, BIOCLEAN, WORDS, Bm25Parameters, Manifest
from biorag.models.finding import ModelFiles, find_encoder
from biorag.models.formats.directory import TOKENIZER
from biorag.types import SparseText
from biorag.utils.text import comparable

Spell = Callable[[str], str]  # a text as Qdrant's tokenizer is to have it
BETWEEN = "␟"  # the two pieces of a pair
# What bioclean removes: its pattern has ":-[", which is a range with ";<=>?@" and, of lower-case text, no letter.
REMOVED = re.compile(r"""["/\\'.,?;*!%^&_+():<=>@\[\]{}]""")


def bioclean(text: str) -> str:
    """Return a text's words as BioASQ's script of that name has them: lower case, without most punctuation."""
    return " ".join(REMOVED.sub("", text.lower()).split())


def speller(terms: str, files: Callable[[], ModelFiles]) -> Spell | None:
    """Return how a text's terms are written, None for Qdrant's words; `files` gives the encoder of word pieces."""
    return {WORDS: None, BIOCLEAN: bioclean}[terms] if terms in (WORDS, BIOCLEAN) else piece_speller(files(), terms)


def piece_speller(files: ModelFiles, terms: str) -> Spell:
    """Return a function that tokenizes text into the word pieces of an encoder, or these and their bigrams.

    Raises `MissingError` if the model has no tokenizer.json, or none that can be read.
    """
    from biorag.models.tokens import token_texts

    pieces_of = token_texts(files)

    def spelled(text: str) -> str:
        pieces = pieces_of(text)
        pairs = (first + BETWEEN + second for first, second in pairwise(pieces)) if terms == BIGRAMS else ()
        return " ".join([*pieces, *pairs])

    return spelled


class Bm25Encoder:
    """Turns texts into Qdrant's BM25 sparse vectors; the same here and on a server.

    Raises `MismatchError` if the engine does not take the parameters.

    `spell`: writes a text as its terms, as `speller` gives it.
    """

    def __init__(self, parameters: Bm25Parameters, spell: Spell | None = None) -> None:
        try:
            self._bm25 = Bm25(
                Bm25Config(
                    **_tokenizing(parameters.language, spell),
                    k=parameters.k,
                    b=parameters.b,
                    avg_len=max(parameters.avg_len, 1.0),
                )
            )
        except ValueError as error:
            fault = str(error)[:200]
            raise MismatchError(f"the index's manifest is damaged (bm25: {fault}): index the corpus again") from None
        self._spelled = _comparable(spell)

    @classmethod
    def of(cls, manifest: Manifest) -> Bm25Encoder:
        """Return that of an index, whose word pieces are those of its encoder's tokenizer.

        Raises `MissingError` if the encoder is not at hand; `MismatchError` if its tokenizer has changed.
        """

        def tokenizing_files() -> ModelFiles:
            made = manifest.encoder
            files = find_encoder(made.id, made.revision or None, fetch=False)
            if made.configuration.get(TOKENIZER) != files.configuration()[TOKENIZER]:
                raise MismatchError(
                    f"index {manifest.name!r} has word pieces of {made.id!r}, whose tokenizer has changed: restore it, "
                    "or index under another --name"
                )
            return files

        return cls(manifest.bm25, speller(manifest.bm25.terms, tokenizing_files))

    def document(self, text: str) -> SparseText:
        """Return the term-frequency weights of a passage."""
        vector = self._bm25.embed_document(self._spelled(text))
        return SparseText(vector.indices, vector.values)

    def query(self, text: str) -> SparseText:
        """Return weight 1 for each distinct term of a query."""
        vector = self._bm25.embed_query(self._spelled(text))
        return SparseText(vector.indices, vector.values)


class LengthCounter:
    """Counts a text's BM25 terms: with b = 0 and k → ∞ a term's weight is its frequency.

    `spell` is as `Bm25Encoder` takes it.
    """

    def __init__(self, spell: Spell | None = None) -> None:
        self._bm25 = Bm25(Bm25Config(**_tokenizing("english", spell), k=1e9, b=0.0))
        self._spelled = _comparable(spell)

    def __call__(self, text: str) -> int:
        """Return the length of a text, in the form in which new indexes have it."""
        return round(sum(self._bm25.embed_document(self._spelled(text)).values))


def _comparable(spell: Spell | None) -> Spell:
    """Return a function that normalises text for comparison, and then tokenizes it."""
    return comparable if spell is None else lambda text: spell(comparable(text))


def _tokenizing(language: str, spell: Spell | None) -> dict[str, Any]:
    """Return the settings of Qdrant's tokenizer: the language's, or, for tokenized text, splitting at spaces."""
    if spell is None:
        return {"language": language}
    as_written = {"lowercase": False, "stopwords": StopwordsSet(), "stemmer": DisabledStemmer()}
    return {"tokenizer": TokenizerType.Whitespace, **as_written}
