"""Compute vectors of words in their contexts, and find similar occurrences."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis import plots
from keras_bertfam.analysis.word_states import embed_words, words_of
from keras_bertfam.arguments import checked
from keras_bertfam.types import Model, Path, Tokenizer


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WordVectors:
    """Holds vectors of words for each occurrence in sentences, from `word_vectors()`.

    Attributes:
        words: list of the words, one for each occurrence.
        vectors: float32 array `(occurrences, width)`.
        sentences: list of lists of words.
        places: int array `(occurrences, 2)`: the number of the sentence, and of the
            word in it.
        match_case: bool. Whether `occurrences()` and `nearest_contexts()` treat `Bank`
            and `bank` as different words.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    found = keras_bertfam.analysis.word_vectors(
        model, ["the cat sat", "a dog on the cat", "the dog sat"], ["cat", "dog"])
    found.nearest_contexts("dog", count=2)
    found.static_vectors()["cat"]
    found.plot("animals.png")
    ```
    """

    words: list[str]
    vectors: np.ndarray
    sentences: list[list[str]]
    places: np.ndarray
    match_case: bool = True

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        kinds = len(set(self.words))
        return f"WordVectors({len(self)} occurrences of {kinds} words)"

    def occurrences(self, word: str) -> np.ndarray:
        """Find the numbers of the occurrences of a word.

        Raises:
            ValueError: if there is none.
        """
        same = _same(self.match_case)
        found = np.flatnonzero([same(other) == same(word) for other in self.words])
        if not len(found):
            raise ValueError(f"`word` must be one that occurs. Received: {word!r}.")
        return found

    def context(self, number: int, width: int | None = None) -> str:
        """Give the sentence of an occurrence, with the word in brackets.

        Args:
            number: int, the number of the occurrence.
            width: int. The most words on either side; `None` for all.
        """
        row, place = self.places[number]
        words = self.sentences[row]
        width = len(words) if width is None else width
        before = words[max(0, place - width) : place]
        behind = words[place + 1 : place + 1 + width]
        return " ".join([*before, f"[{words[place]}]", *behind])

    def nearest_contexts(
        self,
        word: str,
        occurrence: int = 0,
        count: int = 5,
        width: int | None = None,
    ) -> list[tuple[float, str]]:
        """Find the occurrences, of any word, that are most similar to a given one.

        Args:
            word: str.
            occurrence: int. Which occurrence of the word, counted from 0.
            count: int. How many occurrences to find.
            width: see `context`.

        Returns:
            List of tuples of the cosine between the vectors, and the sentence with the
            word in brackets; the most similar first. All occurrences except the given
            one are searched.

        Raises:
            ValueError: for a word that doesn't occur, or doesn't occur so often.

        Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), table 4.
        """
        numbers = self.occurrences(word)
        if not 0 <= occurrence < len(numbers):
            raise ValueError(
                f"`occurrence` must be from 0 to {len(numbers) - 1} for {word!r}. "
                f"Received: {occurrence}."
            )
        own = numbers[occurrence]
        lengths = np.linalg.norm(self.vectors, axis=1)
        cosines = self.vectors @ self.vectors[own]
        cosines = cosines / np.maximum(lengths * lengths[own], 1e-12)
        order = np.argsort(-cosines, kind="stable")
        order = order[order != own][: max(count, 0)]
        return [(float(cosines[k]), self.context(k, width)) for k in order]

    def static_vectors(self) -> dict[str, np.ndarray]:
        """Average the occurrences of each word into one vector.

        Returns:
            Dict from words, in the order in which they occur, to float32 arrays
            `(width,)`.

        Reference: [Bommasani et al.,
        2020](https://aclanthology.org/2020.acl-main.431/), section 3.
        """
        names, kinds = self._kinds()
        sums = np.zeros((len(names), self.vectors.shape[1]))
        np.add.at(sums, kinds, self.vectors)
        means = sums / np.bincount(kinds, minlength=len(names))[:, None]
        return dict(zip(names, means.astype("float32"), strict=True))

    def projection(self) -> np.ndarray:
        """Project the vectors on their two principal components, `(occurrences, 2)`.

        Each component's sign is such that its greatest number is positive.
        """
        centered = self.vectors.astype(float) - self.vectors.mean(axis=0)
        left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
        points = np.zeros((len(centered), 2))
        count = min(2, len(sizes))
        points[:, :count] = left[:, :count] * sizes[:count]
        greatest = np.abs(points).argmax(axis=0)
        signs = np.sign(points[greatest, [0, 1]])
        return points * np.where(signs == 0, 1, signs)

    def plot(self, path: Path | None = None, width: int = 2) -> Any:
        """Draw each occurrence in the plane of the two principal components.

        Args:
            path: file to write; its suffix (`.png`, `.svg`, `.pdf`) sets the format. Or
                `None`.
            width: int. How many words on either side are written beside a point. With
                more than 60 points they are left out.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ValueError: if nothing occurs.
            ImportError: without `matplotlib`, which the `analysis` extra has.
        """
        if not len(self):
            raise ValueError("`plot` needs at least one occurrence. Received: none.")
        figure, [axes] = plots.new_figure(1, 9)
        points = self.projection()
        names, kinds = self._kinds()
        for number, name in enumerate(names):
            axes.scatter(*points[kinds == number].T, s=24, label=name)
        if len(points) <= 60:
            # Texts point to the middle, so that they stay inside the picture.
            middle = (points[:, 0].min() + points[:, 0].max()) / 2
            for number, point in enumerate(points):
                right = point[0] > middle
                axes.annotate(
                    self.context(number, width),
                    point,
                    ha="right" if right else "left",
                    xytext=(-4 if right else 4, 4),
                    textcoords="offset points",
                    fontsize="x-small",
                    parse_math=False,
                )
        axes.set(xlabel="first component", ylabel="second component")
        if len(names) <= plots.MOST_IN_CELLS:
            plots.legend_beside(axes)
        return plots.written(figure, path)

    def _kinds(self):
        """List the different words, and the index among them for each occurrence."""
        numbers = {word: k for k, word in enumerate(dict.fromkeys(self.words))}
        return [*numbers], np.array([numbers[word] for word in self.words], int)


@checked
def word_vectors(
    model: Model,
    sentences: Sequence[str | Sequence[str]],
    words: Sequence[str] | None = None,
    layers: Sequence[int] = (-1,),
    pool: str = "mean",
    combine: str | Sequence[float] = "concat",
    *,
    match_case: bool = False,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> WordVectors:
    """Compute a vector for each occurrence of words in sentences, without training.

    Args:
        model: a backbone, or a task with any head.
        sentences: list of str, split at white space and punctuation, or of lists of
            words.
        words: list of the wanted words, or `None` for all. Only sentences with these
            words are computed; a warning names words that don't occur.
        match_case: bool. Whether upper and lower case must agree. Defaults to `False`.
        layers, pool, combine, tokenizer, batch_size: see `embed_words`. For the last
            four layers as one vector, give `layers=(-4, -3, -2, -1)` with
            `combine="concat"` or `"sum"`. A list of weights makes a scalar mix.

    Returns:
        A `WordVectors`: its arrays, `nearest_contexts()`, `static_vectors()` and
        `plot()`.

    Raises:
        ValueError: for a single string as `words`, and what `embed_words` refuses.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    found = keras_bertfam.analysis.word_vectors(
        model, ["the cat sat", "on a cat"], ["cat"])
    found.vectors.shape, found.context(0)  # (2, 8), "the [cat] sat"
    ```

    References: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3;
    [Peters et al., 2018](https://arxiv.org/abs/1802.05365), section 3.
    """
    if isinstance(words, (str, bytes)):
        raise ValueError(f"`words` must be a list of words. Received: {words!r}.")
    same = _same(match_case)
    wanted = None if words is None else {same(word): word for word in words}
    texts = [list(sentence) for sentence in words_of(sentences)]
    places = [
        (row, place)
        for row, sentence in enumerate(texts)
        for place, word in enumerate(sentence)
        if wanted is None or same(word) in wanted
    ]
    if wanted is not None:
        here = {same(texts[row][place]) for row, place in places}
        _warn_of_missing([word for key, word in wanted.items() if key not in here])
    rows = list(dict.fromkeys(row for row, _ in places))
    embedded = embed_words(
        model,
        [texts[row] for row in rows],
        layers,
        pool,
        combine,
        tokenizer=tokenizer,
        batch_size=batch_size,
    )
    of_rows = dict(zip(rows, (vectors for _, vectors in embedded), strict=True))
    empty = np.zeros((0, 0), "float32")
    vectors = np.stack([of_rows[row][k] for row, k in places]) if places else empty
    return WordVectors(
        [texts[row][place] for row, place in places],
        vectors,
        texts,
        np.array(places, int).reshape(-1, 2),
        match_case,
    )


def _same(match_case):
    """Give the function that maps equal words to the same form."""
    return str if match_case else str.casefold


def _warn_of_missing(words):
    if words:
        warnings.warn(
            "`words` has some that don't occur in the sentences: "
            f"{', '.join(map(repr, words))}.",
            stacklevel=4,
        )
