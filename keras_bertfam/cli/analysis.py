"""Write the page that analyses a checkpoint on some texts."""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

from keras_bertfam import datasets
from keras_bertfam.analysis.overview import (
    SECTIONS,
    Section,
    facts_section,
    labelled_sections,
    overview,
    probes_section,
    relations_section,
    words_section,
)
from keras_bertfam.analysis.probes.edges import has_edges, read_edges
from keras_bertfam.cli.prediction import check_line, lines_of_input, load_model
from keras_bertfam.cli.scoring import table_of
from keras_bertfam.datasets import tables
from keras_bertfam.datasets.files import decoded_lines
from keras_bertfam.tasks.finetuning.fine_tuning import FineTuningTask
from keras_bertfam.whole_files import write_text


def analyse(
    preset: str,
    files: Sequence[str],
    output: str,
    lines: TextIO | None = None,
    *,
    words: Sequence[str] = (),
    probe: str | None = None,
    facts: str | None = None,
    labelled: str | None = None,
    text: Sequence[str] = (),
    label: str | None = None,
) -> None:
    """Write the page of a checkpoint and the texts of files.

    Args:
        preset: name or folder of a checkpoint.
        files: paths of files with one text a line, or two with a tab between them. If
            it is empty, `lines` are read.
        output: where to write it.
        lines: file object, standard input by default.
        words: words to show in the contexts that they have in the texts.
        probe: path of a file, or `None`. From CoNLL or CoNLL-U, probes of each layer
            learn the words' labels, and dependencies are looked for in attention heads.
            A file of labelled spans is read by `keras_bertfam.analysis.read_edges`.
        facts: path of facts in LAMA's format, see `keras_bertfam.analysis.cloze_facts`,
            or `None`.
        labelled: table of labelled examples to score a fine-tuned task on, see
            `keras_bertfam.datasets.load_examples`, or `None`.
        text, label: columns of `labelled`.

    Raises:
        ValueError: without a text, for a line of more than two texts, for tables
            without these columns, or as `overview`.
    """
    texts, model = _texts(files, lines), load_model(preset)
    sections = [*SECTIONS]
    if words:
        sections.append(words_section(words))
    if probe is not None:
        sections += _of_words(probe)
    if facts is not None:
        sections.append(facts_section(facts))
    if labelled is not None:
        if not isinstance(model, FineTuningTask):
            raise ValueError(
                "`labelled` must be for a fine-tuned task, whose answers it scores. "
                f"Received: {preset!r}, which is of a {type(model).__name__}."
            )
        examples = table_of(model, labelled, text, label, name="labelled")
        sections += labelled_sections(examples)
    write_text(output, overview(model, texts, sections))


def _of_words(path: str) -> list[Section]:
    if has_edges(path):
        return [probes_section(*read_edges(path), "edge")]
    examples = datasets.load_examples(path, kind="tagging")
    found = [probes_section(examples.x, examples.y)]
    if tables.label_of_conll(path) == "upos":
        heads, relations = (
            datasets.load_examples(path, label=name).y for name in ("head", "deprel")
        )
        rows = zip(heads, relations, strict=True)
        if all(head.isdecimal() for row in heads for head in row):
            arcs = [[*zip(map(int, h), r, strict=True)] for h, r in rows]
            found.append(relations_section(examples.x, arcs))
    return found


def _texts(files, lines):
    texts: list[Any] = []
    if not files:
        texts += _texts_of("standard input", lines_of_input(lines or sys.stdin))
    for path in files:
        texts += _texts_of(path, decoded_lines(path))
    if not texts:
        raise ValueError("The input must have at least one text. Received: none.")
    return texts


def _texts_of(name, lines):
    for number, line in enumerate(lines, start=1):
        check_line(name, number, line)
        parts = [part for part in line.rstrip("\r\n").split("\t") if part.strip()]
        if len(parts) > 2:
            raise ValueError(
                f"{name}, line {number}: expected a text, or two with a tab between "
                f"them. Received: {line!r}."
            )
        if parts:
            yield parts[0] if len(parts) == 1 else tuple(parts)
