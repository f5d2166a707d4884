"""Compute numbers that describe attention, and sum them over tokens."""

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis.heads.attention import HeadRow
from keras_bertfam.tokenizers.pipeline_ops import token_strings

PATTERNS = (
    "start",
    "separator",
    "separator_to_separator",
    "punctuation",
    "self",
    "next",
    "previous",
)
# Smoothing of entropies and distances, as in the released code of the paper.
_SMOOTHED = {"entropy": 1e-4, "distance": 1e-3}


def word_attention(attention: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Turn attention between tokens into attention between words.

    Attention to the tokens of a word is summed; attention from them is averaged. So
    each word's weights still sum to 1, minus the weights of special tokens.

    Args:
        attention: float array `(..., tokens, tokens)`, queries before keys.
        words: int array `(tokens,)`: the number of each token's word; -1 for tokens
            without a word, such as special ones.

    Returns:
        Float array `(..., words, words)`.

    Raises:
        ValueError: for words without a token, or more or fewer numbers than tokens.

    Reference: [Clark et al., 2019](https://arxiv.org/abs/1906.04341), section 4.1.

    Example:

    ```python
    from keras_bertfam.analysis.heads.measures import word_attention
    attention = np.array([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])
    word_attention(attention, np.array([0, 1, 1]))
    # [[0.2, 0.8], [0.25, 0.75]]
    ```
    """
    words = np.asarray(words)
    count = int(words.max(initial=-1)) + 1
    belongs = (np.arange(count)[:, None] == words).astype(attention.dtype)
    sizes = belongs.sum(axis=1, keepdims=True)
    if words.shape != attention.shape[-1:] or not sizes.all():
        raise ValueError(
            f"`words` must have a number for each of {attention.shape[-1]} tokens, "
            f"and a token for each word. Received: {words.tolist()}."
        )
    return (belongs / sizes) @ attention @ belongs.T


def entropies(attention: np.ndarray) -> np.ndarray:
    """Compute the entropy of each query's attention, in nats.

    Args:
        attention: float array `(..., queries, keys)`.

    Returns:
        Float array `(..., queries)`, from 0 to the logarithm of the number of keys.
    """
    return _entropy(_smooth(attention, _SMOOTHED["entropy"]))


def divergences(attention: np.ndarray) -> np.ndarray:
    """Compute Jensen-Shannon divergences between heads in nats, averaged over queries.

    Args:
        attention: float array `(heads, queries, keys)`.

    Returns:
        Float array `(heads, heads)`, from 0 to the logarithm of 2.
    """
    attention = _smooth(attention, _SMOOTHED["distance"])
    alone = _entropy(attention)
    found = np.zeros((len(attention), len(attention)))
    for head in range(1, len(attention)):
        both = _entropy((attention[head] + attention[:head]) / 2)
        each = both - (alone[head] + alone[:head]) / 2
        found[head, :head] = found[:head, head] = each.mean(axis=-1)
    return np.maximum(found, 0)


def plane_of(distances: np.ndarray) -> np.ndarray:
    """Find points in a plane with distances close to the given ones: classical scaling.

    Args:
        distances: float array `(points, points)`, symmetric.

    Returns:
        Float array `(points, 2)`, around the origin.
    """
    count = len(distances)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ distances**2 @ centre)
    found = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0))
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1])))


def _smooth(attention, share):
    return (1 - share) * attention.astype("float64") + share / attention.shape[-1]


def _entropy(attention):
    return -np.sum(attention * np.log(attention), axis=-1)


@dataclasses.dataclass(frozen=True, eq=False)
class RelationScore:
    """Hold how well each head finds one side of a dependency from the other.

    Attributes:
        relation: str, such as `"nsubj"`.
        direction: `"to head"`, if the dependent attends to its head, or `"to
            dependent"`.
        count: int. The number of such arcs.
        accuracy: float array `(num_layers, num_heads)`: the share of arcs where the
            other word with the most attention is the correct one.
        baseline: float, the accuracy of the best fixed offset.
        offset: int, the best fixed offset, in words.
    """

    relation: str
    direction: str
    count: int
    accuracy: np.ndarray
    baseline: float
    offset: int


class HeadMeasures:
    """Sum measures of heads over tokens, and count the tokens."""

    def __init__(self, tokenizer, counts):
        self.token_counts = counts
        self.start, self.end = tokenizer.start_token_id, tokenizer.end_token_id
        self.marks = np.array([_is_punctuation(t) for t in token_strings(tokenizer)])
        self.sums: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.at_offsets: dict[int, Any] = {}

    def _note(self, name, values):
        """Add values `(num_layers, num_heads, queries)`."""
        self.sums[name] = self.sums.get(name, 0) + values.sum(axis=-1)
        self.counts[name] = self.counts.get(name, 0) + values.shape[-1]

    def add(self, row: HeadRow) -> None:
        attention = row.attention
        [plain] = np.nonzero(row.words >= 0)
        among = attention[:, :, plain][..., plain]
        self._note("confidence", among.max(axis=-1))
        self._note_offsets(attention[:, :, plain].argmax(axis=-1) - plain)
        frequency = self.token_counts[row.token_ids[plain]]
        if frequency.min() < frequency.max():  # otherwise no token is rarer than others
            found = frequency[among.argmax(axis=-1)]
            self._note("rare", found == frequency.min())
            rarest = frequency == frequency.min()
            uniform = rarest.sum() / len(row.words)
            self._note("rare_margin", among[..., rarest].sum(axis=-1) - uniform)
        self._note_patterns(row, plain)
        self._note("entropy", entropies(attention))
        heads = attention.reshape(-1, *attention.shape[2:])
        distances, tokens = divergences(heads), len(row.words)
        self.sums["distances"] = self.sums.get("distances", 0) + tokens * distances
        self.counts["distances"] = self.counts.get("distances", 0) + tokens

    def _note_offsets(self, offsets):
        for offset in np.unique(offsets):
            here = np.sum(offsets == offset, axis=-1)
            before = self.at_offsets.get(int(offset), 0)
            self.at_offsets[int(offset)] = before + here

    def _note_patterns(self, row, plain):
        special = row.words < 0
        starts = special & (row.token_ids == self.start)
        if self.start == self.end:  # as in GPT-2, whose text begins with the first
            starts &= np.cumsum(starts) == 1
        separators = special & (row.token_ids == self.end) & ~starts
        # Tokens that a task has added are no punctuation.
        known = np.minimum(row.token_ids, len(self.marks) - 1)
        keys = {
            "start": starts,
            "separator": separators,
            "punctuation": ~special & self.marks[known] & (known == row.token_ids),
        }
        for name, places in keys.items():
            self._note(name, row.attention[..., places].sum(axis=-1)[:, :, plain])
        ends = row.attention[..., separators].sum(axis=-1)[:, :, separators]
        self._note("separator_to_separator", ends)
        for name, offset in (("self", 0), ("next", 1), ("previous", -1)):
            there = plain + offset
            inside = (there >= 0) & (there < len(row.words))
            found = np.zeros((*row.attention.shape[:2], len(plain)))
            found[..., inside] = row.attention[:, :, plain[inside], there[inside]]
            self._note(name, found)

    def means(self, left: np.ndarray) -> dict[str, Any]:
        nothing = np.full(left.shape, np.nan)
        flat = left.ravel()
        distances = self.sums.pop("distances") / self.counts["distances"]
        points = np.full((left.size, 2), np.nan)
        points[flat] = plane_of(distances[np.ix_(flat, flat)])
        found = {
            name: _of_left(total / self.counts[name], left)
            if self.counts[name]
            else nothing
            for name, total in self.sums.items()
        }
        places = np.array(sorted(self.at_offsets, key=lambda k: (abs(k), k)))
        counts = np.stack([self.at_offsets[k] for k in places.tolist()])
        return {
            "confidence": found["confidence"],
            "offsets": np.where(left, places[counts.argmax(axis=0)], 0),
            "positional": _of_left(counts.max(axis=0) / counts.sum(axis=0), left),
            "rare": found.get("rare", nothing),
            "rare_margin": found.get("rare_margin", nothing),
            "patterns": {name: found[name] for name in PATTERNS},
            "entropy": found["entropy"],
            "distances": _of_left(distances, np.outer(flat, flat)),
            "map": points,
        }


class ArcCounts:
    """Count dependencies, and those that heads find."""

    def __init__(self):
        self.found: dict[tuple[str, str], Any] = {}
        self.offsets: dict[tuple[str, str], dict[int, int]] = {}

    def add(self, row: HeadRow, dependencies: Sequence[tuple[int, str]]) -> None:
        attention = word_attention(row.attention, row.words)
        count = attention.shape[-1]
        attention[..., np.arange(count), np.arange(count)] = -1  # another word
        best = attention.argmax(axis=-1)
        for word, (head, relation) in enumerate(dependencies):
            if head > 0:
                self._note((relation, "to head"), best, word, head - 1)
                self._note((relation, "to dependent"), best, head - 1, word)

    def _note(self, key, best, query, answer):
        self.found[key] = self.found.get(key, 0) + (best[:, :, query] == answer)
        offsets = self.offsets.setdefault(key, {})
        offsets[answer - query] = offsets.get(answer - query, 0) + 1

    def scores(self, least: int, left: np.ndarray) -> list[RelationScore]:
        found = []
        for (relation, direction), offsets in self.offsets.items():
            count = sum(offsets.values())
            if count >= least:
                offset = min(offsets, key=lambda k: (-offsets[k], abs(k), k))
                accuracy = _of_left(self.found[relation, direction] / count, left)
                rest = (accuracy, offsets[offset] / count, offset)
                found.append(RelationScore(relation, direction, count, *rest))
        return sorted(found, key=lambda s: (-s.count, s.relation, s.direction))


def _of_left(values, left):
    return np.where(left, values, np.nan)


def _is_punctuation(token):
    """Tell whether a token is punctuation, apart from a mark of a word's beginning."""
    for mark in ("##", "\u2581"):
        token = token.removeprefix(mark) if len(token) > len(mark) else token
    token = token.strip()
    return bool(token) and all(unicodedata.category(c)[0] == "P" for c in token)
