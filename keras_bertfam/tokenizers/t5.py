"""T5's tokenizer."""

from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.tokenizers.sentence_piece import PlainSentencePiece
from keras_bertfam.tokenizers.sentinels import SentinelSpaces, with_sentinels
from keras_bertfam.types import Config, Path


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class T5Tokenizer(PlainSentencePiece):
    """T5's tokenizer, with its sentinels `<extra_id_0>`, `<extra_id_1>`, ...

    T5's SentencePiece model has 32,000 pieces and no sentinels: these are added after
    the others, the first one last, so that `<extra_id_0>` is 32,099. A model that has
    sentinels already keeps its own. In texts they take the space before them. There is
    no start token: rows begin with text, and the decoder with padding.

    Args:
        proto: path of a `spiece.model`, or its content as bytes.
        sentinels: int. How many there are to be. Defaults to `100`.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`: a `tf.RaggedTensor` of shape
        `(batch, None)`, in eager mode, too; on a single string, a tensor of shape
        `(None,)`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        documents, 60, family="t5", sentinels=20)
    tokenizer(["a <extra_id_0> sat"])
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.1.
    """

    special_token_names = {"pad": "<pad>", "end": "</s>"}
    start_token = None
    start_token_id = None

    def __init__(
        self, proto: Path | bytes | None = None, sentinels: int = 100, **kwargs: Any
    ) -> None:
        if sentinels < 0:
            raise ValueError(
                f"`sentinels` must not be negative. Received: {sentinels}."
            )
        self.sentinels = sentinels
        super().__init__(proto, **kwargs)

    def set_proto(self, proto: Path | bytes | None) -> None:
        super().set_proto(proto)
        if self.proto is None:
            return
        complete = with_sentinels(self.proto, self.sentinels)
        if complete != self.proto:
            super().set_proto(complete)
        self._sentence_piece = SentinelSpaces(
            self._sentence_piece, self.model_vocabulary()
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "sentinels": self.sentinels}
