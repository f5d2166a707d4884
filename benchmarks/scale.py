"""`python -m benchmarks.scale`: what large corpora cost to prepare, by measured rates.

Arithmetic for docs/scale.md: nothing is run.
"""

import dataclasses
from typing import Annotated

import typer

from benchmarks import tables

WORKERS = (1, 32, 256)
# A record has a checksum and a count, and its place in the lengths; the lengths of its
# sentences are in both.
RECORD_BYTES, SENTENCE_BYTES = 4 + 4 + 4, 4 + 4
RECORD_TOKENS = 1024
ROW_BYTES = 16  # of the index of rows
BANDS, SIGNATURE_BYTES = 16, 16 * 7 * 4  # of near duplicates


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A published corpus.

    Attributes:
        name: str.
        gigabytes: float. Of text, as published.
        documents: int. About how many.
    """

    name: str
    gigabytes: float
    documents: int


CORPORA = (
    # Devlin et al., 2018, section 3.1, has the words; Liu et al., 2019, section 3.2,
    # the bytes. Articles of 2018, and the books of Zhu et al., 2015.
    Corpus("BERT, 3.3 B words", 16, 5_800_000),
    # Liu et al., 2019, section 3.2: 63 M news; 8 M pages of OpenWebText; the above.
    Corpus("RoBERTa", 160, 78_000_000),
    # Raffel et al., 2019, section 2.2; the documents by its files.
    Corpus("C4", 750, 365_000_000),
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured on text that is at hand.

    Attributes:
        rate: float. MB of text that a core prepares in a second.
        tokens_per_byte: float.
        tokens_per_sentence: float.
        overhead: float. Bytes that ArrayRecord adds to a record.
    """

    rate: float
    tokens_per_byte: float
    tokens_per_sentence: float
    overhead: float


def costs(corpus: Corpus, measured: Measured, sequence_length: int = 512) -> dict:
    """What a corpus costs.

    Returns:
        A dict of `tokens`, the bytes of `disk`, `rows` and the bytes of `index`, those
        of `signatures` and `bands` of the search for near duplicates, and the `hours`
        of one worker.
    """
    tokens = corpus.gigabytes * 1e9 * measured.tokens_per_byte
    # The last record of a document is half full, on average; a short one's is its only.
    records = tokens / RECORD_TOKENS + corpus.documents / 2
    sentences = tokens / measured.tokens_per_sentence
    rows = tokens / (sequence_length - 2)
    return {
        "tokens": tokens,
        "disk": 2 * tokens
        + SENTENCE_BYTES * sentences
        + (RECORD_BYTES + measured.overhead) * records,
        "rows": rows,
        "index": ROW_BYTES * rows + records,
        "signatures": SIGNATURE_BYTES * corpus.documents,
        "bands": 8 * BANDS * corpus.documents,
        "hours": corpus.gigabytes * 1000 / measured.rate / 3600,
    }


def duration(hours: float) -> str:
    """Hours as seconds, minutes, hours or days."""
    if hours < 1:
        seconds = 3600 * hours
        return f"{seconds:.0f} s" if seconds < 90 else f"{60 * hours:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def main(
    rate: Annotated[float, typer.Option(help="MB of text a second, of one core.")],
    tokens_per_byte: Annotated[float, typer.Option()],
    tokens_per_sentence: Annotated[float, typer.Option()],
    overhead: Annotated[float, typer.Option(help="Bytes by ArrayRecord, a record.")],
) -> None:
    """Print the tables of docs/scale.md."""
    measured = Measured(rate, tokens_per_byte, tokens_per_sentence, overhead)
    times, sizes, duplicates = [], [], []
    for corpus in CORPORA:
        cost, name = costs(corpus, measured), {"corpus": corpus.name}
        spent = {f"W = {w}": duration(cost["hours"] / w) for w in WORKERS}
        times.append({**name, "text, GB": corpus.gigabytes, **spent})
        sizes.append(
            {
                **name,
                "tokens, 1e9": cost["tokens"] / 1e9,
                "disk, GB": cost["disk"] / 1e9,
                "rows of 512, 1e6": cost["rows"] / 1e6,
                "their index, GB": cost["index"] / 1e9,
            }
        )
        duplicates.append(
            {
                **name,
                "documents, 1e6": corpus.documents / 1e6,
                "signatures, GB": cost["signatures"] / 1e9,
                "bands, GB": cost["bands"] / 1e9,
            }
        )
    for rows in (times, sizes, duplicates):
        print(tables.markdown(rows), end="\n\n")


if __name__ == "__main__":
    typer.run(main)
