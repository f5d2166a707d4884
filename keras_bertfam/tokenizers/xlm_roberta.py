"""XLM-R's tokenizer and CamemBERT's: SentencePiece with the ids of fairseq."""

from typing import ClassVar

import keras

from keras_bertfam.presets.tokenizer_formats.piece_models import (
    CONTROL,
    UNKNOWN,
    PieceModel,
)
from keras_bertfam.tokenizers.sentence_piece import PlainSentencePiece
from keras_bertfam.types import Path

_UNKNOWN, _MASK = "<unk>", "<mask>"


def in_order_of_fairseq(proto: bytes, first: tuple[str, ...]) -> bytes:
    """Put the pieces of a SentencePiece model in the order of fairseq's dictionary.

    For example, a model with the pieces `<unk>`, `<s>`, `</s>`, `,`, ... becomes for
    XLM-R

        piece     <s>  <pad>  </s>  <unk>  ,  ...  <mask>
        id          0      1     2      3  4  ...  the number of pieces plus 1

    The order of pieces doesn't change how texts are split; only their scores do.

    Args:
        proto: bytes. The model, in its own order or in fairseq's.
        first: the special pieces that come first.

    Returns:
        bytes, a model.
    """
    model = PieceModel()
    model.ParseFromString(proto)
    others = [p for p in model.pieces if p.piece not in (*first, _UNKNOWN, _MASK)]
    arranged = PieceModel()
    arranged.CopyFrom(model)
    del arranged.pieces[:]
    for name in first:
        kind = UNKNOWN if name == _UNKNOWN else CONTROL
        arranged.pieces.add(piece=name, score=0.0, type=kind)
    arranged.pieces.extend(others)
    arranged.pieces.add(piece=_MASK, score=0.0, type=CONTROL)
    arranged.trainer_spec.unk_id = first.index(_UNKNOWN)
    content: bytes = arranged.SerializeToString()
    return content


@keras.saving.register_keras_serializable("keras_bertfam")
class XLMRobertaTokenizer(PlainSentencePiece):
    """XLM-R's tokenizer.

    The first pieces of its SentencePiece model are `<unk>`, `<s>` and `</s>`. The first
    tokens of XLM-R are `<s>`, `<pad>`, `</s>` and `<unk>`, and the last is `<mask>`.
    This tokenizer has XLM-R's ids. Special tokens are found in texts.

    Args:
        proto: path of a `sentencepiece.bpe.model`, or its content as bytes.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Returns:
        See `AlbertTokenizer`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        documents, 40, family="xlm-roberta")
    tokenizer(["a <mask> sat"])
    ```

    Reference: [Conneau et al., 2019](https://arxiv.org/abs/1911.02116); fairseq, XLM-R.
    """

    special_token_names = {
        "cls": "<s>",
        "sep": "</s>",
        "pad": "<pad>",
        "mask": _MASK,
        "unk": _UNKNOWN,
        "start": "<s>",
        "end": "</s>",
    }
    special_tokens_in_strings = True
    first_pieces: ClassVar[tuple[str, ...]] = ("<s>", "<pad>", "</s>", _UNKNOWN)

    def set_proto(self, proto: Path | bytes | None) -> None:
        super().set_proto(proto)
        if self.proto is not None:
            arranged = in_order_of_fairseq(self.proto, self.first_pieces)
            if arranged != self.proto:
                super().set_proto(arranged)

    def _update_special_token_ids(self) -> None:
        if _MASK in self.model_vocabulary():  # else the model isn't reordered yet
            super()._update_special_token_ids()

    def proto_in_own_order(self) -> bytes:
        """Give the model in its published order, with `<unk>`, `<s>`, `</s>` first."""
        model = PieceModel()
        model.ParseFromString(self.proto)
        special = {*self.special_token_names.values()}
        others = [piece for piece in model.pieces if piece.piece not in special]
        del model.pieces[:]
        for name, kind in ((_UNKNOWN, UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)):
            model.pieces.add(piece=name, score=0.0, type=kind)
        model.pieces.extend(others)
        model.trainer_spec.unk_id = 0
        content: bytes = model.SerializeToString()
        return content


@keras.saving.register_keras_serializable("keras_bertfam")
class CamembertTokenizer(XLMRobertaTokenizer):
    """CamemBERT's tokenizer.

    Its ids are those of its SentencePiece model plus 4, because four pieces that never
    occur in a text come first. So `<s>` has the id 5, and `</s>` has 6.

    Args:
        proto: path of a `sentencepiece.bpe.model`, or its content as bytes.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Returns:
        See `AlbertTokenizer`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["un chat", "le chat dort"])
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        documents, 40, family="camembert")
    tokenizer(["le <mask> dort"])
    ```

    Reference: [Martin et al., 2019](https://arxiv.org/abs/1911.03894); fairseq,
    CamemBERT.
    """

    special_token_names = {
        **XLMRobertaTokenizer.special_token_names,
        "unused_start": "<s>NOTUSED",
        "unused_end": "</s>NOTUSED",
        "unused_unk": "<unk>NOTUSED",
    }
    first_pieces = (
        "<s>NOTUSED",
        "<pad>",
        "</s>NOTUSED",
        _UNKNOWN,
        "<unk>NOTUSED",
        "<s>",
        "</s>",
    )
