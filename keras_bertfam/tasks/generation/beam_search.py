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
        search = _Search(
            following,
            prompt,
            starts,
            stop,
            limits,
            self.num_beams,
            self.temperature,
            self.settings,
        )
        index = ops.cast(index, "int32")
        *_, done, done_scores, _ = self.run_loop(
            search.goes_on,
            search.step,
            loop_vars=search.begin(cache, index),
            maximum_iterations=prompt.shape[1] - index,
            model=model,
        )
        if search.groups > 1:
            done_scores, order = _best(done_scores, self.num_beams)
            done = ops.take_along_axis(done, ops.expand_dims(order, 2), axis=1)
        nothing = ops.expand_dims(done_scores < _IMPOSSIBLE, 2)
        return ops.where(nothing, ops.expand_dims(prompt, 1), done), done_scores


class _Search:
    """Search for the texts of one batch.

    Its attributes stay as they are while the texts are written. What changes goes from
    step to step: `texts`, `(batch * num_beams, length)`, the beams; `cache`, theirs;
    `index`, of the token that is next; `scores`, `(batch, num_beams)`, the beams'
    log-probabilities, the best of a group first; `done`, `(batch, num_beams, length)`,
    the finished texts, and `done_scores`; and `open_rows`, `(batch, groups)`, whether a
    group still searches.
    """

    def __init__(
        self, following, prompt, starts, stop, limits, num_beams, temperature, settings
    ):
        self.following = following
        self.prompt = prompt
        self.num_beams = num_beams
        self.temperature = temperature
        self.settings = settings
        self.length = prompt.shape[1]
        self.groups = settings.num_beam_groups
        self.width = num_beams // self.groups  # beams of a group
        self.numbers = ops.arange(num_beams, dtype="int32")
        rows = ops.expand_dims(ops.arange(ops.shape(prompt)[0], dtype="int32"), 1)
        self.first_beams = rows * num_beams  # of each row
        self.rules = (
            self.beams(starts),
            None if stop is None else self.beams(stop),
            settings,
            None if limits is None else self.beams(limits),
        )
        self.starts = ops.expand_dims(starts, 1)
        self.stop = stop
        unlimited = limits is None
        self.most_tokens = self.length if unlimited else ops.expand_dims(limits, 1)

    def beams(self, x):
        """Repeat each row for its beams."""
        return ops.repeat(x, self.num_beams, axis=0)

    def chosen(self, x, parents):
        """Take some beams, `(batch, k)`, of rows `(batch * num_beams, ...)`."""
        return ops.take(x, ops.reshape(self.first_beams + parents, (-1,)), axis=0)

    def over_length(self, scores, lengths):
        lengths = ops.cast(ops.maximum(lengths, 1), "float32")
        return scores / ops.power(lengths, self.settings.length_penalty)

    def begin(self, cache, index):
        """Make what the first step begins with."""
        texts = self.beams(self.prompt)
        has_room = self.starts < self.length
        # A group's beams are copies of the prompt at first.
        scores = ops.where(self.numbers % self.width == 0, 0.0, BANNED)
        scores = ops.where(has_room, scores, BANNED)
        done = ops.reshape(texts, (-1, self.num_beams, self.length))
        none = ops.full_like(scores, BANNED)
        cache = keras.tree.map_structure(self.beams, cache)
        open_rows = ops.repeat(has_room, self.groups, axis=1)
        return texts, cache, index, scores, done, none, open_rows

    def goes_on(self, texts, cache, index, scores, done, done_scores, open_rows):
        return ops.any(open_rows)

    def step(self, texts, cache, index, scores, done, done_scores, open_rows):
        """Add a token to each beam."""
        logits, _, cache = self.following(texts, cache, index)
        logits = ops.cast(logits, "float32") / self.temperature
        found = ops.log_softmax(logits, axis=-1)
        found = apply_rules(found, texts, index, *self.rules)
        size = found.shape[-1]
        found = ops.reshape(found, (-1, self.num_beams, size))
        parts, said = [], ops.zeros_like(found[:, :1])
        for group in range(self.groups):
            first = group * self.width
            of = slice(first, first + self.width)
            is_open = open_rows[:, group : group + 1]
            scored = found[:, of]
            if group:
                scored = scored - self.settings.diversity_penalty * said
            scored = scored + ops.expand_dims(scores[:, of], 2)
            of_group = scores[:, of], done[:, of], done_scores[:, of], is_open
            parts.append(self.group_step(texts, index, scored, first, *of_group))
            if group + 1 < self.groups:
                new = ops.one_hot(parts[-1][1], size, dtype="float32")
                new = ops.sum(new, axis=1, keepdims=True)
                # A closed group doesn't count for the groups after it.
                said = said + ops.where(ops.expand_dims(is_open, 2), new, 0.0)
        parents, tokens, scores, done, done_scores, open_rows = (
            ops.concatenate(x, axis=1) if self.groups > 1 else x[0]
            for x in zip(*parts, strict=True)
        )
        rows = ops.shape(self.prompt)[0]
        given = ops.slice(self.prompt, [0, index], [rows, 1])
        tokens = ops.where(index >= self.starts, tokens, given)
        texts = self.extended(texts, index, parents, tokens)
        cache = keras.tree.map_structure(lambda x: self.chosen(x, parents), cache)
        return texts, cache, index + 1, scores, done, done_scores, open_rows

    def group_step(
        self, texts, index, found, first, scores, done, done_scores, open_rows
    ):
        """Make a step of the group whose beams begin at `first`.

        `found`, `(batch, width, vocabulary)`, are the scores of all continuations.
        """
        width, size = self.width, found.shape[-1]
        begun = index >= self.starts  # (batch, 1): no longer in the prompt
        # Enough candidates even if the best tokens of all beams are stop tokens.
        ending = 0 if self.stop is None else self.stop.shape[1]
        most = min((1 + ending) * width, width * size)
        best, places = _best(ops.reshape(found, (-1, width * size)), most)
        parents, tokens = first + places // size, places % size
        stops = ops.zeros_like(tokens, dtype="bool")
        for k in range(ending):
            stops = stops | (tokens == self.stop[:, k : k + 1])
        ends = stops | (index + 1 >= self.most_tokens)

        # Candidates that end now, if they are among the first, join the finished
        # texts. A mask selects them: XLA would sort everything if a part were cut
        # out.
        kept = ends & (best > _IMPOSSIBLE) & begun & open_rows
        kept = kept & (ops.arange(most, dtype="int32") < width)
        final = self.over_length(best, index + 1 - self.starts)
        final = ops.where(kept, final, BANNED)
        ended = self.extended(texts, index, parents, tokens)
        ended = ops.reshape(ended, (-1, most, self.length))
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
        parents = ops.where(begun, parents, self.numbers[first : first + width])
        better = self.may_improve(index, scores[:, :1], done_scores[:, -1:])
        open_rows = open_rows & (better | ops.logical_not(begun))
        open_rows = open_rows & (index + 1 < self.most_tokens)
        return parents, tokens, scores, done, done_scores, open_rows

    def extended(self, texts, index, parents, tokens):
        """Write a token after each of some beams, `(batch, k)`."""
        column = ops.reshape(tokens, (-1, 1))
        return ops.slice_update(self.chosen(texts, parents), [0, index], column)

    def may_improve(self, index, best, worst):
        """Tell whether a beam may still end better than the worst finished text.

        `best` is the best beam's score. `worst` is -1e9 if texts are missing.
        """
        if self.settings.early_stopping is True:
            better = worst < _IMPOSSIBLE
        else:
            hopes = index + 1
            if self.settings.early_stopping == "never":
                longest = self.settings.length_penalty > 0
                hopes = ops.where(longest, self.most_tokens, hopes)
            better = self.over_length(best, hopes - self.starts) > worst
        return better & (best > _IMPOSSIBLE)


def _best(scores, count):
    """Find the `count` best of each row and their places; of equals, the first."""
    best, places = ops.top_k(scores, count)
    # TensorFlow loses the static size.
    best, places = (ops.reshape(x, (-1, count)) for x in (best, places))
    return best, ops.cast(places, "int32")
