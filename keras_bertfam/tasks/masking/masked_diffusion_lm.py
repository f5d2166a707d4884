"""Writing text by unmasking it, in any order, with an encoder."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.tasks.generation.prompts import as_texts
from keras_bertfam.tasks.losses import DiffusionBound, TokenAccuracy
from keras_bertfam.tasks.masking.masked_diffusion_lm_preprocessor import (
    MaskedDiffusionLMPreprocessor,
)
from keras_bertfam.tasks.masking.masked_lm import (
    FillMask,
    check_encoder,
    masked_lm_head,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.tokenizers.pipeline_ops import (
    special_token_ids,
    tokenize_with_masks,
)
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Model, Tensor

ORDERS = ("confidence", "random")


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedDiffusionLM(FillMask, PretrainingTask):
    """Predicts masked tokens at any rate of masking, and so writes texts.

    Call `fit()` to train, `generate()` to write, `score()` for how likely texts are at
    least, and `fill_mask()` to fill masks in texts.

    A masked language model learns at one rate, such as 15 %. At all rates from 0 to 1,
    and with masked tokens weighted by `1 / rate`, the loss is a bound on the negative
    log-likelihood of the text, in nats per token, which other language models have as
    well. Text is written by unmasking some tokens at a time, in any order.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone` that isn't causal.
        preprocessor: `MaskedDiffusionLMPreprocessor`, or `None` for batches that are
            preprocessed already.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone; and, if not all positions are to
            be predicted, `mask_positions`, int `(batch, count)`.

    Returns:
        float32 tensor `(batch, length or count, vocabulary_size)`: logits.

    `fit()` takes what `MaskedDiffusionLMPreprocessor.dataset()` gives, or raw strings.
    `compile()` without arguments has `DiffusionBound` as loss. The accuracy weights
    tokens as the loss does. `from_preset()` takes the head of a masked language model.

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
    label_kind = "token"
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
        """Write texts by unmasking: masks in them, and masks that are put behind.

        In each step some of the masked tokens become what the model predicts there. All
        rows are unmasked together, and what becomes of a text doesn't depend on the
        others but for random numbers.

        Args:
            texts: str or list of str; they may have the tokenizer's mask token, and may
                be empty.
            new_tokens: int. Masks put behind each text.
            steps: int or `None`. How many times the model is called; `None` for once a
                token. The fewer, the more tokens are chosen without knowing each other.
            block_length: int or `None`. Masks are unmasked in blocks of so many, from
                left to right; `None` for all in one.
            order: `"confidence"`, the tokens first whose probability is highest, or
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
        if isinstance(texts, str):
            (text,) = self.generate(
                [texts], new_tokens, steps, block_length, order, temperature, seed
            )
            return text
        if order not in ORDERS:
            raise ValueError(f"`order` must be one of {ORDERS}. Received: {order!r}.")
        rows, tokenizer = self._rows_of(texts, new_tokens), self.preprocessor.tokenizer
        ids, inside, masked = _padded(rows, tokenizer)
        counts = masked.sum(axis=1)
        size = max(1, counts.max()) if block_length is None else block_length
        check_number("block_length", size, 1)
        blocks = -(-counts.max() // size)
        steps = max(1, counts.max()) if steps is None else steps
        if steps < max(1, blocks):
            raise ValueError(
                f"`steps` must be at least 1, and one for each of the {blocks} blocks. "
                f"Received: steps={steps}."
            )
        never = [*special_token_ids(tokenizer), tokenizer.pad_token_id]
        never.append(tokenizer.mask_token_id)
        rng = np.random.default_rng(seed)
        place = np.where(masked, np.cumsum(masked, axis=1) - 1, -1)
        for block in range(blocks):
            of_block = masked & (place // size == block)
            calls = steps // blocks + (block < steps % blocks)
            positions = np.argsort(~of_block, axis=1, kind="stable")
            positions = positions[:, : of_block.sum(axis=1).max()]
            still = np.take_along_axis(of_block, positions, 1)
            for quota in _quotas(still.sum(axis=1), calls):
                logits = self._logits_at(positions, ids, inside, never)
                best, certainty = _choices(logits, order, temperature, rng)
                _write(ids, positions, still, best, certainty, quota)
        kept = [
            row[keep & ~np.isin(row, never)].tolist()
            for row, keep in zip(ids, inside, strict=True)
        ]
        return as_texts(self, kept, None)

    def _rows_of(self, texts, new_tokens):
        """List the ids of texts between the ends of a row, masks behind each text."""
        if self.preprocessor is None:
            raise ValueError("This needs a task with a preprocessor.")
        if texts is None or not np.size(texts):
            raise ValueError(f"`texts` must be at least one text. Received: {texts!r}.")
        tokenizer = self.preprocessor.tokenizer
        texts = to_utf8(as_strings(texts, name="texts"))
        ids = tokenize_with_masks(tokenizer, texts).to_list()
        ends = [[] if id is None else [id] for id in _ends(tokenizer)]
        masks = [tokenizer.mask_token_id] * new_tokens
        rows = [[*ends[0], *row, *masks, *ends[1]] for row in ids]
        longest = max(map(len, rows))
        most = getattr(self.backbone, "max_sequence_length", None)
        if most is not None and longest > most:
            raise ValueError(
                f"`texts` must fit into the {most} positions of the backbone, new "
                f"tokens and the ends of a row included. Received: {longest} tokens."
            )
        return rows

    def _logits_at(self, positions, ids, inside, never):
        inputs = {"token_ids": ids, "padding_mask": inside}
        inputs["mask_positions"] = positions.astype("int32")
        logits = self.predict_on_batch(inputs).astype("float64")
        logits[..., never] = -np.inf
        # A table may have more rows than there are tokens.
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
        """Estimate a bound on how unlikely texts are.

        Of a text with `n` tokens `k` are masked, in each sample a different `k`, spread
        evenly over 1 to `n`. The sum of their cross-entropies, times `n / k`, is in the
        mean over samples at least the negative log-likelihood of the text.

        Args:
            texts: str or list of str.
            samples: int. The more, the less it varies.
            batch_size: int.
            seed: int. The same gives the same masks.

        Returns:
            float64 NumPy array `(len(texts),)`, nats per token, special tokens not
            counted; a float for a str. `nan` for a text without a token.

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
        if isinstance(texts, str):
            return float(self.score([texts], samples, batch_size, seed)[0])
        check_number("samples", samples, 1)
        check_number("batch_size", batch_size, 1)
        rng = np.random.default_rng(seed)
        rows, tokenizer = self._rows_of(texts, 0), self.preprocessor.tokenizer
        never = [*special_token_ids(tokenizer), tokenizer.mask_token_id]
        found = []
        for row in rows:
            ids = np.array([row] * samples, "int32")
            places = np.flatnonzero(~np.isin(row, never))
            count = len(places)
            if not count:
                found.append(np.nan)
                continue
            begin = rng.integers(count)
            ks = 1 + (begin + np.arange(samples) * count // samples) % count
            order = np.argsort(rng.random((samples, count)), axis=1)
            masked = np.zeros(ids.shape, bool)
            masked[:, places] = order < ks[:, None]
            losses = self._crossentropies(ids, masked, batch_size).sum(axis=1)
            found.append((losses / ks).mean())
        return np.array(found)

    def _crossentropies(self, ids, masked, batch_size):
        """Compute the cross-entropy of each masked token, and 0 for others."""
        mask_token_id = self.preprocessor.tokenizer.mask_token_id
        found = np.zeros(ids.shape)
        for begin in range(0, len(ids), batch_size):
            part = slice(begin, begin + batch_size)
            given = np.where(masked[part], mask_token_id, ids[part])
            inside = np.ones(given.shape, bool)
            inputs = {"token_ids": given.astype("int32"), "padding_mask": inside}
            logits = self.predict_on_batch(inputs).astype("float64")
            logits -= logits.max(-1, keepdims=True)
            right = np.take_along_axis(logits, ids[part][..., None], -1)[..., 0]
            found[part] = np.log(np.exp(logits).sum(-1)) - right
        return found * masked

    def default_loss(self) -> DiffusionBound:
        return DiffusionBound()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [TokenAccuracy()]

    def published_recipe(self) -> PretrainingRecipe:
        return MDLM_RECIPE


def _ends(tokenizer):
    return tokenizer.start_token_id, tokenizer.end_token_id


def _padded(rows, tokenizer):
    """Make arrays of rows: ids, what isn't padding, and what is masked."""
    longest = max(map(len, rows))
    ids = [row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows]
    inside = [[True] * len(row) + [False] * (longest - len(row)) for row in rows]
    ids = np.array(ids, "int32")
    return ids, np.array(inside), ids == tokenizer.mask_token_id


def _quotas(counts, calls):
    """Tell how many tokens of each row are unmasked in each call, the most first."""
    for call in range(calls):
        yield counts // calls + (call < counts % calls)


def _choices(logits, order, temperature, rng):
    """Choose a token for each position, and how certain each is to be written now."""
    drawn = logits
    if temperature:  # Gumbel's way to draw from a softmax, exact in float64 alone
        drawn = logits / temperature + rng.gumbel(size=logits.shape)
    best = drawn.argmax(-1)
    if order == "random":
        return best, rng.random(best.shape)
    chosen = np.take_along_axis(logits, best[..., None], -1)[..., 0]
    return best, np.exp(chosen) / np.exp(logits).sum(-1)


def _write(ids, positions, still, best, certainty, quota):
    """Write the most certain tokens of each row, as many as `quota`, in place.

    Example: of [CLS] a [MASK] [MASK] [SEP] both masks are still there, and the quota is
    1. The best are "cat" with .6 and "dog" with .9: "dog" is written.
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
