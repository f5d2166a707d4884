"""Spans of answers against `transformers` with the same random weights."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam.tasks import SpanQuestionAnswering
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 97,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
}
LENGTH = 12


def batch(family):
    rng = np.random.default_rng(0)
    mask = np.arange(LENGTH) < np.array([[LENGTH], [7], [9]])
    ids = np.where(mask, rng.integers(5, 97, mask.shape), 1).astype("int32")
    segments = ((np.arange(LENGTH) > 4) & mask).astype("int32")
    if family == "roberta":
        segments[:] = 0
    return {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}


def theirs(model, inputs):
    with torch.no_grad():
        return model(
            torch.tensor(inputs["token_ids"]).long(),
            attention_mask=torch.tensor(inputs["padding_mask"]).long(),
            token_type_ids=torch.tensor(inputs["segment_ids"]).long(),
        )


@pytest.mark.parametrize("family,prefix", [("bert", "Bert"), ("electra", "Electra")])
def test_logits_equal(family, prefix):
    config = getattr(transformers, f"{prefix}Config")(
        **SIZES, max_position_embeddings=LENGTH
    )
    source = randomize(getattr(transformers, f"{prefix}ForQuestionAnswering")(config))
    model = convert(SpanQuestionAnswering, source)
    inputs = batch(family)
    outputs, expected = model(inputs), theirs(source, inputs)
    real = inputs["padding_mask"]
    for name in ("start_logits", "end_logits"):
        assert max_difference(outputs[name], getattr(expected, name), real) < 1e-4


def _assign_dense(layer, linear):
    layer.kernel.assign(linear.weight.detach().numpy().T)
    if linear.bias is not None:
        layer.bias.assign(linear.bias.detach().numpy())


def test_conditional_head_equals_that_of_xlnet():
    """The logits of XLNetForQuestionAnswering's three heads."""
    from keras_bertfam.layers.heads.span_heads import ConditionalSpanHead

    config = transformers.XLNetConfig(d_model=16, n_head=2, n_layer=1, vocab_size=9)
    source = randomize(transformers.XLNetForQuestionAnswering(config))
    head = ConditionalSpanHead(layer_norm_epsilon=config.layer_norm_eps)
    head.build((None, None, 16))
    _assign_dense(head.logits, source.start_logits.dense)
    _assign_dense(head.end_dense, source.end_logits.dense_0)
    _assign_dense(head.end, source.end_logits.dense_1)
    head.norm.gamma.assign(source.end_logits.LayerNorm.weight.detach().numpy())
    head.norm.beta.assign(source.end_logits.LayerNorm.bias.detach().numpy())
    _assign_dense(head.answer_dense, source.answer_class.dense_0)
    _assign_dense(head.answer, source.answer_class.dense_1)
    states = np.random.default_rng(1).normal(size=(3, 7, 16)).astype("float32")
    starts = np.array([[2, 5], [0, 0], [6, 1]])
    tensor = torch.tensor(states)
    start = source.start_logits(tensor)
    logits = head(ops.convert_to_tensor(states))
    assert max_difference(logits, start) < 1e-4
    ends = head.end_logits(ops.convert_to_tensor(states), starts)
    for k in range(2):
        expected = source.end_logits(tensor, start_positions=torch.tensor(starts[:, k]))
        assert max_difference(ends[:, k], expected) < 1e-4
    mean = torch.einsum("bth,bt->bh", tensor, torch.softmax(start, -1))
    expected = source.answer_class(tensor, start_states=mean)
    last = ops.full((3, 1), 6, dtype="int32")
    ours = head.no_answer_logit(ops.convert_to_tensor(states), logits, last)
    assert max_difference(ours, expected) < 1e-4
