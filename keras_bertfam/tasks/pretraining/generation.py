"""Texts written token by token, with a sampler and a cache."""

import types
from collections.abc import Callable, Mapping
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_bertfam.autograph import as_written
from keras_bertfam.tasks.pretraining.beam_search import BeamSearch
from keras_bertfam.tasks.pretraining.compiled_kinds import (
    kind_of,
    numbers_of,
    with_numbers,
)
from keras_bertfam.tasks.pretraining.generation_defaults import (
    merged,
    usual_length,
    usual_sampler,
    usual_settings,
)
from keras_bertfam.tasks.pretraining.generation_inputs import (
    check_max_length,
    check_rows,
    padded_width,
    stop_table,
    words_as_ids,
)
from keras_bertfam.tasks.pretraining.generation_settings import GenerationSettings
from keras_bertfam.tasks.pretraining.sampled_texts import is_plain, sample
from keras_bertfam.tasks.pretraining.samplers import SAMPLERS
from keras_bertfam.tasks.pretraining.step_graph import Graphs, as_graph
from keras_bertfam.tasks.pretraining.token_rules import ruled
from keras_bertfam.types import Mixin, Model, Tensor

# Tokens that are not written yet: no stop token of any vocabulary.
UNWRITTEN = -1
# What counts the tokens that a text begins with.
_BY_LENGTH = {"min_length", "forced_bos_token_id"}
# Scores of texts are above it.
NO_TEXT = -1e8


class Generation(Mixin):
    """Mixin of language models that write texts.

    A subclass defines `generate()`; `_decoder()`, the backbone that has the cache;
    `_context()`, what its calls take besides, from the other inputs of a batch; and, if
    states aren't all that the logits need, `_next_logits()`.
    """

    _writers: Any = None
    # What is done unless it is told: the arguments of a `generation_config.json`.
    generation: Mapping[str, Any] = types.MappingProxyType({})

    def _next_logits(self, states, context):
        """Logits `(rows, vocabulary)` of the token after states `(rows, 1, width)`."""
        return self.head(states)[:, 0]

    def _generate_as_usual(self, rows, inputs, max_length, sampler, stop, settings):
        """`_generate` with what the task's `generation` says where nothing is given.

        Rows whose beginnings are of other lengths are written apart where these count.

        Returns:
            What `_generate` returns, and the `GenerationSettings`.
        """
        stop_table(stop, len(rows))  # or an error
        usual, lengths = self.generation, sorted({*map(len, rows)})
        sampler = usual_sampler(usual) if sampler is None else sampler
        whole = isinstance(settings, GenerationSettings)
        apart = "max_new_tokens" in usual and max_length is None
        apart = apart or (usual.keys() & _BY_LENGTH and not whole)
        groups = [[length] for length in lengths] if apart else [lengths]
        found: list[Any] = [None] * len(rows)
        for group in groups or [[0]]:
            begun = max(group, default=0)
            # Of prompts of several tokens none is the first.
            first = "encoder_token_ids" in inputs or begun == 1
            chosen = merged(settings, usual_settings(usual, begun, first))
            length = usual_length(usual, begun) if max_length is None else max_length
            places = [k for k, row in enumerate(rows) if len(row) in group]
            of_rows = stop and isinstance(stop[0], list)
            written = self._generate(
                [rows[k] for k in places],
                {name: value[places] for name, value in inputs.items()},
                length,
                sampler,
                [stop[k] for k in places] if of_rows else stop,
                chosen,
            )
            for place, texts in zip(places, written, strict=True):
                found[place] = texts
        return found, chosen

    def _generate(self, rows, inputs, max_length, sampler, stop, settings=None):
        """What follows rows of tokens, and the rows.

        Args:
            rows: list of lists of ids, the beginnings of the texts.
            inputs: dict of other arrays that `_context` reads.
            max_length: int, tokens of a text, its beginning included.
            sampler: name or `keras_hub.samplers.Sampler`.
            stop: list of ids, a list of them for each row, or `None`.
            settings: `GenerationSettings`, or `None` for the usual ones.

        Returns:
            For each row a list of its texts, as pairs of ids and a score: a single one
            without a score if it is no beam search.
        """
        settings = words_as_ids(self, settings or GenerationSettings())
        sampler = as_sampler(sampler, settings)
        positions = getattr(self.backbone, "max_sequence_length", None)
        # The last position is that of a token that is written.
        most = positions and positions - 1
        check_rows(rows, self.backbone.vocabulary_size, most)
        most = positions or settings.max_tokens
        check_max_length(max_length, max(map(len, rows)), most, positions is None)
        table = stop_table(stop, len(rows))
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
            "numbers": {
                name: np.array(x, "int32" if name == "min_new_tokens" else "float32")
                for name, x in numbers_of(sampler, settings).items()
            },
        }
        if table is not None:
            batch["stop"] = table
        batch = keras.tree.map_structure(ops.convert_to_tensor, batch)
        written = self._writer_for(sampler, settings).write(batch)
        return [
            _texts(
                number,
                len(ids),
                written,
                () if table is None else table[number % len(table)],
            )
            for number, ids in enumerate(rows)
        ]

    def _writer_for(self, sampler, settings):
        """What is compiled for a sampler, anew for other variables of the task."""
        variables = tuple(map(id, self.weights))
        if self._writers is None or self._writers.variables != variables:
            self._writers = _Writers(variables)
        known = self._writers.known
        key = kind_of(sampler, settings)
        if key not in known:
            known[key] = _Writer(self, sampler, settings)
        known[key].given = sampler
        return known[key]

    def write_rows(
        self,
        inputs: dict[str, Tensor],
        sampler: Any,
        settings: GenerationSettings | None = None,
    ) -> dict[str, Tensor]:
        """Writes on from where rows begin, until each has a stop token or is full.

        It is what `generate` compiles, and works in a graph with any number of rows.

        Args:
            inputs: dict of `prompt`, int32 `(batch, length)`, -1 where a token is to be
                written; `index`, int32 scalar, the tokens of the shortest prompt;
                `start`, int32 `(batch, count)`, at least so many of the first tokens,
                with any ids after a prompt's end; if texts may end, `stop`, int32
                `(1, count)` or `(batch, count)`, the ids that end each row's, filled up
                with -2; and what `_context` reads.
            sampler: `keras_hub.samplers.Sampler`.
            settings: `GenerationSettings`, with ids for `bad_words`, or `None` for the
                usual ones.

        Returns:
            Dict of `token_ids`, int32 `(batch, texts, length)`, -1 where nothing is
            written, and where texts have them `scores`, float32 `(batch, texts)`, -1e9
            where there is no text. What follows a stop token is arbitrary.
        """
        settings = settings or GenerationSettings()
        decoder, prompt = self._decoder(inputs), inputs["prompt"]
        start = inputs["start"]
        batch, length = ops.shape(prompt)
        context, stop = self._context(inputs), inputs.get("stop")
        mask = prompt != UNWRITTEN
        starts = ops.sum(ops.cast(mask, "int32"), axis=1)
        ends = None if stop is None else ops.broadcast_to(stop, (batch, stop.shape[1]))
        of_rows = (context, starts, ends)
        copies = _copies(sampler, settings)
        copied = keras.tree.map_structure(
            lambda x: None if x is None else ops.repeat(x, copies, axis=0),
            of_rows,
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
            seen, *_ = of_rows if cache is begun else copied
            arguments = (last, cache, index - 1, seen)
            return as_graph(step, arguments, graphs)(*arguments)

        if type(sampler) is keras_hub.samplers.BeamSampler:
            search = BeamSearch(sampler.num_beams, sampler.temperature, settings)
            texts, scores = search(
                following, prompt, begun, inputs["index"], starts, ends, self
            )
            chosen = settings.num_return_sequences
            return {"token_ids": texts[:, :chosen], "scores": scores[:, :chosen]}

        plain = type(sampler) is keras_hub.samplers.GreedySampler
        sampler = _Greedy() if plain else sampler
        if settings.num_return_sequences > 1 or settings.return_scores:
            texts, scores = sample(
                sampler,
                following,
                prompt,
                begun,
                inputs["index"],
                starts,
                ends,
                settings,
                self,
            )
            return {"token_ids": texts, "scores": scores}

        def allowed(prompt, cache, index):
            _, starts, ends = of_rows if cache is begun else copied
            logits, *others = following(prompt, cache, index)
            return ruled(logits, prompt, index, starts, ends, settings), *others

        more = length - ops.shape(start)[1]
        # A column for each token that ends a text, as rows may have their own.
        columns = None if stop is None else ops.split(stop, stop.shape[1], axis=1)
        written = sampler(
            allowed,
            prompt,
            cache=begun,
            index=inputs["index"],
            mask=mask,
            stop_token_ids=columns,
            hidden_states=ops.pad(first, [[0, 0], [0, more], [0, 0]]),
            model=self,
        )
        return {"token_ids": ops.expand_dims(written, 1)}


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

    def __init__(self, task: Model, sampler: Any, settings: GenerationSettings) -> None:
        self.task, self.sampler, self.given = task, sampler, sampler
        self.settings = settings
        self.generate_function: Any = None
        self.run_eagerly = task.run_eagerly
        # The loop over the tokens is what a compiler helps most.
        self.jit_compile = True

    @as_written
    def generate_step(
        self, inputs: Any, stop_token_ids: None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        numbers = inputs.pop("numbers")
        chosen = with_numbers(self.sampler, self.settings, numbers)
        return self.task.write_rows(inputs, *chosen)

    def write(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Writes with the random numbers of the sampler that is given."""
        pairs = [*zip(self.sampler.variables, self.given.variables, strict=True)]
        for ours, theirs in pairs:
            ours.assign(ops.copy(theirs))
        written = self.make_generate_function()(batch)
        for ours, theirs in pairs:
            theirs.assign(ops.copy(ours))
        return {name: ops.convert_to_numpy(x).tolist() for name, x in written.items()}

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        return self.task.trainable_variables

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        return self.task.non_trainable_variables

    make_generate_function: Callable = keras_hub.models.CausalLM.make_generate_function


def _copies(sampler, settings):
    """How many texts a sampler tries for each row."""
    if isinstance(sampler, keras_hub.samplers.BeamSampler):
        return sampler.num_beams
    if isinstance(sampler, keras_hub.samplers.ContrastiveSampler):
        return sampler.k
    return settings.num_return_sequences


def _texts(number, begin, written, stop):
    """The texts of a row as pairs of ids and a score."""
    texts = written["token_ids"][number]
    scores = written.get("scores", [[None] * len(texts)] * (number + 1))[number]
    # The first is there even if no text can be written.
    there = [s is None or s > NO_TEXT or not k for k, s in enumerate(scores)]
    pairs = zip(texts, scores, there, strict=True)
    return [(_until(text, begin, stop), score) for text, score, known in pairs if known]


def _until(text, begin, stop):
    """A text up to the first stop token after its beginning."""
    for place, token in enumerate(text[begin:], begin):
        if token == UNWRITTEN:
            return text[:place]
        if token in stop:
            return text[: place + 1]
    return text


def as_sampler(sampler: Any, settings: GenerationSettings | None = None) -> Any:
    """A sampler by its name or config.

    Args:
        sampler: name, config, or `keras_hub.samplers.Sampler`.
        settings: `GenerationSettings`, or `None` for the usual ones.

    Returns:
        A `keras_hub.samplers.Sampler`. A `BeamSampler` only says how many beams there
        are: the search is our own.

    Raises:
        ValueError: for another name, or what is none; or settings that it can't follow.
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
    if getattr(found, "return_all_beams", False):
        raise ValueError(
            "`sampler` must give one text for each prompt, or as many as "
            "`num_return_sequences` of the settings says. Expected: "
            "return_all_beams=False. Received: return_all_beams=True."
        )
    searches = type(found) is keras_hub.samplers.BeamSampler
    if searches and found.num_beams % settings.num_beam_groups:
        raise ValueError(
            "`num_beam_groups` must divide the number of beams, "
            f"{found.num_beams}. Received: num_beam_groups={settings.num_beam_groups}."
        )
    samples = is_plain(found) and type(found) is not keras_hub.samplers.GreedySampler
    beams = found.num_beams if searches else 1
    if settings.num_return_sequences > beams and not samples:
        raise ValueError(
            "`num_return_sequences` must be at most the beams of a beam search, and 1 "
            f"where nothing is sampled. Expected: at most {beams}. Received: "
            f"num_return_sequences={settings.num_return_sequences}."
        )
    if settings.return_scores and not searches and not is_plain(found):
        raise ValueError(
            "`return_scores` must be `False` for a sampler with a loop of its own. "
            f"Received: return_scores={settings.return_scores} and "
            f"{type(found).__name__}."
        )
    return found
