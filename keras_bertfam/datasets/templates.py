"""Write a task's examples as text, by templates."""

import dataclasses
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_bertfam.arguments import check_several, checked
from keras_bertfam.datasets.examples import Examples
from keras_bertfam.datasets.text_to_text import KINDS, target_of
from keras_bertfam.metrics.squad import right_texts

_PARTS = ("input", "target")
_LABEL, _CHOICES = "label", "choices"
# Kinds of tasks with choices: classes, or each example's own.
CHOSEN = ("classification", "multiple_choice")


@checked
@dataclasses.dataclass(frozen=True)
class Template:
    """Writes a task's examples as pairs of texts: plain text with fields.

    A field is a name in braces. It can be a column of the task, such as `{sentence1}`,
    or `{question}` and `{context}` for questions. `{label}` is the correct answer in
    words. `{choices}` are all possible answers, each on its own line after `- `. Double
    the braces that belong to the text itself.

    Args:
        input: str. The text of the input.
        target: str. The text of the target. Defaults to `"{label}"`.
        choices: sequence of strings, a word for each class, in the order of the task's
            classes. Defaults to the classes' names. Examples with their own choices, as
            in RACE, keep these.

    Raises:
        ValueError: for a text with braces that aren't fields.

    Example:

    ```python
    from keras_bertfam.datasets.task_data import get_task
    template = keras_bertfam.datasets.Template(
        "{sentence}\\nWas that a good film?\\n{choices}", choices=("no", "yes"))
    examples = keras_bertfam.datasets.Examples(["So slow."], [0], get_task("sst2"))
    inputs, targets = keras_bertfam.datasets.write_examples(examples, template)
    inputs  # ["So slow.\\nWas that a good film?\\n- no\\n- yes"]
    targets  # ["no"]
    ```
    """

    input: str
    target: str = "{label}"
    choices: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in _PARTS:
            _fields(name, getattr(self, name))
        check_several("choices", self.choices)
        object.__setattr__(self, "choices", tuple(self.choices))


def as_template(given: Any) -> Template:
    """Make a `Template` from a dict of its arguments or an input's text; or return one.

    Raises:
        ValueError: for anything else, or a key that isn't an argument.
    """
    if isinstance(given, Template):
        return given
    if isinstance(given, str):
        return Template(given)
    known = [field.name for field in dataclasses.fields(Template)]
    if not isinstance(given, Mapping) or not {"input"} <= {*given} <= {*known}:
        raise ValueError(
            f"A template must be a `Template`, a text, or a dict of {known}, of which "
            f"'input' is needed. Received: {given!r}."
        )
    return Template(**given)


def as_templates(name: str, given: Any) -> list[Template]:
    """Make the templates that are given for a task.

    Raises:
        ValueError: for something that isn't a list, an empty list, or an item that
            makes no template.
    """
    if not given or isinstance(given, str | Mapping | Template):
        raise ValueError(
            "`templates` must have a list of at least one for each task. Received "
            f"for {name!r}: {given!r}."
        )
    return [*map(as_template, given)]


def _fields(name, text):
    """List the names of a text's fields."""
    expected = f"`{name}` must be a text with fields as {{label}}"
    if not isinstance(text, str):
        raise ValueError(f"{expected}. Received: {text!r}.")
    try:
        parts = [*string.Formatter().parse(text)]
    except ValueError as error:
        raise ValueError(f"{expected}. Received: {text!r}: {error}.") from error
    fields = [part[1:] for part in parts if part[1] is not None]
    for field, layout, conversion in fields:
        if not field or "." in field or "[" in field or layout or conversion:
            raise ValueError(
                f"{expected}, and other braces doubled. Received: {text!r}."
            )
    return {field for field, *_ in fields}


def writer(
    examples: Examples, template: Template
) -> Callable[[int], tuple[str, str | None]]:
    """Make the function that writes an example as a pair of texts, given its number.

    Args:
        examples: `Examples` of one of `KINDS`, or of kind `"multiple_choice"`.
        template: `Template`.

    Returns:
        A function from an example's number to the input, and to the target, `None`
        without labels.

    Raises:
        ValueError: for examples of another kind, a field that they don't have, another
            number of choices than of classes, or an input with labels that aren't
            known.
    """
    columns = _columns(examples)
    names = choices_of(examples, template)
    known = [*columns, _LABEL, *([_CHOICES] if names is not None else [])]
    asked = {name: _fields(name, getattr(template, name)) for name in _PARTS}
    for name, fields in asked.items():
        unknown = sorted(fields - {*known})
        if unknown:
            raise ValueError(
                f"`{name}` of a template for {examples.task.name!r} must have fields "
                f"of {known}. Received: {unknown[0]!r}, in "
                f"{getattr(template, name)!r}."
            )
    labels = examples.y
    if labels is None and _LABEL in asked["input"]:
        raise ValueError(
            f"`examples` of {examples.task.name!r} must have labels for the input "
            f"{template.input!r}. Received: none."
        )
    task = examples.task

    def write(number: int) -> tuple[str, str | None]:
        values = {name: column[number] for name, column in columns.items()}
        if names is not None:
            values[_CHOICES] = "\n".join(f"- {name}" for name in names(number))
        if labels is None:
            return template.input.format_map(values), None
        label = labels[number]
        values[_LABEL] = (
            _in_words(task, label) if names is None else names(number)[label]
        )
        return template.input.format_map(values), template.target.format_map(values)

    return write


def _in_words(task, label):
    """Write a label as `as_text_pairs` does; answers keep the form of their text."""
    if task.kind == "question_answering":
        return next(iter(right_texts(label)), "")
    return target_of(task, label)


def choices_of(
    examples: Examples, template: Template
) -> Callable[[int], Sequence[str]] | None:
    """Make the function from an example's number to its possible answers, in words.

    `None` for kinds without choices.
    """
    task, given = examples.task, template.choices
    if task.kind == "classification":
        counted = range(1 + max(examples.y)) if examples.y else ()
        # Without names of classes, the given choices may have more classes than occur.
        classes = task.label_names or range(max(len(counted), len(given)))
        if not classes:
            raise ValueError(
                f"`choices` of a template for {task.name!r} must be given: neither "
                "labels nor their names are known. Received: none."
            )
        names = given or [str(name) for name in classes]
        if len(names) != len(classes):
            raise ValueError(
                f"`choices` of a template for {task.name!r} must be one for each of "
                f"the {len(classes)} classes {[*classes]}. Received: {[*given]}."
            )
        return lambda number: names
    if given:
        raise ValueError(
            f"`choices` of a template for {task.name!r} must be left out: it has no "
            f"classes. Received: {[*given]}."
        )
    if task.kind != "multiple_choice":
        return None
    own = examples.x[1]
    return lambda number: own[number]


@checked
def write_examples(
    examples: Examples, template: Any
) -> tuple[list[str], list[str] | None]:
    """Write examples as pairs of texts by a template.

    Args:
        examples: `Examples` of classes, numbers, questions, choices or texts.
        template: `Template`, or a dict of its arguments, or the text of its input.

    Returns:
        A tuple of two lists of strings, inputs and targets, for `TextToText`. The
        second is `None` if there are no labels.

    Raises:
        ValueError: for examples of another kind, or fields that they don't have.

    Example:

    ```python
    from keras_bertfam.datasets.task_data import get_task
    task = get_task("rte")
    pair = (["A cat sat."], ["A cat."])
    examples = keras_bertfam.datasets.Examples(pair, [0], task)
    keras_bertfam.datasets.write_examples(
        examples, "{sentence1} Does it follow that {sentence2}")
    ```
    """
    write = writer(examples, as_template(template))
    pairs: Any = [write(number) for number in range(len(examples))]
    inputs, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return inputs, None if examples.y is None else targets


def _columns(examples):
    """Give the columns of texts by their names."""
    task, x = examples.task, examples.x
    if task.kind not in (*KINDS, *CHOSEN):
        raise ValueError(
            f"`examples` must be of a task of kind {', '.join((*KINDS, CHOSEN[1]))}. "
            f"Received: {task.name!r}, of kind {task.kind!r}."
        )
    if task.kind == "multiple_choice":
        return {task.columns[0]: x[0]}
    if isinstance(x, dict):
        return x
    texts = x if isinstance(x, tuple) else (x,)
    return dict(zip(task.columns, texts, strict=True))


def _of_classes(choices, *inputs):
    return tuple(Template(text, choices=choices) for text in inputs)


def _of_texts(*inputs):
    return tuple(map(Template, inputs))


TEMPLATES: dict[str, tuple[Template, ...]] = {
    "sst2": (
        *_of_classes(
            ("negative", "positive"),
            "Here is a line of a film review: {sentence}\nIs it positive or negative?",
            "{sentence}\nWhat does the critic feel about the film?\n{choices}",
            "Name the mood of this remark on a film.\n{sentence}\nMood:",
        ),
        *_of_classes(
            ("no", "yes"),
            "A critic wrote: {sentence}\nDid the critic like the film?",
            "Would someone who says this recommend the film?\n{sentence}\n{choices}",
        ),
    ),
    "cola": (
        *_of_classes(
            ("no", "yes"),
            "Could a native speaker of English say this?\n{sentence}\n{choices}",
            "{sentence}\nIs the sentence above grammatical?",
        ),
        *_of_classes(
            ("unacceptable", "acceptable"),
            "Judge the grammar of a sentence as acceptable or unacceptable.\n"
            "Sentence: {sentence}\nJudgement:",
            "{sentence}\nTo a linguist, this sentence is\n{choices}",
        ),
    ),
    "mrpc": (
        *_of_classes(
            ("no", "yes"),
            "First: {sentence1}\nSecond: {sentence2}\nDo both say the same?",
            "Is one of these sentences a paraphrase of the other?\n{sentence1}\n"
            "{sentence2}\n{choices}",
            "{sentence1}\nCan that be put as follows without a change of meaning?\n"
            "{sentence2}",
        ),
        *_of_classes(
            ("different", "the same"),
            "Compare what two sentences mean: is it different, or the same?\n"
            "1. {sentence1}\n2. {sentence2}",
        ),
    ),
    "rte": (
        *_of_classes(
            ("yes", "no"),
            "{sentence1}\nIf that is so, is this true as well? {sentence2}",
            "Text: {sentence1}\nClaim: {sentence2}\nDoes the claim follow from the "
            "text?\n{choices}",
            "Someone who has read only this is asked a question.\n{sentence1}\n"
            "Can they be sure that the following holds? {sentence2}",
        ),
        *_of_classes(
            ("follows", "does not follow"),
            "Given: {sentence1}\nConclusion: {sentence2}\nThe conclusion\n{choices}",
        ),
    ),
    "stsb": _of_texts(
        "How alike in meaning are these, from 0.0 to 5.0?\n{sentence1}\n{sentence2}",
        "Grade how close the second sentence is to the first, where 5.0 says the same "
        "and 0.0 nothing of it.\nFirst: {sentence1}\nSecond: {sentence2}\nGrade:",
        "{sentence1}\n{sentence2}\nSimilarity of both on a scale of five:",
    ),
    "squad": (
        *_of_texts(
            "{context}\nAnswer in words of the text above: {question}",
            "Question: {question}\nFind the answer in this passage.\n{context}",
            "Read the passage, then answer.\n{context}\n{question}",
        ),
        Template(
            "{context}\nWhat could one ask about this, to be told: {label}?",
            "{question}",
        ),
    ),
    "multi30k": (
        *_of_texts(
            "Translate into German: {en}",
            "{en}\nHow does one say that in German?",
            "English: {en}\nGerman:",
        ),
        Template("Translate into English: {label}", "{en}"),
    ),
}
