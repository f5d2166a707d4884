"""What attention heads are there for."""

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis.attention_measures import (
    divergences,
    entropies,
    plane_of,
    word_attention,
)
from keras_bertfam.analysis.head_rows import HeadRow, HeadRows
from keras_bertfam.analysis.role_tables import RoleTables
from keras_bertfam.arguments import checked
from keras_bertfam.tokenizers.pipeline_ops import token_strings
from keras_bertfam.types import Model, Tokenizer

PATTERNS = (
    "start",
    "separator",
    "separator_to_separator",
    "punctuation",
    "self",
    "next",
    "previous",
)


@dataclasses.dataclass(frozen=True, eq=False)
class RelationScore:
    """How well each head finds one side of a dependency from the other.

    Attributes:
        relation: str, such as `"nsubj"`.
        direction: `"to head"`, the dependent attends to its head, or `"to dependent"`.
        count: int. How many such arcs there are.
        accuracy: float array `(num_layers, num_heads)`: the share of arcs where the
            other word that gets the most attention is the right one.
        baseline: float, that of the best fixed offset.
        offset: int, that offset, in words.
    """

    relation: str
    direction: str
    count: int
    accuracy: np.ndarray
    baseline: float
    offset: int


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HeadRoles(RoleTables):
    """What `head_roles` gives. As a string it is tables, and `plot()` is a figure.

    Arrays have the shape `(num_layers, num_heads)` and numbers begin with 0. Pruned
    heads have `nan`, and 0 as offset.

    Attributes:
        confidence: float array: the mean over tokens of the greatest attention weight,
            special tokens left out.
        offsets: int array: the distance, in tokens, that most tokens' greatest weight
            is at; -1 is the token before.
        positional: float array: the share of tokens where it is.
        rare: float array: the share of tokens where the greatest weight is on the
            least frequent token of the sentence, special tokens left out.
        rare_margin: float array: how much more attention that token gets than if all
            tokens of the row got the same.
        patterns: dict from `"start"` (`[CLS]`), `"separator"` (`[SEP]`),
            `"punctuation"`, `"self"`, `"next"` and `"previous"` to float arrays: how
            much of a token's attention goes there, special tokens' own left out; and
            `"separator_to_separator"`, how much of theirs.
        entropy: float array, in nats.
        distances: float array `(heads, heads)` of all heads, layer by layer:
            Jensen-Shannon divergences in nats.
        map: float array `(heads, 2)`: points with distances like these.
        relations: list of `RelationScore`, those with the most arcs first.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    roles = keras_bertfam.analysis.head_roles(model, ["the cat sat", "a dog"])
    roles.tables()["Layers"]
    roles.patterns["separator"].mean(axis=1)  # of each layer
    ```
    """

    confidence: np.ndarray
    offsets: np.ndarray
    positional: np.ndarray
    rare: np.ndarray
    rare_margin: np.ndarray
    patterns: dict[str, np.ndarray]
    entropy: np.ndarray
    distances: np.ndarray
    map: np.ndarray
    relations: list[RelationScore]


@checked
def head_roles(
    model: Model,
    sentences: Sequence[str | Sequence[str]],
    dependencies: Sequence[Sequence[tuple[int, str]]] | None = None,
    *,
    token_counts: np.ndarray | None = None,
    least_arcs: int = 10,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 16,
) -> HeadRoles:
    """What each attention head of a model attends to, in plain sentences.

    Args:
        model: a backbone, or a task with any head: of any family that reads one row
            of tokens. Some of its heads may be pruned.
        sentences: list of str, split at white space and punctuation, or of lists of
            words.
            Those that are longer than a row are read in parts, if they have no
            dependencies.
        dependencies: for each sentence a list of `(head, relation)`, one for each word,
            as in the columns HEAD and DEPREL of CoNLL-U: heads are counted from 1, and
            0 is the root. `None` for no syntactic roles.
        token_counts: int array `(vocabulary_size,)`: how frequent tokens are, better
            those of a large corpus; `None` means in these sentences.
        least_arcs: int. Relations with fewer arcs are left out.
        tokenizer: for a model without a preprocessor, or in place of its tokenizer.
        batch_size: int. Sentences at a time.

    Returns:
        `HeadRoles`.

    Raises:
        ValueError: for a model of another kind, what isn't sentences, or dependencies
            and counts that don't fit them.

    References: roles: [Voita et al., 2019](https://arxiv.org/abs/1905.09418), section
    5; patterns, entropy and distances:
    [Clark et al., 2019](https://arxiv.org/abs/1906.04341), sections 3, 4 and 6.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    roles = keras_bertfam.analysis.head_roles(
        model, ["the cat sat"], [[(2, "det"), (3, "nsubj"), (0, "root")]], least_arcs=1)
    print(roles)
    roles.plot("roles.png")
    roles.roles_of(layer=0, head=1)  # such as ["positional -1"]
    ```
    """
    whole = dependencies is not None
    rows = HeadRows(model, sentences, tokenizer, batch_size, whole)
    if dependencies is not None:
        _check_dependencies(rows.words, dependencies)
    counts = rows.token_counts() if token_counts is None else np.asarray(token_counts)
    if counts.shape != (rows.tokenizer.vocabulary_size(),):
        raise ValueError(
            "`token_counts` must have a count for each of "
            f"{rows.tokenizer.vocabulary_size()} tokens. Received: "
            f"shape={counts.shape}."
        )
    sums, arcs = _Sums(rows.tokenizer, counts), _Arcs()
    for number, row in enumerate(rows):
        sums.add(row)
        if dependencies is not None:
            arcs.add(row, dependencies[number])
    return HeadRoles(
        **sums.means(rows.left), relations=arcs.scores(least_arcs, rows.left)
    )


class _Sums:
    """Sums over tokens of what describes heads, and numbers of tokens."""

    def __init__(self, tokenizer, counts):
        self.token_counts = counts
        self.start, self.end = tokenizer.start_token_id, tokenizer.end_token_id
        self.marks = np.array([_is_punctuation(t) for t in token_strings(tokenizer)])
        self.sums: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.at_offsets: dict[int, Any] = {}

    def _note(self, name, values):
        """Adds values `(num_layers, num_heads, queries)`."""
        self.sums[name] = self.sums.get(name, 0) + values.sum(axis=-1)
        self.counts[name] = self.counts.get(name, 0) + values.shape[-1]

    def add(self, row: HeadRow) -> None:
        attention = row.attention
        [plain] = np.nonzero(row.words >= 0)
        among = attention[:, :, plain][..., plain]
        self._note("confidence", among.max(axis=-1))
        self._note_offsets(attention[:, :, plain].argmax(axis=-1) - plain)
        frequency = self.token_counts[row.token_ids[plain]]
        if frequency.min() < frequency.max():  # or no token is rarer than others
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
        separators = special & (row.token_ids == self.end)
        keys = {
            "start": special & (row.token_ids == self.start),
            "separator": separators,
            "punctuation": ~special & self.marks[row.token_ids],
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


class _Arcs:
    """Counts of dependencies, and of those that heads find."""

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


def _check_dependencies(sentences, dependencies):
    if len(dependencies) != len(sentences):
        raise ValueError(
            f"`dependencies` must have a list for each of {len(sentences)} sentences. "
            f"Received: {len(dependencies)}."
        )
    for number, (words, arcs) in enumerate(zip(sentences, dependencies, strict=True)):
        heads = [head for head, _ in arcs]
        whole = all(isinstance(head, (int, np.integer)) for head in heads)
        itself = any(head == word for word, head in enumerate(heads, 1))
        fits = whole and all(0 <= head <= len(words) for head in heads) and not itself
        if len(arcs) != len(words) or not fits:
            raise ValueError(
                f"`dependencies` must have a head from 0 to {len(words)}, another word "
                f"or 0, for each of the words {words}. Received for sentence {number}: "
                f"{list(arcs)}."
            )


def _is_punctuation(token):
    """Whether a token, without the mark that it goes on or begins a word, is it."""
    for mark in ("##", "\u2581"):
        token = token.removeprefix(mark) if len(token) > len(mark) else token
    token = token.strip()
    return bool(token) and all(unicodedata.category(c)[0] == "P" for c in token)
