"""Which of two sentences that differ little a language model finds more probable."""

import os
import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bertfam.analysis.likelihood import likelihood_of
from keras_bertfam.analysis.report import Report
from keras_bertfam.arguments import checked
from keras_bertfam.parsing import parse_json
from keras_bertfam.types import Model, Path

# What the files have under a name of its own, of nine paradigms in the paper.
_IN_THE_PAPER = {"s-selection": "argument_structure"}
Pairs = Mapping[str, Sequence[tuple[str, str]]]


@checked
def minimal_pairs(
    task: Model, pairs: Pairs, batch_size: int = 64, worst: int | None = 20
) -> Report:
    """Count how often the acceptable sentence of a pair is the more probable one.

    The probability of a masked language model is the pseudo-log-likelihood, so that a
    pair takes a row for each token of both sentences; of one that reads from left to
    right it is the likelihood itself. A tie counts as wrong.

    Args:
        task: see `pseudo_log_likelihood` and `log_likelihood`.
        pairs: dict from names of phenomena to lists of tuples of two strings, the
            acceptable sentence and the other; such as `read_blimp` gives.
        batch_size: int. Rows at once.
        worst: int. How many pairs the report lists at most; `None` for all that the
            model is wrong about.

    Returns:
        A `Report` with the share of right pairs in percent, for each phenomenon and
        for all pairs, as table and, by `plot()`, as bars. Its errors are the pairs
        that the model is wrong about, by the difference, the greatest first.

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
            "`task` must be a masked language model, or one that reads from left to "
            f"right. Received: {type(task).__name__}."
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
        path: of the published `BLiMP.zip`, or of a folder of its JSON lines.
        limit: int. How many pairs of each of the 67 files, the first ones; `None`
            for all 1000.

    Returns:
        Dict from names of phenomena to lists of tuples of the acceptable sentence and
        the other, for `minimal_pairs`.

    Raises:
        ValueError: for what has no such files.

    Example:

    ```python
    import json, pathlib

    line = {"sentence_good": "the cat sat", "sentence_bad": "cat the sat",
            "linguistics_term": "order"}
    pathlib.Path("blimp").mkdir()
    pathlib.Path("blimp/order.jsonl").write_text(json.dumps(line))
    keras_bertfam.analysis.read_blimp("blimp")
    ```

    Reference: [Warstadt et al., 2019](https://arxiv.org/abs/1912.00582).
    """
    pairs: dict[str, list] = {}
    for file, text in sorted(_files(pathlib.Path(path))):
        for number, line in enumerate(text.splitlines()[:limit], 1):
            try:
                row = parse_json(line)
                pair = (row["sentence_good"], row["sentence_bad"])
                name = row["linguistics_term"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{file}, line {number}: expected a pair of BLiMP. Received: "
                    f"{type(error).__name__}: {error}."
                ) from error
            pairs.setdefault(_IN_THE_PAPER.get(name, name), []).append(pair)
    if not pairs:
        raise ValueError(
            "`path` must be of `BLiMP.zip`, or of a folder of its `.jsonl` files. "
            f"Received: {os.fspath(path)!r}."
        )
    return pairs


def _files(path):
    """Yield names and texts of the files of JSON lines in a folder or an archive."""
    if path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = (pathlib.PurePosixPath(name) for name in archive.namelist())
            for name in names:
                if name.suffix == ".jsonl" and not name.name.startswith("."):
                    yield name.name, archive.read(str(name)).decode("utf-8")
    else:
        for file in path.glob("**/*.jsonl"):
            yield file.name, file.read_text(encoding="utf-8")


def _is_pair(pair):
    two = isinstance(pair, (tuple, list)) and len(pair) == 2
    return two and all(isinstance(text, str) for text in pair)


def _percent(margins):
    return 100 * float(np.mean(margins > 0))
