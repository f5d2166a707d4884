"""Training steps of DeBERTaV3's shape at equal work.

Batches, masked positions and what is compiled are those of `benchmarks.training`.
"""

from benchmarks import training
from benchmarks.harness import Benchmark, Competitor, repeated
from benchmarks.training import LEARNING_RATE, Size

SIZE = Size(
    num_layers=6, hidden_dim=384, num_heads=6, batch_size=8, sequence_length=256,
    masked=38,
)  # fmt: skip
BUCKETS = 256


def keras_bertfam(size=SIZE):
    """Our masked language model of a DeBERTa of the second version."""
    import keras_bertfam

    architecture = size.architecture
    del architecture["max_sequence_length"]
    backbone = keras_bertfam.models.DebertaV2Backbone(**architecture)
    x, y, weight = training.batch(size)
    x["padding_mask"] = x["padding_mask"].astype("bool")
    del x["segment_ids"]
    return training.fit_ours(keras_bertfam.tasks.MaskedLM(backbone), (x, y, weight))


def transformers(size=SIZE, gathered=False):
    """HF's in a PyTorch loop; `gathered` projects the masked positions only."""
    import torch
    import transformers

    config = transformers.DebertaV2Config(
        vocab_size=size.vocabulary_size,
        hidden_size=size.hidden_dim,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        intermediate_size=4 * size.hidden_dim,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=BUCKETS,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    )
    model = transformers.DebertaV2ForMaskedLM(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    x, y, _ = training.batch(size)
    x = {name: torch.tensor(value, dtype=torch.long) for name, value in x.items()}
    y = torch.tensor(y, dtype=torch.long)
    inputs = {"input_ids": x["token_ids"], "attention_mask": x["padding_mask"]}
    labels = torch.full_like(x["token_ids"], -100)
    labels = labels.scatter(1, x["mask_positions"], y)
    rows = torch.arange(size.batch_size)[:, None]

    def step():
        if gathered:
            states = model.deberta(**inputs).last_hidden_state
            logits = model.cls(states[rows, x["mask_positions"]])
            value = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        else:
            value = model(**inputs, labels=labels).loss
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        value.item()

    return repeated(step)


BENCHMARKS = {
    "train-deberta": Benchmark(
        "Training step of DeBERTaV3: 6 x 384, batch 8 x 256, 38 masked",
        (
            Competitor("transformers as it comes", "deberta:transformers", {}, "torch"),
            Competitor(
                "transformers, positions gathered by hand",
                "deberta:transformers",
                {"gathered": True},
                "torch",
            ),
            *(
                Competitor(
                    f"keras_bertfam, {backend}", "deberta:keras_bertfam", {}, backend
                )
                for backend in ("torch", "tensorflow", "jax")
            ),
        ),
    )
}
