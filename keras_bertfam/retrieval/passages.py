"""The texts of an index, by their ids."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, overload

Passage: TypeAlias = str | tuple[str, str]


class Found(NamedTuple):
    """A passage that was found.

    Attributes:
        score: float, the inner product of its vector and the query's.
        id: int.
        passage: str, or tuple of title and text.

    Example:

    ```python
    model = keras_bertfam.tasks.DualEncoder.from_preset("my_bert")
    passages = ["Emma is a novel by Jane Austen.", "A cat is an animal."]
    index = keras_bertfam.retrieval.Index.build(passages, model)
    best = index.find(["Who wrote Emma?"], k=1)[0][0]
    print(best.score, best.passage)
    ```
    """

    score: float
    id: int
    passage: Passage


class Passages(Sequence[Passage]):
    """Distinct passages by their ids, which begin at 0.

    Args:
        passages: list of distinct passages.
    """

    def __init__(self, passages: Iterable[Passage] = ()) -> None:
        self._passages = list(passages)
        self._digests: set[int] = set()

    def __len__(self) -> int:
        return len(self._passages)

    @overload
    def __getitem__(self, number: int) -> Passage: ...

    @overload
    def __getitem__(self, number: slice) -> list[Passage]: ...

    def __getitem__(self, number: Any) -> Any:
        # A search gives -1 where it finds nothing: it must not mean the last passage.
        if not isinstance(number, slice) and not 0 <= number < len(self):
            raise IndexError(
                f"An id must be in [0, {len(self)}), the passages. Received: {number}."
            )
        return self._passages[number]

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._passages)

    def first_known(self, passages: Sequence[Passage]) -> int | None:
        """Find the first known or repeated passage; `None` if there is none."""
        seen: set[int] = set()
        for number, passage in enumerate(passages):
            digest = _digest(passage)
            if digest in seen or digest in self._known():
                return number
            seen.add(digest)
        return None

    def extend(self, passages: Sequence[Passage]) -> None:
        """Add new passages."""
        known = self._known()
        known.update(map(_digest, passages))
        self._passages += passages

    def take(self, passage: Passage) -> bool:
        """Add a passage if it is new, and tell whether it was."""
        if self.first_known([passage]) is not None:
            return False
        self.extend([passage])
        return True

    def _known(self):
        """Digest all passages, which takes less memory than a set of them."""
        if len(self._digests) < len(self._passages):  # they were loaded
            self._digests = set(map(_digest, self._passages))
        return self._digests


def _digest(passage):
    title, text = ("", passage) if isinstance(passage, str) else passage
    content = f"{len(title)} {title}{text}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=12).digest(), "big")


def text_or_titled(value: Any, where: str, name: str = "texts") -> Passage:
    """Make a value a str, or a tuple of a title that isn't empty and a text.

    Args:
        value: str, bytes, a list or tuple of two, or an array of one of these.
        where: its place, for the error.
        name: of the argument, for the error.

    Raises:
        ValueError: for another value, or a string that has no UTF-8.
    """
    value = value.numpy() if hasattr(value, "numpy") else value
    value = value.tolist() if hasattr(value, "tolist") else value
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    try:
        parts = [x.decode() if isinstance(x, bytes) else x for x in parts]
        if not all(isinstance(x, str) and x.encode() is not None for x in parts):
            raise TypeError("Not a string.")
        title, text = parts if len(parts) > 1 else ("", *parts)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be strings of Unicode characters, or tuples of title and "
            f"text. Received: {value!r}, {where}."
        ) from error
    return (title, text) if title else text


def as_passage(value: Any, number: int | str) -> Passage:
    """Check a passage, and make it a str, or a tuple of title and text.

    Args:
        value: see `text_or_titled`.
        number: the passage's number in the error.

    Raises:
        ValueError: for another value, or a passage without text.
    """
    passage = text_or_titled(value, f"number {number}", "passages")
    text = passage if isinstance(passage, str) else passage[1]
    if not text.strip():
        raise ValueError(
            f"`passages` must have text. Received: {value!r}, number {number}."
        )
    return passage


def as_questions(questions: Sequence[str]) -> list[str]:
    """Check questions, and make a list of them.

    Args:
        questions: list of strings.

    Raises:
        ValueError: for a string, or a question without text.
    """
    if isinstance(questions, str):
        raise ValueError(
            f"`questions` must be a list of strings. Received: {questions!r}."
        )
    questions = list(questions)
    for row, question in enumerate(questions):
        if isinstance(question, str) and not question.strip():
            raise ValueError(
                f"`questions` must have text. Received: {question!r}, in row {row}."
            )
    return questions


def chunks_of(values: Any, size: int) -> Iterator[list[Any]]:
    """Yield lists of up to `size` values of an iterable or a `tf.data.Dataset`."""
    if hasattr(values, "as_numpy_iterator"):
        values = values.as_numpy_iterator()
    values = iter(values)
    while chunk := list(itertools.islice(values, size)):
        yield chunk
