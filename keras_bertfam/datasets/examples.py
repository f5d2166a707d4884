"""Examples in the form that tasks take."""

import dataclasses
import itertools
from typing import Any, Self

import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.datasets.task_data import TaskData


@checked
@dataclasses.dataclass
class Examples:
    """Examples as the fine-tuning tasks take them.

    Attributes:
        x: what the task's preprocessor takes. By kind of the task:

            - one text column: list of strings; two: tuple of two such lists;
            - `"tagging"`: list of lists of words;
            - `"question_answering"`: dict of the lists `question` and `context`;
            - `"multiple_choice"`: tuple of a list of passages and a list of lists
              of choices, each the question with an option in it.
        y: list of labels, or `None` where they aren't published: class numbers,
            floats, lists of names of tags or of a text's classes, or SQuAD's dicts of
            the lists `text` and `answer_start`.
        task: `TaskData`.
        ids: list of strings, for questions; else `None`.
        titles: list of strings, the articles that questions are on; else `None`.

    Example:

    ```python
    validation = keras_bertfam.datasets.load_examples("sst2", "validation", "data/sst2")
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "my_bert", label_names=validation.task.label_names)
    model.evaluate(validation.x, validation.y)
    first_hundred = validation[:100]
    ```
    """

    x: Any
    y: list[Any] | None
    task: TaskData
    ids: list[str] | None = None
    titles: list[str] | None = None

    def __len__(self) -> int:
        return len(_first(self.x))

    def take(self, count: int) -> Self:
        """Take the first `count` examples."""
        return self[:count]

    def __getitem__(self, chosen: slice) -> Self:
        """Select the examples of a slice."""
        return self._with_columns(lambda column: column[chosen])

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The classes in order, for `TextClassifier` or `TokenClassifier`."""
        return self.task.label_names

    def split(self, share: float, seed: int = 0) -> tuple[Self, Self]:
        """Split examples in two parts, the second of a share that is drawn by a seed.

        Classes have the same share of both parts, as nearly as whole examples allow;
        a class's last example isn't drawn. Both parts keep the order of the
        examples. Questions on one article may come to both: see `split_articles`.

        Args:
            share: float between 0 and 1, of the second part.
            seed: int.

        Returns:
            A tuple of two `Examples`.

        Raises:
            ValueError: for another share, or if a part were empty.
        """
        count = len(self)
        drawn: set[int] = set()
        if self.task.kind == "classification" and self.y is not None:
            labels = self.y
        else:
            labels = [0] * count
        if 0 < share < 1:
            drawn = _drawn(labels, share, np.random.default_rng(seed))
        if not 0 < len(drawn) < count:
            raise ValueError(
                "`validation_split` must be a share between 0 and 1 that leaves "
                f"examples on both sides. Received: {share}, for {count} examples."
            )
        second = [number in drawn for number in range(count)]
        return self._where([not here for here in second]), self._where(second)

    def split_articles(self, count: int) -> tuple[Self, Self]:
        """Split questions in two parts, the first those on the first `count` articles.

        No article is in both, in whatever order the questions are.

        Raises:
            ValueError: for examples that aren't questions, or if a part were empty.
        """
        names = list(dict.fromkeys(self.titles or ()))
        if not 0 < count < len(names):
            raise ValueError(
                "`count` must be more than 0 and less than the number of articles, "
                f"{len(names)}. Received: {count}."
            )
        first = set(names[:count])
        in_first = [title in first for title in self.titles or ()]
        return self._where(in_first), self._where([not here for here in in_first])

    def _where(self, mask):
        return self._with_columns(lambda column: list(itertools.compress(column, mask)))

    def _with_columns(self, function):
        def optional(column):
            return None if column is None else function(column)

        return dataclasses.replace(
            self,
            x=_map(function, self.x),
            y=optional(self.y),
            ids=optional(self.ids),
            titles=optional(self.titles),
        )


def _drawn(labels, share, rng):
    """Draw numbers of examples, with the same share of each class."""
    order = rng.permutation(len(labels)).tolist()
    classes: dict[Any, list[int]] = {}
    for number in order:
        classes.setdefault(labels[number], []).append(number)
    # A class gets its whole examples, then the greatest remainders one more.
    exact = {label: share * len(numbers) for label, numbers in classes.items()}
    counts = {label: int(size) for label, size in exact.items()}
    left = round(share * len(labels)) - sum(counts.values())
    for label in sorted(exact, key=lambda label: counts[label] - exact[label]):
        if left > 0 and len(classes[label]) - counts[label] > 1:
            counts[label] += 1
            left -= 1
    return {n for label, numbers in classes.items() for n in numbers[: counts[label]]}


def _first(x):
    while isinstance(x, (tuple, dict)):
        x = next(iter(x.values() if isinstance(x, dict) else x))
    return x


def _map(function, x):
    if isinstance(x, dict):
        return {name: function(column) for name, column in x.items()}
    return tuple(map(function, x)) if isinstance(x, tuple) else function(x)
