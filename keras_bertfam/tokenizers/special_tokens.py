"""Special tokens of vocabularies that are learned, by family."""

from typing import Any

from keras_bertfam.tokenizers.byte_level_tokenizers import (
    BartTokenizer,
    GPT2Tokenizer,
    ModernBertTokenizer,
    RobertaTokenizer,
)
from keras_bertfam.tokenizers.gpt import WORD_END, GPTTokenizer
from keras_bertfam.tokenizers.sentence_piece import AlbertTokenizer, XLNetTokenizer
from keras_bertfam.tokenizers.t5 import T5Tokenizer
from keras_bertfam.tokenizers.xlm_roberta import CamembertTokenizer, XLMRobertaTokenizer

# Special tokens before the others, with their ids, and after them; and what words end
# with where tokens are made of characters and not of bytes.
_ROBERTA_TOKENS = (("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",), None)
BYTE_PAIR: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...], str | None]] = {
    "roberta": (RobertaTokenizer, *_ROBERTA_TOKENS),
    "bart": (BartTokenizer, *_ROBERTA_TOKENS),
    "modernbert": (
        ModernBertTokenizer,
        (),
        ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"),
        None,
    ),
    "gpt2": (GPT2Tokenizer, (), ("<|endoftext|>",), None),
    "gpt": (GPTTokenizer, ("<unk>",), (), WORD_END),
}
# What the published models of SentencePiece were trained with, ids in this order.
SENTENCE_PIECE: dict[str, tuple[type, dict[str, Any], list[str], list[str]]] = {
    "albert": (
        AlbertTokenizer,
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
        ["[CLS]", "[SEP]", "[MASK]"],
        ["(", ")", '"', "-", ".", "–", "£", "€"],
    ),
    "xlnet": (
        XLNetTokenizer,
        {"unk_id": 0, "bos_id": 1, "eos_id": 2},
        ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],
        ["<eop>", ".", "(", ")", '"', "-", "–", "£", "€"],
    ),
    # `in_order_of_fairseq` puts them in their places.
    "xlm-roberta": (
        XLMRobertaTokenizer,
        {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3},
        ["<mask>"],
        [],
    ),
    "camembert": (
        CamembertTokenizer,
        {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3},
        ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED", "<mask>"],
        [],
    ),
    "t5": (T5Tokenizer, {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, [], []),
}


def known_family(families: dict[str, Any], family: str) -> Any:
    """Look up what is known of a family.

    Raises:
        ValueError: for one that isn't there.
    """
    if family not in families:
        raise ValueError(
            f"`family` must be one of {sorted(families)}. Received: {family!r}."
        )
    return families[family]
