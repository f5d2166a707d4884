"""Make the signatures of SavedModels for ELMo, and for features of any backbone."""

from typing import Any

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.export.signatures import serving_signatures, token_signatures
from keras_bertfam.layers.data.streams.word_streams import with_sentence_tokens
from keras_bertfam.models.families.elmo import ElmoBackbone
from keras_bertfam.models.features import FeatureBackbone
from keras_bertfam.serving import Signature, most_tokens, strings
from keras_bertfam.tasks.recurrent.bidirectional_lm import BidirectionalLM
from keras_bertfam.tokenizers.texts import to_utf8

# LSTMs have no last position: in training, rows continue those before.
_MOST_WORDS = 1024


def _word_signatures(tokenizer, answer, max_input_tokens=None, **options):
    """Make the signatures of a function of padded words: from text, and from words.

    Texts may be longer than the preprocessor's rows, whose length is for training.
    """
    most = most_tokens(max_input_tokens, _MOST_WORDS, None)

    def within(words):
        words = with_sentence_tokens(tokenizer, words[:, :most])
        return answer(words.to_tensor(""))

    def from_text(text):
        return within(tokenizer.split_words(to_utf8(text)))

    def from_words(words):
        return within(ragged.keep_in_matrix(words, words != ""))

    text, words = ["A text to start with."], [["Words", "to", "start", "with"]]
    return {
        "serving_default": Signature(
            from_text, {"text": strings("text")}, {"text": text}
        ),
        "words": Signature(
            from_words, {"words": strings("words", 2)}, {"words": words}
        ),
    }


def _states(backbone, tokenizer, words):
    """Compute a backbone's outputs for padded words, and their padding mask."""
    mask = tf.not_equal(words, "")
    inputs = {"character_ids": tokenizer.characters(words), "padding_mask": mask}
    return backbone(inputs, return_hidden_states=True, training=False), mask


@serving_signatures.register
def _(model: ElmoBackbone, preprocessor: Any, **options: Any) -> dict[str, Signature]:
    tokenizer = preprocessor.tokenizer

    def encode(words):
        outputs, mask = _states(model, tokenizer, words)
        return {
            "words": words,
            "padding_mask": mask,
            "sequence_output": outputs["sequence_output"],
            "hidden_states": tf.stack(outputs["hidden_states"], 1),
        }

    return _word_signatures(tokenizer, encode, **options)


@serving_signatures.register
def _(
    model: FeatureBackbone, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    tokenizer = preprocessor.tokenizer

    def encode(words):
        outputs, mask = _states(model, tokenizer, words)
        states = outputs["sequence_output"]
        return {"words": words, "padding_mask": mask, "sequence_output": states}

    def encode_tokens(rows):
        outputs = model(rows, training=False)
        return {**outputs, "padding_mask": rows["padding_mask"]}

    if "character_ids" in model.required_inputs:
        return _word_signatures(tokenizer, encode, **options)
    return token_signatures(encode_tokens, preprocessor, model, **options)


@serving_signatures.register
def _(
    model: BidirectionalLM, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    tokenizer = preprocessor.tokenizer

    def score(words):
        outputs, mask = _states(model.backbone, tokenizer, words)
        forward, backward = tf.split(outputs["sequence_output"], 2, -1)
        ids, first = tokenizer.ids(words), [[0, 0], [1, 0]]
        # The first word of a direction isn't predicted.
        found = {
            "forward": tf.pad(_scores(model, forward[:, :-1], ids[:, 1:]), first),
            "backward": tf.pad(
                _scores(model, backward[:, 1:], ids[:, :-1]), [[0, 0], [0, 1]]
            ),
        }
        following = tf.pad(mask[:, 1:], [[0, 0], [0, 1]])
        kept = {"forward": mask, "backward": following}
        return {
            "words": words,
            **{
                f"{name}_log_probabilities": tf.where(kept[name], x, 0.0)
                for name, x in found.items()
            },
        }

    return _word_signatures(tokenizer, score, **options)


def _scores(model, states, ids):
    """Compute log-probabilities of words from the states that predict them."""
    return -model.head(states, targets=ids, training=False)[..., 0]
