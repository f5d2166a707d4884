"""A small backbone, a task and a batch of each family with Transformer blocks."""

import numpy as np

from keras_bertfam import models, tasks

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
SIZES |= {"vocabulary_size": 50, "dropout": 0.0}
ENCODERS = {
    "Albert": {"embedding_dim": 8},
    "Bert": {},
    "Deberta": {"relative_buckets": 16, "relative_distance": 8},
    "DebertaV2": {"relative_buckets": 8, "convolution": 3},
    "DistilBert": {},
    "Electra": {"embedding_dim": 8},
    "Ernie": {},
    "EuroBert": {"num_key_value_heads": 1},
    "Longformer": {"attention_window": 4},
    "ModernBert": {},
    "MPNet": {},
    "NeoBert": {},
    "Roberta": {},
    "SpanBert": {},
    "Xlm": {"num_languages": 3},
}
CAUSAL = ["GPT", "GPT2", "ModernBertDecoder"]
FAMILIES = [*ENCODERS, *CAUSAL, "Bart", "T5", "TransformerXL", "XLNet"]
MASKS = np.array([[1] * 8, [1] * 5 + [0] * 3, [0, 0, 1, 1, 1, 1, 0, 0], [0] * 8], bool)
IDS = np.where(MASKS, np.random.default_rng(0).integers(3, 50, (4, 8)), 1)
ROWS = {"token_ids": IDS.astype("int32"), "padding_mask": MASKS}


def backbone_of(family, dtype="float32", **settings):
    """With the weights of each dtype, rounded."""
    sizes = {**SIZES, **ENCODERS.get(family, {}), "dtype": dtype, **settings}
    if family not in ("T5", "TransformerXL", "XLNet"):
        sizes.setdefault("max_sequence_length", 12)
    if family == "T5":
        # Beyond the range of float16, as the states of T5's checkpoints are.
        sizes["initializer_range"] = 1.0
    backbone = getattr(models, f"{family}Backbone")(**sizes)
    fill(backbone.weights, family)
    return backbone


def fill(weights, family):
    values = np.random.default_rng(1)
    for variable in weights:
        name = variable.path.split("/")
        if variable.dtype.startswith(("float", "bfloat")):
            value = values.normal(0, 0.3, variable.shape)
            if name[-1] in ("gamma", "scale"):
                value = value + 1
            if family == "T5" and name[-2] == "output" and "feed_forward" in name:
                value = value * 1e4
            variable.assign(value)


def is_pair(family):
    return family in ("Bart", "T5")


def inputs_of(family):
    if not is_pair(family):
        return ROWS
    return {f"{s}_{n}": x for s in ("encoder", "decoder") for n, x in ROWS.items()}


def task_of(family, dtype="float32", rows=4, **settings):
    """A pre-training task; of XLNet a classifier."""
    backbone = backbone_of(family, dtype, **settings)
    if is_pair(family):
        return tasks.TextToText(backbone)
    if family in CAUSAL:
        task = tasks.CausalLM(backbone)
        theirs = {id(variable) for variable in backbone.weights}
        fill([v for v in task.weights if id(v) not in theirs], family)
        return task
    if family == "TransformerXL":
        return tasks.RecurrentLM(backbone, memory_length=4, batch_size=rows)
    if family == "XLNet":
        return tasks.TextClassifier(backbone, 3, dropout=0.0)
    return tasks.MaskedLM(backbone)


def batch_of(family):
    """Inputs, labels and weights."""
    x = dict(inputs_of(family))
    if family == "XLNet":
        return x, np.array([0, 1, 2, 1]), np.array([1.0, 1.0, 1.0, 0.0], "float32")
    if family not in ENCODERS:
        return x, ROWS["token_ids"], MASKS.astype("float32")
    if family == "Xlm":
        x["language_ids"] = np.tile(np.arange(8, dtype="int32") % 3, (4, 1))
    x["mask_positions"] = np.array([[1, 2], [2, 3], [3, 4], [0, 0]], "int32")
    y = np.array([[5, 6], [7, 8], [9, 10], [0, 0]], "int32")
    return x, y, np.array([[1, 1], [1, 1], [1, 0], [0, 0]], "float32")
