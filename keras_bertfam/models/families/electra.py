"""ELECTRA: the discriminator, and the small generator beside it."""

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.electra import ELECTRA
from keras_bertfam.types import Model


@keras.saving.register_keras_serializable("keras_bertfam")
class ElectraBackbone(EncoderBackbone):
    """ELECTRA encoder: BERT's without pooler, its embeddings factorised.

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
    `electra_small_discriminator_uncased_en`, and those of the generators released
    with them. The generator of the small one is of full size, although the
    paper's (table 6) has a quarter of the discriminator's width:
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


# What of the embeddings a generator shares with its discriminator.
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

    It has as many layers, or a part of them, the same embedding width and a part of
    the hidden width, with heads of 64 (or the next width that divides) and an inner
    width of four times the hidden one. Its projection of the embeddings is its own.

    Args:
        backbone: `EncoderBackbone`, the discriminator.
        size: float in (0, 1]. Its width as a share of the discriminator's.
        tie: `"embeddings"` (the tables of tokens, positions and segments and their
            norm are the discriminator's), `"tokens"` (only the token table),
            `"none"`, or `"all"`: the discriminator itself, which needs `size=1` and
            `depth=1`.
        depth: float in (0, 1]. Its layers as a share of the discriminator's, at least
            one of them.

    Returns:
        A backbone of the discriminator's class. Saved as a preset it has
        embeddings of its own.

    Raises:
        ValueError: for a `size` or `tie` that isn't one of these.

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
        "pruned_heads": None,  # its heads are others
        "attention_dilation": None,
        "head_gates": None,
    }
    shared = {
        name: getattr(backbone.embeddings, name) for name in SHARED_EMBEDDINGS[tie]
    }
    return type(backbone)(**config, shared_embeddings=shared)
