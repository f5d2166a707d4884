"""All that can be said of a model and some texts, on one page."""

import base64
import dataclasses
import html
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis.attention import checked_texts, model_inputs
from keras_bertfam.analysis.attention_view import attention_view
from keras_bertfam.analysis.head_roles import head_roles
from keras_bertfam.analysis.head_rows import has_heads
from keras_bertfam.analysis.layerwise import layer_transitions, plot_layer_transitions
from keras_bertfam.analysis.likelihood import likelihood_of, pseudo_log_likelihood
from keras_bertfam.analysis.pages import page
from keras_bertfam.analysis.saliency import token_saliency
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
    TextClassifierPreprocessor,
    TextRegressorPreprocessor,
)
from keras_bertfam.types import Model

MOST_VIEWED, _MOST_ROWS = 4, 30
_OF_TEXTS = (TextClassifierPreprocessor, TextRegressorPreprocessor)


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        title: str.
        text: str, what is to be seen, in a sentence or two.
        make: function of a task and a list of texts, which gives HTML, or `None`
            where the section says nothing of such a task or such texts.
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
        str, HTML that loads nothing. It names the sections that don't apply.

    Raises:
        ValueError: as `attention_view`.
        ImportError: without `matplotlib`, which the `analysis` extra has.
    """
    given = checked_texts(texts)
    made = [
        (each, each.make(model, given))
        for each in (SECTIONS if sections is None else sections)
    ]
    backbone: Any = getattr(model, "backbone", model)
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
        parts.append(f"<p>Left out, as they don't apply here: {names}.</p>")
    return page(name, "\n".join(parts), ["overview.css"])


def _anchor(section):
    return "".join(sign if sign.isalnum() else "-" for sign in section.title.lower())


def as_image(figure: Any, text: str) -> str:
    """Make an element of a page of a figure of `matplotlib`.

    Args:
        figure: a `matplotlib.figure.Figure`.
        text: str, what it shows, for those who can't see it.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=96, format="png")
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{data}">'


def as_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Make a table of a page; floats get four digits, and texts no markup.

    A long one is shown when its number of rows is clicked.
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
    return f"<p>Of {len(texts)} texts these are the first {MOST_VIEWED}.</p>"


def _layers(model, texts):
    backbone = getattr(model, "backbone", model)
    inputs = model_inputs(model, texts)
    outputs = backbone(inputs, return_hidden_states=True, training=False)
    found = {}
    for side in ("", "encoder_", "decoder_"):
        states = outputs.get(f"{side}hidden_states")
        if states is not None:
            mask = inputs[f"{side}padding_mask"]
            values = layer_transitions(states, mask)
            values = {k: ops.convert_to_numpy(v) for k, v in values.items()}
            found[side.rstrip("_")] = values
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
        "What heads are there for, by where most of their attention goes: to a fixed "
        "offset, to the rarest token, to special tokens; how sure they are, and how "
        "different from each other. More texts say more.",
        _roles,
    ),
    Section(
        "Layers",
        "How far each layer moves its input: distance and angle between the states "
        "before it and after it, the mean over all tokens. Layers count from 0, as "
        "above.",
        _layers,
    ),
    Section(
        "Likelihood",
        "The logarithm of each token's probability, summed, and the exponential of "
        "minus its mean. It is given all others of its text, or those before it if the "
        "model reads from left to right.",
        _likelihood,
    ),
    Section(
        "Saliency",
        "What each token adds to the output, the one of the greatest class, where "
        "there is nothing but masks at first: integrated gradients.",
        _saliency,
    ),
]
