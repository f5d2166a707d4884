"""Raw text to masked batches."""

import keras

from keras_bertfam.layers.corruption.mask_tokens import MaskTokens
from keras_bertfam.layers.corruption.strategies import get_strategy
from keras_bertfam.tasks.pretraining.text_preprocessor import TextPreprocessor
from keras_bertfam.tokenizers.graph import word_start_table


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLMPreprocessor(TextPreprocessor):
    """Makes masked language model examples from text, and encodes prompts.

    `dataset` packs documents into blocks and masks them anew in each pass, for
    `fit`. Called on strings, the preprocessor masks them one per row, by a
    function of the batch's ids and `seed` alone.

    Args:
        tokenizer: a tokenizer layer with a mask token, such as
            `keras_bertfam.layers.BertTokenizer` or
            `keras_hub.tokenizers.RobertaTokenizer`.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        mask_selection_rate: float in [0, 1]. Defaults to `0.15`.
        mask_selection_length: int or `None`. Slots in a row. Defaults to what
            the rate gives for a full row.
        mask_token_rate: float. Defaults to `0.8`.
        random_token_rate: float. Defaults to `0.1`.
        random_token_weights: sequence of `vocabulary_size` floats or `None`; see
            `MaskTokens`. Defaults to `None`, all equal.
        strategy: which positions are masked: `"tokens"`, `"words"`, `"ngrams"`,
            `"spans"`, `"given_spans"`, or an object such as `NGrams(max_n=3)`;
            see `MaskTokens`. Where words begin is read off the vocabulary.
            Defaults to `"tokens"`.
        whole_word: bool. Another way to say `strategy="words"`. Defaults to
            `False`.
        replacement_unit: `"token"`, `"word"` or `"span"`; see `MaskTokens`.
            Defaults to `"token"`.
        count: `"bert"`, `"fairseq"` or `"spanbert"`; see `MaskTokens`. Defaults
            to `"bert"`.
        sequence_ids: bool. Whether blocks tell their documents apart, so that
            attention doesn't leak between them. Defaults to `False`.
        seed: int. Decides every order and mask. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`: the seed of the masks.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`,
        `padding_mask`, bool, and `mask_positions`, int32 `(batch, slots)`; the
        original ids, int32 `(batch, slots)`; and float32 weights, 1 for a
        selection and 0 for an empty slot.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.layers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, sequence_length=128
    )
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.
    """

    return_span_bounds = False

    def __init__(
        self,
        tokenizer,
        sequence_length=128,
        mask_selection_rate=0.15,
        mask_selection_length=None,
        mask_token_rate=0.8,
        random_token_rate=0.1,
        whole_word=False,
        count="bert",
        sequence_ids=False,
        seed=0,
        strategy=None,
        replacement_unit="token",
        random_token_weights=None,
        **kwargs,
    ):
        super().__init__(tokenizer, sequence_length, sequence_ids, seed, **kwargs)
        self.mask_selection_rate = mask_selection_rate
        self.mask_selection_length = mask_selection_length
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        if whole_word and strategy is not None:
            raise ValueError(
                "`whole_word` and `strategy` can't both be given. Received: "
                f"whole_word={whole_word}, strategy={strategy}."
            )
        self.whole_word = whole_word
        self.strategy = get_strategy(strategy or ("words" if whole_word else "tokens"))
        self.replacement_unit = replacement_unit
        self.random_token_weights = (
            None
            if random_token_weights is None
            else [float(weight) for weight in random_token_weights]
        )
        self.count = count
        self._masker = None
        self.build_if_ready()

    def build(self, input_shape=None):
        # A preset's vocabulary comes after the constructor.
        tokenizer = self.tokenizer
        words = self.strategy.uses_words or self.replacement_unit == "word"
        self._masker = MaskTokens(
            vocabulary_size=tokenizer.vocabulary_size(),
            mask_token_id=tokenizer.mask_token_id,
            pad_token_id=tokenizer.pad_token_id,
            unselectable_token_ids=[tokenizer.start_token_id, tokenizer.end_token_id],
            selection_rate=self.mask_selection_rate,
            max_selections=self.slots(),
            mask_token_rate=self.mask_token_rate,
            random_token_rate=self.random_token_rate,
            random_token_weights=self.random_token_weights,
            starts_word=word_start_table(tokenizer) if words else None,
            strategy=self.strategy,
            replacement_unit=self.replacement_unit,
            count=self.count,
            return_span_bounds=self.return_span_bounds,
            seed=self.seed,
        )
        self.built = True

    def slots(self):
        """How many mask slots a row has; `None` leaves that to `MaskTokens`."""
        return self.mask_selection_length

    def mask(self, block, seed=None):
        """Masks a block.

        Args:
            block: see `corrupt`. `span_ids`, int32 `(batch, length)`, goes to the
                strategy `GivenSpans`.
            seed: see `corrupt`.

        Returns:
            The block with masks, without `span_ids`, and what `MaskTokens` gives.
        """
        span_ids = block.get("span_ids")
        masked = self._masker(block["token_ids"], seed=seed, span_ids=span_ids)
        x = {name: value for name, value in block.items() if name != "span_ids"}
        return {**x, "token_ids": masked["token_ids"]}, masked

    def corrupt(self, block, seed=None):
        x, masked = self.mask(block, seed)
        x["mask_positions"] = masked["mask_positions"]
        return x, masked["mask_ids"], masked["mask_weights"]

    def get_config(self):
        return {
            **super().get_config(),
            "mask_selection_rate": self.mask_selection_rate,
            "mask_selection_length": self.mask_selection_length,
            "mask_token_rate": self.mask_token_rate,
            "random_token_rate": self.random_token_rate,
            "random_token_weights": self.random_token_weights,
            "strategy": keras.saving.serialize_keras_object(self.strategy),
            "replacement_unit": self.replacement_unit,
            "count": self.count,
        }
