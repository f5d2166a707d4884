"""Texts that trained language models write, from prompts."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras_hub

from keras_bertfam import tasks
from keras_bertfam.cli.prediction import check_line, lines_of_input, load_model
from keras_bertfam.cli.task_kinds import SAMPLED_BY
from keras_bertfam.datasets.files import decoded_lines
from keras_bertfam.types import Model

_PROMPTS_AT_ONCE = 32
USUAL_LENGTH = 64
_SAMPLERS = {
    "random": keras_hub.samplers.RandomSampler,
    "top_k": keras_hub.samplers.TopKSampler,
    "top_p": keras_hub.samplers.TopPSampler,
}


def load_writer(preset: str) -> Model:
    """Load the task of a checkpoint that writes texts.

    Args:
        preset: name or folder of a checkpoint.

    Raises:
        ValueError: for another task, or one without a tokenizer.
    """
    model = load_model(preset)
    if not hasattr(model, "generate"):
        raise ValueError(
            "`preset` must be of a task that writes texts. "
            f"Received: {preset!r}, of a {type(model).__name__}."
        )
    if model.preprocessor is None:
        raise ValueError(f"`preset` must have a tokenizer. Received: {preset!r}.")
    return model


def prompts_of(
    prompts: Sequence[str], files: Sequence[str], lines: Iterable[str]
) -> Iterator[str]:
    """Read prompts: those that are given, lines of files, or else of standard input.

    Args:
        prompts: list of str.
        files: paths of files with a prompt a line.
        lines: what is read if there are neither.
    """
    yield from prompts
    named = [(path, decoded_lines(path)) for path in files]
    if not prompts and not files:
        named = [("standard input", lines_of_input(lines))]
    for name, given in named:
        for number, line in enumerate(given, start=1):
            check_line(name, number, line)
            if text := line.rstrip("\r\n"):
                yield text


def generate(
    model: Model,
    prompts: Iterable[str],
    max_length: int | None,
    sampler: str | None,
    options: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Write texts.

    Args:
        model: what `load_writer` gives.
        prompts: strings.
        max_length: int. Tokens of a text, see `generate` of the task; `None` for the
            model's own, or 64.
        sampler: name; `None` for the model's own, or `"greedy"`.
        options: arguments of the sampler, by the names in `SAMPLED_BY`, and of
            `GenerationSettings`.

    Yields:
        For each prompt a dict: `prompt`, and `text`, or `texts` if several are asked
        for.
    """
    if max_length is None and not {"max_length", "max_new_tokens"} & {
        *model.generation
    }:
        max_length = USUAL_LENGTH
    if sampler is None and not model.generation:
        sampler = "greedy"
    own = SAMPLED_BY.get(sampler or "", {})
    known = inspect.signature(tasks.GenerationSettings).parameters
    given = {name: value for name, value in options.items() if name in known}
    settings: Any = given if model.generation else tasks.GenerationSettings(**given)
    arguments = {own[name]: value for name, value in options.items() if name in own}
    chosen = _SAMPLERS[sampler or ""](**arguments) if arguments else sampler
    count = {**model.generation, **given}.get("num_return_sequences", 1)
    name = "texts" if count > 1 else "text"
    batch: list[str] = []

    def written():
        answers = model.generate(batch, max_length, chosen, settings=settings)
        for prompt, answer in zip(batch, answers, strict=True):
            yield {"prompt": prompt, name: answer}

    for prompt in prompts:
        batch.append(prompt)
        if len(batch) == _PROMPTS_AT_ONCE:
            yield from written()
            batch.clear()
    if batch:
        yield from written()
