"""Make a page that shows the attention of all heads."""

import base64
import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis.heads.attention import (
    TextAttention,
    checked_texts,
    text_attentions,
)
from keras_bertfam.analysis.pages import frame, page
from keras_bertfam.arguments import checked
from keras_bertfam.types import Model, Path, Tokenizer
from keras_bertfam.whole_files import write_text

_SCRIPTS = "data.js drawing.js head_view.js model_view.js neuron_view.js page.js"
_BODY = '<header></header>\n<main tabindex="-1"></main>'
# Queries and keys are stored as exactly as the page's size allows.
_MOST_BYTES = 1_000_000
_LEVELS = (127, 31, 15, 7, 3)
_TITLE_WIDTH = 60


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AttentionView:
    """Holds the page of `attention_view`. A notebook shows it.

    Attributes:
        html: str, the page.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    view = keras_bertfam.analysis.attention_view(model, ["the cat sat", "a dog ran"])
    view  # in the last line of a notebook's cell
    len(view.html)
    ```
    """

    html: str

    def _repr_html_(self) -> str:
        return frame(self.html, "Attention")

    def __repr__(self) -> str:
        return f"<AttentionView, {len(self.html.encode()):,} bytes of HTML>"


@checked
def attention_view(
    model: Model,
    texts: str | Sequence[Any],
    path: Path | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    sequence_length: int = 128,
    neurons: bool = True,
) -> AttentionView:
    """Make a page that shows what every head of a model attends to in texts.

    It is a single HTML file that loads nothing and works in any recent browser. It has
    three views. *Heads* draws a line from each token to the tokens that it attends to,
    for chosen heads of a layer. *Model* has a picture of every head of every layer.
    *Neurons* shows how a head's weights arise: query, keys, their products, whose
    scaled sum is the score, and the softmax. For a pair of texts, lines can be limited
    to those from one segment to the other. For an encoder-decoder there is the
    attention of each side, and the decoder's to the encoder. Pruned heads keep their
    numbers and are blank.

    Weights are rounded to 1/255. Queries and keys are rounded so that the page stays
    under 1 MB: to 1/127 of the head's greatest number for up to 12 layers of 12 heads
    and 64 tokens, and more coarsely, down to 1/3, for larger models and texts.
    `neurons=False` makes the page about half as large.

    Args:
        model: a backbone, or a task with any head.
        texts: str, or a list of str; or pairs, a list of tuples of two strings. An
            encoder-decoder needs pairs: the texts of the encoder and of the decoder. A
            model that reads from left to right needs single texts.
        path: file to write the page to, or `None`.
        tokenizer: for a model without a preprocessor, or in place of its tokenizer.
        sequence_length: int. The most tokens of a text, special ones included. Longer
            texts are cut, at the latest where the model's positions end.
        neurons: bool. Whether the page has the view *neurons*.

    Returns:
        An `AttentionView`, with the page as `html`. A notebook shows it in a frame of
        its own, so that it may hold several.

    Raises:
        ValueError: for texts that aren't strings or pairs of strings, or that are of
            the wrong kind for the model; for a model that isn't from this library, or
            whose numbers aren't finite; without a tokenizer.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    view = keras_bertfam.analysis.attention_view(
        model, [("the cat sat", "a dog ran")], "attention.html")
    ```

    Reference: [Vig, 2019](https://arxiv.org/abs/1906.05714), section 3.
    """
    found = text_attentions(model, texts, tokenizer, sequence_length)
    html = attention_page(
        [_title(text) for text in checked_texts(texts)], found, neurons
    )
    if path is not None:
        write_text(path, html)
    return AttentionView(html)


def attention_page(
    titles: Sequence[str],
    found: Sequence[Sequence[TextAttention]],
    neurons: bool = True,
) -> str:
    """Make the page of `attention_view` from computed attentions.

    Args:
        titles: str for each text.
        found: for each text a list, see `text_attentions`.
        neurons: bool.

    Returns:
        str, HTML.
    """
    packed = [[_weights(attention) for attention in text] for text in found]
    html = ""
    for levels in _LEVELS if neurons else (0,):
        data = [
            {
                "title": title,
                "attentions": [
                    {**weights, **(_neurons(attention, levels) if neurons else {})}
                    for weights, attention in zip(parts, text, strict=True)
                ],
            }
            for title, parts, text in zip(titles, packed, found, strict=True)
        ]
        html = page("Attention", _BODY, ["attention.css"], _SCRIPTS.split(), data)
        if len(html.encode()) <= _MOST_BYTES:
            break
    return html


def _title(text):
    line = " / ".join([text] if isinstance(text, str) else text)
    line = " ".join(line.split())
    return line if len(line) <= _TITLE_WIDTH else f"{line[: _TITLE_WIDTH - 1]}…"


def _weights(attention):
    """Make the data of an attention for the page's script, with weights up to 255."""
    rounded = [np.rint(255 * layer).astype("uint8") for layer in attention.weights]
    return {
        "name": attention.name,
        "from": attention.query_tokens,
        "to": attention.key_tokens,
        "fromSegments": attention.query_segments,
        "toSegments": attention.key_segments,
        "causal": attention.causal,
        "heads": [len(layer) for layer in attention.weights],
        "weights": _packed(rounded),
    }


def _neurons(attention, levels):
    """Round queries and keys to integers up to `levels`; give each head's unit."""
    said: dict[str, Any] = {"width": attention.queries[0].shape[-1]}
    for name in ("queries", "keys"):
        layers = getattr(attention, name)
        units = [np.abs(layer).max((1, 2), initial=0) / levels for layer in layers]
        said[name] = _packed(
            np.rint(layer / np.maximum(unit, 1e-30)[:, None, None]).astype("int8")
            for layer, unit in zip(layers, units, strict=True)
        )
        said[f"{name}Units"] = [float(f"{u:.4g}") for unit in units for u in unit]
    return said


def _packed(layers):
    data = b"".join(layer.tobytes() for layer in layers)
    # Random-looking numbers compress better without references to earlier ones.
    packers = (
        zlib.compressobj(9, strategy=strategy)
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY)
    )
    packed = (packer.compress(data) + packer.flush() for packer in packers)
    return base64.b64encode(min(packed, key=len)).decode("ascii")
