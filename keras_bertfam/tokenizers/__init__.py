"""Tokenizers that run in the graph, and vocabularies learned from text."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.tokenizers.byte_level import (
        BartTokenizer,
        EuroBertTokenizer,
        GPT2Tokenizer,
        ModernBertTokenizer,
        RobertaTokenizer,
    )
    from keras_bertfam.tokenizers.counting import extend_vocabulary
    from keras_bertfam.tokenizers.deberta import DebertaTokenizer, DebertaV2Tokenizer
    from keras_bertfam.tokenizers.elmo import ElmoTokenizer, train_words
    from keras_bertfam.tokenizers.gemma import GemmaTokenizer
    from keras_bertfam.tokenizers.gpt import GPTTokenizer
    from keras_bertfam.tokenizers.sentence_piece import AlbertTokenizer, XLNetTokenizer
    from keras_bertfam.tokenizers.t5 import T5Tokenizer
    from keras_bertfam.tokenizers.training import (
        train_byte_pair,
        train_sentence_piece,
        train_word_piece,
    )
    from keras_bertfam.tokenizers.word_piece import BertTokenizer, MPNetTokenizer
    from keras_bertfam.tokenizers.xlm_roberta import (
        CamembertTokenizer,
        XLMRobertaTokenizer,
    )

__all__ = [
    "AlbertTokenizer",
    "BartTokenizer",
    "BertTokenizer",
    "CamembertTokenizer",
    "DebertaTokenizer",
    "DebertaV2Tokenizer",
    "ElmoTokenizer",
    "EuroBertTokenizer",
    "GPT2Tokenizer",
    "GPTTokenizer",
    "GemmaTokenizer",
    "MPNetTokenizer",
    "ModernBertTokenizer",
    "RobertaTokenizer",
    "T5Tokenizer",
    "XLMRobertaTokenizer",
    "XLNetTokenizer",
    "extend_vocabulary",
    "train_byte_pair",
    "train_sentence_piece",
    "train_word_piece",
    "train_words",
]

lazy.attach(__name__)
