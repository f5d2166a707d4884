"""Describe the roles of attention heads."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis.heads.attention import HeadRows
from keras_bertfam.analysis.heads.measures import (
    ArcCounts,
    HeadMeasures,
    RelationScore,
)
from keras_bertfam.analysis.plots import legend_beside, new_figure, written
from keras_bertfam.analysis.report import as_text
from keras_bertfam.arguments import checked
from keras_bertfam.types import Model, Path, Tokenizer

# Shares of maxima from which a head has a role. A syntactic head must exceed a fixed
# offset by the margin, and a head of rare tokens must exceed equal attention to all
# tokens.
POSITIONAL, RARE, MARGIN = 0.9, 0.5, 0.1
_MOST_RELATIONS = 15


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HeadRoles:
    """Holds the result of `head_roles`. As a string it is tables; `plot()` draws it.

    Arrays have the shape `(num_layers, num_heads)`. Layers and heads are numbered from
    0. Pruned heads have `nan`, and 0 as offset.

    Attributes:
        confidence: float array: the mean over tokens, without special ones, of the
            greatest attention weight.
        offsets: int array: the most frequent distance, in tokens, of the greatest
            weight; -1 is the token before.
        positional: float array: the share of tokens whose greatest weight is at this
            offset.
        rare: float array: the share of tokens whose greatest weight is on the least
            frequent token of the sentence, without special tokens.
        rare_margin: float array: how much more attention this token gets than with
            equal weights for all tokens of the row.
        patterns: dict from `"start"` (`[CLS]`), `"separator"` (`[SEP]`),
            `"punctuation"`, `"self"`, `"next"` and `"previous"` to float arrays: the
            part of a token's attention that goes there, for tokens that aren't special;
            and `"separator_to_separator"`: the part of separators' attention that goes
            to separators.
        entropy: float array, in nats.
        distances: float array `(heads, heads)` for all heads, layer by layer:
            Jensen-Shannon divergences in nats.
        map: float array `(heads, 2)`: points with distances close to these.
        relations: list of `RelationScore`; relations with the most arcs come first.

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

    def __repr__(self) -> str:
        tables = self.tables().items()
        return "\n\n".join(f"{title}\n{as_text(*table)}" for title, table in tables)

    def roles_of(self, layer: int, head: int) -> list[str]:
        """List the roles of a head.

        A positional head has at least 90 % of its maxima at one offset. A syntactic
        head finds a relation at least 10 points more often than the best fixed offset
        does. A rare-token head has at least half of its maxima on the rarest token, and
        gives it at least 10 points more attention than with equal weights.

        Args:
            layer: int.
            head: int.

        Returns:
            List of str, such as `"positional -1"`, `"syntactic nsubj"` and
            `"rare token"`.
        """
        found = []
        if self.positional[layer, head] >= POSITIONAL:
            found.append(f"positional {self.offsets[layer, head]:+d}")
        better = (
            score.relation
            for score in self.relations
            if score.accuracy[layer, head] >= score.baseline + MARGIN
        )
        found += [f"syntactic {relation}" for relation in dict.fromkeys(better)]
        at = layer, head
        if self.rare[at] >= RARE and self.rare_margin[at] >= MARGIN:
            found.append("rare token")
        return found

    def tables(self) -> dict[str, tuple[list[str], list[list[Any]]]]:
        """Arrange the numbers as tables.

        Returns:
            Dict from titles to pairs of the names of the columns and the rows.
        """
        # Pruned heads are left out.
        places = [*map(tuple, np.argwhere(self._left()).tolist())]
        columns = ["layer", "head", "confidence", "offset", "share there", "rare token"]
        parts = (self.confidence, self.offsets, self.positional, self.rare)
        heads = [
            [*at, *(part[at] for part in parts), ", ".join(self.roles_of(*at))]
            for at in places
        ]
        kinds = list(self.patterns)
        attended = [
            [*at, *(self.patterns[name][at] for name in kinds)] for at in places
        ]
        names = [name.replace("_", " ") for name in kinds]
        found = {
            "Roles of heads": ([*columns, "roles"], heads),
            "Where attention goes": (["layer", "head", *names], attended),
            "Layers": self._layers(),
        }
        if self.relations:
            found["Relations, and the head that finds most"] = self._relations()
        return found

    def _left(self):
        return ~np.isnan(self.confidence)

    def _layers(self):
        layers, heads = self.confidence.shape
        blocks = self.distances.reshape(layers, heads, layers, heads)
        rows = []
        for k, left in enumerate(self._left()):
            count = left.sum()
            if count:
                distance = np.nansum(blocks[k, :, k]) / max(count * (count - 1), 1)
                rows.append([k, self.entropy[k, left].mean(), distance])
        return ["layer", "entropy (nats)", "distance between heads (nats)"], rows

    def _relations(self):
        rows = []
        for score in self.relations:
            layer, head = _best(score)
            best = score.accuracy[layer, head]
            rows.append(
                [score.relation, score.direction, score.count, layer, head, best]
                + [score.baseline, score.offset]
            )
        columns = ["relation", "direction", "arcs", "layer", "head", "accuracy"]
        return [*columns, "best fixed offset", "offset"], rows

    def plot(self, path: Path | None = None) -> Any:
        """Draw everything in one picture: colour maps of heads, and their distances.

        Args:
            path: where to write it, by the ending of its name (`.png`, `.svg`,
                `.pdf`), or `None`.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: without `matplotlib`, which the `analysis` extra has.
        """
        maps = {
            "confidence": self.confidence,
            "share of maxima at the best offset": self.positional,
            "share of maxima on the rarest token": self.rare,
            **{
                f"attention: {k.replace('_', ' ')}": v for k, v in self.patterns.items()
            },
        }
        figure, panels = new_figure(len(maps) + 2 + bool(self.relations), 4.5)
        for axes, (title, values) in zip(panels, maps.items(), strict=False):
            draw_heads(figure, axes, title, values, 1)
        rest = panels[len(maps) :]
        draw_heads(figure, rest[0], "entropy (nats)", self.entropy, None)
        self._draw_map(figure, rest[1])
        if self.relations:
            self._draw_relations(rest[2])
        return written(figure, path)

    def plot_relations(self, path: Path | None = None) -> Any:
        """Draw only the relations, as bars: the best head beside the best fixed offset.

        Args:
            path: see `plot`.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ValueError: without relations.
            ImportError: see `plot`.
        """
        if not self.relations:
            raise ValueError("`plot_relations` needs relations. Received: none.")
        figure, [axes] = new_figure(1, 8)
        self._draw_relations(axes)
        return written(figure, path)

    def _draw_map(self, figure, axes):
        layers, heads = self.confidence.shape
        numbers = np.repeat(np.arange(layers), heads)
        points = axes.scatter(*self.map.T, c=numbers, s=25)
        bar = figure.colorbar(points, ax=axes, label="layer")
        bar.locator.set_params(integer=True)
        axes.set(xticks=[], yticks=[], title="heads by their distances")

    def _draw_relations(self, axes):
        shown = self.relations[:_MOST_RELATIONS]
        places = np.arange(len(shown))
        best = [score.accuracy[_best(score)] for score in shown]
        axes.barh(places, best, height=0.4, label="best head")
        baselines = [score.baseline for score in shown]
        axes.barh(places + 0.4, baselines, height=0.4, label="best fixed offset")
        labels = [f"{score.relation}, {score.direction}" for score in shown]
        axes.set_yticks(places + 0.2, labels)
        axes.set(xlabel="share of arcs found", xlim=(0, 1))
        axes.invert_yaxis()
        legend_beside(axes)


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
    """Describe what each attention head of a model attends to in sentences.

    Args:
        model: a backbone, or a task with any head, of a family that reads one row of
            tokens. Some of its heads may be pruned.
        sentences: list of str, split at white space and punctuation, or of lists of
            words.
            Sentences longer than a row are read in parts, if there are no dependencies.
        dependencies: for each sentence a list with `(head, relation)` for each word, as
            in the columns HEAD and DEPREL of CoNLL-U: heads are counted from 1, and 0
            is the root. `None` gives no syntactic roles.
        token_counts: int array `(vocabulary_size,)`: the tokens' frequencies, best in a
            large corpus. `None` counts them in these sentences.
        least_arcs: int. Relations with fewer arcs are left out.
        tokenizer: for a model without a preprocessor, or in place of its tokenizer.
        batch_size: int. Sentences at a time.

    Returns:
        `HeadRoles`.

    Raises:
        ValueError: for a model of another kind, inputs that aren't sentences, or
            dependencies or counts of other lengths.

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
    sums, arcs = HeadMeasures(rows.tokenizer, counts), ArcCounts()
    for number, row in enumerate(rows):
        sums.add(row)
        if dependencies is not None:
            arcs.add(row, dependencies[number])
    return HeadRoles(
        **sums.means(rows.left), relations=arcs.scores(least_arcs, rows.left)
    )


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


def _best(score):
    return np.unravel_index(np.nanargmax(score.accuracy), score.accuracy.shape)


def draw_heads(
    figure: Any, axes: Any, title: str, values: np.ndarray, most: float | None
) -> None:
    """Draw a number for each head as a colour map.

    Args:
        figure, axes: of `matplotlib`.
        title: str.
        values: float array `(num_layers, num_heads)`.
        most: float, the end of the scale, which begins with 0; `None` takes the
            greatest value.
    """
    image = axes.imshow(values, vmin=0, vmax=most, aspect="auto")
    figure.colorbar(image, ax=axes)
    axes.set(title=title, xlabel="head", ylabel="layer")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
