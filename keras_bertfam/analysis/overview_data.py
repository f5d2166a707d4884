"""Parts of the page for what is asked beside a model and texts: words, labels."""

import html
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis.head_importance import head_importance
from keras_bertfam.analysis.head_roles import draw_heads, head_roles
from keras_bertfam.analysis.head_rows import has_heads
from keras_bertfam.analysis.occurrences import word_vectors
from keras_bertfam.analysis.overview import Section, as_image, as_table
from keras_bertfam.analysis.plots import new_figure
from keras_bertfam.analysis.probing import probe
from keras_bertfam.analysis.pruning_curve import plot_pruning, pruning_curve
from keras_bertfam.analysis.reliability import plot_calibration
from keras_bertfam.analysis.word_states import WordRows, reads_rows

# Of each word so many occurrences are listed, with so many words on either side.
_OCCURRENCES, _WIDTH = 8, 8
# So many sentences and examples are enough for what takes long.
_SENTENCES, _EXAMPLES = 300, 400
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def words_section(words: Sequence[str]) -> Section:
    """Make the section with words wherever they occur in the texts.

    Args:
        words: list of str, in whatever case.

    Returns:
        A `Section`, which names the words that don't occur.
    """

    def make(model: Any, texts: list[Any]) -> str | None:
        if isinstance(texts[0], tuple) or not reads_rows(model):
            return None
        asked = list(dict.fromkeys(map(str.casefold, words)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the page says it
            found = word_vectors(model, texts, asked)
        forms = set(map(str.casefold, found.words))
        missing = [word for word in asked if word not in forms]
        note = f"<p>Not in the texts: {html.escape(', '.join(missing))}.</p>"
        if not forms:
            return note
        rows = [
            row for word in asked if word in forms for row in _neighbours(found, word)
        ]
        columns = ["occurrence", "nearest", "cosine", "second nearest", "cosine"]
        image = as_image(found.plot(), "Occurrences in a plane")
        return (note if missing else "") + as_table(columns, rows) + image

    return Section(
        "Words in context",
        "Where the words occur, and which of these occurrences are the most alike for "
        "the last layer; in the picture the two principal components of its states.",
        make,
    )


def _neighbours(found, word):
    """Make a row for each occurrence of a word, with the two that are most like it."""
    for occurrence, number in enumerate(found.occurrences(word)[:_OCCURRENCES]):
        near = found.nearest_contexts(word, occurrence, 2, _WIDTH)
        cells = [cell for cosine, text in near for cell in (text, cosine)]
        yield [found.context(number, _WIDTH), *cells, *[""] * (4 - len(cells))]


def probes_section(sentences: Any, labels: Any) -> Section:
    """Make the section with linear probes of each layer for labels of words.

    Args:
        sentences, labels: see `keras_bertfam.analysis.probe`.
    """

    def make(model: Any, texts: list[Any]) -> str | None:
        if not reads_rows(model):
            return None
        report = probe(model, sentences, labels, control=True)
        image = as_image(report.plot(), "Scores of probes over the layers")
        text = html.escape(report.title.replace("_", " "))
        return f"<p>{text}.</p>\n{image}{as_table(*report.table())}"

    return Section(
        "Probes",
        "How often a linear classifier of each layer's states, and of a mix of all, "
        "is right about labels of words in sentences that it wasn't trained on. In the "
        "control task each word has a random label; what the real task has more than "
        "it, the selectivity, isn't memory of words.",
        make,
    )


def relations_section(sentences: Any, dependencies: Any) -> Section:
    """Make the section with the heads that find dependencies.

    Args:
        sentences, dependencies: see `keras_bertfam.analysis.head_roles`.
    """

    def make(model: Any, texts: list[Any]) -> str | None:
        if not has_heads(model):
            return None
        given = sentences[:_SENTENCES]
        parts = np.bincount(WordRows(model, given, None).owners, minlength=len(given))
        whole = np.flatnonzero(parts == 1).tolist()
        if not whole:
            return None
        roles = head_roles(
            model, [given[k] for k in whole], [dependencies[k] for k in whole]
        )
        if not roles.relations:
            return None
        image = as_image(roles.plot_relations(), "Relations that heads find")
        *_, table = roles.tables().values()
        return image + as_table(*table)

    return Section(
        "Syntax",
        "How often the word that a head attends to most, from one side of a "
        "dependency, is the other side: the best head beside the best fixed offset, in "
        f"up to {_SENTENCES} sentences.",
        make,
    )


def labelled_sections(examples: Any) -> list[Section]:
    """Make the sections that say how good a fine-tuned task is, and by which heads.

    Args:
        examples: `keras_bertfam.datasets.Examples` with labels.
    """

    def scores(model: Any, texts: list[Any]) -> str | None:
        if not hasattr(model, "report"):
            return None
        report = model.report(examples.x, examples.y)
        tables = report.tables().items()
        parts = [f"<h3>{title}</h3>\n{as_table(*table)}" for title, table in tables]
        return as_image(report.plot(), report.title) + "\n".join(parts)

    def confidence(model: Any, texts: list[Any]) -> str | None:
        if not hasattr(model, "classify"):
            return None
        outputs = model.predict(examples.x, verbose=0)
        probabilities = ops.convert_to_numpy(model.probabilities(outputs))
        figure = plot_calibration(probabilities, np.asarray(examples.y))
        return as_image(figure, "Accuracy over confidence")

    def importance(model: Any, texts: list[Any]) -> str | None:
        if not hasattr(model, "report") or not has_heads(model) or len(examples) < 2:
            return None
        some = examples[:_EXAMPLES]
        parts = some[: len(some) // 2], some[len(some) // 2 :]
        first, second = ((part.x, part.y) for part in parts)
        found = head_importance(model, first)
        figure, [axes] = new_figure(1)
        draw_heads(figure, axes, "importance, normalised in each layer", found, None)
        curves = {"by gradient": pruning_curve(model, second, found, _SHARES)}
        return as_image(figure, "Importance of each head") + as_image(
            plot_pruning(curves, axis_label="loss"), "Loss over the share of heads"
        )

    return [
        Section(
            "Scores",
            "How good the model is on the labelled examples, and where it is worst.",
            scores,
        ),
        Section(
            "Calibration",
            "Whether the model is as often right as it says.",
            confidence,
        ),
        Section(
            "Importance of heads",
            "How much the loss depends on each head, and what it is on other examples "
            f"without the least important ones. Of up to {_EXAMPLES} examples.",
            importance,
        ),
    ]
