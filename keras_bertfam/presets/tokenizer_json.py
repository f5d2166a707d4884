"""Tokenizers as the one JSON file that `tokenizers` reads."""

from typing import Any

from keras_bertfam.types import Tokenizer

_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")


def byte_pair_json(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of `tokenizer.json` and `tokenizer_config.json`.

    Args:
        tokenizer: a byte-pair tokenizer with BERT's special tokens.

    Returns:
        A tuple of two dicts.
    """
    vocabulary = dict(tokenizer.vocabulary)
    own = [name for name in _SPECIAL if name in vocabulary]
    added = [name for name in vocabulary if name in own or not name.strip(" ")]
    added.sort(key=vocabulary.__getitem__)
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(name, vocabulary[name], name in own) for name in added],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": _byte_level(tokenizer.add_prefix_space),
        "post_processor": _template(vocabulary),
        "decoder": _byte_level(False),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {k: n for k, n in vocabulary.items() if k not in added},
            "merges": list(tokenizer.merges),
        },
    }
    names = {f"{name.strip('[]').lower()}_token": name for name in own}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **names,
    }
    return content, config


def _added(name, number, special):
    return {
        "id": number,
        "content": name,
        "single_word": False,
        "lstrip": name == "[MASK]",
        "rstrip": False,
        "normalized": not special,
        "special": special,
    }


def _byte_level(add_prefix_space):
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": True,
    }


def _template(vocabulary):
    """`[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`."""

    def special(name):
        return {"SpecialToken": {"id": name, "type_id": 0}}

    def text(name):
        return {"Sequence": {"id": name, "type_id": 0}}

    single = [special("[CLS]"), text("A"), special("[SEP]")]
    names = ("[CLS]", "[SEP]")
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B"), special("[SEP]")],
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]}
            for name in names
        },
    }
