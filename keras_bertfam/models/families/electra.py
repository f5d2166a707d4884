"""ELECTRA: the discriminator and its small generator."""

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.electra import ELECTRA
from keras_bertfam.types import Model


@keras.saving.register_keras_serializable("keras_bertfam")
class ElectraBackbone(EncoderBackbone):
    """ELECTRA encoder: BERT's without pooler, and with factorised embeddings.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. ELECTRA's own values are
            `num_segments=2`, `activation="gelu_tanh"`, `layer_norm_epsilon=1e-12`,
            `dropout=0.1`; `embedding_dim` is 128 in the small model.

    Inputs and outputs are those of `EncoderBackbone`.

    `from_preset()` knows the sizes of the released models, such as
    `electra_small_discriminator_uncased_en`, and of the generators released with them.
    The released generator of the small model is as wide as its discriminator. The
    paper's (table 6) has a quarter of the width;
    `keras_bertfam.tasks.ReplacedTokenDetection` makes the paper's.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 3
    and appendix A.

    Example:

    ```python
    backbone = keras_bertfam.models.ElectraBackbone.from_preset(
        "electra_small_discriminator_uncased_en", load_weights=False)
    outputs = backbone({"token_ids": keras.ops.array([[101, 7592, 102]])})
    outputs["sequence_output"].shape  # (1, 3, 256)
    ```
    """

    record = ELECTRA


# The parts of the embeddings that a generator shares with its discriminator.
SHARED_EMBEDDINGS = {
    "embeddings": ("token_embedding", "tables", "norm"),
    "tokens": ("token_embedding",),
    "none": (),
}


@checked
def make_generator(
    backbone: Model,
    size: float = 0.25,
    tie: str = "embeddings",
    depth: float = 1.0,
) -> Model:
    """Build a generator of a discriminator's kind, as ELECTRA does.

    The generator has the discriminator's embedding width, and shares of its hidden
    width and number of layers. Its heads are 64 wide, or have the next width that
    divides; its inner width is four times the hidden width. It has its own projection
    of the embeddings.

    Args:
        backbone: `EncoderBackbone`, the discriminator.
        size: float in (0, 1]. The generator's width as a share of the discriminator's.
        tie: what the two share. `"embeddings"`: the tables of tokens, positions and
            segments, and their norm. `"tokens"`: only the token table. `"none"`:
            nothing. `"all"`: the generator is the discriminator itself, which needs
            `size=1` and `depth=1`.
        depth: float in (0, 1]. The generator's number of layers as a share of the
            discriminator's, at least one layer.

    Returns:
        A backbone of the discriminator's class. Saved as a preset it has
        its own embeddings.

    Raises:
        ValueError: for a `size` or `depth` out of its range, or an unknown `tie`.

    Example:

    ```python
    discriminator = keras_bertfam.models.ElectraBackbone.from_preset(
        "electra_base_discriminator_uncased_en", load_weights=False)
    keras_bertfam.models.make_generator(discriminator, 1 / 3).hidden_dim  # 256
    ```

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), "Model
    Extensions"; google-research/electra.
    """
    if not 0 < size <= 1:
        raise ValueError(f"The generator's size must be in (0, 1]. Received: {size}.")
    if not 0 < depth <= 1:
        raise ValueError(f"The generator's depth must be in (0, 1]. Received: {depth}.")
    if tie == "all":
        if size != 1 or depth != 1:
            raise ValueError(
                'tie="all" needs a generator of the same size. Expected: '
                "generator_size=1, generator_depth=1. Received: "
                f"generator_size={size}, generator_depth={depth}."
            )
        return backbone
    if tie not in SHARED_EMBEDDINGS:
        raise ValueError(
            f"`tie` must be one of {(*SHARED_EMBEDDINGS, 'all')}. Received: {tie!r}."
        )
    hidden_dim = max(1, round(backbone.hidden_dim * size))
    most = max(1, hidden_dim // 64)
    num_heads = next(n for n in range(most, 0, -1) if hidden_dim % n == 0)
    config = {
        **backbone.get_config(),
        "name": f"{backbone.name}_generator",
        "dtype": backbone.dtype_policy,
        "num_layers": (layers := max(1, round(backbone.num_layers * depth))),
        "num_groups": min(backbone.num_groups, layers),
        "hidden_dim": hidden_dim,
        "num_heads": num_heads,
        "head_dim": hidden_dim // num_heads,
        "intermediate_dim": 4 * hidden_dim,
        "pooler": False,
        "pruned_heads": None,  # the generator has other heads
        "num_key_value_heads": None,
        "attention_dilation": None,
        "head_gates": None,
    }
    shared = {
        name: getattr(backbone.embeddings, name) for name in SHARED_EMBEDDINGS[tie]
    }
    return type(backbone)(**config, shared_embeddings=shared)
