"""Rules by which documents are left out, and lines of them."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

from keras_bertfam.arguments import checked
from keras_bertfam.types import Config

_BULLETS = ("•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–", "-", "*")
_ELLIPSES = ("…", "...")
_SENTENCE_ENDS = (".", "!", "?", '"', "”", "’", "」", "』", "。", "！", "？", "…")
_SENTENCE = re.compile(r"[.!?…](?:\s|$)|[。！？]")
# Words without a letter.
_OTHER = re.compile(r"(?<!\S)(?:[^\w\s]|[\d_])+(?!\S)")


class Document:
    """A text, and what rules ask of it, computed once.

    Args:
        text: str.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @functools.cached_property
    def words(self) -> list[str]:
        """What stands between white space."""
        return self.text.split()

    @functools.cached_property
    def lines(self) -> list[str]:
        """The lines, none of them blank."""
        return self.text.split("\n")

    @functools.cached_property
    def word_length(self) -> float:
        """Characters in a word, on average."""
        return sum(map(len, self.words)) / max(len(self.words), 1)

    @functools.cached_property
    def symbols(self) -> float:
        """Hashes, or ellipses, to a word, whichever are more."""
        ellipses = sum(map(self.text.count, _ELLIPSES))
        return max(self.text.count("#"), ellipses) / max(len(self.words), 1)

    @functools.cached_property
    def alphabetic(self) -> float:
        """The share of the words that have a letter."""
        others = sum(1 for _ in _OTHER.finditer(self.text))
        return 1 - others / max(len(self.words), 1)

    @functools.cached_property
    def repeated(self) -> tuple[float, float]:
        """The shares of lines, and of characters in lines, that were there before."""
        lines = {*self.lines}
        characters = sum(map(len, self.lines))
        once = sum(map(len, lines))
        return (
            1 - len(lines) / len(self.lines),
            1 - once / max(characters, 1),
        )

    def share_of_lines(self, test: Callable[[str], Any]) -> float:
        """Compute the share of the lines that a function is true of."""
        return sum(1 for line in self.lines if test(line)) / len(self.lines)


# Whether a document stays, by the value of the argument of this name.
_RULES: dict[str, Callable[[Document, Any], bool]] = {
    "min_characters": lambda d, least: len(d.text) >= least,
    "max_characters": lambda d, most: len(d.text) <= most,
    "min_words": lambda d, least: len(d.words) >= least,
    "max_words": lambda d, most: len(d.words) <= most,
    "min_word_length": lambda d, least: d.word_length >= least,
    "max_word_length": lambda d, most: d.word_length <= most,
    "max_symbols": lambda d, most: d.symbols <= most,
    "max_bullet_lines": lambda d, most: (
        d.share_of_lines(lambda line: line.startswith(_BULLETS)) <= most
    ),
    "max_ellipsis_lines": lambda d, most: (
        d.share_of_lines(lambda line: line.endswith(_ELLIPSES)) <= most
    ),
    "min_alphabetic_words": lambda d, least: d.alphabetic >= least,
    "max_repeated_lines": lambda d, most: d.repeated[0] <= most,
    "max_repeated_line_characters": lambda d, most: d.repeated[1] <= most,
    "min_sentences": lambda d, least: (
        sum(1 for _ in zip(_SENTENCE.finditer(d.text), range(least), strict=False))
        >= least
    ),
    "without": lambda d, phrases: not any(map(d.text.lower().__contains__, phrases)),
}


@checked
@dataclasses.dataclass(frozen=True)
class QualityRules:
    """The rules by which documents, and lines of them, are good enough to train on.

    What is `None` is not asked for. Words stand between white space, so that rules on
    them fit languages that have it between words.

    Args:
        min_line_words: int. Lines of fewer words are left out, and then documents
            without any line.
        sentence_lines: bool. Whether lines that don't end as sentences do are left
            out. Defaults to `False`.
        min_characters: int.
        max_characters: int.
        min_words: int.
        max_words: int.
        min_word_length: float. Characters of a word on average.
        max_word_length: float.
        max_symbols: float. Hashes to a word, and ellipses to a word.
        max_bullet_lines: float. The share of lines that begin with a bullet.
        max_ellipsis_lines: float. The share of lines that end with an ellipsis.
        min_alphabetic_words: float. The share of words with a letter.
        max_repeated_lines: float. The share of lines that the document had before.
        max_repeated_line_characters: float. The share of characters in these.
        min_sentences: int.
        without: tuple of str in small letters. Documents with one are left out.

    Raises:
        ValueError: for an argument that is negative.

    Example:

    ```python
    rules = keras_bertfam.corpora.QualityRules.gopher(min_words=20)
    rules = keras_bertfam.corpora.QualityRules(min_characters=200)
    ```

    References: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.2;
    [Rae et al., 2021](https://arxiv.org/abs/2112.11446), appendix A.1.
    """

    min_line_words: int | None = None
    sentence_lines: bool = False
    min_characters: int | None = None
    max_characters: int | None = None
    min_words: int | None = None
    max_words: int | None = None
    min_word_length: float | None = None
    max_word_length: float | None = None
    max_symbols: float | None = None
    max_bullet_lines: float | None = None
    max_ellipsis_lines: float | None = None
    min_alphabetic_words: float | None = None
    max_repeated_lines: float | None = None
    max_repeated_line_characters: float | None = None
    min_sentences: int | None = None
    without: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, value in self.arguments().items():
            if isinstance(value, (int, float)) and value < 0:
                raise ValueError(f"`{name}` must not be negative. Received: {value}.")

    @classmethod
    def gopher(cls, **changed: Any) -> "QualityRules":
        """Create Gopher's rules for any language; arguments take their place."""
        rules: Config = {
            "min_words": 50,
            "max_words": 100_000,
            "min_word_length": 3,
            "max_word_length": 10,
            "max_symbols": 0.1,
            "max_bullet_lines": 0.9,
            "max_ellipsis_lines": 0.3,
            "min_alphabetic_words": 0.8,
            "max_repeated_lines": 0.3,
            "max_repeated_line_characters": 0.2,
        }
        return cls(**{**rules, **changed})

    @classmethod
    def c4(cls, **changed: Any) -> "QualityRules":
        """Create C4's rules for any language; arguments take their place."""
        rules: Config = {
            "min_line_words": 5,
            "sentence_lines": True,
            "min_sentences": 3,
            "without": ("{", "lorem ipsum"),
        }
        return cls(**{**rules, **changed})

    def arguments(self) -> Config:
        """Collect the arguments that are asked for."""
        given = dataclasses.asdict(self).items()
        return {k: v for k, v in given if v is not None and v is not False}

    def apply(self, text: str) -> tuple[Document, str | None]:
        """Leave out lines, and tell which rules a text breaks.

        Args:
            text: str without blank lines.

        Returns:
            A tuple of the `Document` that is left and the name of the first rule
            that it breaks, or `None`.
        """
        lines = text
        for name in ("min_line_words", "sentence_lines"):
            if getattr(self, name):
                lines = "\n".join(filter(self._line_tests()[name], lines.split("\n")))
                if not lines:
                    return Document(text), name
        document = Document(lines)
        for name, holds in _RULES.items():
            value = getattr(self, name)
            if value is not None and not holds(document, value):
                return document, name
        return document, None

    def _line_tests(self):
        return {
            "min_line_words": lambda line: len(line.split()) >= self.min_line_words,
            "sentence_lines": lambda line: line.endswith(_SENTENCE_ENDS),
        }
