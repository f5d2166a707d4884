"""The time to load a checkpoint of `transformers`, beside KerasHub's converter."""

import importlib
import json
import pathlib
import tempfile

import numpy as np

from benchmarks.harness import Benchmark, Competitor, repeated

SIZES = {"base": (12, 768, 12), "large": (24, 1024, 16)}


def write_checkpoint(folder, layers, width, heads):
    """Write a BERT of random weights as `transformers` does; returns its bytes."""
    from safetensors.numpy import save_file

    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": 30522,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    }
    shapes = {
        "embeddings.word_embeddings.weight": (30522, width),
        "embeddings.position_embeddings.weight": (512, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    linear = {"pooler.dense": (width, width)}
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            linear[f"{at}.attention.self.{part}"] = (width, width)
        linear[f"{at}.attention.output.dense"] = (width, width)
        linear[f"{at}.intermediate.dense"] = (4 * width, width)
        linear[f"{at}.output.dense"] = (width, 4 * width)
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    rng = np.random.default_rng(0)
    tensors = {name: rng.random(shape, "float32") for name, shape in shapes.items()}
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))
    save_file(tensors, pathlib.Path(folder, "model.safetensors"), {"format": "pt"})
    return sum(tensor.nbytes for tensor in tensors.values())


def loading(module, size):
    """Load a checkpoint into the `BertBackbone` of a package."""
    folder = tempfile.TemporaryDirectory()
    write_checkpoint(folder.name, *SIZES[size])
    backbone = importlib.import_module(f"{module}.models").BertBackbone

    def load():
        assert folder.name  # kept as long as this function
        backbone.from_preset(folder.name)

    return repeated(load)


BENCHMARKS = {
    f"load-bert-{size}": Benchmark(
        f"Load a checkpoint of transformers, BERT {size}, tensorflow",
        tuple(
            Competitor(module, "conversion:loading", {"module": module, "size": size})
            for module in ("keras_hub", "keras_bertfam")
        ),
    )
    for size in SIZES
}
