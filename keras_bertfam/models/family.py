"""What makes a family of an encoder: its own defaults."""

from keras_bertfam.models.encoder import EncoderBackbone


class EncoderFamily(EncoderBackbone):
    """An `EncoderBackbone` with other defaults.

    Attributes:
        family_arguments: dict of the arguments whose defaults differ.
    """

    family_arguments = {}

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        **kwargs,
    ):
        super().__init__(
            vocabulary_size,
            num_layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
            **{**self.family_arguments, **kwargs},
        )
