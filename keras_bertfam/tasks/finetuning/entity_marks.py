"""Mark the entities that a tagger finds in texts."""

import re
from collections.abc import Sequence
from typing import Any

from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.documents.marked_spans import MARKS, check_kind
from keras_bertfam.tokenizers.texts import units_of
from keras_bertfam.types import Model


@checked
def mark_entities(
    tagger: Model,
    texts: str | Sequence[str],
    kind: str = "entity",
    types: Sequence[str] | None = None,
    batch_size: int = 32,
) -> Any:
    """Mark the entities that a tagger finds in texts, for `KnowledgeMasking`.

    Each line is a sentence; it is split into words as by
    `keras_bertfam.layers.Lexicon`. Marks of the same kind that are already in the texts
    are removed.

    Args:
        tagger: `keras_bertfam.tasks.TokenClassifier` with a preprocessor, and with
            `label_names` such as `"B-person"`, `"I-person"` and `"O"`.
        texts: a string, or a list of strings.
        kind: `"entity"` or `"phrase"`: which marks to write. Defaults to `"entity"`.
        types: list of the types of entities to mark, such as `["person"]`. `None` means
            all.
        batch_size: int. Sentences in a batch.

    Returns:
        The string, or list of strings, with marks.

    Raises:
        ValueError: for labels that mark no entities, an unknown `kind` or unknown
            `types`.

    Example:

    ```python
    tagger = keras_bertfam.tasks.TokenClassifier.from_preset("my_tagger")
    keras_bertfam.tasks.mark_entities(tagger, "Ada wrote.")  # "⟦Ada⟧ wrote."
    ```

    Reference: [Sun et al., 2019](https://arxiv.org/abs/1904.09223), section 3.2.3.
    """
    opening, closing = MARKS[check_kind(kind)]
    known = _types_of(tagger.label_names)
    if unknown := {*(types or ())} - known:
        raise ValueError(
            f"`types` must be some of {sorted(known)}. Received: {sorted(unknown)}."
        )
    wanted = known if types is None else {*types}
    given = [texts] if isinstance(texts, str) else list(texts)
    units = [
        [unit for unit in row if unit not in (opening, closing)]
        for row in units_of(given)
    ]
    others = {mark for marks in MARKS.values() for mark in marks}
    lines = [[i for i, u in enumerate(row) if _is_word(u, others)] for row in units]
    sentences = [
        (row, part)
        for row, places in zip(units, lines, strict=True)
        for part in _split_lines(row, places)
    ]
    words = [[row[i] for i in part] for row, part in sentences]
    tagged = tagger.tag(words, batch_size, verbose=0) if words else []
    for (row, places), answers in zip(sentences, tagged, strict=True):
        labels = [label for _, label, _ in answers]
        for first, last in _entities(labels, wanted):
            row[places[first]] = opening + row[places[first]]
            row[places[last]] += closing
    marked = ["".join(row) for row in units]
    return marked[0] if isinstance(texts, str) else marked


def _types_of(names):
    if not names or not all(re.fullmatch("O|[BIESLU]-.+", name) for name in names):
        raise ValueError(
            "`tagger` must have `label_names` that mark entities, such as 'B-person', "
            f"'I-person' and 'O'. Received: label_names={names}."
        )
    return {name[2:] for name in names if name != "O"}


def _is_word(unit, marks):
    return unit == "\n" or not (unit.isspace() or unit in marks)


def _split_lines(row, places):
    """Find the places of the words of each line that has any."""
    lines: list[list[int]] = [[]]
    for place in places:
        if row[place] == "\n":
            lines.append([])
        else:
            lines[-1].append(place)
    return [line for line in lines if line]


def _entities(labels, types):
    """Find the first and last word of each entity of some types."""
    found: list[list[int]] = []
    before = "O"
    for place, label in enumerate(labels):
        goes_on = label[:2] in ("I-", "E-", "L-") and before[:2] in ("B-", "I-")
        if goes_on and label[2:] == before[2:]:
            if label[2:] in types:
                found[-1][1] = place
        elif label[2:] in types:
            found.append([place, place])
        before = label
    return found
