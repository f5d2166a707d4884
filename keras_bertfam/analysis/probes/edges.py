"""Files of edge probing: texts with labels of their spans."""

import itertools
from typing import Any

from keras_bertfam.arguments import checked
from keras_bertfam.parsing import check_keys, parse_json, parse_json_lines, read_text
from keras_bertfam.text_files.sources import suffix_of
from keras_bertfam.types import Path

_KEYS = ("text", "targets", "info")
# Beside spans and label: notes, and the spans' words once more.
_OF_TARGETS = ("span1", "span2", "label", "info", "span1_text", "span2_text")


@checked
def read_edges(
    path: Path, limit: int | None = None
) -> tuple[list[list[str]], list[list[tuple[Any, ...]]]]:
    """Read sentences and labels of their spans, for `probe`, in edge probing's format.

    Each line is a JSON object with a `text`, whose words are separated by spaces; a
    list `targets`; and `info`, which isn't read. A target has a `span1`, and maybe a
    `span2`: the numbers of its first word and of the word after its last one. It has a
    `label`: a string, or a list of strings, as proto-roles have.

    Args:
        path: of a file of such lines.
        limit: int. How many of the first lines are read; `None` for all.

    Returns:
        Tuple of the sentences and their labels. A sentence is a list of words. Its
        labels are a list of tuples `(span, label)` or `(span, span, label)`; spans are
        tuples, and labels are as in the file.

    Raises:
        ValueError: for lines of another form, other keys, and spans outside their text.
            The error names the line.

    Example:

    ```python
    import json, pathlib

    target = {"span1": [1, 2], "span2": [0, 1], "label": ["awareness", "volition"]}
    line = {"text": "Ann laughed .", "targets": [target], "info": {}}
    pathlib.Path("roles.jsonl").write_text(json.dumps(line))
    words, labels = keras_bertfam.analysis.read_edges("roles.jsonl")
    # [["Ann", "laughed", "."]], [[((1, 2), (0, 1), ["awareness", "volition"])]]
    # probe(model, words, labels, "edge", test=read_edges("test.jsonl"))
    ```

    Reference: [Tenney et al., 2019](https://arxiv.org/abs/1905.06316), section 3, and
    the released code.
    """
    sentences, labels = [], []
    lines = parse_json_lines(read_text(path), str(path))
    for place, line in itertools.islice(lines, limit):
        check_keys(place, line, ("text", "targets"), _KEYS)
        if not isinstance(line["text"], str) or not isinstance(line["targets"], list):
            raise ValueError(
                f"{place}: expected a string as 'text', and a list of 'targets'. "
                f"Received: {line['text']!r}, {line['targets']!r}."
            )
        words = line["text"].split()
        sentences.append(words)
        labels.append([_target(place, each, len(words)) for each in line["targets"]])
    if not sentences:
        raise ValueError(f"{path!s} must have a line. Received: none.")
    return sentences, labels


def has_edges(path: Path) -> bool:
    """Tell whether a file is one for `read_edges`, by its first line."""
    if suffix_of(path) not in (".json", ".jsonl"):
        return False
    first = next(filter(str.strip, read_text(path).split("\n")), "")
    try:
        return "targets" in parse_json(first)
    except (TypeError, ValueError):
        return False  # such as a table, over many lines


def _target(place, target, length):
    if not isinstance(target, dict):
        raise ValueError(f"{place}: expected objects as targets. Received: {target!r}.")
    check_keys(place, target, ("span1", "label"), _OF_TARGETS)
    spans = [target[name] for name in ("span1", "span2") if name in target]
    for span in spans:
        ints = isinstance(span, list) and [*map(type, span)] == [int, int]
        if not ints or not 0 <= span[0] < span[1] <= length:
            raise ValueError(
                f"{place}: expected spans within the {length} words of the text, a "
                f"list of the first one and the one behind the last. Received: {span}."
            )
    label = target["label"]
    names = label if isinstance(label, list) else [label]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"{place}: expected a string as 'label', or a list of strings. Received: "
            f"{label!r}."
        )
    return (*map(tuple, spans), label)
