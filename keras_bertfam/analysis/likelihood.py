"""Compute texts' probabilities by language models, and compare pairs of texts."""

import itertools
import os
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis.report import Report
from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.heads.heads import MaskedLMHead
from keras_bertfam.layers.heads.vocabulary_logits import LanguageModelHead
from keras_bertfam.parsing import decoded, parse_json_lines, read_text
from keras_bertfam.tasks.generation.causal_lm_preprocessor import (
    CausalLMPreprocessor,
)
from keras_bertfam.tasks.generation.text_to_text_preprocessor import (
    TextToTextPreprocessor,
)
from keras_bertfam.tokenizers.pipeline_ops import text_start_id
from keras_bertfam.types import Model, Path


@checked
def pseudo_log_likelihood(
    task: Model, texts: Sequence[str], batch_size: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the log-probability of every token given all other tokens of its text.

    Each token is masked in turn, so a text of `n` tokens takes `n` rows. The sum ranks
    texts, such as an acceptable and an unacceptable sentence. The exponential of the
    negative mean over tokens is the pseudo-perplexity.

    Args:
        task: a task with `fill_mask`, such as `keras_bertfam.tasks.MaskedLM`, and
            a preprocessor.
        texts: list of str, cut at the preprocessor's `sequence_length`.
        batch_size: int. Rows in a batch.

    Returns:
        Two NumPy arrays of shape `(len(texts),)`: float64 sums of the natural
        logarithms, and int64 counts of tokens, special ones excluded.

    Raises:
        ValueError: if the task has no preprocessor.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    sums, counts = keras_bertfam.analysis.pseudo_log_likelihood(
        model, ["The cats sleep.", "The cats sleeps."])
    perplexity = np.exp(-sums.sum() / counts.sum())
    ```

    Reference: [Salazar et al., 2020](https://arxiv.org/abs/1910.14659), section 2.
    """
    inputs, inside = encoded_rows(task, texts)
    rows, positions = np.nonzero(inside)
    sums = np.zeros(len(inside))
    for index, real in even_batches(len(rows), batch_size):
        batch = {name: value[rows[index]] for name, value in inputs.items()}
        each, place = np.arange(batch_size), positions[index]
        targets = batch["token_ids"][each, place]
        batch["token_ids"][each, place] = task.preprocessor.tokenizer.mask_token_id
        batch["mask_positions"] = place[:, None].astype("int32")
        logits = task.masked_lm_logits(batch)[:, 0]
        log_probabilities = ops.convert_to_numpy(ops.log_softmax(logits))
        picked = log_probabilities[each, targets][:real]
        np.add.at(sums, rows[index[:real]], picked)
    return sums, np.bincount(rows, minlength=len(inside))


@checked
@without_gradients
def log_likelihood(
    task: Model, texts: Sequence[str], batch_size: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the log-probability of every token given those before it in its text.

    Texts begin with the start token, if the tokenizer has one, as GPT-2's has.
    Otherwise their first token has no probability and isn't counted. The end of a text
    isn't counted, either.

    Args:
        task: a `keras_bertfam.tasks.CausalLM` with a preprocessor.
        texts: list of str, cut at the preprocessor's `sequence_length`.
        batch_size: int. Texts in a batch.

    Returns:
        Two NumPy arrays of shape `(len(texts),)`: float64 sums of the natural
        logarithms, and int64 counts of tokens, special ones excluded.

    Raises:
        ValueError: for another task, or one without a preprocessor.

    Example:

    ```python
    from keras_bertfam.analysis.likelihood import log_likelihood
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="gpt2")
    backbone = keras_bertfam.models.GPT2Backbone(
        tokenizer.vocabulary_size(), num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.CausalLM(
        backbone, keras_bertfam.tasks.CausalLMPreprocessor(tokenizer))
    sums, counts = log_likelihood(
        model, ["The cats sleep.", "The cats sleeps."])
    perplexity = np.exp(-sums.sum() / counts.sum())
    ```

    Reference: [Warstadt et al., 2019](https://arxiv.org/abs/1912.00582), section 4.
    """
    if not _reads_from_left_to_right(task):
        raise ValueError(
            "`task` must be a language model that reads from left to right, such as "
            f"`CausalLM`. Received: {type(task).__name__}."
        )
    inputs, inside = encoded_rows(task, texts)
    targets, inside = inputs["token_ids"][:, 1:], inside[:, 1:]
    inputs = {name: value[:, :-1] for name, value in inputs.items()}
    found = np.zeros(inside.shape)
    for index, real in even_batches(len(inside) if inside.any() else 0, batch_size):
        batch = {name: value[index] for name, value in inputs.items()}
        states = task.backbone(batch, return_pooled=False, training=False)
        # The head computes cross-entropies in chunks, and never holds all logits.
        scores = task.head(states["sequence_output"], targets=targets[index])
        found[index[:real]] = -ops.convert_to_numpy(scores)[:real, :, 0]
    return np.where(inside, found, 0.0).sum(axis=1), inside.sum(axis=1)


@checked
@without_gradients
def answer_likelihood(
    task: Model, prompts: Sequence[str], answers: Sequence[str], batch_size: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the log-probability of answers to prompts.

    A `TextToText` reads the prompt. The answer's end token counts, as in T0, but no
    start token. A `CausalLM` continues the prompt. The end isn't counted, as in GPT-3:
    texts in its training continue after a word.

    Args:
        task: a `keras_bertfam.tasks.TextToText` or `CausalLM` with the preprocessor of
            its class. Prompts and answers are cut to the preprocessor's rows.
        prompts: list of str.
        answers: list of str, one for each prompt.
        batch_size: int. Pairs in a batch.

    Returns:
        Two NumPy arrays of shape `(len(prompts),)`: float64 sums of the natural
        logarithms, and int64 counts of tokens.

    Raises:
        ValueError: for another task or preprocessor, or more or fewer answers than
            prompts.

    Example:

    ```python
    from keras_bertfam.analysis.likelihood import answer_likelihood
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="gpt2")
    backbone = keras_bertfam.models.GPT2Backbone(
        tokenizer.vocabulary_size(), num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.CausalLM(
        backbone, keras_bertfam.tasks.CausalLMPreprocessor(tokenizer))
    prompts = ["So slow. Was it good?"] * 2
    sums, counts = answer_likelihood(model, prompts, ["yes", "no"])
    ```

    References: [Sanh et al., 2021](https://arxiv.org/abs/2110.08207), section 5.2;
    [Brown et al., 2020](https://arxiv.org/abs/2005.14165), section 2.4.
    """
    preprocessor = getattr(task, "preprocessor", None)
    kinds = (CausalLMPreprocessor, TextToTextPreprocessor)
    if not isinstance(preprocessor, kinds) or not hasattr(task, "head"):
        received = f"{type(task).__name__} with {type(preprocessor).__name__}"
        raise ValueError(
            "`task` must be a `TextToText` with a `TextToTextPreprocessor`, or a "
            f"`CausalLM` with a `CausalLMPreprocessor`. Received: {received}."
        )
    if len(prompts) != len(answers):
        raise ValueError(
            "`answers` must be one for each prompt. Received: "
            f"{len(answers)} for {len(prompts)}."
        )
    goes_on = isinstance(preprocessor, CausalLMPreprocessor)
    end = preprocessor.tokenizer.end_token_id
    sums, counts = np.zeros(len(prompts)), np.zeros(len(prompts), int)
    for index, real in even_batches(len(prompts), batch_size):
        texts = ([given[k] for k in index] for given in (prompts, answers))
        x, targets, weights = preprocessor(*texts)
        x = {name: np.asarray(value) for name, value in x.items()}
        targets, kept = np.asarray(targets), np.asarray(weights) > 0
        if goes_on:
            kept &= targets != end
            outputs = task.backbone(x, return_pooled=False, training=False)
            states = outputs["sequence_output"]
        else:
            # BART's texts begin with a token that isn't part of the text.
            kept &= targets != text_start_id(preprocessor.tokenizer)
            states = task.backbone(x, training=False)["decoder_sequence_output"]
        scores = -ops.convert_to_numpy(task.head(states, targets=targets))[:, :, 0]
        found = np.where(kept, scores.astype("float64"), 0.0).sum(axis=1)
        sums[index[:real]], counts[index[:real]] = found[:real], kept.sum(1)[:real]
    return sums, counts


def likelihood_of(task: Model) -> Callable[..., tuple[np.ndarray, np.ndarray]] | None:
    """Choose the function that scores a task's texts; `None` if neither can."""
    if hasattr(task, "masked_lm_logits"):
        return pseudo_log_likelihood
    return log_likelihood if _reads_from_left_to_right(task) else None


def _reads_from_left_to_right(task):
    causal = getattr(getattr(task, "backbone", None), "causal", False)
    heads = (LanguageModelHead, MaskedLMHead)  # ModernBERT's decoder has the latter
    return causal and isinstance(getattr(task, "head", None), heads)


def encoded_rows(
    task: Model, texts: Sequence[str]
) -> tuple[dict[str, Any], np.ndarray]:
    """Encode texts as rows; mark the tokens that are neither special nor padding."""
    if task.preprocessor is None:
        raise ValueError("`task` must have a preprocessor. Received one of None.")
    tokenizer = task.preprocessor.tokenizer
    inputs = task.preprocessor.encode(texts)
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    ends = (tokenizer.start_token_id, tokenizer.end_token_id)
    special = [token for token in ends if token is not None]
    return inputs, inputs["padding_mask"] & ~np.isin(inputs["token_ids"], special)


def even_batches(count: int, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield numbers of rows in batches of one size, and how many aren't repeated.

    All batches have one shape: the last one is filled up by repeating its end.
    """
    for start in range(0, count, size):
        index = np.minimum(np.arange(start, start + size), count - 1)
        yield index, min(size, count - start)


_OF_BLIMP = ("sentence_good", "sentence_bad", "linguistics_term")
# The files name this phenomenon differently from the paper, which counts nine paradigms
# of it.
_IN_THE_PAPER = {"s-selection": "argument_structure"}
Pairs = Mapping[str, Sequence[tuple[str, str]]]


@checked
def minimal_pairs(
    task: Model, pairs: Pairs, batch_size: int = 64, worst: int | None = 20
) -> Report:
    """Count how often the acceptable sentence of a pair is the more probable one.

    A masked language model scores sentences by the pseudo-log-likelihood, so that a
    pair takes a row for each token of both sentences. A model that reads from left to
    right scores them by the likelihood itself. A tie counts as wrong.

    Args:
        task: see `pseudo_log_likelihood` and `log_likelihood`.
        pairs: dict from names of phenomena to lists of tuples of two strings, the
            acceptable sentence and the other; such as `read_blimp` gives.
        batch_size: int. Rows in a batch.
        worst: int. The most wrong pairs that the report lists; `None` for all.

    Returns:
        A `Report` with the share of correct pairs in percent, for each phenomenon and
        for all pairs, as a table and, with `plot()`, as bars. Its errors are the wrong
        pairs, those with the greatest difference first.

    Raises:
        ValueError: without pairs of strings for each phenomenon, or for a task that
            isn't a language model or has no preprocessor.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    report = keras_bertfam.analysis.minimal_pairs(
        model, {"order": [("the cat sat", "cat the sat")]})
    print(report)
    report.plot("blimp.png")
    ```

    References: [Warstadt et al., 2019](https://arxiv.org/abs/1912.00582), section 3;
    [Salazar et al., 2020](https://arxiv.org/abs/1910.14659), section 4.
    """
    for name, given in pairs.items():
        if not len(given) or not all(map(_is_pair, given)):
            raise ValueError(
                "`pairs` must have a list of tuples of two strings for each "
                f"phenomenon. Received for {name!r}: {given!r}."
            )
    if not pairs:
        raise ValueError(f"`pairs` must have a phenomenon. Received: {pairs!r}.")
    likelihood = likelihood_of(task)
    if likelihood is None:
        raise ValueError(
            "`task` must be a masked language model, or a language model that reads "
            f"from left to right. Received: {type(task).__name__}."
        )
    margins = {}
    errors: list[dict[str, Any]] = []
    for name, given in pairs.items():
        texts = [text for pair in given for text in pair]
        sums, _ = likelihood(task, texts, batch_size)
        margins[name] = sums[::2] - sums[1::2]
        errors += [
            {
                "phenomenon": name,
                "acceptable": good,
                "unacceptable": bad,
                "difference": float(margin),
            }
            for (good, bad), margin in zip(given, margins[name], strict=True)
            if not margin > 0
        ]
    scores = {name: _percent(each) for name, each in margins.items()}
    scores["all pairs"] = _percent(np.concatenate([*margins.values()]))
    errors.sort(key=lambda error: error["difference"])
    return Report("Minimal pairs", scores, errors[:worst])


@checked
def read_blimp(path: Path, limit: int | None = None) -> dict[str, list]:
    """Read the pairs of BLiMP, by the paper's twelve phenomena.

    Args:
        path: path of the published `BLiMP.zip`, or of a folder with its files of JSON
            lines.
        limit: int. The most pairs of each of the 67 files, the first ones; `None` for
            all 1000.

    Returns:
        Dict from names of phenomena to lists of tuples of the acceptable sentence and
        the other, for `minimal_pairs`.

    Raises:
        ValueError: for a path without such files, or lines that aren't pairs.

    Example:

    ```python
    import json, pathlib
    from keras_bertfam.analysis.likelihood import read_blimp

    line = {"sentence_good": "the cat sat", "sentence_bad": "cat the sat",
            "linguistics_term": "order"}
    pathlib.Path("blimp").mkdir()
    pathlib.Path("blimp/order.jsonl").write_text(json.dumps(line))
    read_blimp("blimp")
    ```

    Reference: [Warstadt et al., 2019](https://arxiv.org/abs/1912.00582).
    """
    pairs: dict[str, list] = {}
    for file, text in sorted(json_line_files(path)):
        for place, row in itertools.islice(parse_json_lines(text, file), limit):
            found: list[Any] = [row.get(key) for key in _OF_BLIMP]
            if not all(isinstance(value, str) for value in found):
                raise ValueError(
                    f"{place}: expected strings as {', '.join(_OF_BLIMP)}. Received: "
                    f"{row}."
                )
            good, bad, name = found
            pairs.setdefault(_IN_THE_PAPER.get(name, name), []).append((good, bad))
    if not pairs:
        raise ValueError(
            "`path` must be of `BLiMP.zip`, or of a folder of its `.jsonl` files. "
            f"Received: {os.fspath(path)!r}."
        )
    return pairs


def json_line_files(path: Path) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the files of JSON lines in a folder or an archive.

    Names include the folders inside it, separated by `/`.
    """
    folder = pathlib.Path(path)
    if folder.is_file() and zipfile.is_zipfile(folder):
        with zipfile.ZipFile(folder) as archive:
            names = (pathlib.PurePosixPath(name) for name in archive.namelist())
            for name in names:
                if name.suffix == ".jsonl" and not name.name.startswith("."):
                    yield str(name), decoded(archive.read(str(name)), str(name))
    else:
        for file in folder.glob("**/*.jsonl"):
            yield file.relative_to(folder).as_posix(), read_text(file)


def _is_pair(pair):
    two = isinstance(pair, (tuple, list)) and len(pair) == 2
    return two and all(isinstance(text, str) for text in pair)


def _percent(margins):
    return 100 * float(np.mean(margins > 0))
