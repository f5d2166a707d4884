"""Models of every objective, and batches whose halves differ in all that they count."""

import functools

import keras
import numpy as np
import tensorflow as tf

from tests import every_task, tiny_distiller, tiny_electra, tiny_span_boundary
from tests import tiny_masked_lm as tiny
from tests.objective_worker import OBJECTIVES


def of_task(name, kind="bert", **kwargs):
    """A task of `every_task`, and a batch of four of its rows as a dataset."""
    still = {"dropout": 0.0}
    if kind == "t5":
        still |= {"activation_dropout": 0.0, "output_dropout": 0.0}
    if name in every_task.FINE_TUNING and name not in (
        "SpanQuestionAnswering",
        "TextEmbedder",
    ):
        kwargs["dropout"] = 0.0

    def stream(model):
        rows = every_task.rows_of(name, model)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(rows)
        weights = (
            np.ones(len(every_task.TEXTS), "float32") if weights is None else weights
        )
        batch = keras.tree.map_structure(lambda v: v[[0, 1, 2, 0]], (x, y, weights))
        return tf.data.Dataset.from_tensors(batch)

    return functools.partial(
        every_task.make, name, kind, backbone=still, **kwargs
    ), stream


def electra(variant):
    settings = {"variant": variant, "temperature": 1e-6}  # no draws, a batch's own
    return functools.partial(tiny_electra.make_model, **settings), tiny_electra.stream


MODELS = {
    **{
        name: (module.make_model, module.stream)
        for name, module in OBJECTIVES.items()
        # Their negatives are those of a batch.
        if name not in ("dual_encoder", "sparse_encoder")
    },
    "masked_lm": (tiny.make_model, tiny.stream),
    "distillation_of_masks": (
        lambda: tiny_distiller.make_model(cosine_weight=0.0, soft_targets="masked"),
        tiny.stream,
    ),
    "span_boundary_of_spans": (
        lambda: tiny_span_boundary.make_model(reduction="separate"),
        tiny_span_boundary.stream,
    ),
    "replaced_tokens": electra("electra"),
}
# What is like one of those above, or is divided by one number.
MORE_MODELS = {
    **{name: electra(name) for name in ("electra_15", "replace_mlm", "all_tokens_mlm")},
    "adversarial": electra("adversarial"),
    **{name: of_task(name) for name in every_task.FINE_TUNING},
    "conditional_spans": of_task("SpanQuestionAnswering", end_head="conditional"),
    "texts_beside_a_class": of_task("TextClassifier", "openai-gpt", lm_weight=0.5),
    "texts_beside_a_choice": of_task("MultipleChoice", "openai-gpt", lm_weight=0.5),
    "causal_lm": of_task("CausalLM", "gpt2", z_loss=0.1, label_smoothing=0.1),
    "text_to_text": of_task("TextToText", "t5", z_loss=0.1),
}


def uneven_batch(name):
    """The first batch of a model's data, of whose second half little is counted.

    How little differs between the parts of a loss.
    """
    make_model, stream = {**MODELS, **MORE_MODELS}[name]
    batch = next(stream(make_model()).as_numpy_iterator())
    x, y, weights = keras.tree.map_structure(
        np.array, keras.utils.unpack_x_y_sample_weight(batch), none_is_leaf=False
    )
    half = len(x["token_ids"] if "token_ids" in x else keras.tree.flatten(x)[0]) // 2
    x.pop("continues", None)  # memory of the batch before isn't that of one large one
    counted = [leaf for leaf in keras.tree.flatten(weights) if leaf is not None]
    for values in counted + [x[name] for name in ("mask_weights",) if name in x]:
        second = values[half:].reshape(-1)  # a view
        second[np.flatnonzero(second)[1:]] = 0
        assert 0 < second.sum() < values[:half].sum()
    if "padding_mask" in x:
        x["padding_mask"][half:, 8:] = 0
    return keras.utils.pack_x_y_sample_weight(x, y, weights)
