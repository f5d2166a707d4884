"""Write text by unmasking it in any order, with an encoder."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.tasks.generation.prompts import (
    as_prompts,
    as_texts,
    padded_width,
    special_ids,
    token_rows,
)
from keras_bertfam.tasks.losses import DiffusionBound, TokenAccuracy
from keras_bertfam.tasks.masking.masked_diffusion_lm_preprocessor import (
    MaskedDiffusionLMPreprocessor,
)
from keras_bertfam.tasks.masking.masked_lm import (
    FillMask,
    check_encoder,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.tokenizers.pipeline_ops import special_token_ids
from keras_bertfam.types import Model, Tensor

ORDERS = ("confidence", "random")


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedDiffusionLM(FillMask, PretrainingTask):
    """Predicts masked tokens at any rate of masking, and so writes texts.

    Call `fit()` to train, `generate()` to write, `score()` for a bound on how unlikely
    texts are, and `fill_mask()` to fill masks in texts.

    A masked language model learns at one rate of masking, such as 15 %. This task
    learns at all rates from 0 to 1, and weights masked tokens by `1 / rate`. So the
    loss is an upper bound on the text's negative log-likelihood in nats per token,
    comparable with that of other language models. Text is written by unmasking some
    tokens at a time, in any order.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone` that isn't causal.
        preprocessor: `MaskedDiffusionLMPreprocessor`, or `None` for batches that are
            preprocessed already.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone; and optionally `mask_positions`,
            int `(batch, count)`, the positions to predict. Without it, all are
            predicted.

    Returns:
        float32 tensor `(batch, length or count, vocabulary_size)`: logits.

    `fit()` takes the batches of `MaskedDiffusionLMPreprocessor.dataset()`, which masks
    anew in each epoch; or raw strings, whose masks depend only on the texts.
    `compile()` without arguments has `DiffusionBound` as loss. The accuracy weights
    tokens as the loss does. `from_preset()` also loads the head of a masked language
    model.

    References: [Nie et al., 2025](https://arxiv.org/abs/2502.09992) (LLaDA);
    [Sahoo et al., 2024](https://arxiv.org/abs/2406.07524) (MDLM).

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedDiffusionLMPreprocessor(tokenizer, 32)
    model = keras_bertfam.tasks.MaskedDiffusionLM(backbone, preprocessor)
    model.fit(["The cat sat.", "The dog ran."])
    model.generate("The cat", new_tokens=4)
    ```
    """

    preprocessor_cls = MaskedDiffusionLMPreprocessor
    label_kind = "token or -1"
    extra_inputs = ("mask_positions",)
    reads_labels = True

    def __init__(
        self,
        backbone: Model,
        preprocessor: MaskedDiffusionLMPreprocessor | None = None,
        **kwargs: Any,
    ) -> None:
        check_encoder(backbone)
        super().__init__(backbone, preprocessor, **kwargs)
        self.head = masked_lm_head(backbone)
        self.built = True
        self.compile_by_default()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        labels = inputs.pop(LABELS, None)
        outputs = self.backbone(
            inputs, positions=positions, return_pooled=False, training=training
        )
        if labels is not None:
            labels = keras.ops.maximum(labels, 0)
        return self.predict_tokens(self.head, outputs["sequence_output"], labels=labels)

    @checked
    def generate(
        self,
        texts: str | Sequence[str],
        new_tokens: int = 32,
        steps: int | None = None,
        block_length: int | None = None,
        order: str = "confidence",
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Any:
        """Write texts by unmasking: fill their masks, and masks that are appended.

        In each step the model replaces some of the masks by its predictions. A text's
        result doesn't depend on the other texts, except through random numbers.

        Args:
            texts: str or list of str; they may have the tokenizer's mask token, and may
                be empty.
            new_tokens: int. Masks appended to each text.
            steps: int or `None`. The most calls of the model for a text, divided
                equally among its blocks; `None` for one call for each token. With fewer
                calls, more tokens are chosen at once, without knowing each other.
            block_length: int or `None`. Masks of a block, of which one after the other
                is unmasked from left to right; `None` for a single block.
            order: `"confidence"`, which unmasks the most probable tokens first, or
                `"random"`.
            temperature: float. 0 takes the most probable token of each position, 1
                draws from the probabilities.
            seed: int or `None`, for the same random numbers again.

        Returns:
            A str, or a list of str: the texts without masks.

        Raises:
            ValueError: without a preprocessor or a text, for an argument out of its
                range, and for a row longer than the backbone's positions.

        Example:

        ```python
        model = keras_bertfam.tasks.MaskedDiffusionLM.from_preset("my_diffusion")
        model.generate(["Once upon a time"], new_tokens=32, steps=16, temperature=1.0)
        ```

        Reference: [Nie et al., 2025](https://arxiv.org/abs/2502.09992), section 2.4,
        and its released code, generate.py.
        """
        texts = as_prompts(texts)
        if isinstance(texts, str):
            (text,) = self.generate(
                [texts], new_tokens, steps, block_length, order, temperature, seed
            )
            return text
        if order not in ORDERS:
            raise ValueError(f"`order` must be one of {ORDERS}. Received: {order!r}.")
        rows, tokenizer = self._rows_of(texts, new_tokens), self.preprocessor.tokenizer
        ids, inside = self._padded(rows)
        masked = ids == tokenizer.mask_token_id
        counts = masked.sum(axis=1)
        size = max(1, counts.max()) if block_length is None else block_length
        plans = [_plan(count, size, steps) for count in counts]
        rng = np.random.default_rng(seed)
        for call in range(max(map(len, plans))):
            now = [plan[call] if call < len(plan) else (0, 0) for plan in plans]
            block, quota = np.array(now).T
            order_of_masks = np.cumsum(masked, axis=1) - 1
            of_block = masked & (order_of_masks // size == block[:, None])
            positions = np.argsort(~of_block, axis=1, kind="stable")[:, :size]
            logits = self._logits_at(positions, ids, inside)
            best, certainty = _choices(logits, order, temperature, rng)
            still = of_block & (ids == tokenizer.mask_token_id)
            still = np.take_along_axis(still, positions, 1)
            _write(ids, positions, still, best, certainty, quota)
        kept = [
            row[keep & ~np.isin(row, self._never_written())].tolist()
            for row, keep in zip(ids, inside, strict=True)
        ]
        return as_texts(self, kept, None)

    def _rows_of(self, texts, new_tokens=0):
        """List the ids of texts with start and end token, and masks after each text."""
        if self.preprocessor is None:
            raise ValueError("This needs a task with a preprocessor.")
        if texts is None or not np.size(texts):
            raise ValueError(f"`texts` must be at least one text. Received: {texts!r}.")
        tokenizer = self.preprocessor.tokenizer
        texts = [text.decode() for text in as_strings(texts, name="texts").numpy()]
        rows, _ = token_rows(self, texts, specials=True)
        masks = [tokenizer.mask_token_id] * new_tokens
        ends = len(special_ids(tokenizer)[1])
        rows = [
            [*row[: len(row) - ends], *masks, *row[len(row) - ends :]] for row in rows
        ]
        longest = max(map(len, rows))
        most = getattr(self.backbone, "max_sequence_length", None)
        if most is not None and longest > most:
            raise ValueError(
                f"`texts` must fit into the {most} positions of the backbone, new "
                f"tokens and the ends of a row included. Received: {longest} tokens."
            )
        return rows

    def _padded(self, rows):
        """Make arrays of ids and padding masks from rows, with one of few widths."""
        most = getattr(self.backbone, "max_sequence_length", None)
        width = padded_width(max(map(len, rows)), most)
        ids = np.full((len(rows), width), self.preprocessor.tokenizer.pad_token_id)
        for row, values in zip(ids, rows, strict=True):
            row[: len(values)] = values
        lengths = np.array([*map(len, rows)])
        return ids.astype("int32"), np.arange(width) < lengths[:, None]

    def _never_written(self):
        """List the ids that are never part of a text."""
        tokenizer = self.preprocessor.tokenizer
        own = [tokenizer.pad_token_id, tokenizer.mask_token_id]
        return [*special_token_ids(tokenizer), *own]

    def _logits_at(self, positions, ids, inside):
        inputs = {"token_ids": ids, "padding_mask": inside}
        inputs["mask_positions"] = positions.astype("int32")
        logits = self.predict_on_batch(inputs).astype("float64")
        logits[..., self._never_written()] = -np.inf
        # An embedding table may have more rows than there are tokens.
        logits[..., self.preprocessor.tokenizer.vocabulary_size() :] = -np.inf
        return logits - logits.max(-1, keepdims=True)

    @checked
    def score(
        self,
        texts: str | Sequence[str],
        samples: int = 64,
        batch_size: int = 32,
        seed: int = 0,
    ) -> Any:
        """Estimate an upper bound on the negative log-likelihood of texts.

        For a sample, `k` of a text's `n` tokens are masked; the values of `k` are
        spread evenly over 1 to `n`. The sum of the masked tokens' cross-entropies,
        times `n / k`, equals on average the negative log-likelihood of writing the
        tokens one by one, averaged over all orders.

        Args:
            texts: str or list of str.
            samples: int. More samples make the estimate more exact.
            batch_size: int.
            seed: int. With the same seed a text gets the same masks, whatever the other
                texts are.

        Returns:
            float64 NumPy array `(len(texts),)`, in nats per token, without special
            tokens; a float for a str. `nan` for a text without tokens.

        Raises:
            ValueError: as `generate`.

        Example:

        ```python
        model = keras_bertfam.tasks.MaskedDiffusionLM.from_preset("my_diffusion")
        model.score(["The cat sat.", "Sat the cat."])  # [2.1, 4.8]
        ```

        Reference: [Nie et al., 2025](https://arxiv.org/abs/2502.09992), equation 6, and
        its released code, get_log_likelihood.py.
        """
        texts = as_prompts(texts)
        if isinstance(texts, str):
            return float(self.score([texts], samples, batch_size, seed)[0])
        rows = self._rows_of(texts)
        return np.array([self._score(row, samples, batch_size, seed) for row in rows])

    def _score(self, row, samples, batch_size, seed):
        places = np.flatnonzero(~np.isin(row, self._never_written()))
        count = len(places)
        if not count:
            return np.nan
        rng = np.random.default_rng(seed)  # each text has random numbers of its own
        first = rng.integers(count)
        masks = 1 + (first + np.arange(samples) * count // samples) % count
        order = np.argsort(rng.random((samples, count)), axis=1)
        ids, inside = self._padded([row] * samples)
        masked = np.zeros(ids.shape, bool)
        masked[:, places] = order < masks[:, None]
        losses = self._crossentropies(ids, inside, masked, batch_size)
        return ((losses * masked).sum(axis=1) / masks).mean()

    @without_gradients
    def _crossentropies(self, ids, inside, masked, batch_size):
        """Compute the cross-entropy of each token in rows with masked tokens."""
        mask_token_id = self.preprocessor.tokenizer.mask_token_id
        found = []
        for begin in range(0, len(ids), batch_size):
            part = slice(begin, begin + batch_size)
            given = np.where(masked[part], mask_token_id, ids[part]).astype("int32")
            rows = {"token_ids": given, "padding_mask": inside[part]}
            states = self.backbone(rows, return_pooled=False, training=False)
            # Only the label's cross-entropy is kept of the logits.
            scores = self.head(states["sequence_output"], targets=ids[part])
            found.append(keras.ops.convert_to_numpy(scores)[..., 0])
        return np.concatenate(found)

    def default_loss(self) -> DiffusionBound:
        return DiffusionBound()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [TokenAccuracy()]

    def published_recipe(self) -> PretrainingRecipe:
        return MDLM_RECIPE


def _plan(count, size, steps):
    """For each call, give the open block of masks and how many of them are unmasked.

    Example: 5 masks in blocks of 3 make a block of 3 and one of 2. With 3 steps, the
        first block gets 2 calls and the second one 1: `[(0, 2), (0, 1), (1, 2)]`.
    """
    blocks = -(-count // size)
    if steps is not None and steps < max(1, blocks):
        raise ValueError(
            f"`steps` must be at least 1, and one for each of the {blocks} blocks. "
            f"Received: steps={steps}."
        )
    plan = []
    for block in range(blocks):
        masks = min(size, count - block * size)
        calls = masks
        if steps is not None:
            calls = min(masks, steps // blocks + (block < steps % blocks))
        plan += [(block, masks // calls + (k < masks % calls)) for k in range(calls)]
    return plan


def _choices(logits, order, temperature, rng):
    """Choose a token for each position, with a priority for being written now."""
    drawn = logits
    if temperature:  # the Gumbel trick draws from a softmax; only float64 is exact
        drawn = logits / temperature + rng.gumbel(size=logits.shape)
    best = drawn.argmax(-1)
    if order == "random":
        return best, rng.random(best.shape)
    chosen = np.take_along_axis(logits, best[..., None], -1)[..., 0]
    return best, np.exp(chosen) / np.exp(logits).sum(-1)


def _write(ids, positions, still, best, certainty, quota):
    """Write the `quota` most certain tokens of each row, in place.

    Example: in [CLS] a [MASK] [MASK] [SEP] the best tokens for the two masks are "cat"
        with .6 and "dog" with .9. With a quota of 1, "dog" is written.
    """
    order = np.argsort(-np.where(still, certainty, -1.0), axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    row, slot = np.nonzero(still & (rank < quota[:, None]))
    ids[row, positions[row, slot]] = best[row, slot]
    still[row, slot] = False


MDLM_RECIPE = PretrainingRecipe(
    task="MaskedDiffusionLM",
    source="Sahoo et al., 2024, and its released code",
    learning_rate=3e-4,
    warmup_steps=2_500,
    total_steps=1_000_000,
    batch_size=512,
    sequence_length=1024,
    schedule_form="constant",
    weight_decay=0.0,
    epsilon=1e-8,
    global_clipnorm=1.0,
    masking={},
    rows="full_sentences",
    task_arguments={},
)
