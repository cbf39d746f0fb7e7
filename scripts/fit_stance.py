"""Fit biorag/answering/stance.npz: scripts/fit_stance.py ../shared/data CACHE [--epochs 5].

From people's claims beside their texts (SciFact, Check-COVID, Citation-Integrity, training parts), and from claims
worded from a third of Evidence Inference; each claim also stands beside one or two near texts of its set that other
claims are about, as neither. An eighth of the texts is held out, and the thresholds are chosen there. CACHE keeps the
rows.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from biorag.answering import stance
from biorag.corpus.claims import ClaimRow, read_claims
from biorag.engine import load_encoder
from biorag.models.finding import find_encoder
from biorag.settings.settings import Settings
from biorag.types import LABELS, Snippet

SETS = ("scifact", "check_covid", "citation_integrity", "evidence_inference")
INFERENCE = 0.35  # of the rows of Evidence Inference
NEAR = 15  # texts among which those of other claims are drawn
OTHERS = {"scifact": 2}  # drawn for a claim; of other sets one
SAMPLED = {"evidence_inference": 0.5}  # how often a row is drawn, beside one of the other sets
OTHER_SAMPLED = 0.5  # and one beside another claim's text
HELD_OUT = 12  # per cent of the texts
HIDDEN, LAYER, DROPOUT, SMOOTHING = 96, 64, 0.2, 0.05
BATCH, RATE = 32, 1e-3
OF_SENTENCES = 0.5  # weight of the loss of single sentences, where people named those that decide
PRECISION = 0.8  # that the thresholds have on the held-out rows


@dataclass
class Row:
    """A claim's tokens, the sentences read beside it, its label, and which sentences people named; None for none."""

    name: str
    text: Snippet
    claim: str
    tokens: np.ndarray
    read: list[stance.ReadSentence]
    label: int
    named: list[bool] | None
    other: bool = False


def rows_of(path: Path, encoder: Any, rng: random.Random) -> Iterator[Row]:
    """Yield the rows of a set, and each claim beside texts of others."""
    name = path.name.partition(".")[0]
    claims = [row for row in read_claims(path) if row.sentences and row.label]
    if name == "evidence_inference":
        claims = [row for row in claims if rng.random() < INFERENCE]
    own = []
    for row in claims:
        text, (claimed,) = _snippet(row), encoder.located_tokens([row.claim])
        tokens = stance.own_tokens(claimed.vectors, claimed.spans)
        (read,) = stance.read_all(row.claim, tokens, [text], encoder)
        if read and len(tokens):
            own.append(Row(name, text, row.claim, tokens, read, LABELS.index(row.label), _named(row, read)))
        if len(own) % 200 == 0:
            sys.stderr.write(f"{name}: {len(own)} of {len(claims)}\n")
    yield from own
    of_claims = _unit([row.tokens.mean(axis=0) for row in own])
    of_texts = _unit([np.concatenate([one.tokens for one in row.read]).mean(axis=0) for row in own])
    for row, similarity in zip(own, of_claims @ of_texts.T, strict=True):
        near = [own[n].text for n in np.argsort(-similarity) if own[n].text.content != row.text.content][:NEAR]
        for text in rng.sample(near, min(len(near), OTHERS.get(name, 1))):
            (read,) = stance.read_all(row.claim, row.tokens, [text], encoder)
            yield Row(name, text, row.claim, row.tokens, read, LABELS.index("neither"), None, True)


def _snippet(row: ClaimRow) -> Snippet:
    return Snippet(row.id, row.title.strip(), " ".join(sentence.strip() for sentence in row.sentences or ()))


def _named(row: ClaimRow, read: Sequence[stance.ReadSentence]) -> list[bool] | None:
    if not row.rationale:
        return None
    deciding = [row.sentences[n].strip() for n in row.rationale if n < len(row.sentences or ())]
    return [any(one.text in sentence or sentence in one.text for sentence in deciding) for one in read]


def _unit(vectors: Sequence[np.ndarray]) -> np.ndarray:
    stacked = np.stack(vectors)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


class Network(nn.Module):
    """`stance.StanceModel`, to be trained; arrays are padded, and masks say what is there."""

    def __init__(self, features: np.ndarray, dimension: int) -> None:
        super().__init__()
        self.mean = torch.tensor(features.mean(axis=0))
        self.deviation = torch.tensor(features.std(axis=0) + 1e-3)
        self.compare = nn.Linear(4 * dimension, HIDDEN)
        self.temperature = nn.Parameter(torch.tensor(10.0))
        self.hidden = nn.Linear(4 * HIDDEN + features.shape[1], LAYER)
        self.out = nn.Linear(LAYER, len(LABELS))
        self.neither = nn.Parameter(torch.zeros(()))
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, claim: Any, claim_mask: Any, text: Any, text_mask: Any, features: Any) -> torch.Tensor:
        """Return the log-odds of sentences, (sentences, 3)."""
        similarity = self.temperature * claim @ text.transpose(1, 2)
        of_text = similarity.masked_fill(~text_mask[:, None], -1e4).softmax(-1) @ text
        of_claim = similarity.transpose(1, 2).masked_fill(~claim_mask[:, None], -1e4).softmax(-1) @ claim
        parts = []
        for own, attended, mask in ((claim, of_text, claim_mask), (text, of_claim, text_mask)):
            pairs = torch.cat([own, attended, stance.PRODUCT * own * attended, (own - attended).abs()], -1)
            values = torch.relu(self.compare(self.drop(pairs))) * mask[..., None]
            parts += [values.sum(1) / mask.sum(1, keepdim=True), values.amax(1)]
        scaled = ((features - self.mean) / self.deviation).clamp(-stance.CLIP, stance.CLIP)
        hidden = torch.relu(self.hidden(self.drop(torch.cat([*parts, scaled], -1))))
        return self.out(self.drop(hidden))

    def of_texts(self, log_odds: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Return the log-odds of texts, (texts, 3); see `StanceModel.probabilities`."""
        pooled = [
            torch.cat([part[:, :2].logsumexp(0), (part[:, 2].mean() + self.neither)[None]])
            for part in log_odds.split(list(counts))
        ]
        return torch.stack(pooled)

    def weights(self) -> dict[str, np.ndarray]:
        """Return the arrays of `stance.npz`."""
        values = {"mean": self.mean, "deviation": self.deviation, "temperature": self.temperature}
        values["neither"] = self.neither
        for name in ("compare", "hidden", "out"):
            layer = getattr(self, name)
            values |= {name: layer.weight, f"{name}_bias": layer.bias}
        return {name: value.detach().numpy().astype(np.float16) for name, value in values.items()}


def padded(rows: Sequence[Row]) -> list[torch.Tensor]:
    """Return the arrays of the sentences of rows, padded to multiples of 16 tokens."""
    pairs = [(row.tokens, one) for row in rows for one in row.read]

    def stacked(arrays: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        length = -(-max(map(len, arrays)) // 16) * 16
        values = np.zeros((len(arrays), length, arrays[0].shape[1]), np.float32)
        mask = np.zeros((len(arrays), length), bool)
        for n, array in enumerate(arrays):
            values[n, : len(array)], mask[n, : len(array)] = array, True
        return torch.from_numpy(values), torch.from_numpy(mask)

    features = torch.from_numpy(np.stack([one.features for _, one in pairs]))
    return [*stacked([tokens for tokens, _ in pairs]), *stacked([one.tokens for _, one in pairs]), features]


def trained(rows: Sequence[Row], epochs: float) -> Network:
    """Return a network trained on rows."""
    rng = np.random.default_rng(0)
    network = Network(np.concatenate([[one.features for one in row.read] for row in rows]), rows[0].tokens.shape[1])
    drawn = np.array([SAMPLED.get(row.name, 1.0) * (OTHER_SAMPLED if row.other else 1.0) for row in rows])
    steps = int(epochs * drawn.sum() / BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        batch = [rows[n] for n in rng.choice(len(rows), BATCH, replace=False, p=drawn / drawn.sum())]
        log_odds = network(*padded(batch))
        labels = torch.tensor([row.label for row in batch])
        pooled = network.of_texts(log_odds, [len(row.read) for row in batch])
        loss = nn.functional.cross_entropy(pooled, labels, label_smoothing=SMOOTHING)
        is_named = torch.tensor([row.named is not None for row in batch for _ in row.read])
        of_sentences = [row.label if named else 2 for row in batch for named in row.named or [False] * len(row.read)]
        if is_named.any():
            single = torch.tensor(of_sentences)[is_named]
            loss = loss + OF_SENTENCES * nn.functional.cross_entropy(
                log_odds[is_named], single, label_smoothing=SMOOTHING
            )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            sys.stderr.write(f"step {step} of {steps}, loss {loss.item():.3f}\n")
    return network.eval()


def thresholds(rows: Sequence[Row]) -> Iterator[tuple[str, float, float, float]]:
    """Yield of each side the least threshold with `PRECISION` on held-out rows, its precision and recall."""
    model = stance.stance_model()
    chances = np.array([model.probabilities(model.log_odds(row.tokens, row.read)) for row in rows])
    labels = np.array([row.label for row in rows])
    for side in range(2):
        order = np.argsort(-chances[:, side])
        right = labels[order] == side
        precision = right.cumsum() / np.arange(1, len(order) + 1)
        enough = np.flatnonzero(precision >= PRECISION)
        last = int(enough[-1]) if len(enough) else 0
        recall = right[: last + 1].sum() / max(1, right.sum())
        yield LABELS[side], float(chances[order[last], side]), float(precision[last]), float(recall)


def main() -> None:
    """Write the weights, and print the thresholds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--epochs", type=float, default=5)
    asked = parser.parse_args()
    if not asked.cache.is_file():
        settings, rng = Settings(), random.Random(0)
        encoder = load_encoder(find_encoder("minilm"), "cosine", settings.retrieval.precision, settings.exports)
        paths = [asked.data / f"claims/train/{name}.jsonl.gz" for name in SETS]
        asked.cache.write_bytes(pickle.dumps([row for path in paths for row in rows_of(path, encoder, rng)]))
    rows = [row for row in pickle.loads(asked.cache.read_bytes()) if row.read]
    torch.manual_seed(0)
    held_out = [int(hashlib.md5(row.text.content.encode()).hexdigest(), 16) % 100 < HELD_OUT for row in rows]
    network = trained([row for row, held in zip(rows, held_out, strict=True) if not held], asked.epochs)
    np.savez_compressed(Path(stance.__file__).with_name(stance.WEIGHTS), **network.weights())
    for line in thresholds([row for row, held in zip(rows, held_out, strict=True) if held]):
        sys.stdout.write("{}: from {:.3f}, precision {:.3f}, recall {:.3f}\n".format(*line))


if __name__ == "__main__":
    main()
