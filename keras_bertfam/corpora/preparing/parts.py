"""What a corpus is prepared of: sources, and parts of them that are read alone."""

import dataclasses

COMPRESSED = (".gz", ".zst")


@dataclasses.dataclass(frozen=True)
class Reading:
    """How documents are read.

    Args:
        feature: the field of JSON, or the column, that has the text.
        split: of a TFDS or Hugging Face dataset.
        one_per_file: bool. Whether a text file is one document.
    """

    feature: str = "text"
    split: str = "train"
    one_per_file: bool = False


@dataclasses.dataclass(frozen=True)
class Source:
    """A file or a dataset.

    Attributes:
        name: path, `"tfds:NAME"` or `"hf:NAME"`.
        kind: `"text"`, `"json"`, `"parquet"`, `"tfds"` or `"hf"`.
        bytes: int. Its size; of a dataset that doesn't say so, 0.
        stamp: what changes with its content.
    """

    name: str
    kind: str
    bytes: int
    stamp: str

    @property
    def compressed(self) -> bool:
        """Whether it can be read from its beginning only."""
        return self.name.endswith(COMPRESSED)


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a source that holds whole documents.

    Attributes:
        source: `Source`.
        start: int. The first byte, row group or example.
        end: int. That after the last; -1 is the source's end.
    """

    source: Source
    start: int = 0
    end: int = -1


Block = tuple[Part, ...]
