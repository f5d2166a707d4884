"""Texts written token by token, with KerasHub's samplers and a cache."""

import json
from collections.abc import Callable
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_bertfam.tasks.pretraining.generation_inputs import (
    check_max_length,
    check_rows,
    padded_width,
)
from keras_bertfam.tasks.pretraining.samplers import SAMPLERS
from keras_bertfam.tasks.pretraining.step_graph import Graphs, as_graph
from keras_bertfam.types import Mixin, Model, Tensor

# Tokens that are not written yet: no stop token of any vocabulary.
UNWRITTEN = -1


class Generation(Mixin):
    """Mixin of language models that write texts.

    A subclass defines `generate()`; `_decoder()`, the backbone that has the cache;
    `_context()`, what its calls take besides, from the other inputs of a batch; and, if
    states aren't all that the logits need, `_next_logits()`.
    """

    _writers: Any = None

    def _next_logits(self, states, context):
        """Logits `(rows, vocabulary)` of the token after states `(rows, 1, width)`."""
        return self.head(states)[:, 0]

    def _generate(
        self, rows, inputs, max_length, sampler, stop_token_ids, all_beams=False
    ):
        """What follows rows of tokens, and the rows, as lists of lists of ids.

        Args:
            rows: list of lists of ids, the beginnings of the texts.
            inputs: dict of other arrays that `_context` reads.
            max_length: int, tokens of a text, its beginning included.
            sampler: name or `keras_hub.samplers.Sampler`.
            stop_token_ids: sequence of ids, or `None`.
            all_beams: bool. Whether each row gives all texts of a beam search, one
                after the other.
        """
        positions = getattr(self.backbone, "max_sequence_length", None)
        # The last position is that of a token that is written.
        most = positions and positions - 1
        check_rows(rows, self.backbone.vocabulary_size, most)
        check_max_length(max_length, max(map(len, rows)), positions)
        prompt = np.full((len(rows), max_length), UNWRITTEN, "int32")
        for row, ids in zip(prompt, rows, strict=True):
            row[: len(ids)] = ids
        shortest = min(map(len, rows))
        width = padded_width(shortest, max_length)
        batch = {
            **inputs,
            "prompt": prompt,
            "start": np.maximum(prompt[:, :width], 0),
            "index": np.array(shortest, "int32"),
        }
        batch = {name: ops.convert_to_tensor(value) for name, value in batch.items()}
        stop = tuple(stop_token_ids or ()) or None
        written = self._writer_for(sampler, all_beams).write(batch, stop)
        copies = len(written) // len(rows)
        begun = (len(ids) for ids in rows for _ in range(copies))
        return [
            _until(text, count, stop or ())
            for text, count in zip(written, begun, strict=True)
        ]

    def _writer_for(self, sampler, all_beams=False):
        """What is compiled for a sampler, anew for other variables of the task."""
        variables = tuple(map(id, self.weights))
        if self._writers is None or self._writers.variables != variables:
            self._writers = _Writers(variables)
        sampler, known = as_sampler(sampler, all_beams), self._writers.known
        key = _kind(sampler)
        if key not in known:
            known[key] = _Writer(self, sampler)
        known[key].given = sampler
        return known[key]

    def write_rows(
        self, inputs: dict[str, Tensor], sampler: Any, stop_token_ids: Any = None
    ) -> Tensor:
        """Writes on from where rows begin, until each has a stop token or is full.

        It is what `generate` compiles, and works in a graph with any number of rows.

        Args:
            inputs: dict of `prompt`, int32 `(batch, length)`, -1 where a token is to be
                written; `index`, int32 scalar, the tokens of the shortest prompt;
                `start`, int32 `(batch, count)`, at least so many of the first tokens,
                with any ids after a prompt's end; and what `_context` reads.
            sampler: `keras_hub.samplers.Sampler`.
            stop_token_ids: sequence of ids, or `None`.

        Returns:
            int32 tensor `(batch, length)`, of a beam search that returns all beams
            `(batch * num_beams, length)`. What follows a stop token is arbitrary.
        """
        decoder, prompt = self._decoder(inputs), inputs["prompt"]
        start = inputs["start"]
        batch, length = ops.shape(prompt)
        context = self._context(inputs)
        copied = keras.tree.map_structure(
            lambda part: ops.repeat(part, _copies(sampler), axis=0), context
        )

        def states(token_ids, cache, first, context):
            outputs = decoder(
                {"token_ids": token_ids}, cache=cache, cache_index=first, **context
            )
            return outputs["sequence_output"], outputs["cache"]

        def step(*arguments):
            last, cache = states(*arguments)
            return self._next_logits(last, arguments[-1]), last[:, 0], cache

        first, begun = states(start, decoder.empty_cache(batch, length), 0, context)
        graphs = getattr(self._writers, "graphs", {})

        def following(prompt, cache, index):
            last = ops.slice(prompt, [0, index - 1], [ops.shape(prompt)[0], 1])
            # Contrastive search asks once for the rows, and then for copies of them.
            seen = context if cache is begun else copied
            arguments = (last, cache, index - 1, seen)
            return as_graph(step, arguments, graphs)(*arguments)

        more = length - ops.shape(start)[1]
        plain = type(sampler) is keras_hub.samplers.GreedySampler
        written = (_Greedy() if plain else sampler)(
            following,
            prompt,
            cache=begun,
            index=inputs["index"],
            mask=prompt != UNWRITTEN,
            stop_token_ids=stop_token_ids,
            hidden_states=ops.pad(first, [[0, 0], [0, more], [0, 0]]),
            model=self,
        )
        if isinstance(written, tuple):  # all beams, and how likely they are
            written = ops.reshape(written[0], (-1, length))
        return written


class _Greedy(keras_hub.samplers.GreedySampler):
    """Greedy search without a softmax, by operations that compilers make fast."""

    def compute_probabilities(self, logits: Tensor) -> Tensor:
        return logits  # in the order of their probabilities

    def get_next_token(self, probabilities: Tensor) -> Tensor:
        if keras.backend.backend() == "torch":
            return ops.argmax(probabilities, axis=-1)
        # XLA's takes several times as long on a CPU.
        count = probabilities.shape[-1]
        best = ops.max(probabilities, axis=-1, keepdims=True)
        places = ops.arange(count, dtype="int32")
        first = ops.min(ops.where(probabilities >= best, places, count), axis=-1)
        return ops.minimum(first, count - 1)  # if no number is the largest


class _Writers:
    """Compiled functions by sampler; not a dict, which Keras would track."""

    def __init__(self, variables: tuple) -> None:
        self.variables = variables
        self.known: dict[Any, Any] = {}
        self.graphs: Graphs = {}


class _Writer:
    """What KerasHub compiles a function that writes texts of: a task and a sampler."""

    def __init__(self, task: Model, sampler: Any) -> None:
        self.task, self.sampler, self.given = task, sampler, sampler
        self.generate_function: Any = None
        self.run_eagerly = task.run_eagerly
        # The loop over the tokens is what a compiler helps most.
        self.jit_compile = True

    def generate_step(self, inputs: Any, stop_token_ids: Any = None) -> Tensor:
        return self.task.write_rows(inputs, self.sampler, stop_token_ids)

    def write(self, batch: dict[str, Tensor], stop_token_ids: Any) -> list[list[int]]:
        """Writes with the random numbers of the sampler that is given."""
        pairs = [*zip(self.sampler.variables, self.given.variables, strict=True)]
        for ours, theirs in pairs:
            ours.assign(ops.copy(theirs))
        written = self.make_generate_function()(batch, stop_token_ids=stop_token_ids)
        for ours, theirs in pairs:
            theirs.assign(ops.copy(ours))
        return ops.convert_to_numpy(written).tolist()

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        return self.task.trainable_variables

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        return self.task.non_trainable_variables

    make_generate_function: Callable = keras_hub.models.CausalLM.make_generate_function


def _kind(sampler):
    """What samplers have in common whose compiled functions are the same."""
    if not type(sampler).__module__.startswith("keras_hub."):
        return id(sampler)  # its config may not say all
    config = {**sampler.get_config(), "seed": None}
    return type(sampler), json.dumps(config, sort_keys=True)


def _copies(sampler):
    """How many texts a sampler tries for each row."""
    if isinstance(sampler, keras_hub.samplers.BeamSampler):
        return sampler.num_beams
    if isinstance(sampler, keras_hub.samplers.ContrastiveSampler):
        return sampler.k
    return 1


def _until(text, begin, stop):
    """A text up to the first stop token after its beginning."""
    for place, token in enumerate(text[begin:], begin):
        if token in stop:
            return text[: place + 1]
    return text


def as_sampler(sampler: Any, all_beams: bool = False) -> Any:
    """A sampler by its name or config.

    Args:
        sampler: name, config, or `keras_hub.samplers.Sampler`.
        all_beams: bool. Whether it may give several texts for a prompt.

    Raises:
        ValueError: for another name, or what is none.
    """
    by_config = isinstance(sampler, dict | keras_hub.samplers.Sampler)
    if not by_config and sampler not in SAMPLERS:
        raise ValueError(
            f"`sampler` must be one of {SAMPLERS} or a `keras_hub.samplers.Sampler`. "
            f"Received: sampler={sampler!r}."
        )
    found = keras_hub.samplers.get(sampler)
    if getattr(found, "return_all_beams", False) and not all_beams:
        raise ValueError(
            "`sampler` must give one text for each prompt. Expected: "
            "return_all_beams=False. Received: return_all_beams=True."
        )
    return found
