"""Mix tasks, each written in several ways, for training on instructions."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from keras_bertfam.arguments import check_number, check_one_of, checked
from keras_bertfam.datasets.examples import Examples
from keras_bertfam.datasets.loading import load_examples
from keras_bertfam.datasets.templates import TEMPLATES, as_templates, writer
from keras_bertfam.layers.data.pairs.mixtures import MixedTask, TaskMixture

_RATES = ("equal", "per_template", "proportional")


@checked
def mixture(
    tasks: Mapping[str, Any],
    templates: Mapping[str, Sequence[Any]] | None = None,
    rates: str | Mapping[str, float] = "proportional",
    limit: int | None = 2**19,
    temperature: float = 1.0,
    pairs_per_pass: int | None = None,
) -> TaskMixture:
    """Mix tasks, each written in several ways, as pairs of texts to train on.

    A task with `n` examples has the rate `min(n, limit) ** (1 / temperature)`, divided
    by the sum over all tasks (T5). With the default temperature and limit, tasks of 100
    and 300 examples have the rates 0.25 and 0.75. FLAN has `limit=3000`. With
    `rates="per_template"` each template is a task of its own, as in T0: `n` is then
    multiplied by the number of templates, and a task of more than `limit` examples
    counts as `limit`.

    For each pair, a task is drawn by the rates, and then one of the task's templates.
    Within an epoch a task's examples come in random order, each once before any comes
    again; the next epoch draws anew. The draws depend only on the preprocessor's seed
    and the epoch, so that a resumed run continues with the next batch. With
    `training=False` a mixture gives the same sample each time, and not every example.

    Args:
        tasks: dict from names to `Examples` with labels; or to the folder or files of
            the task of that name, whose training part is loaded; or to `None`, which
            loads it with `tensorflow_datasets`.
        templates: dict from names of tasks to lists of templates, see `write_examples`.
            Other tasks have the library's templates, in `datasets.templates.TEMPLATES`.
            Defaults to `None`.
        rates: `"proportional"`, `"per_template"`, `"equal"`, or a dict from names of
            tasks to numbers. Defaults to `"proportional"`.
        limit: int or `None`. The most examples of a task that count for its rate. All
            its examples may still be drawn. Defaults to `2**19`.
        temperature: float. Above 1, rates become more equal. Defaults to `1.0`.
        pairs_per_pass: int or `None`. The pairs of an epoch. Defaults to the sum of the
            examples that count.

    Returns:
        A `TaskMixture` for `preprocessor.dataset` of a `TextToText` or `CausalLM`. Its
        `rates` are a dict from names to shares.

    Raises:
        ValueError: for a task without labels or templates, a template with fields that
            its task doesn't have, or rates for other tasks.

    Example:

    ```python
    from keras_bertfam.datasets.task_data import get_task
    films = keras_bertfam.datasets.Examples(
        ["So slow.", "A delight!"], [0, 1], get_task("sst2"))
    speech = keras_bertfam.datasets.Examples(["Cats sleeps."], [0], get_task("cola"))
    mixed = keras_bertfam.datasets.mixture(
        {"sst2": films, "cola": speech},
        templates={"cola": ["{sentence} Is that right? {choices}"]},
        temperature=2.0)
    mixed.rates  # {"sst2": 0.586, "cola": 0.414}
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        keras_bertfam.layers.read_documents("corpus/*.txt"), 300, family="gpt2")
    preprocessor = keras_bertfam.tasks.CausalLMPreprocessor(tokenizer, 64)
    batches = preprocessor.dataset(mixed, batch_size=2)  # for fit()
    ```

    References: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 3.5.2;
    [Wei et al., 2021](https://arxiv.org/abs/2109.01652), section 2.1 and 2.4;
    [Sanh et al., 2021](https://arxiv.org/abs/2110.08207), section 5.
    """
    if not tasks:
        raise ValueError(f"`tasks` must have at least one. Received: {tasks!r}.")
    if limit is not None:
        check_number("limit", limit, 1)
    check_number("temperature", temperature, 1e-6)
    for name, given in (templates or {}).items():
        check_one_of("templates", name, [*tasks])
        as_templates(name, given)  # or raises
    loaded = {name: _examples(name, given) for name, given in tasks.items()}
    ways = {
        name: _templates(name, examples.task.name, templates or {})
        for name, examples in loaded.items()
    }
    writers = {
        name: [writer(examples, template) for template in ways[name]]
        for name, examples in loaded.items()
    }
    counted = {
        name: _counted(len(examples), len(ways[name]), rates, limit)
        for name, examples in loaded.items()
    }
    chosen = _rates(counted, rates, temperature)
    mixed = {
        name: MixedTask(
            len(examples),
            len(writers[name]),
            functools.partial(_write, writers[name]),
            chosen[name],
        )
        for name, examples in loaded.items()
    }
    return TaskMixture(mixed, pairs_per_pass or sum(counted.values()))


def _write(writers, example, template):
    return writers[template](example)


def _examples(name, given):
    examples = given
    if not isinstance(given, Examples):
        examples = load_examples(name, "train", given)
    if not isinstance(examples, Examples) or not len(examples) or examples.y is None:
        raise ValueError(
            f"`tasks` must have examples with labels. Received for {name!r}: {given!r}."
        )
    return examples


def _templates(name, task, given):
    if name in given:
        return as_templates(name, given[name])
    if task not in TEMPLATES:
        raise ValueError(
            f"`templates` must have templates for each task except {[*TEMPLATES]}, "
            f"for which the library has some. Received: none for {name!r}."
        )
    return TEMPLATES[task]


def _counted(count, templates, rates, limit):
    """Count the examples of a task that count."""
    limit = limit or count
    if rates == "per_template":
        # If a task has more templates than `limit`, one example counts for each.
        return templates * (max(1, limit // templates) if count > limit else count)
    return min(count, limit)


def _rates(counted, rates, temperature):
    if isinstance(rates, str):
        check_one_of("rates", rates, _RATES)
        given = dict.fromkeys(counted, 1) if rates == "equal" else counted
    else:
        given = dict(rates)
        numbers = all(math.isfinite(rate) and rate >= 0 for rate in given.values())
        if {*given} != {*counted} or not numbers or not sum(given.values()):
            raise ValueError(
                f"`rates` must be one of {[*_RATES]}, or have a number for each of "
                f"{[*counted]}, not negative and not all 0. Received: {rates!r}."
            )
    # Relative to the greatest: powers of large numbers would overflow.
    most = max(given.values())
    return {name: (rate / most) ** (1 / temperature) for name, rate in given.items()}
