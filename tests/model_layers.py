"""Each layer of models: its arguments, what it is called on, what it gives."""

import dataclasses
import inspect
from typing import Any

import keras
import numpy as np

from keras_bertfam import lazy
from keras_bertfam.layers.recurrent.relative_attention import relative_sinusoids
from keras_bertfam.transformer_config import TransformerConfig

BATCH, LENGTH, WIDTH, VOCABULARY = 2, 5, 8, 20
STATES = (BATCH, LENGTH, WIDTH)
SCORES = (BATCH, LENGTH, VOCABULARY)
HEADS = {"num_heads": 2, "head_dim": 4}
CONFIG = TransformerConfig(VOCABULARY, 2, 2, WIDTH, 12, max_sequence_length=8)


@dataclasses.dataclass(frozen=True)
class Case:
    """How a layer is made and called.

    Attributes:
        inputs: an array, or a dict of them by the arguments of the call.
        shape: of the output, a list or a dict of them where there are several.
        arguments: of the constructor.
        floats: `"policy"` where the output has the dtype of the policy, `"float32"`
            where it is float32 in any, and `None` where it has no float of its own.
        trained: whether there is something to learn by the output.
        embedding: whether a built `TokenEmbedding` is the first argument.
    """

    inputs: Any
    shape: Any
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    floats: str | None = "policy"
    trained: bool = True
    embedding: bool = False


MODELING = {
    f"keras_bertfam.layers.{x}" for x in ("attention", "blocks", "heads", "recurrent")
}


def model_layers():
    """Give all registered layers of models, by name."""
    lazy.load_all()
    return {
        cls.__name__: cls
        for cls in keras.saving.get_custom_objects().values()
        if inspect.isclass(cls)
        and issubclass(cls, keras.layers.Layer)
        and not issubclass(cls, keras.Model)
        and cls.__module__.rpartition(".")[0] in MODELING
    }


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def ids(*shape, most=VOCABULARY):
    return np.random.default_rng(1).integers(1, most, shape).astype("int32")


def relative():
    found = relative_sinusoids(LENGTH, LENGTH, WIDTH)
    return np.asarray(found, "float32")


x, tokens, yes = normal(*STATES), ids(BATCH, LENGTH), np.ones((BATCH, LENGTH), bool)
TIED = {"embedding": True, "floats": "float32"}
CASES = {
    "AdaptiveEmbedding": Case(
        tokens,
        STATES,
        {
            "input_dim": VOCABULARY,
            "output_dim": WIDTH,
            "cutoffs": [5, 10],
            "divisor": 2,
        },
    ),
    "BiaffineHead": Case(
        x,
        ((*STATES[:2], LENGTH + 1), (*STATES[:2], LENGTH + 1, 3)),
        {"num_classes": 3, "arc_dim": 8, "relation_dim": 4},
        floats="float32",
    ),
    "BidirectionalLSTM": Case(
        x,
        ([(BATCH, LENGTH, 2 * WIDTH)] * 2, [(BATCH, WIDTH), (BATCH, 6)] * 4),
        {"num_layers": 2, "cell_dim": 6, "projection_dim": WIDTH},
        trained=False,
    ),
    "BottleneckDecoder": Case(
        {
            "summary": x[:, :1],
            "embeddings": x,
            "contexts": np.ones((BATCH, LENGTH, LENGTH), bool),
            "positions": x[:1],
        },
        STATES,
        {**HEADS, "intermediate_dim": 12},
        trained=False,
    ),
    "CharacterEncoder": Case(
        ids(BATCH, LENGTH, 6),
        STATES,
        {
            "num_characters": VOCABULARY,
            "embedding_dim": 4,
            "filters": [[1, 4], [2, 4]],
            "num_highways": 1,
            "output_dim": WIDTH,
        },
    ),
    "ConditionalSpanHead": Case(x, STATES[:2], floats="float32"),
    "CopyingMaskedLMHead": Case({"x": x, "token_ids": tokens}, SCORES, **TIED),
    "CrossAttention": Case({"x": x, "context": normal(BATCH, 3, WIDTH)}, STATES, HEADS),
    "Dropout": Case(x, STATES, {"rate": 0.1}),
    "EmbeddingConvolution": Case(
        {"states": x, "embeddings": x}, STATES, {"kernel_size": 3}
    ),
    "EncoderEmbedding": Case(
        tokens,
        STATES,
        {"config": CONFIG},
    ),
    "FeedForward": Case(x, STATES, {"intermediate_dim": 12}, trained=False),
    "HeadGates": Case(
        np.ones((2, 2), "float32"),
        (2, 2),
        {"num_layers": 2, "num_heads": 2},
        floats="float32",
    ),
    "Highway": Case(x, STATES),
    "LanguageModelHead": Case(x, SCORES, **TIED),
    "LocalSelfAttention": Case(x, STATES, {**HEADS, "window": 2}),
    "MaskedLMHead": Case(x, SCORES, **TIED),
    "NoAttention": Case(x, STATES),
    "PositionQueries": Case(
        tokens, STATES, {"max_positions": VOCABULARY, "hidden_dim": WIDTH}
    ),
    "Pooler": Case(x, (BATCH, WIDTH), {"hidden_dim": WIDTH}),
    "RelativeAttention": Case(
        {"x": x, "context": x, "relative": relative()}, STATES, HEADS, trained=False
    ),
    "RelativeTransformerBlock": Case(
        {"x": x, "context": x, "relative": relative()},
        STATES,
        {**HEADS, "intermediate_dim": 12},
        trained=False,
    ),
    "RelativeTransformerStack": Case(
        x,
        (STATES, [STATES] * 3, []),
        {**HEADS, "num_layers": 2, "intermediate_dim": 12},
        trained=False,
    ),
    "ReplacedTokenHead": Case(x, (BATCH, LENGTH), floats="float32"),
    "SampledLogits": Case(x, SCORES, **TIED),
    "SegmentMemory": Case(
        np.zeros(BATCH, bool),
        {"memory": [(BATCH, 4, WIDTH)] * 2, "memory_mask": (BATCH, 4)},
        {"num_layers": 2, "batch_size": BATCH, "memory_length": 4, "width": WIDTH},
        floats=None,
        trained=False,
    ),
    "SelfAttention": Case(x, STATES, HEADS),
    "SentencePairHead": Case(x[:, 0], (BATCH, 2), floats="float32"),
    "SpanBoundaryHead": Case(
        {"left": x, "right": x, "places": ids(BATCH, LENGTH, most=4)}, SCORES, **TIED
    ),
    "SpanHead": Case(x, (STATES[:2], STATES[:2]), floats="float32"),
    "SpanScores": Case(
        {"states": x, "allowed": yes},
        (BATCH, LENGTH, 3),
        {"max_length": 3},
        floats="float32",
    ),
    "StateMemory": Case(
        np.zeros(BATCH, bool),
        [(BATCH, 4), (BATCH, 6)],
        {"batch_size": BATCH, "widths": [4, 6]},
        floats=None,
        trained=False,
    ),
    "SummaryHead": Case(x[:, 0], (BATCH, 3), {"num_classes": 3}, floats="float32"),
    "TiedLogits": Case(x, SCORES, **TIED),
    "TokenEmbedding": Case(
        tokens, STATES, {"input_dim": VOCABULARY, "output_dim": WIDTH}
    ),
    "TransformedSpanHead": Case(
        x, (STATES[:2], STATES[:2]), {"hidden_dim": WIDTH}, floats="float32"
    ),
    "TransformerStack": Case(x, STATES, {"config": CONFIG}, trained=False),
    "VectorProjection": Case(
        x[:, 0], (BATCH, 4), {"projection_dim": 4}, floats="float32"
    ),
}
