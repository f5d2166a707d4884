"""T5's objectives whose targets are the noise: spans, tokens, or a text's end."""

import math

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.noise_masks import (
    iid_noise,
    prefix_noise,
    random_spans,
)
from keras_bertfam.layers.corruption.noised_texts import (
    drop_noise,
    limit_cost,
    limit_runs,
    sentinel_per_span,
    sentinels_of_spans,
    text_lengths,
)
from keras_bertfam.layers.corruption.objectives import (
    Corrupted,
    DenoisingObjective,
    DenoisingVocabulary,
    LengthLimits,
    check_noise_rate,
    inverted,
)
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.types import TFRagged, TFTensor


@checked
def random_spans_lengths(
    inputs_length: int = 512, rate: float = 0.15, mean_length: float = 3.0
) -> tuple[int, int]:
    """Compute by T5's rule the lengths of text and targets for a length of inputs.

    Args:
        inputs_length: int. Tokens of the inputs, including a sentinel for each span and
            the end token. Defaults to `512`.
        rate: float. The share of the tokens that is noise. Defaults to `0.15`.
        mean_length: float. Tokens of a span on average. Defaults to `3.0`.

    Returns:
        Two ints: the tokens of the text; and the tokens of the targets, including
        sentinels and end token.

    Example:

    ```python
    from keras_bertfam.layers.corruption.span_objectives import random_spans_lengths
    random_spans_lengths(512)  # (568, 114)
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section
    3.1.4, and released code.
    """
    check_at_least(4, inputs_length=inputs_length)
    check_noise_rate(rate)
    length = 2
    while _inputs_and_targets(length + 1, rate, mean_length)[0] < inputs_length:
        length += 1
    targets = _inputs_and_targets(length, rate, mean_length)[1] + 1
    # As in the released code: if half is noise, inputs and targets are equally long.
    if rate == 0.5 and targets > inputs_length:
        return length - 1, targets - 1
    return length, targets


def count_spans(length: int, rate: float, mean_length: float) -> tuple[int, int]:
    """Count the tokens and spans of noise of one text, as `span_counts` does."""
    noise = max(min(max(round(length * rate), 1), length - 1), 0)
    spans = min(max(round(noise / mean_length), 1), noise, length - noise)
    return noise, spans


def _inputs_and_targets(length, rate, mean_length):
    """Count the tokens of inputs and targets, sentinels included."""
    noise, spans = count_spans(length, rate, mean_length)
    return length - noise + spans, noise + spans


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RandomSpans(DenoisingObjective):
    """T5's objective: inputs with sentinels for spans, and the spans as targets.

    In the targets each span follows its sentinel.

    Noise and the rest are cut into equally many parts, which alternate. A text ends
    with noise, so targets have no closing sentinel. A text of one token has no noise.

    Args:
        rate: float. The share of the tokens that is noise. Defaults to `0.15`.
        mean_length: float. Tokens of a span on average. Defaults to `3.0`.

    Example:

    ```python
    objective = keras_bertfam.layers.RandomSpans(rate=0.5, mean_length=10)
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section
    3.3.4.
    """

    name = "random_spans"
    uses_sentinels = True

    def __init__(self, rate: float = 0.15, mean_length: float = 3.0) -> None:
        self.rate = check_noise_rate(rate)
        if not mean_length >= 1:
            raise ValueError(
                f"`mean_length` must be at least 1. Received: {mean_length}."
            )
        self.mean_length = mean_length

    def check(self, vocabulary: DenoisingVocabulary, length: int) -> None:
        super().check(vocabulary, length)
        _, spans = count_spans(length, self.rate, self.mean_length)
        if spans > len(vocabulary.sentinel_ids):
            raise ValueError(
                f"`sentinel_ids` must have at least {spans} ids, one for each span of "
                f"a text of {length} tokens with rate={self.rate} and mean_length="
                f"{self.mean_length}. Received: {len(vocabulary.sentinel_ids)}."
            )

    def lengths(self, inputs: int) -> tuple[int, int]:
        length, targets = random_spans_lengths(inputs + 1, self.rate, self.mean_length)
        return length, targets - 1

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        lengths = text_lengths(tokens)
        spans = random_spans(lengths, self.rate, self.mean_length, seed)
        ids = vocabulary.sentinel_ids
        return Corrupted(*sentinels_of_spans(tokens, spans, ids))


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class IidReplaceSpans(DenoisingObjective):
    """Each token is noise independently; a run of noise becomes a sentinel.

    Targets end with a sentinel unless the text ends with noise. Noise for which the
    targets have no room or sentinel stays in the inputs; T5's code cuts the targets
    instead.

    Args:
        rate: float. The probability that a token is noise. Defaults to `0.15`.

    Example:

    ```python
    from keras_bertfam.layers.corruption.span_objectives import IidReplaceSpans
    objective = IidReplaceSpans(rate=0.1)
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section
    3.3.2.
    """

    name = "iid_replace_spans"
    uses_sentinels = True

    def __init__(self, rate: float = 0.15) -> None:
        self.rate = check_noise_rate(rate)

    def lengths(self, inputs: int) -> tuple[int, int]:
        return inputs, _nearly_most(inputs, self.rate, 2 - self.rate) + 1

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        noise = iid_noise(text_lengths(tokens), self.rate, seed)
        noise = limit_runs(noise, len(vocabulary.sentinel_ids))
        noise = limit_cost(noise, room.targets - 1, run_cost=1)
        ids = vocabulary.sentinel_ids
        return Corrupted(
            sentinel_per_span(tokens, noise, ids),
            sentinel_per_span(tokens, inverted(noise), ids),
        )


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class IidDrop(DenoisingObjective):
    """Each token is deleted independently; the targets are the deleted tokens.

    Tokens for which the targets have no room stay in the inputs.

    Args:
        rate: float. The probability that a token is deleted. Defaults to `0.15`.

    Example:

    ```python
    from keras_bertfam.layers.corruption.span_objectives import IidDrop
    objective = IidDrop(rate=0.25)
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section
    3.3.2.
    """

    name = "iid_drop"

    def __init__(self, rate: float = 0.15) -> None:
        self.rate = check_noise_rate(rate)

    def lengths(self, inputs: int) -> tuple[int, int]:
        return inputs, _nearly_most(inputs, self.rate, 1.0)

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        noise = iid_noise(text_lengths(tokens), self.rate, seed)
        noise = limit_cost(noise, room.targets, run_cost=0)
        return Corrupted(drop_noise(tokens, noise), drop_noise(tokens, inverted(noise)))


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class PrefixLM(DenoisingObjective):
    """Prefix language modelling: inputs are a prefix of the text, targets the rest.

    Both have at least one token. A text of a single token has no targets.

    Args:
        rate: float or `None`. The share of the text that is the target. Defaults to
            `None`: all cuts are equally likely.
        mean_rate: float up to 0.5, or `None`. The mean share of the text that is the
            target, in place of `rate`; the number of targets is uniform with this mean.
            UL2 has 0.25.

    Example:

    ```python
    objective = keras_bertfam.layers.PrefixLM()
    ```

    References: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section
    3.3.1; UL2: [Tay et al., 2022](https://arxiv.org/abs/2205.05131), table 1.
    """

    name = "prefix_lm"

    def __init__(
        self, rate: float | None = None, mean_rate: float | None = None
    ) -> None:
        self.rate = None if rate is None else check_noise_rate(rate)
        self.mean_rate = mean_rate
        if mean_rate is not None and (rate is not None or not 0 < mean_rate <= 0.5):
            raise ValueError(
                "`mean_rate` must be in (0, 0.5], and `rate` must be `None` with it. "
                f"Received: mean_rate={mean_rate}, rate={rate}."
            )

    def lengths(self, inputs: int) -> tuple[int, int]:
        if self.mean_rate is not None:
            most = 2 * count_spans(inputs + 1, self.mean_rate, 1.0)[0] - 1
            return inputs + 1, max(min(most, inputs), 1)
        if self.rate is None:
            return inputs + 1, inputs
        length = inputs
        while length + 1 - count_spans(length + 1, self.rate, 1.0)[0] <= inputs:
            length += 1
        return length, count_spans(length, self.rate, 1.0)[0]

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        noise = prefix_noise(text_lengths(tokens), self.rate, seed, self.mean_rate)
        return Corrupted(drop_noise(tokens, noise), drop_noise(tokens, inverted(noise)))


def _nearly_most(length, rate, cost):
    """Count the tokens that targets need in almost all texts with independent noise."""
    spread = 4 * math.sqrt(length * rate * (1 - rate)) * cost
    return min(math.ceil(length * rate * cost + spread) + 1, 2 * length)
