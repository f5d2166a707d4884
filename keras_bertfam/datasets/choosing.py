"""Answer tasks that a model wasn't trained on, by the likeliest choice."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam import metrics
from keras_bertfam.analysis.likelihood import answer_likelihood
from keras_bertfam.arguments import check_one_of, checked
from keras_bertfam.datasets.examples import Examples
from keras_bertfam.datasets.templates import (
    CHOSEN,
    TEMPLATES,
    as_template,
    as_templates,
    choices_of,
    writer,
)
from keras_bertfam.types import Model

_NORMALIZED = ("sum", "mean", "unconditional")
_NO_PROMPT = "Answer:"


@checked
def choose(
    model: Model,
    examples: Examples,
    template: Any,
    score: str = "sum",
    batch_size: int = 64,
) -> list[int]:
    """Choose the likeliest of the answers that an example may have.

    Args:
        model: `TextToText` or `CausalLM`, see `answer_likelihood`.
        examples: `Examples` of classes or of choices.
        template: `Template` whose target is `"{label}"`, or arguments that make one.
        score: how choices are compared: `"sum"`, by the log-probability of the text
            (T0); `"mean"`, by that divided by the number of tokens; or
            `"unconditional"`, by the log-probability minus that after the prompt
            `"Answer:"` alone. GPT-3 has the last two. In RACE and COPA a choice begins
            with the question, whose tokens the last two count, too.
        batch_size: int. Texts in a batch.

    Returns:
        A list of ints, the number of the class or choice for each example. If several
        are equally likely, it is the first.

    Raises:
        ValueError: for examples of another kind, or a template whose input contains the
            label, or whose target is more than the label.

    Example:

    ```python
    from keras_bertfam.datasets.task_data import get_task
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="gpt2")
    backbone = keras_bertfam.models.GPT2Backbone(
        tokenizer.vocabulary_size(), num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.CausalLM(
        backbone, keras_bertfam.tasks.CausalLMPreprocessor(tokenizer))
    films = keras_bertfam.datasets.Examples(["So slow."], None, get_task("sst2"))
    asked = "{sentence} Is that praise?"
    keras_bertfam.datasets.choose(
        model, films, {"input": asked, "choices": ["no", "yes"]})
    ```

    References: [Sanh et al., 2021](https://arxiv.org/abs/2110.08207), section 5.2;
    [Brown et al., 2020](https://arxiv.org/abs/2005.14165), section 2.4.
    """
    check_one_of("score", score, _NORMALIZED)
    made = as_template(template)
    if examples.task.kind not in CHOSEN:
        raise ValueError(
            f"`examples` must be of a task of kind {' or '.join(CHOSEN)}. Received: "
            f"{examples.task.name!r}, of kind {examples.task.kind!r}."
        )
    if made.target != "{label}" or "{label}" in made.input:
        raise ValueError(
            "`template` must have the target '{label}', and an input that doesn't tell "
            f"it. Received: {made!r}."
        )
    write, choices = writer(examples, made), choices_of(examples, made)
    assert choices is not None  # of these kinds
    prompts: list[str] = []
    answers: list[str] = []
    counts: list[int] = []
    for number in range(len(examples)):
        prompt, _ = write(number)
        offered = choices(number)
        prompts += [prompt] * len(offered)
        answers += offered
        counts.append(len(offered))
    found, tokens = answer_likelihood(model, prompts, answers, batch_size)
    if score == "mean":
        found = found / np.maximum(tokens, 1)
    if score == "unconditional":
        # The same tokens as after a prompt: white space before an answer belongs to its
        # first token.
        ends = [prompt[len(prompt.rstrip()) :] for prompt in prompts]
        pairs = sorted({*zip(ends, answers, strict=True)})
        alone, _ = answer_likelihood(
            model,
            [_NO_PROMPT + end for end, _ in pairs],
            [answer for _, answer in pairs],
            batch_size,
        )
        usual = dict(zip(pairs, alone, strict=True))
        found = found - np.array([usual[p] for p in zip(ends, answers, strict=True)])
    parts = np.split(found, np.cumsum(counts)[:-1]) if counts else []
    return [int(part.argmax()) for part in parts]


@checked
def zero_shot(
    model: Model,
    examples: Examples,
    templates: Sequence[Any] | None = None,
    score: str = "sum",
    batch_size: int = 64,
) -> list[dict[str, float]]:
    """Score a model on a task that it wasn't trained on, for each template.

    Args:
        model: see `choose`.
        examples: `Examples` of classes or choices, with labels.
        templates: list of `Template`, or of arguments that make one; `None` for the
            library's, see `mixture`.
        score: see `choose`.
        batch_size: int.

    Returns:
        A list with a dict for each template, from the names of the task's metrics to
        floats. T0 reports the median and the spread over templates.

    Raises:
        ValueError: for examples without labels or of another kind, or for no template.

    Example:

    ```python
    from keras_bertfam.datasets.task_data import get_task
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="gpt2")
    backbone = keras_bertfam.models.GPT2Backbone(
        tokenizer.vocabulary_size(), num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.CausalLM(
        backbone, keras_bertfam.tasks.CausalLMPreprocessor(tokenizer))
    films = keras_bertfam.datasets.Examples(
        ["So slow.", "A delight!"], [0, 1], get_task("sst2"))
    keras_bertfam.datasets.zero_shot(model, films)  # [{"accuracy": 0.5}, ...]
    ```

    Reference: [Sanh et al., 2021](https://arxiv.org/abs/2110.08207), section 5.2.
    """
    given: Any = TEMPLATES.get(examples.task.name) if templates is None else templates
    made = as_templates(examples.task.name, given)
    if examples.y is None:
        raise ValueError("`examples` must have labels. Received: none.")
    names = examples.task.metrics
    return [
        metrics.compute_metrics(
            names, examples.y, choose(model, examples, each, score, batch_size)
        )
        for each in made
    ]
