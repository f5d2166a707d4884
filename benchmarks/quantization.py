"""The time of a batch through an encoder in float32 and in int8."""

from benchmarks.harness import Benchmark, Competitor, repeated

BATCH, LENGTH = 8, 128
ARCHITECTURE = {
    "vocabulary_size": 30522,
    "num_layers": 6,
    "num_heads": 12,
    "hidden_dim": 768,
    "intermediate_dim": 3072,
}


def encoding(module, int8):
    """A batch through the `BertBackbone` of a package, random weights.

    Args:
        module: `keras_hub` or `keras_bertfam`.
        int8: bool. Whether its layers are quantised.
    """
    import importlib

    import numpy as np

    models = importlib.import_module(f"{module}.models")
    backbone = models.BertBackbone(**ARCHITECTURE, max_sequence_length=LENGTH)
    if int8:
        backbone.quantize("int8")
    x = {
        "token_ids": np.random.default_rng(0).integers(0, 30522, (BATCH, LENGTH)),
        "padding_mask": np.ones((BATCH, LENGTH), "int32"),
        "segment_ids": np.zeros((BATCH, LENGTH), "int32"),
    }
    return repeated(lambda: backbone.predict_on_batch(x))


BENCHMARKS = {
    f"encode-int8-{backend}": Benchmark(
        f"Encode a batch of ({BATCH}, {LENGTH}), 6 x 768, {backend}",
        tuple(
            Competitor(
                f"{module}, {'int8' if int8 else 'float32'}",
                "quantization:encoding",
                {"module": module, "int8": int8},
                backend,
            )
            for module in ("keras_hub", "keras_bertfam")
            for int8 in (False, True)
        ),
    )
    for backend in ("tensorflow", "jax", "torch")
}
