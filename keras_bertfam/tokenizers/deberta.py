"""DeBERTa's tokenizers: byte pairs or SentencePiece, with BERT's special tokens."""

import keras

from keras_bertfam.presets.tokenizer_formats.piece_models import CONTROL, PieceModel
from keras_bertfam.tokenizers.byte_level import ByteLevelTokenizer
from keras_bertfam.tokenizers.sentence_piece import PlainSentencePiece
from keras_bertfam.types import Path

_MASK = "[MASK]"


@keras.saving.register_keras_serializable("keras_bertfam")
class DebertaTokenizer(ByteLevelTokenizer):
    """DeBERTa's tokenizer, first version: GPT-2's byte pairs, BERT's special tokens.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids, with
            `[CLS]`, `[SEP]`, `[PAD]`, `[MASK]` and `[UNK]`.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: see `RobertaTokenizer`.

    Returns:
        See `RobertaTokenizer`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="deberta")
    ```

    Reference: [He et al., 2020](https://arxiv.org/abs/2006.03654).
    """

    special_token_names = {
        "start": "[CLS]",
        "end": "[SEP]",
        "pad": "[PAD]",
        "mask": _MASK,
        "unk": "[UNK]",
    }


@keras.saving.register_keras_serializable("keras_bertfam")
class DebertaV2Tokenizer(PlainSentencePiece):
    """DeBERTa's tokenizer, second and third version, and mDeBERTa's.

    `[MASK]` gets the id after the last piece of the SentencePiece model, unless it is a
    piece itself. Special tokens are found in texts.

    Args:
        proto: path of a `spm.model`, or its content as bytes, with `[CLS]`, `[SEP]`,
            `[PAD]` and `[UNK]`.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Returns:
        See `AlbertTokenizer`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        documents, 40, family="deberta-v2")
    tokenizer(["a [MASK] sat"])
    ```

    References: [He et al., 2020](https://arxiv.org/abs/2006.03654);
    [He et al., 2021](https://arxiv.org/abs/2111.09543).
    """

    special_token_names = {
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "[PAD]",
        "mask": _MASK,
        "unk": "[UNK]",
        "start": "[CLS]",
        "end": "[SEP]",
    }
    special_tokens_in_strings = True
    pieces_added = 1

    def set_proto(self, proto: Path | bytes | None) -> None:
        super().set_proto(proto)
        if self.proto is not None and _MASK not in self.model_vocabulary():
            model = PieceModel()
            model.ParseFromString(self.proto)
            model.pieces.add(piece=_MASK, score=0.0, type=CONTROL)
            super().set_proto(model.SerializeToString())

    def _update_special_token_ids(self) -> None:
        if _MASK in self.model_vocabulary():  # else it is added later
            super()._update_special_token_ids()

    def proto_in_own_order(self) -> bytes:
        """Give the model in its published form, without the mask token at its end."""
        model = PieceModel()
        model.ParseFromString(self.proto)
        if model.pieces[-1].piece == _MASK:
            del model.pieces[-1]
        content: bytes = model.SerializeToString()
        return content
