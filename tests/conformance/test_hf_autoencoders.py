"""Autoencoders against models of `transformers` put together by the papers."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam.tasks import DenoisingAutoencoder, MaskedAutoencoder
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*was loaded in part.*new. decoder"),
]
F = torch.nn.functional

BATCH, LENGTH, VOCABULARY, WIDTH, HEADS = 3, 9, 47, 16, 2
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
RNG = np.random.default_rng(0)
LENGTHS = np.array([LENGTH, 6, 4])
MASK = np.arange(LENGTH) < LENGTHS[:, None]
TARGETS = np.where(MASK, RNG.integers(5, VOCABULARY, (BATCH, LENGTH)), 1)
MASKED = np.where(RNG.random((BATCH, LENGTH)) < 0.3, 4, TARGETS) * MASK + ~MASK


def pair(family, cls):
    config = getattr(transformers, f"{family}Config")(**SIZES)
    theirs = getattr(transformers, f"{family}ForMaskedLM")(config)
    randomize(theirs, seed=1)
    ours = convert(cls, theirs)
    values = np.random.default_rng(2)
    for variable in ours.decoder.weights:  # those that are in no checkpoint
        if ("decoder/ffn" in variable.path) or "cross_attention" in variable.path:
            variable.assign(values.normal(0.0, 0.3, variable.shape))
    return theirs.eval(), ours


def tensor(x):
    return torch.tensor(ops.convert_to_numpy(x))


def dense(x, layer):
    return x @ tensor(layer.kernel) + tensor(layer.bias)


def normed(x, norm):
    gamma, beta = tensor(norm.gamma), tensor(norm.beta)
    return F.layer_norm(x, (WIDTH,), gamma, beta, 1e-5)


def heads(x):
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_the_decoder_of_retromae(family):
    theirs, ours = pair(family, MaskedAutoencoder)
    contexts = RNG.random((BATCH, LENGTH, LENGTH)) < 0.5
    contexts[..., 0] = True
    encoder = getattr(theirs, family.lower())
    there = torch.tensor(MASK)
    with torch.no_grad():
        ids = {"input_ids": torch.tensor(MASKED), "attention_mask": there.long()}
        states = encoder(**ids).last_hidden_state
        summary = states[:, :1]
        embedded = encoder.embeddings(torch.tensor(TARGETS))
        places = torch.arange(LENGTH).expand(BATCH, -1)
        if family == "Roberta":  # whose padding has the place of its id
            places = torch.where(there, there.cumsum(1) + 1, 1)
        query = summary + encoder.embeddings.position_embeddings(places)
        context = torch.cat([summary, embedded[:, 1:]], 1)
        cross, ffn = ours.decoder.attention, ours.decoder.feedforward
        key, value = dense(context, cross.sublayer.key_value).chunk(2, dim=-1)
        seen = torch.tensor(contexts) & there[:, None]
        mixed = F.scaled_dot_product_attention(
            heads(dense(query, cross.sublayer.query)),
            heads(key),
            heads(value),
            attn_mask=seen[:, None],
        )
        mixed = mixed.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = normed(query + dense(mixed, cross.sublayer.output_dense), cross.norm)
        inner = F.gelu(dense(x, ffn.sublayer.intermediate))
        x = normed(x + dense(inner, ffn.sublayer.output_dense), ffn.norm)
        head = theirs.cls if family == "Bert" else theirs.lm_head
        expected = {"masked_lm": head(states), "reconstruction": head(x)}
    found = ours(
        {
            "token_ids": MASKED.astype("int32"),
            "padding_mask": MASK,
            "target_ids": TARGETS.astype("int32"),
            "contexts": contexts,
        }
    )
    for name, logits in expected.items():
        assert max_difference(found[name][MASK], logits[there]) < 1e-4


@pytest.mark.parametrize(
    ("family", "decoder"),
    [("Bert", "BertLMHeadModel"), ("Roberta", "RobertaForCausalLM")],
)
def test_the_tied_decoder_of_tsdae(family, decoder):
    """As `sentence_transformers`' loss calls it: `DenoisingAutoEncoderLoss`."""
    theirs, ours = pair(family, DenoisingAutoencoder)
    config = getattr(transformers, f"{family}Config")(
        **SIZES, is_decoder=True, add_cross_attention=True
    )
    writer = getattr(transformers, decoder)(config).eval()
    weights = theirs.state_dict()
    prefix = f"{family.lower()}.encoder.layer"
    for index, layer in enumerate(ours.decoder.cross_attention_layers):
        crossing, own = layer.sublayer, f"{prefix}.{index}.crossattention"
        query = crossing.query
        parts = {"self.query": {"kernel": query.kernel, "bias": query.bias}}
        kernels = np.split(ops.convert_to_numpy(crossing.key_value.kernel), 2, axis=1)
        biases = np.split(ops.convert_to_numpy(crossing.key_value.bias), 2)
        for name, kernel, bias in zip(("key", "value"), kernels, biases, strict=True):
            parts[f"self.{name}"] = {"kernel": kernel, "bias": bias}
        output = crossing.output_dense
        parts["output.dense"] = {"kernel": output.kernel, "bias": output.bias}
        for name, part in parts.items():
            weights[f"{own}.{name}.weight"] = tensor(part["kernel"]).T
            weights[f"{own}.{name}.bias"] = tensor(part["bias"])
        weights[f"{own}.output.LayerNorm.weight"] = tensor(layer.norm.gamma)
        weights[f"{own}.output.LayerNorm.bias"] = tensor(layer.norm.beta)
    missing, unknown = writer.load_state_dict(weights, strict=False)
    assert not [*missing, *unknown]
    with torch.no_grad():
        there = torch.tensor(MASK).long()
        encoder = getattr(theirs, family.lower())
        states = encoder(torch.tensor(MASKED), attention_mask=there).last_hidden_state
        ids = torch.tensor(TARGETS)
        logits = writer(
            input_ids=ids[:, :-1],
            attention_mask=there[:, :-1],
            encoder_hidden_states=states[:, :1],
            encoder_attention_mask=there[:, :1],
        ).logits
        flat = logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1)
        loss = F.cross_entropy(*flat, ignore_index=1)
    x = {
        "token_ids": MASKED.astype("int32"),
        "padding_mask": MASK,
        "target_ids": TARGETS[:, :-1].astype("int32"),
        "target_padding_mask": MASK[:, :-1],
    }
    kept = MASK[:, :-1]
    assert max_difference(ours(x)[kept], logits[torch.tensor(kept)]) < 1e-4
    ours.compile(run_eagerly=True)
    scores = ours.evaluate(
        x,
        TARGETS[:, 1:].astype("int32"),
        sample_weight=MASK[:, 1:].astype("float32"),
        verbose=0,
        return_dict=True,
    )
    assert scores["loss"] == pytest.approx(float(loss), abs=1e-5)
