"""Write texts token by token, with a sampler and a cache, for any task that can."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_bertfam.autograph import as_written
from keras_bertfam.tasks.generation.beam_search import BeamSearch
from keras_bertfam.tasks.generation.compiled_kinds import (
    Graphs,
    as_graph,
    kind_of,
    numbers_of,
    with_numbers,
)
from keras_bertfam.tasks.generation.defaults import (
    default_length,
    with_defaults,
)
from keras_bertfam.tasks.generation.prompts import (
    as_answer,
    as_prompts,
    check_max_length,
    check_rows,
    padded_width,
    prompt_start_ids,
    stop_ids,
    stop_table,
    token_rows,
    words_as_ids,
)
from keras_bertfam.tasks.generation.samplers import (
    FastGreedySampler,
    as_sampler,
    check_candidates,
    copies_of_rows,
    sample,
)
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tasks.generation.token_rules import apply_rules
from keras_bertfam.types import Model, Tensor

# Stands for tokens that aren't written yet; it equals no stop token.
UNWRITTEN = -1
# All scores of texts are above it.
NO_TEXT = -1e8


class TextWriter(NamedTuple):
    """Hold what the loop over the tokens calls, for the inputs of a batch.

    A task that writes texts returns it from its method `text_writer(inputs)`, which
    runs once before the loop, inside the compiled function.

    Attributes:
        decoder: the model with the cache.
        context: dict of the other inputs of its calls, besides tokens and cache.
        next_logits: function from states `(rows, 1, width)` and the context to the
            logits `(rows, vocabulary)` of the next token.
    """

    decoder: Any
    context: dict[str, Any]
    next_logits: Callable[..., Tensor]


def logits_by(head: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make the `next_logits` of a `TextWriter` whose head reads only states."""
    return lambda states, context: head(states)[:, 0]


def checked_decoder(backbone: Model) -> Model:
    """Check that a backbone can continue texts, and return it.

    Raises:
        ValueError: for a backbone without `empty_cache`.
    """
    if not hasattr(backbone, "empty_cache"):
        raise ValueError(
            "`backbone` must be an `EncoderBackbone` with causal=True, such as "
            "GPT-2's, or Transformer-XL's, to write texts. Received: "
            f"{type(backbone).__name__}."
        )
    return backbone


def continue_texts(
    task: Model,
    inputs: Any,
    max_length: int | None,
    sampler: Any,
    stop_token_ids: Any,
    settings: GenerationSettings | Mapping[str, Any] | None,
) -> Any:
    """Continue texts; see `CausalLM.generate`."""
    checked_decoder(task.backbone)  # or an error before anything is compiled
    inputs = as_prompts(inputs)
    start = prompt_start_ids(task.preprocessor)
    rows, strings = token_rows(task, inputs, start=start)
    stop = stop_ids(task, stop_token_ids)
    found, used = write_by_default(task, rows, {}, max_length, sampler, stop, settings)
    single = isinstance(inputs, str)
    return as_answer(task, found, stop, used, single, strings, specials=bool(start))


def write_by_default(
    task: Model,
    rows: Sequence[list[int]],
    inputs: dict[str, Any],
    max_length: int | None,
    sampler: Any,
    stop: list[Any] | None,
    settings: GenerationSettings | Mapping[str, Any] | None,
) -> tuple[list[Any], GenerationSettings]:
    """Write texts, with the task's `generation` for arguments that aren't given.

    Args:
        task: see `write_texts`.
        rows: list of lists of ids.
        inputs: dict of arrays.
        max_length: int or `None`.
        sampler: name, `keras_hub.samplers.Sampler` or `None`.
        stop: list of ids, a list of them for each row, or `None`.
        settings: `GenerationSettings`, a dict of some of them, or `None`.

    Returns:
        What `write_texts` returns, and the `GenerationSettings`.
    """
    usual = task.generation
    sampler, settings = with_defaults(sampler, settings, usual)
    lengths: Any = max_length
    if max_length is None:
        lengths = [default_length(usual, len(row)) for row in rows]
        lengths = lengths[0] if len({*lengths}) == 1 else lengths
    found = write_texts(task, rows, inputs, lengths, sampler, stop, settings)
    return found, settings


def write_texts(
    task: Model,
    rows: Sequence[list[int]],
    inputs: dict[str, Any],
    max_length: int | list[int],
    sampler: Any,
    stop: list[Any] | None,
    settings: GenerationSettings | None = None,
) -> list[list[tuple[list[int], float | None]]]:
    """Continue rows of tokens.

    Args:
        task: a task with a method `text_writer`, see `TextWriter`.
        rows: list of lists of ids, the beginnings of the texts.
        inputs: dict of other arrays that `text_writer` reads.
        max_length: int, the most tokens of a text, its beginning included; or an int
            for each text.
        sampler: name or `keras_hub.samplers.Sampler`.
        stop: list of ids, a list of them for each row, or `None`.
        settings: `GenerationSettings`, or `None` for the default ones.

    Returns:
        For each row a list of its texts, as pairs of ids and a score. Without a beam
        search it is a single text without a score.
    """
    settings = words_as_ids(task, settings or GenerationSettings())
    sampler = as_sampler(sampler, settings)
    positions = getattr(task.backbone, "max_sequence_length", None)
    # The last position holds a token that is written.
    most = positions and positions - 1
    check_rows(rows, task.backbone.vocabulary_size, most)
    check_candidates(sampler, task.backbone.vocabulary_size)
    most = positions or settings.max_tokens
    limits: Any = None
    if isinstance(max_length, list):
        for ids, length in zip(rows, max_length, strict=True):
            check_max_length(length, len(ids), most, positions is None)
        limits, max_length = np.array(max_length, "int32"), max(max_length)
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
            name: np.array(x, "int32" if name.startswith("min_") else "float32")
            for name, x in numbers_of(sampler, settings).items()
        },
    }
    if table is not None:
        batch["stop"] = table
    if limits is not None:
        batch["limits"] = limits
    batch = keras.tree.map_structure(ops.convert_to_tensor, batch)
    written = _compiled_for(task, sampler, settings).write(batch)
    return [
        _texts(
            number,
            len(ids),
            None if limits is None else limits[number],
            written,
            () if table is None else table[number % len(table)],
        )
        for number, ids in enumerate(rows)
    ]


def _compiled_for(task, sampler, settings):
    """Find the function compiled for a sampler; compile anew for new variables."""
    variables = tuple(map(id, task.weights))
    compiled = getattr(task, "compiled_writers", None)
    if compiled is None or compiled.variables != variables:
        compiled = task.compiled_writers = _CompiledWriters(variables)
    key = kind_of(sampler, settings), task.run_eagerly
    if key not in compiled.known:
        compiled.known[key] = _CompiledWriter(task, sampler, settings)
    compiled.known[key].given = sampler
    return compiled.known[key]


def write_rows(
    task: Model,
    inputs: dict[str, Tensor],
    sampler: Any,
    settings: GenerationSettings | None = None,
) -> dict[str, Tensor]:
    """Continue rows until each has a stop token or is full.

    `generate` compiles this function. It works in a graph with any number of rows.

    Args:
        task: see `write_texts`.
        inputs: dict of `prompt`, int32 `(batch, length)`, -1 where a token is to be
            written; `index`, int32 scalar, the number of tokens of the shortest prompt;
            `start`, int32 `(batch, count)`, at least that many first tokens, with
            arbitrary ids after a prompt's end; if texts may end, `stop`, int32 `(1,
            count)` or `(batch, count)`, the ids that end each row's text, filled up
            with -2; if rows may have unequal lengths, `limits`, int32 `(batch,)`; and
            the inputs of `text_writer`.
        sampler: `keras_hub.samplers.Sampler`.
        settings: `GenerationSettings`, with ids for `bad_words`, or `None` for the
            default ones.

    Returns:
        Dict of `token_ids`, int32 `(batch, texts, length)`, -1 where nothing is
        written; and, if texts have scores, `scores`, float32 `(batch, texts)`, -1e9
        where there is no text. Tokens after a stop token or the limit are arbitrary.
    """
    settings = settings or GenerationSettings()
    decoder, context, next_logits = task.text_writer(inputs)
    prompt = inputs["prompt"]
    start = inputs["start"]
    batch, length = ops.shape(prompt)
    stop, limits = inputs.get("stop"), inputs.get("limits")
    mask = prompt != UNWRITTEN
    starts = ops.sum(ops.cast(mask, "int32"), axis=1)
    ends = None if stop is None else ops.broadcast_to(stop, (batch, stop.shape[1]))
    of_rows = (context, starts, ends, limits)
    copies = copies_of_rows(sampler, settings)
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
        # Contrastive search compares states, whose squares may exceed 16 bits.
        return next_logits(last, arguments[-1]), ops.cast(last[:, 0], "float32"), cache

    first, begun = states(start, decoder.empty_cache(batch, length), 0, context)
    graphs = getattr(getattr(task, "compiled_writers", None), "graphs", {})

    def following(prompt, cache, index):
        last = ops.slice(prompt, [0, index - 1], [ops.shape(prompt)[0], 1])
        # Contrastive search calls it once for the rows, and then for copies of them.
        seen, *_ = of_rows if cache is begun else copied
        arguments = (last, cache, index - 1, seen)
        return as_graph(step, arguments, graphs)(*arguments)

    if type(sampler) is keras_hub.samplers.BeamSampler:
        search = BeamSearch(sampler.num_beams, sampler.temperature, settings)
        texts, scores = search(
            following, prompt, begun, inputs["index"], starts, ends, task, limits
        )
        chosen = settings.num_return_sequences
        return {"token_ids": texts[:, :chosen], "scores": scores[:, :chosen]}

    plain = type(sampler) is keras_hub.samplers.GreedySampler
    sampler = FastGreedySampler() if plain else sampler
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
            task,
            limits,
        )
        return {"token_ids": texts, "scores": scores}

    def allowed(prompt, cache, index):
        _, starts, ends, most = of_rows if cache is begun else copied
        logits, *others = following(prompt, cache, index)
        of_texts = (starts, ends, settings, most)
        return apply_rules(logits, prompt, index, *of_texts), *others

    more = length - ops.shape(start)[1]
    # One column for each stop token, since rows may have their own.
    columns = None if stop is None else ops.split(stop, stop.shape[1], axis=1)
    written = sampler(
        allowed,
        prompt,
        cache=begun,
        index=inputs["index"],
        mask=mask,
        stop_token_ids=columns,
        hidden_states=ops.pad(ops.cast(first, "float32"), [[0, 0], [0, more], [0, 0]]),
        model=task,
    )
    return {"token_ids": ops.expand_dims(written, 1)}


class _CompiledWriters:
    """Compiled functions by sampler. A dict would be tracked by Keras."""

    def __init__(self, variables: tuple) -> None:
        self.variables = variables
        self.known: dict[Any, Any] = {}
        self.graphs: Graphs = {}


class _CompiledWriter:
    """Hold a task and a sampler for KerasHub, which compiles a function from them."""

    def __init__(self, task: Model, sampler: Any, settings: GenerationSettings) -> None:
        self.task, self.sampler, self.given = task, sampler, sampler
        self.settings = settings
        self.generate_function: Any = None
        self.run_eagerly = task.run_eagerly
        # The loop over the tokens gains most from compilation.
        self.jit_compile = True

    @as_written
    def generate_step(
        self, inputs: Any, stop_token_ids: None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        numbers = inputs.pop("numbers")
        chosen = with_numbers(self.sampler, self.settings, numbers)
        return write_rows(self.task, inputs, *chosen)

    def write(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Write with the random numbers of the given sampler."""
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


def _texts(number, begin, limit, written, stop):
    """Give a row's texts as pairs of ids and a score."""
    texts = [text[:limit] for text in written["token_ids"][number]]
    scores = written.get("scores", [[None] * len(texts)] * (number + 1))[number]
    # The first text is kept even if nothing could be written.
    there = [s is None or s > NO_TEXT or not k for k, s in enumerate(scores)]
    pairs = zip(texts, scores, there, strict=True)
    return [(_until(text, begin, stop), score) for text, score, known in pairs if known]


def _until(text, begin, stop):
    """Cut a text after the first stop token after its beginning."""
    for place, token in enumerate(text[begin:], begin):
        if token == UNWRITTEN:
            return text[:place]
        if token in stop:
            return text[: place + 1]
    return text
