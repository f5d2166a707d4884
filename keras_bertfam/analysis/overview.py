"""Show everything about a model and some texts on one page."""

import base64
import dataclasses
import html
import io
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis.cloze import cloze_facts
from keras_bertfam.analysis.heads.attention import (
    checked_texts,
    has_heads,
    model_inputs,
)
from keras_bertfam.analysis.heads.attention_view import attention_view
from keras_bertfam.analysis.heads.importance import head_importance
from keras_bertfam.analysis.heads.pruning import plot_pruning, pruning_curve
from keras_bertfam.analysis.heads.roles import draw_heads, head_roles
from keras_bertfam.analysis.layerwise import layer_transitions, plot_layer_transitions
from keras_bertfam.analysis.likelihood import likelihood_of, pseudo_log_likelihood
from keras_bertfam.analysis.occurrences import word_vectors
from keras_bertfam.analysis.pages import page
from keras_bertfam.analysis.plots import new_figure
from keras_bertfam.analysis.probes.probe import probe
from keras_bertfam.analysis.reliability import plot_calibration
from keras_bertfam.analysis.saliency import token_saliency
from keras_bertfam.analysis.word_states import (
    WordRows,
    backbone_of,
    reads_rows,
)
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
    TextClassifierPreprocessor,
    TextRegressorPreprocessor,
)
from keras_bertfam.types import Model

MOST_VIEWED, _MOST_ROWS = 4, 30
_OF_TEXTS = (TextClassifierPreprocessor, TextRegressorPreprocessor)


@dataclasses.dataclass(frozen=True)
class Section:
    """Describe a part of the page.

    Attributes:
        title: str.
        text: str, what the section shows, in a sentence or two.
        make: function of a task and a list of texts. It returns HTML, or `None` if the
            section doesn't apply to them.
    """

    title: str
    text: str
    make: Callable[[Model, list[Any]], str | None]


def overview(
    model: Model, texts: str | Sequence[Any], sections: Sequence[Section] | None = None
) -> str:
    """Make a page with each section that applies to a model and texts.

    Args:
        model: a task with a preprocessor.
        texts: see `attention_view`.
        sections: `Section`s; `SECTIONS` by default.

    Returns:
        str, HTML that loads nothing. It also names the sections that don't apply.

    Raises:
        ValueError: as `attention_view`.
        ImportError: without `matplotlib`, which the `analysis` extra has.
    """
    given = checked_texts(texts)
    made = [
        (each, each.make(model, given))
        for each in (SECTIONS if sections is None else sections)
    ]
    backbone: Any = backbone_of(model)
    name = f"{type(model).__name__} on {type(backbone).__name__}"
    facts = {
        "weights": f"{model.count_params():,}",
        "layers": backbone.num_layers,
        "heads of a layer": backbone.num_heads,
        "texts": len(given),
    }
    parts = [
        f"<h1>{html.escape(name)}</h1>",
        f"<p>{'; '.join(f'{key}: {value}' for key, value in facts.items())}</p>",
    ]
    shown = [(each, body) for each, body in made if body is not None]
    links = (f'<a href="#{_anchor(e)}">{html.escape(e.title)}</a>' for e, _ in shown)
    parts.append(f"<nav>{' · '.join(links)}</nav>")
    for each, body in shown:
        heading = f"<h2>{html.escape(each.title)}</h2>\n<p>{html.escape(each.text)}"
        parts.append(f'<section id="{_anchor(each)}">{heading}</p>\n{body}</section>')
    left_out = [each.title.lower() for each, body in made if body is None]
    if left_out:
        names = html.escape(", ".join(left_out))
        parts.append(f"<p>Left out, because they don't apply here: {names}.</p>")
    return page(name, "\n".join(parts), ["overview.css"])


def _anchor(section):
    return "".join(sign if sign.isalnum() else "-" for sign in section.title.lower())


def as_image(figure: Any, text: str) -> str:
    """Make an element of a page from a figure of `matplotlib`.

    Args:
        figure: a `matplotlib.figure.Figure`.
        text: str, a description of the figure for those who can't see it.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=96, format="png")
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{data}">'


def as_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Make a table for a page; floats get four digits, and texts no markup.

    A long table is shown when its number of rows is clicked.
    """

    def line(tag, cells):
        texts = (
            f"{x:.4g}" if isinstance(x, float | np.floating) else str(x) for x in cells
        )
        made = (f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
        return f"<tr>{''.join(made)}</tr>"

    lines = [line("th", columns), *(line("td", row) for row in rows)]
    table = "<table>\n{}\n</table>".format("\n".join(lines))
    if len(rows) <= _MOST_ROWS:
        return table
    return f"<details><summary>{len(rows)} rows</summary>\n{table}\n</details>"


def _attention(model, texts):
    view = attention_view(model, texts[:MOST_VIEWED])
    return _first_of(texts) + view._repr_html_()


def _first_of(texts):
    if len(texts) <= MOST_VIEWED:
        return ""
    return f"<p>These are the first {MOST_VIEWED} of {len(texts)} texts.</p>"


_TEXTS_AT_ONCE = 32


@without_gradients
def _layers(model, texts):
    backbone = backbone_of(model)
    sums: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        inputs = model_inputs(model, texts[start : start + _TEXTS_AT_ONCE])
        outputs = backbone(inputs, return_hidden_states=True, training=False)
        for side in ("", "encoder_", "decoder_"):
            states = outputs.get(f"{side}hidden_states")
            if states is None:
                continue
            mask = inputs[f"{side}padding_mask"]
            values, count = layer_transitions(states, mask), int(np.sum(mask))
            name = side.rstrip("_")
            before = sums.setdefault(name, dict.fromkeys(values, 0.0))
            for key, value in values.items():
                before[key] = before[key] + count * ops.convert_to_numpy(value)
            counts[name] += count
    found = {
        name: {key: value / counts[name] for key, value in values.items()}
        for name, values in sums.items()
    }
    figure = plot_layer_transitions(found.get("", found), first=0)
    rows = [
        [f"{side} {layer}".strip(), float(distance), float(angle)]
        for side, values in found.items()
        for layer, (distance, angle) in enumerate(zip(*values.values(), strict=True))
    ]
    image = as_image(figure, "L2 distance and angle over the layers")
    return image + as_table(["layer", "L2 distance", "angle in degrees"], rows)


def _roles(model, texts):
    if isinstance(texts[0], tuple) or not has_heads(model):
        return None
    roles = head_roles(model, texts)
    tables = (
        f"<h3>{html.escape(title)}</h3>\n{as_table(*table)}"
        for title, table in roles.tables().items()
    )
    return as_image(roles.plot(), "What heads attend to, as maps") + "\n".join(tables)


def _likelihood(model, texts):
    likelihood = likelihood_of(model)
    if likelihood is None or isinstance(texts[0], tuple):
        return None
    sums, counts = likelihood(model, texts)
    each = np.exp(-sums / np.maximum(counts, 1))
    rows = [
        [text, int(count), float(total), float(perplexity) if count else "none"]
        for text, count, total, perplexity in zip(
            texts, counts, sums, each, strict=True
        )
    ]
    overall = float(np.exp(-sums.sum() / max(counts.sum(), 1)))
    pseudo = "pseudo-" if likelihood is pseudo_log_likelihood else ""
    columns = ["text", "tokens", "log-probability", f"{pseudo}perplexity"]
    return as_table(columns, rows) + f"<p>Of all texts: {overall:.4g}.</p>"


def _saliency(model, texts):
    preprocessor = getattr(model, "preprocessor", None)
    if not isinstance(preprocessor, _OF_TEXTS):
        return None
    masked = getattr(preprocessor.tokenizer, "mask_token_id", None) is not None
    baseline = "mask" if masked else "zero"
    found = token_saliency(model, texts[:MOST_VIEWED], baseline=baseline)
    images = (as_image(saliency.plot(), str(saliency)) for saliency in found)
    return _first_of(texts) + "\n".join(images)


SECTIONS = [
    Section(
        "Attention",
        "What each head of each layer attends to. Layers and heads count from 0.",
        _attention,
    ),
    Section(
        "Heads",
        "The roles of heads, by where most of their attention goes: to a fixed "
        "offset, to the rarest token, to special tokens; also how confident heads "
        "are, and how different from each other. More texts give a clearer picture.",
        _roles,
    ),
    Section(
        "Layers",
        "How far each layer moves its input: distance and angle between the states "
        "before and after it, averaged over the tokens of all texts, of each the first "
        "128. Layers count from 0, as above.",
        _layers,
    ),
    Section(
        "Likelihood",
        "The sum of the tokens' log-probabilities, and the exponential of the "
        "negative mean. A token's probability is given all other tokens of its text, "
        "or those before it if the model reads from left to right.",
        _likelihood,
    ),
    Section(
        "Saliency",
        "How much each token adds to the output of the greatest class, compared with "
        "a text of masks: integrated gradients.",
        _saliency,
    ),
]


# Occurrences that are listed of each word, and words shown on either side.
_OCCURRENCES, _WIDTH = 8, 8
# Sentences and examples for computations that take long.
_SENTENCES, _EXAMPLES = 300, 400
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def words_section(words: Sequence[str]) -> Section:
    """Make the section with words in their contexts in the texts.

    Args:
        words: list of str, in upper or lower case.

    Returns:
        A `Section`, which names the words that don't occur.
    """

    def make(model: Any, texts: list[Any]) -> str | None:
        if isinstance(texts[0], tuple) or not reads_rows(model):
            return None
        asked = list(dict.fromkeys(map(str.casefold, words)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the page says so itself
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
        "Where the words occur, and which occurrences are most similar in the last "
        "layer. The picture shows the two principal components of its states.",
        make,
    )


def _neighbours(found, word):
    """Make a row for each occurrence of a word, with the two most similar ones."""
    for occurrence, number in enumerate(found.occurrences(word)[:_OCCURRENCES]):
        near = found.nearest_contexts(word, occurrence, 2, _WIDTH)
        cells = [cell for cosine, text in near for cell in (text, cosine)]
        yield [found.context(number, _WIDTH), *cells, *[""] * (4 - len(cells))]


def facts_section(facts: Any) -> Section:
    """Make the section with facts that the model is asked for.

    Args:
        facts: see `keras_bertfam.analysis.cloze_facts`.
    """

    def make(model: Any, texts: list[Any]) -> str | None:
        if not hasattr(model, "masked_lm_logits"):
            return None
        report = cloze_facts(model, facts)
        image = as_image(report.plot(), "Precision of each relation")
        return (
            f"<p>{html.escape(report.title)}.</p>\n{image}{as_table(*report.table())}"
        )

    return Section(
        "Facts",
        "How often a mask in a fact is filled with its object: as the most probable "
        "of all words that are a single token, as one of the first ten, and, typed, "
        "as the most probable of the relation's objects.",
        make,
    )


_PROBED = {
    "linear": "How often a linear classifier of each layer's states, and of a mix "
    "of all layers, predicts the correct labels of words in sentences "
    "that it wasn't trained on.",
    "edge": "Micro F1 of small classifiers of spans, which see a mix of layers 0 to k, "
    "on sentences that they weren't trained on.",
}
_SELECTIVITY = (
    "In the control task each word has a random label. The selectivity is how much "
    "better the real task is learned: that part isn't memory of words."
)


def probes_section(sentences: Any, labels: Any, kind: str = "linear") -> Section:
    """Make the section with probes of each layer for labels of words or spans.

    Args:
        sentences, labels, kind: see `keras_bertfam.analysis.probe`.
    """

    def make(model: Any, texts: list[Any]) -> str | None:
        if not reads_rows(model):
            return None
        report = probe(model, sentences, labels, kind, control=True)
        image = as_image(report.plot(), "Scores of probes over the layers")
        text = html.escape(report.title.replace("_", " "))
        return f"<p>{text}.</p>\n{image}{as_table(*report.table())}"

    return Section("Probes", f"{_PROBED[kind]} {_SELECTIVITY}", make)


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
        "How often a head attends most from one side of a dependency to the other: "
        f"the best head beside the best fixed offset, in up to {_SENTENCES} sentences.",
        make,
    )


def _as_learned(model, labels):
    """Turn names of classes into numbers for a model that learned these.

    A table's tags, and its sets of labels, are strings.
    """
    if getattr(model, "label_names", ()) is not None:
        return labels

    def number(label):
        if isinstance(label, list):
            return [*map(number, label)]
        return int(label) if isinstance(label, str) else label

    return [*map(number, labels)]


def labelled_sections(examples: Any) -> list[Section]:
    """Make the sections with a fine-tuned task's scores, and the heads it needs.

    Args:
        examples: `keras_bertfam.datasets.Examples` with labels.
    """

    def scores(model: Any, texts: list[Any]) -> str | None:
        if not hasattr(model, "report"):
            return None
        report = model.report(examples.x, _as_learned(model, examples.y))
        tables = report.tables().items()
        parts = [f"<h3>{title}</h3>\n{as_table(*table)}" for title, table in tables]
        return as_image(report.plot(), report.title) + "\n".join(parts)

    def confidence(model: Any, texts: list[Any]) -> str | None:
        if not hasattr(model, "classify") or getattr(model, "multi_label", False):
            return None
        outputs = model.predict(examples.x, verbose=0)
        probabilities = ops.convert_to_numpy(model.probabilities(outputs))
        figure = plot_calibration(probabilities, np.asarray(examples.y))
        return as_image(figure, "Accuracy over confidence")

    def importance(model: Any, texts: list[Any]) -> str | None:
        if not hasattr(model, "report") or not has_heads(model) or len(examples) < 2:
            return None
        some = examples
        if len(some) > _EXAMPLES:
            _, some = some.split(_EXAMPLES / len(some))
        try:
            parts = some.split(0.5)
        except ValueError:  # too few of each class
            parts = some[: len(some) // 2], some[len(some) // 2 :]
        first, second = ((part.x, _as_learned(model, part.y)) for part in parts)
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
            "Whether the model's confidence agrees with how often it is correct.",
            confidence,
        ),
        Section(
            "Importance of heads",
            "How much the loss depends on each head; and the loss on other examples "
            f"without the least important heads. For up to {_EXAMPLES} examples.",
            importance,
        ),
    ]
