"""Documents of a part of a source, in clean UTF-8."""

from collections.abc import Iterator

from keras_bertfam.corpora.preparing.tables import DATASETS, dataset_examples
from keras_bertfam.text_files import reading as files
from keras_bertfam.text_files.parts import Part, Reading


def read_documents(part: Part, reading: Reading) -> Iterator[str]:
    """Read the documents of a part of a file or a dataset.

    Args:
        part: `Part`.
        reading: `Reading`.

    Yields:
        Strings that aren't empty.

    Raises:
        OSError: if a file can't be read.
        ValueError: as `text_files.reading.read_documents`.
    """
    if part.source.kind not in DATASETS:
        yield from files.read_documents(part, reading)
        return
    examples = dataset_examples(part, reading)
    for row, value in enumerate(examples, part.start):
        if text := files.tidy_text(value, part, reading, f"row {row}"):
            yield text
