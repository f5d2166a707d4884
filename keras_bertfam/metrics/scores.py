"""Compute the published metrics of each task by name; read tags of entities."""

import dataclasses
import importlib
import itertools
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.metrics.dependencies import attachment_scores
from keras_bertfam.metrics.open_questions import open_question_scores
from keras_bertfam.metrics.squad import squad_scores


@dataclasses.dataclass(frozen=True)
class _Metric:
    """A metric of labels and predictions, `function(library, y_true, y_pred)`."""

    function: Callable
    library: str
    tags: bool = False  # whether it reads a scheme of tags

    def load(self):
        """Import the library.

        Raises:
            ImportError: if it isn't installed.
        """
        try:
            return importlib.import_module(self.library)
        except ModuleNotFoundError as error:
            raise ImportError(
                f"The metric needs {error.name}: pip install keras-bertfam[evaluation]."
            ) from error

    def __call__(self, y_true, y_pred, scheme=None):
        more = (scheme,) if self.tags else ()
        return float(self.function(self.load(), y_true, y_pred, *more))


def _sklearn(name, **options):
    return _Metric(
        lambda library, *labels: getattr(library, name)(*labels, **options),
        "sklearn.metrics",
    )


def _correlation(name):
    def function(library, *labels):
        y_true, y_pred = (np.asarray(y, float).reshape(-1) for y in labels)
        # Undefined for constant numbers; it counts as no correlation, as elsewhere for
        # GLUE.
        if np.ptp(y_true) == 0 or np.ptp(y_pred) == 0:
            return 0.0
        return getattr(library, name)(y_true, y_pred).statistic

    return _Metric(function, "scipy.stats")


def _entity_f1(library, y_true, y_pred, scheme=None):
    y_true, y_pred = with_labels(y_true, y_pred)
    if not marks_entities(tags := {tag for row in y_true for tag in row}):
        raise ValueError(
            "Tags must be O, or begin with B-, I- or another place in an entity, for "
            f"entity_f1. Received: {sorted(map(str, tags))[:8]}."
        )
    options = {}
    scheme = scheme or scheme_of(tag for row in y_true for tag in row)
    if scheme != "CONLL":
        options = {"mode": "strict", "scheme": entity_scheme(scheme)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* seems not to be NE tag")  # it reads M-
        return library.f1_score(y_true, y_pred, zero_division=0, **options)


def _word_accuracy(library, y_true, y_pred):
    rows = zip(*with_labels(y_true, y_pred), strict=True)
    right = [a == b for row in rows for a, b in zip(*row, strict=True)]
    return library.mean(right) if right else 0.0


def _label_f1(library, y_true, y_pred):
    if single := [each for each in (*y_true, *y_pred) if isinstance(each, str)]:
        raise ValueError(
            "The classes of an example must be a list for micro_f1. Received: "
            f"{single[0]!r}."
        )
    if twice := [each for each in (*y_true, *y_pred) if len({*each}) < len(each)]:
        raise ValueError(
            "The classes of an example must be there once each for micro_f1, not as "
            f"zeros and ones. Received: {twice[0]!r}."
        )
    pairs = [({*true}, {*found}) for true, found in zip(y_true, y_pred, strict=True)]
    right, count = (
        sum(len(true & found) for true, found in pairs),
        sum(len(true) + len(found) for true, found in pairs),
    )
    return 2 * right / count if count else 0.0


def _macro_f1(library, y_true, y_pred):
    # -1 is a wrong answer that names no class, and isn't a class itself.
    labels = sorted({*y_true, *y_pred} - {-1})
    return library.f1_score(
        y_true, y_pred, labels=labels, average="macro", zero_division=0
    )


def _word_macro_f1(library, y_true, y_pred):
    rows = zip(*with_labels(y_true, y_pred), strict=True)
    pairs = [pair for row in rows for pair in zip(*row, strict=True)]
    if not pairs:
        return 0.0
    true, found = ([str(pair[k]) for pair in pairs] for k in (0, 1))
    return library.f1_score(true, found, average="macro", zero_division=0)


def _answers_f1(library, y_true, y_pred):
    rows = zip(y_true, y_pred, strict=True)
    pairs = [pair for row in rows for pair in zip(*row, strict=True)]
    return library.f1_score(*zip(*pairs, strict=True), zero_division=0) if pairs else 0


def _answers_match(library, y_true, y_pred):
    pairs = zip(y_true, y_pred, strict=True)
    return library.mean([[*true] == [*found] for true, found in pairs])


def _gender_parity(library, y_true, y_pred):
    same = [*map(operator.eq, y_pred[::2], y_pred[1::2])]
    return library.mean(same) if same else 0.0


def _attachment(name):
    return _Metric(
        lambda library, *trees: library.attachment_scores(*trees)[name],
        attachment_scores.__module__,
    )


def _squad(name):
    return _Metric(
        lambda library, *answers: library.squad_scores(*answers)[name],
        squad_scores.__module__,
    )


def _open_questions(patterns):
    return _Metric(
        lambda library, *answers: library.open_question_scores(*answers, patterns)[
            "exact_match"
        ],
        open_question_scores.__module__,
    )


def _rouge(name):
    def function(library, references, texts):
        _warn_of_scripts(references)
        scorer = library.RougeScorer([name], use_stemmer=True)
        scores = [
            scorer.score_multi(_references(reference), text)[name].fmeasure
            for reference, text in zip(references, texts, strict=True)
        ]
        return 100 * np.mean(scores)

    return _Metric(function, "rouge_score.rouge_scorer")


def _sacrebleu(name):
    def function(library, references, texts):
        references = [_references(reference) for reference in references]
        streams = [*itertools.zip_longest(*references)]
        return getattr(library, name)([*texts], streams).score

    return _Metric(function, "sacrebleu")


def _references(texts):
    """List the texts with which an answer is compared."""
    found = [texts] if isinstance(texts, str) else [*texts]
    if not found:
        raise ValueError(
            "`y_true` must have a reference for each text. Received: a list of none."
        )
    return found


def _warn_of_scripts(references):
    """Warn of references in which ROUGE finds no words."""
    texts = [text for each in references for text in _references(each)]
    unread = [
        text
        for text in texts
        if re.search(r"\w", text) and not re.search("[a-z0-9]", text.lower())
    ]
    if unread:
        warnings.warn(
            "ROUGE's words are of the letters a to z and digits. Without any, "
            f"{len(unread)} of {len(texts)} references have a score of 0, such as "
            f"{unread[0]!r:.60}.",
            stacklevel=5,
        )


METRICS = {
    "accuracy": _sklearn("accuracy_score"),
    "answers_f1": _Metric(_answers_f1, "sklearn.metrics"),
    "answers_match": _Metric(_answers_match, "numpy"),
    "bleu": _sacrebleu("corpus_bleu"),
    "cb_f1": _sklearn("f1_score", labels=[0, 1, 2], average="macro", zero_division=0),
    "chrf": _sacrebleu("corpus_chrf"),
    "entity_f1": _Metric(_entity_f1, "seqeval.metrics", tags=True),
    "f1": _sklearn("f1_score", zero_division=0),
    "gender_parity": _Metric(_gender_parity, "numpy"),
    "las": _attachment("las"),
    "macro_f1": _Metric(_macro_f1, "sklearn.metrics"),
    "matthews": _sklearn("matthews_corrcoef"),
    "micro_f1": _Metric(_label_f1, "numpy"),
    "open_exact_match": _open_questions(False),
    "pattern_match": _open_questions(True),
    "pearson": _correlation("pearsonr"),
    "rouge1": _rouge("rouge1"),
    "rouge2": _rouge("rouge2"),
    "rougeL": _rouge("rougeL"),
    "rougeLsum": _rouge("rougeLsum"),
    "spearman": _correlation("spearmanr"),
    "squad_exact_match": _squad("exact_match"),
    "squad_f1": _squad("f1"),
    "uas": _attachment("uas"),
    "word_accuracy": _Metric(_word_accuracy, "numpy"),
    "word_macro_f1": _Metric(_word_macro_f1, "sklearn.metrics"),
}


@checked
def compute_metrics(
    names: Sequence[str],
    y_true: Sequence[Any],
    y_pred: Sequence[Any],
    scheme: str | None = None,
) -> dict[str, float]:
    """Compute metrics of the predictions for a whole data set.

    - `"accuracy"`, `"f1"`, `"macro_f1"`, `"cb_f1"`, `"matthews"`: for class numbers.
      `"f1"` is that of class 1, `"macro_f1"` the mean over the classes that occur, and
      `"cb_f1"`, for SuperGLUE's CB, the mean over classes 0, 1 and 2, even if one
      doesn't occur;
    - `"gender_parity"`, for SuperGLUE's AX-g: the share of pairs of neighbouring
      examples with equal predictions, correct or not. A last example without a partner
      isn't counted;
    - `"answers_f1"`, `"answers_match"`, for SuperGLUE's MultiRC: for lists of 0 and 1,
      one for each answer of a question. They are the F1 of all answers together (F1a),
      and the share of questions whose answers are all classified correctly (EM);
    - `"micro_f1"`: for lists of classes, in any order;
    - `"pearson"`, `"spearman"`: for numbers; 0 if all are equal;
    - `"entity_f1"` (seqeval's, micro average), `"word_accuracy"`, `"word_macro_f1"`
      (over single words, the mean over the tags that occur, with `"O"`): for lists of
      tags. Words whose correct tag is -100, which means none, are left out;
    - `"uas"`, `"las"`: for lists of `(head, relation)`, see `attachment_scores`;
    - `"squad_f1"`, `"squad_exact_match"`: in percent, see `squad_scores`;
    - `"open_exact_match"`, and `"pattern_match"` for patterns: in percent, see
      `open_question_scores`;
    - `"bleu"`, `"chrf"` (sacrebleu's, with its own tokens) and `"rouge1"`, `"rouge2"`,
      `"rougeL"`, `"rougeLsum"` (rouge-score's F, of stems, the mean over texts; for the
      last one, lines are sentences): in percent, for texts. A reference is a string or
      a list of several.

    Metrics that aren't in percent are in `[-1, 1]`.

    Needs the `evaluation` extra, for scikit-learn, SciPy, seqeval, rouge-score and
    sacrebleu.

    Args:
        names: list of names of metrics.
        y_true: list of the correct labels or answers, as in `Examples.y`.
        y_pred: list of predictions of the same form.
        scheme: the scheme of tags of entities, see `scheme_of`; `None` infers it from
            `y_true`.

    Returns:
        Dict from names to floats.

    Raises:
        ValueError: for an unknown metric or scheme, or lists of different length.
        ImportError: if the metric's library isn't installed.

    Example:

    ```python
    keras_bertfam.metrics.compute_metrics(["f1", "accuracy"], [1, 0, 1], [1, 1, 1])
    # {"f1": 0.8, "accuracy": 0.667}
    ```
    """
    check_metrics(names)
    if len(y_true) != len(y_pred):
        raise ValueError(
            "`y_true` and `y_pred` must be equally long. Received: "
            f"{len(y_true)} and {len(y_pred)}."
        )
    if len(y_true) == 0:
        raise ValueError("`y_true` must have at least one label. Received: none.")
    check_scheme(scheme)
    return {name: METRICS[name](y_true, y_pred, scheme) for name in names}


def check_metrics(names: Sequence[str], argument: str = "names") -> None:
    """Raise an error unless metrics are known, and their libraries installed.

    Args:
        names: list of names of metrics.
        argument: str. The argument's name in the error.

    Raises:
        ValueError: for an unknown metric.
        ImportError: if a metric's library isn't installed.
    """
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ValueError(
            f"`{argument}` must be some of {sorted(METRICS)}. Received: "
            f"{', '.join(unknown)}."
        )
    for name in names:
        METRICS[name].load()


SCHEMES = ("CONLL", "IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU")
_OF_ENTITIES = re.compile("O|[BIESM]|[BIESLUM]-.*")
_NO_LABEL = (-100, "-100")


def marks_entities(tags: Iterable[Any]) -> bool:
    """Tell whether all tags mark places in entities, as `"B-PER"` and `"O"` do."""
    return all(_OF_ENTITIES.fullmatch(str(tag)) for tag in tags)


def scheme_of(tags: Iterable[Any]) -> str:
    """Infer the scheme of tags of entities, such as `"B-PER"`.

    Args:
        tags: iterable of tags, or of the names of all classes.

    Returns:
        `"BILOU"` if some tags begin with `"L-"` or `"U-"` (last and single words);
        `"IOBES"` if some begin with `"S-"`, and none with `"M-"`; `"IOE2"` if some
        begin with `"E-"`, and others with `"I-"` alone; and `"CONLL"` otherwise: the
        official reading of `"B-"` and `"I-"`, where an entity may begin with either.
        It ends after `"E-"` and `"S-"`, and goes on with `"M-"`.

    Raises:
        ValueError: for tags of two schemes.

    Example:

    ```python
    keras_bertfam.metrics.scheme_of(["O", "U-PER", "B-PER", "L-PER"])  # "BILOU"
    ```
    """
    begins = {str(tag)[0] for tag in {*tags} if str(tag)[1:2] == "-"}
    if begins & {"L", "U"} and begins & {"E", "S", "M"}:
        raise ValueError(
            f"Tags must be of one scheme: give `scheme`, one of {SCHEMES}. Received: "
            f"tags that begin with {sorted(begins)}."
        )
    if begins & {"L", "U"}:
        return "BILOU"
    if "S" in begins and "M" not in begins:
        return "IOBES"
    return "IOE2" if "E" in begins and begins <= {"E", "I"} else SCHEMES[0]


def check_scheme(scheme: str | None) -> None:
    """Raise a `ValueError` for a scheme that isn't known."""
    if scheme is not None and scheme not in SCHEMES:
        raise ValueError(
            f"`scheme` must be `None` or one of {SCHEMES}. Received: {scheme!r}."
        )


def entity_scheme(name: str) -> Any:
    """Load seqeval's class of a scheme other than `"CONLL"`."""
    return getattr(importlib.import_module("seqeval.scheme"), name)


def with_labels(
    y_true: Sequence[Sequence[Any]], y_pred: Sequence[Sequence[Any]]
) -> tuple[list[list[Any]], list[list[Any]]]:
    """Leave out the words whose correct tag is -100, which means none.

    Raises:
        ValueError: for unequal lists.
    """
    rows = [
        [pair for pair in zip(*both, strict=True) if pair[0] not in _NO_LABEL]
        for both in zip(y_true, y_pred, strict=True)
    ]
    return [[a for a, _ in row] for row in rows], [[b for _, b in row] for row in rows]


def entity_spans(
    tags: Sequence[str], scheme: str | None = None
) -> list[tuple[int, int, str]]:
    """Find the entities of a sentence.

    Args:
        tags: sequence of tags; -100 is read as `"O"`.
        scheme: see `scheme_of`; `None` infers it from these tags.

    Returns:
        A list of `(begin, end, kind)`, in order; `end` is the first word after the
        entity.

    Raises:
        ImportError: without seqeval, which the `evaluation` extra has.
        ValueError: for another scheme.
    """
    check_scheme(scheme)
    row = ["O" if tag in _NO_LABEL else str(tag) for tag in tags]
    scheme = scheme or scheme_of(row)
    if scheme == "CONLL":
        labeling = importlib.import_module("seqeval.metrics.sequence_labeling")
        return [(a, b + 1, kind) for kind, a, b in labeling.get_entities(row)]
    found = importlib.import_module("seqeval.scheme").Entities(
        [row], entity_scheme(scheme)
    )
    return [(each.start, each.end, each.tag) for each in found.entities[0]]
