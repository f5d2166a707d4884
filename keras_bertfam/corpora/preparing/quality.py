"""Rules that leave out documents and lines."""

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
    """A text, and the measures that rules compare, each computed once.

    Args:
        text: str.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @functools.cached_property
    def words(self) -> list[str]:
        """The words: text between white space."""
        return self.text.split()

    @functools.cached_property
    def lines(self) -> list[str]:
        """The lines, none of them blank."""
        return self.text.split("\n")

    @functools.cached_property
    def word_length(self) -> float:
        """Mean number of characters in a word."""
        return sum(map(len, self.words)) / max(len(self.words), 1)

    @functools.cached_property
    def symbols(self) -> float:
        """Number of hashes, or of ellipses if these are more, per word."""
        ellipses = sum(map(self.text.count, _ELLIPSES))
        return max(self.text.count("#"), ellipses) / max(len(self.words), 1)

    @functools.cached_property
    def alphabetic(self) -> float:
        """Share of words that have a letter."""
        others = sum(1 for _ in _OTHER.finditer(self.text))
        return 1 - others / max(len(self.words), 1)

    @functools.cached_property
    def repeated(self) -> tuple[float, float]:
        """Share of lines that repeat an earlier line, and share of their characters."""
        lines = {*self.lines}
        characters = sum(map(len, self.lines))
        once = sum(map(len, lines))
        return (
            1 - len(lines) / len(self.lines),
            1 - once / max(characters, 1),
        )

    def share_of_lines(self, test: Callable[[str], Any]) -> float:
        """Compute the share of lines for which a function is true."""
        return sum(1 for line in self.lines if test(line)) / len(self.lines)


# Tests by the name of an argument; a document stays if it passes all.
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
    """Rules that leave out documents and lines of low quality.

    An argument of `None` is no rule. Words are separated by white space, so rules on
    words fit languages that write spaces between words.

    Args:
        min_line_words: int. Lines of fewer words are left out, and documents that have
            no other lines.
        sentence_lines: bool. Whether lines without a mark of a sentence's end are left
            out. Defaults to `False`.
        min_characters: int. Least characters of a document.
        max_characters: int. Most characters of a document.
        min_words: int. Least words of a document.
        max_words: int. Most words of a document.
        min_word_length: float. Least mean number of characters in a word.
        max_word_length: float. Most mean number of characters in a word.
        max_symbols: float. Most hashes per word, and most ellipses per word.
        max_bullet_lines: float. Most share of lines that begin with a bullet.
        max_ellipsis_lines: float. Most share of lines that end with an ellipsis.
        min_alphabetic_words: float. Least share of words with a letter.
        max_repeated_lines: float. Most share of lines that repeat an earlier line.
        max_repeated_line_characters: float. Most share of characters in such lines.
        min_sentences: int. Least sentences of a document.
        without: tuple of str in lower case. Documents with one of them are left out.

    Raises:
        ValueError: for a negative argument.

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
        """Create Gopher's rules that fit any language; arguments replace values."""
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
        """Create C4's rules that fit any language; arguments replace values."""
        rules: Config = {
            "min_line_words": 5,
            "sentence_lines": True,
            "min_sentences": 3,
            "without": ("{", "lorem ipsum"),
        }
        return cls(**{**rules, **changed})

    def arguments(self) -> Config:
        """Collect the arguments that are rules."""
        given = dataclasses.asdict(self).items()
        return {k: v for k, v in given if v is not None and v is not False}

    def apply(self, text: str) -> tuple[Document, str | None]:
        """Leave out lines, and find the first rule that a text breaks.

        Args:
            text: str without blank lines.

        Returns:
            A tuple of the remaining `Document` and the name of the first rule that it
            breaks, or `None`.
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
