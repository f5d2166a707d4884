"""The published metrics of each task, by name, on whole data sets."""

import numpy as np

from keras_bertfam.metrics.squad import squad_scores


def _sklearn(name, **options):
    def metric(y_true, y_pred):
        from sklearn import metrics

        return getattr(metrics, name)(y_true, y_pred, **options)

    return metric


def _correlation(name):
    def metric(y_true, y_pred):
        from scipy import stats

        y_true, y_pred = (np.asarray(y, float).reshape(-1) for y in (y_true, y_pred))
        # Undefined for constant numbers; no correlation, as everywhere in GLUE.
        if np.ptp(y_true) == 0 or np.ptp(y_pred) == 0:
            return 0.0
        return getattr(stats, name)(y_true, y_pred).statistic

    return metric


def _entity_f1(y_true, y_pred):
    import seqeval.metrics

    return seqeval.metrics.f1_score(y_true, y_pred, zero_division=0)


def _word_accuracy(y_true, y_pred):
    pairs = [
        (true, predicted)
        for words in zip(y_true, y_pred, strict=True)
        for true, predicted in zip(*words, strict=True)
    ]
    return float(np.mean([true == predicted for true, predicted in pairs]))


def _squad(name):
    return lambda y_true, y_pred: squad_scores(y_true, y_pred)[name]


METRICS = {
    "accuracy": _sklearn("accuracy_score"),
    "entity_f1": _entity_f1,
    "f1": _sklearn("f1_score", zero_division=0),
    "matthews": _sklearn("matthews_corrcoef"),
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
    "squad_exact_match": _squad("exact_match"),
    "squad_f1": _squad("f1"),
    "word_accuracy": _word_accuracy,
}


def compute_metrics(names, y_true, y_pred):
    """Computes metrics of the predictions for a whole data set.

    - `"accuracy"`; `"f1"`, that of class 1; `"matthews"`: of class numbers;
    - `"pearson"`, `"spearman"`: of numbers; 0 where all are equal;
    - `"entity_f1"` (seqeval's default mode, micro average), `"word_accuracy"`: of
      lists of tags;
    - `"squad_f1"`, `"squad_exact_match"`: see `squad_scores`, in percent. The
      others are in `[-1, 1]`.

    Needs the `evaluation` extra, for scikit-learn, SciPy and seqeval.

    Args:
        names: list of names of metrics.
        y_true: list of what is right, as in `Examples.y`.
        y_pred: list of predictions of the same form.

    Returns:
        Dict from names to floats.

    Raises:
        ValueError: for an unknown metric, or lists of different length.
        ImportError: if the metric's library isn't installed.

    Example:

    ```python
    keras_bertfam.metrics.compute_metrics(["f1", "accuracy"], [1, 0, 1], [1, 1, 1])
    # {"f1": 0.8, "accuracy": 0.667}
    ```
    """
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ValueError(
            f"`names` must be of {sorted(METRICS)}. Received: {', '.join(unknown)}"
        )
    if len(y_true) != len(y_pred):
        raise ValueError(
            "`y_true` and `y_pred` must be equally long. Received: "
            f"{len(y_true)} and {len(y_pred)}."
        )
    try:
        return {name: float(METRICS[name](y_true, y_pred)) for name in names}
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{', '.join(names)} need {error.name}: "
            "pip install keras-bertfam[evaluation]"
        ) from error
