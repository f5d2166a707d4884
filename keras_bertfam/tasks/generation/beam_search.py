"""Search for the likeliest texts with beams; keep the texts that end."""

from collections.abc import Callable
from typing import Any

import keras
import keras_hub
from keras import ops

from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tasks.generation.token_rules import BANNED, apply_rules
from keras_bertfam.types import Tensor

# A log-probability below that of any text.
_IMPOSSIBLE = -1e8


class BeamSearch(keras_hub.samplers.Sampler):
    """Keep the best unfinished texts of each row, and the best finished ones.

    Each step takes the likeliest continuations of a row's beams. A continuation ends at
    a stop token, or where the row is full. If it is among the best `num_beams`, it
    becomes one of the row's finished texts, of which the best by `log p / length **
    length_penalty` are kept. The best continuations that don't end become the new
    beams.

    A row is closed when its beams can't do better than its finished texts. These then
    stay as they are while the other rows of the batch are written. A row with a longer
    prompt waits until the other rows reach its end.

    Groups of beams search separately, one after the other in each step. A token loses
    `diversity_penalty` in log-probability for each beam of an earlier group that takes
    it in this step. The beam's score keeps this loss.

    Args:
        num_beams: int.
        temperature: float, which divides logits.
        settings: `GenerationSettings`, with ids for `bad_words`.

    References: [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7; as
    `generate` of `transformers` 5, `_beam_search`. [Vijayakumar et al.,
    2016](https://arxiv.org/abs/1610.02424), section 4, for groups; as
    `_group_beam_search` of `transformers` 4.
    """

    def __init__(
        self,
        num_beams: int,
        temperature: float = 1.0,
        settings: GenerationSettings | None = None,
    ) -> None:
        super().__init__(temperature)
        self.num_beams = num_beams
        self.settings = settings or GenerationSettings()

    def __call__(
        self,
        following: Callable[..., Any],
        prompt: Tensor,
        cache: Any,
        index: Tensor,
        starts: Tensor,
        stop: Tensor | None = None,
        model: Any = None,
        limits: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Write the rows' texts.

        Args:
            following: function of texts `(batch * num_beams, length)`, a cache with as
                many rows, and an index. It returns the logits of the token at the
                index, something that isn't read, and the new cache.
            prompt: int32 tensor `(batch, length)`, the prompts, filled up with -1.
            cache: nested structure of tensors `(batch, ...)`, for the tokens before
                `index`.
            index: int32 scalar, where writing begins: at most the length of the
                shortest prompt.
            starts: int32 tensor `(batch,)`, the prompts' lengths.
            stop: int32 tensor `(batch, count)`, see `apply_rules`, or `None`.
            model: the task, for the loop that the backend compiles.
            limits: int32 tensor `(batch,)`, the most tokens of each text; `None` for
                the length of the rows.

        Returns:
            The finished texts, the best first, int32 `(batch, num_beams, length)`, and
            their scores, float32 `(batch, num_beams)`. If a row has fewer texts, the
            rest are its prompt with a score of -1e9. Tokens after a text's end are
            arbitrary.
        """
        count, length, settings = self.num_beams, prompt.shape[1], self.settings
        groups = settings.num_beam_groups
        width = count // groups  # beams of a group
        index = ops.cast(index, "int32")
        numbers = ops.arange(count, dtype="int32")
        of_rows = ops.expand_dims(ops.arange(ops.shape(prompt)[0], dtype="int32"), 1)
        of_rows = of_rows * count  # the first beam of each row

        def beams(x):
            return ops.repeat(x, count, axis=0)

        def chosen(x, parents):
            """Take some beams, `(batch, k)`, of rows `(batch * num_beams, ...)`."""
            return ops.take(x, ops.reshape(of_rows + parents, (-1,)), axis=0)

        all_starts = beams(starts)
        all_stop = None if stop is None else beams(stop)
        all_limits = None if limits is None else beams(limits)
        most_tokens = length if limits is None else ops.expand_dims(limits, 1)
        starts = ops.expand_dims(starts, 1)

        def over_length(scores, lengths):
            lengths = ops.cast(ops.maximum(lengths, 1), "float32")
            return scores / ops.power(lengths, settings.length_penalty)

        def is_open(texts, cache, index, scores, done, done_scores, open_rows):
            return ops.any(open_rows)

        def of_group(texts, index, found, scores, done, done_scores, open_rows, first):
            """Make a step of a group's beams, which begin at `first`."""
            begun = index >= starts  # (batch, 1): no longer in the prompt
            size = found.shape[-1]
            found = found + ops.expand_dims(scores, 2)
            # Enough candidates even if the best tokens of all beams are stop tokens.
            ending = 0 if stop is None else stop.shape[1]
            most = min((1 + ending) * width, width * size)
            best, places = _best(ops.reshape(found, (-1, width * size)), most)
            parents, tokens = first + places // size, places % size
            stops = ops.zeros_like(tokens, dtype="bool")
            for k in range(ending):
                stops = stops | (tokens == stop[:, k : k + 1])
            ends = stops | (index + 1 >= most_tokens)

            # Candidates that end now, if they are among the first, join the finished
            # texts. A mask selects them: XLA would sort everything if a part were cut
            # out.
            kept = ends & (best > _IMPOSSIBLE) & begun & open_rows
            kept = kept & (ops.arange(most, dtype="int32") < width)
            final = over_length(best, index + 1 - starts)
            final = ops.where(kept, final, BANNED)
            ended = ops.slice_update(
                chosen(texts, parents), [0, index], ops.reshape(tokens, (-1, 1))
            )
            ended = ops.reshape(ended, (-1, most, length))
            done_scores, order = _best(ops.concatenate([done_scores, final], 1), width)
            done = ops.take_along_axis(
                ops.concatenate([done, ended], 1), ops.expand_dims(order, 2), axis=1
            )

            # Candidates that continue. Within a prompt every beam continues with the
            # prompt's next token.
            best, order = _best(ops.where(stops, BANNED, best), width)
            parents, tokens = (
                ops.take_along_axis(x, order, axis=1) for x in (parents, tokens)
            )
            scores = ops.where(begun, best, scores)
            parents = ops.where(begun, parents, numbers[first : first + width])

            hopes = index + 1
            if settings.early_stopping == "never":
                hopes = ops.where(settings.length_penalty > 0, most_tokens, hopes)
            going = scores[:, :1]
            worst = done_scores[:, -1:]  # -1e9 if fewer than `width` are finished
            better = over_length(going, hopes - starts) > worst
            if settings.early_stopping is True:
                better = worst < _IMPOSSIBLE
            better = better & (going > _IMPOSSIBLE)
            open_rows = open_rows & (better | ops.logical_not(begun))
            open_rows = open_rows & (index + 1 < most_tokens)
            return parents, tokens, scores, done, done_scores, open_rows

        def step(texts, cache, index, scores, done, done_scores, open_rows):
            logits, _, cache = following(texts, cache, index)
            logits = ops.cast(logits, "float32") / self.temperature
            found = ops.log_softmax(logits, axis=-1)
            of_texts = (all_starts, all_stop, settings, all_limits)
            found = apply_rules(found, texts, index, *of_texts)
            size = found.shape[-1]
            found = ops.reshape(found, (-1, count, size))
            parts, said = [], ops.zeros_like(found[:, :1])
            for group in range(groups):
                of = slice(group * width, (group + 1) * width)
                scored = found[:, of]
                if group:
                    scored = scored - settings.diversity_penalty * said
                parts.append(
                    of_group(
                        texts,
                        index,
                        scored,
                        scores[:, of],
                        done[:, of],
                        done_scores[:, of],
                        open_rows[:, group : group + 1],
                        group * width,
                    )
                )
                if group + 1 < groups:
                    new = ops.one_hot(parts[-1][1], size, dtype="float32")
                    new = ops.sum(new, axis=1, keepdims=True)
                    # A closed group doesn't count for the groups after it.
                    still = ops.expand_dims(open_rows[:, group : group + 1], 2)
                    said = said + ops.where(still, new, 0.0)
            parents, tokens, scores, done, done_scores, open_rows = (
                ops.concatenate(x, axis=1) if groups > 1 else x[0]
                for x in zip(*parts, strict=True)
            )
            given = ops.slice(prompt, [0, index], [ops.shape(prompt)[0], 1])
            tokens = ops.where(index >= starts, tokens, given)
            texts = ops.slice_update(
                chosen(texts, parents), [0, index], ops.reshape(tokens, (-1, 1))
            )
            cache = keras.tree.map_structure(lambda x: chosen(x, parents), cache)
            return texts, cache, index + 1, scores, done, done_scores, open_rows

        texts = beams(prompt)
        open_rows = ops.repeat(starts < length, groups, axis=1)
        # A group's beams are copies of the prompt at first.
        scores = ops.where(numbers % width == 0, 0.0, BANNED)
        scores = ops.where(starts < length, scores, BANNED)
        done = ops.reshape(texts, (-1, count, length))
        none = ops.full_like(scores, BANNED)
        cache = keras.tree.map_structure(beams, cache)
        *_, done, done_scores, _ = self.run_loop(
            is_open,
            step,
            loop_vars=(texts, cache, index, scores, done, none, open_rows),
            maximum_iterations=length - index,
            model=model,
        )
        if groups > 1:
            done_scores, order = _best(done_scores, count)
            done = ops.take_along_axis(done, ops.expand_dims(order, 2), axis=1)
        nothing = ops.expand_dims(done_scores < _IMPOSSIBLE, 2)
        return ops.where(nothing, ops.expand_dims(prompt, 1), done), done_scores


def _best(scores, count):
    """Find the `count` best of each row and their places; of equals, the first."""
    best, places = ops.top_k(scores, count)
    # TensorFlow loses the static size.
    best, places = (ops.reshape(x, (-1, count)) for x in (best, places))
    return best, ops.cast(places, "int32")
