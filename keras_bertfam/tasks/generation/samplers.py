"""Find samplers by name, and sample several texts with their scores."""

from collections.abc import Callable
from typing import Any

import keras
import keras_hub
from keras import ops

from keras_bertfam.tasks.generation.settings import SAMPLERS, GenerationSettings
from keras_bertfam.tasks.generation.token_rules import apply_rules
from keras_bertfam.tasks.losses import token_crossentropy
from keras_bertfam.types import Tensor


def as_sampler(sampler: Any, settings: GenerationSettings | None = None) -> Any:
    """Find a sampler by its name or config, and check that it fits the settings.

    Args:
        sampler: name, config, or `keras_hub.samplers.Sampler`.
        settings: `GenerationSettings`, or `None` for the default ones.

    Returns:
        A `keras_hub.samplers.Sampler`. Of a `BeamSampler` the number of beams and the
        temperature are used: the search is our own.

    Raises:
        ValueError: for an unknown name, an object that isn't a sampler, or settings
            that the sampler can't follow.
    """
    settings = settings or GenerationSettings()
    by_config = isinstance(sampler, dict | keras_hub.samplers.Sampler)
    if not by_config and sampler not in SAMPLERS:
        raise ValueError(
            f"`sampler` must be one of {SAMPLERS} or a `keras_hub.samplers.Sampler`. "
            f"Received: sampler={sampler!r}."
        )
    if sampler == "beam":
        found = keras_hub.samplers.BeamSampler(settings.num_beams)
    else:
        found = keras_hub.samplers.get(sampler)
    _check_numbers(found)
    if getattr(found, "return_all_beams", False):
        raise ValueError(
            "`sampler` must give one text for each prompt; `num_return_sequences` of "
            "the settings asks for more. Expected: return_all_beams=False. Received: "
            "return_all_beams=True."
        )
    searches = type(found) is keras_hub.samplers.BeamSampler
    if searches and found.num_beams % settings.num_beam_groups:
        raise ValueError(
            "`num_beam_groups` must divide the number of beams, "
            f"{found.num_beams}. Received: num_beam_groups={settings.num_beam_groups}."
        )
    forced = [
        name
        for name in ("forced_first_token", "forced_second_token", "forced_last_token")
        if getattr(settings, name) is not None
    ]
    if forced and isinstance(found, keras_hub.samplers.ContrastiveSampler):
        raise ValueError(
            f"`{forced[0]}` must be `None` for a contrastive search, which weighs "
            "tokens that can't come against it. "
            f"Received: {getattr(settings, forced[0])}."
        )
    samples = (
        uses_library_loop(found) and type(found) is not keras_hub.samplers.GreedySampler
    )
    beams = found.num_beams if searches else 1
    if settings.num_return_sequences > beams and not samples:
        raise ValueError(
            "`num_return_sequences` must be at most the number of beams of a beam "
            f"search, and 1 if nothing is sampled. Expected: at most {beams}. "
            f"Received: num_return_sequences={settings.num_return_sequences}."
        )
    if settings.return_scores and not searches and not uses_library_loop(found):
        raise ValueError(
            "`return_scores` must be `False` for a sampler with a loop of its own. "
            f"Received: return_scores={settings.return_scores} and "
            f"{type(found).__name__}."
        )
    return found


def _check_numbers(sampler):
    """Refuse numbers with which no token can be drawn."""
    ranges = {
        "temperature": (lambda x: x > 0, "more than 0"),
        "p": (lambda x: 0 < x <= 1, "in (0, 1]"),
        "k": (lambda x: x >= 1, "at least 1"),
        "alpha": (lambda x: 0 <= x <= 1, "in [0, 1]"),
    }
    for name, (is_in, described) in ranges.items():
        value = getattr(sampler, name, None)
        if value is not None and not is_in(value):
            raise ValueError(
                f"`{name}` of the sampler must be {described}. Received: {value!r}."
            )


def check_candidates(sampler: Any, vocabulary_size: int) -> None:
    """Raise a `ValueError` if a sampler of KerasHub's has too many candidates.

    Args:
        sampler: `keras_hub.samplers.Sampler`.
        vocabulary_size: int.
    """
    count = getattr(sampler, "k", None)
    of_hub = type(sampler).__module__.startswith("keras_hub.")
    if of_hub and count is not None and count > vocabulary_size:
        raise ValueError(
            f"`k` of the sampler must be at most vocabulary_size={vocabulary_size}. "
            f"Received: {count!r}."
        )


class FastGreedySampler(keras_hub.samplers.GreedySampler):
    """Search greedily without a softmax, with operations that compilers make fast."""

    def compute_probabilities(self, logits: Tensor) -> Tensor:
        return logits  # in the order of their probabilities

    def get_next_token(self, probabilities: Tensor) -> Tensor:
        if keras.backend.backend() == "torch":
            return ops.argmax(probabilities, axis=-1)
        # XLA's argmax takes several times as long on a CPU.
        count = probabilities.shape[-1]
        best = ops.max(probabilities, axis=-1, keepdims=True)
        places = ops.arange(count, dtype="int32")
        first = ops.min(ops.where(probabilities >= best, places, count), axis=-1)
        return ops.minimum(first, count - 1)  # if all numbers are NaN


def copies_of_rows(sampler: Any, settings: GenerationSettings) -> int:
    """Count the texts that a sampler writes for each row."""
    if isinstance(sampler, keras_hub.samplers.BeamSampler):
        return sampler.num_beams
    if isinstance(sampler, keras_hub.samplers.ContrastiveSampler):
        return sampler.k
    return settings.num_return_sequences


def uses_library_loop(sampler: Any) -> bool:
    """Tell whether a sampler only chooses tokens, in KerasHub's loop over them."""
    return type(sampler).__call__ is keras_hub.samplers.Sampler.__call__


def sample(
    sampler: Any,
    following: Callable[..., Any],
    prompt: Tensor,
    cache: Any,
    index: Tensor,
    starts: Tensor,
    stop: Tensor | None,
    settings: GenerationSettings,
    model: Any = None,
    limits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample texts for each row, and sort them by their probability.

    A text's score is its log-probability divided by `length ** length_penalty`. The
    log-probability is the model's own, without the sampler's temperature and rules.

    Args:
        sampler: `keras_hub.samplers.Sampler` that `uses_library_loop`.
        following: see `BeamSearch`, for `num_return_sequences` copies of rows.
        prompt: int32 tensor `(batch, length)`, the prompts, filled up with -1.
        cache: nested structure of tensors `(batch, ...)`, for the tokens before
            `index`.
        index: int32 scalar, at most the length of the shortest prompt.
        starts: int32 tensor `(batch,)`, the prompts' lengths.
        stop: int32 tensor `(batch, count)`, see `apply_rules`, or `None`.
        settings: `GenerationSettings`, with ids for `bad_words`.
        model: the task, for the loop that the backend compiles.
        limits: int32 tensor `(batch,)`, the most tokens of each text; `None` for the
            length of the rows.

    Returns:
        The texts, the likeliest first, int32 `(batch, num_return_sequences, length)`,
        and their scores, float32. Tokens after a stop token are arbitrary.

    Reference: [Adiwardana et al., 2020](https://arxiv.org/abs/2001.09977), section 3.1,
    which orders samples by their probability.
    """
    count, length = settings.num_return_sequences, prompt.shape[1]

    def copies(x):
        return ops.repeat(x, count, axis=0)

    starts, stop, limits = (
        None if x is None else copies(x) for x in (starts, stop, limits)
    )

    def is_open(texts, cache, index, total, written, open_rows):
        return ops.any(open_rows)

    def step(texts, cache, index, total, written, open_rows):
        logits, _, cache = following(texts, cache, index)
        allowed = apply_rules(logits, texts, index, starts, stop, settings, limits)
        tokens = sampler.get_next_token(sampler.compute_probabilities(allowed))
        given = ops.slice(texts, [0, index], [ops.shape(texts)[0], 1])
        begun = index >= starts
        tokens = ops.where(begun, ops.cast(tokens, "int32"), given[:, 0])
        new = ops.cast(begun & open_rows, "float32")
        losses = token_crossentropy(ops.maximum(tokens, 0), logits)
        total, written = total - new * losses, written + new
        tokens = ops.expand_dims(tokens, 1)
        if stop is not None:
            ended = begun & ops.any(tokens == stop, axis=1)
            open_rows = open_rows & ops.logical_not(ended)
        if limits is not None:
            open_rows = open_rows & (index + 1 < limits)
        texts = ops.slice_update(texts, [0, index], tokens)
        return texts, cache, index + 1, total, written, open_rows

    texts = copies(prompt)
    index = ops.cast(index, "int32")
    nothing = ops.zeros_like(texts[:, 0], dtype="float32")
    texts, *_, total, written, _ = sampler.run_loop(
        is_open,
        step,
        loop_vars=(
            texts,
            keras.tree.map_structure(copies, cache),
            index,
            nothing,
            nothing,
            starts < length,
        ),
        maximum_iterations=length - index,
        model=model,
    )
    lengths = ops.power(ops.maximum(written, 1.0), settings.length_penalty)
    scores = ops.reshape(total / lengths, (-1, count))
    scores, order = ops.top_k(scores, count)
    texts = ops.reshape(texts, (-1, count, length))
    order = ops.expand_dims(ops.cast(order, "int32"), 2)
    return ops.take_along_axis(texts, order, axis=1), ops.reshape(scores, (-1, count))
