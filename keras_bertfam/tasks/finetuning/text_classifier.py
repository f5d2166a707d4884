"""Predict a class or a number for texts and pairs of texts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.presets.converting.heads import Counterpart
from keras_bertfam.tasks.finetuning.fine_tuning import (
    LabelledTask,
    check_activation,
    ranked_labels,
    report_of_classes,
    report_of_numbers,
    report_of_sets,
    settle_classes,
)
from keras_bertfam.tasks.finetuning.merging import (
    mean_classes,
    mean_numbers,
    told_classes,
    told_sets,
)
from keras_bertfam.tasks.finetuning.summary_task import SummaryTask
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
    TextClassifierPreprocessor,
    TextRegressorPreprocessor,
    class_signatures,
    number_signatures,
)
from keras_bertfam.tasks.inputs import check_given
from keras_bertfam.tasks.losses import (
    DetectionCrossentropy,
    LabelSetAccuracy,
    LabelSetCrossentropy,
    LabelSetF1,
    UnweightedError,
    WeightedMeanLoss,
    WeightedMeanSquaredError,
)
from keras_bertfam.types import Config, Model, Tensor

_MULTI_LABEL = "multi_label_classification"
# Keys under which `sentence-transformers` keeps a cross-encoder's activation, now and
# in the past.
_CROSS_ENCODER, _OLD_CROSS_ENCODER = (
    "sentence_transformers",
    "sbert_ce_default_activation_function",
)
_ACTIVATIONS = {
    None: "torch.nn.modules.linear.Identity",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
}


def _activation(config):
    """Read the activation of a regressor's scores: none, if the config names none."""
    return {"activation": None} | named_activation(config)


def named_activation(config: Mapping[str, Any]) -> Config:
    """Read the activation of a cross-encoder's scores, if the config names one."""
    now = config.get(_CROSS_ENCODER)
    named = now.get("activation_fn") if isinstance(now, dict) else None
    named = named or config.get(_OLD_CROSS_ENCODER)
    if named is None:
        return {}
    known = {theirs.rpartition(".")[2]: ours for ours, theirs in _ACTIVATIONS.items()}
    kind = str(named).rpartition(".")[2]
    if kind not in known:
        raise CheckpointError(
            "The activation of a cross-encoder must be one of "
            f"{', '.join(_ACTIVATIONS.values())}. Received: {named!r}."
        )
    return {"activation": known[kind]}


# The problem type that `transformers` gives a task with one score for each row.
SCORE = Counterpart(
    "ForSequenceClassification",
    {"classifier": "head"},
    poolers=("head",),
    styled=True,
    config={"problem_type": "regression", "num_labels": 1},
    arguments=_activation,
    config_of=lambda task: {
        _CROSS_ENCODER: {"activation_fn": _ACTIVATIONS[task.activation]}
    },
    required_config={"problem_type": (None, "regression")},
)


@keras.saving.register_keras_serializable("keras_bertfam")
class TextClassifier(LabelledTask, SummaryTask):
    """Classifies texts, or pairs of texts, with any backbone of the library.

    Call `fit()` to train, `classify()` for labels, and `report()` for scores and
    errors.

    The head is the one published with the backbone's family: BERT's and ALBERT's
    pooler, dropout and dense; RoBERTa's and ELECTRA's dense, activation and dense with
    dropout before each; DistilBERT's with ReLU; XLNet's on the last token. The last
    block of the backbone computes only the token that the head reads.

    A decoder's head reads the last token. GPT's fine-tuning adds that token, a start
    token and one between texts, and the loss of the language model. An encoder-decoder
    gets the text on both sides, and the head reads its decoder's last state, as in
    BART.

    Args:
        backbone: a backbone.
        num_classes: int. May be left out with `label_names`.
        preprocessor: `TextClassifierPreprocessor`, or `None` for data that is
            preprocessed already.
        label_names: sequence of strings or `None`: the classes in order. With
            them, labels may be strings. `None` means the preprocessor's.
        head_style: `"bert"`, `"roberta"`, `"electra"`, `"distilbert"`, `"xlnet"`,
            `"gpt"`, `"bart"`, `"t5"`, `"linear"` (dropout and dense on the first
            token's state, or a decoder's last), or `None` for the style of the
            backbone's family. DistilRoBERTa has `"roberta"`.
        dropout: float or `None`. Dropout rate in the head; `None` means the
            published one.
        activation: `None` for logits, or `"softmax"` (with `multi_label`, `"sigmoid"`)
            for probabilities.
        multi_label: bool. Whether a text has any number of classes, each with a
            probability of its own. Labels are then lists of names or numbers, or arrays
            of zeros and ones, see `TextClassifierPreprocessor`. The preprocessor's
            `multi_label` sets it, too.
        lm_weight: float or `None`. For causal backbones: weight of the language model's
            loss, the mean cross-entropy of a text's tokens, which `fit()` and
            `evaluate()` add to the loss of the class. `None` stands for the recipe's:
            .5 for GPT's families, 0 for others.
        **kwargs: arguments of `keras.Model`.

    If the preprocessor uses new tokens for which the backbone's embeddings have no
    rows, the backbone is copied into one with random weights in these rows. The copy is
    the attribute `backbone`.

    Call arguments:
        inputs: dict of tensors, those of the backbone; for an encoder-decoder
            `token_ids` and `padding_mask`. Packed rows also have `sequence_starts`, int
            `(batch, max_sequences)`: where each example begins. If examples have
            several rows, `(batch, rows, length)`, their states are added.

    Returns:
        float32 tensor `(batch, num_classes)`, for packed rows `(batch, max_sequences,
        num_classes)`: logits, or probabilities.

    Raises:
        ValueError: for an unknown `head_style` or `activation`, contradicting
            classes, a single one without `multi_label`, or an `lm_weight` with a
            backbone that isn't causal.

    `fit()`, `evaluate()` and `predict()` take lists of strings and integer labels (or
    strings, with `label_names`). Pairs are a tuple of two lists, or a list of tuples of
    two strings (`list(zip(first, second))`). `predict()` returns arrays, `classify()`
    labels with probabilities.

    `compile()` without arguments sets up BERT's fine-tuning: AdamW at 5e-5 with 10 %
    linear warm-up and linear decay, cross-entropy, accuracy. With `multi_label` the
    loss is the mean of the classes' binary cross-entropies, and the metrics are the
    share of correct decisions and micro F1. A text then has the classes whose
    probability is .5 or more.

    If `from_preset()` is given another `num_classes` or other `label_names` than the
    saved ones, the head is new.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.1 and
        appendix A.3; [Liu et al., 2019](https://arxiv.org/abs/1907.11692);
        [Clark et al., 2020](https://arxiv.org/abs/2003.10555);
        [Yang et al., 2019](https://arxiv.org/abs/1906.08237); Radford et al., 2018,
        sections 3.2 and 3.3; [Lewis et al., 2019](https://arxiv.org/abs/1910.13461),
        section 3.1.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.TextClassifierPreprocessor(tokenizer)
    model = keras_bertfam.tasks.TextClassifier(
        backbone, preprocessor=preprocessor, label_names=["negative", "positive"])
    model.fit(["what a film !", "dull ."], ["positive", "negative"], epochs=3)
    model.classify("dull , dull .")  # [("negative", 0.9), ("positive", 0.1)]
    ```
    """

    preprocessor_cls = TextClassifierPreprocessor
    data_kind = "classification"
    pipeline = "text-classification"
    text_columns = ("text",)
    counterpart = Counterpart(
        "ForSequenceClassification",
        {"classifier": "head"},
        poolers=("head",),
        styled=True,
        labelled=True,
        required_config={
            "problem_type": (None, "single_label_classification", _MULTI_LABEL)
        },
        arguments=lambda config: {
            "multi_label": config.get("problem_type") == _MULTI_LABEL
        },
        config_of=lambda task: (
            {"problem_type": _MULTI_LABEL} if task.multi_label else {}
        ),
    )
    serving_signatures = class_signatures
    merged = staticmethod(mean_classes)
    fixed_arguments = (*SummaryTask.fixed_arguments, "num_classes")

    def __init__(
        self,
        backbone: Model,
        num_classes: int | None = None,
        preprocessor: TextClassifierPreprocessor | None = None,
        label_names: Sequence[str] | None = None,
        head_style: str | None = None,
        dropout: float | None = None,
        activation: str | None = None,
        lm_weight: float | None = None,
        multi_label: bool = False,
        **kwargs: Any,
    ) -> None:
        multi_label = multi_label or getattr(preprocessor, "multi_label", False)
        check_activation(activation, "sigmoid" if multi_label else "softmax")
        classes = settle_classes(preprocessor, num_classes, label_names)
        if preprocessor is not None and multi_label:
            preprocessor.set_multi_label(True)
        if classes[0] == 1 and not multi_label:
            raise ValueError(
                "`num_classes` must be at least 2, since a single class is always "
                "right. For a score, as cross-encoders give, use `TextRegressor`; if "
                'it is a probability, with `activation="sigmoid"`. For one label '
                "that a text may have, use `multi_label=True`. Received: "
                "num_classes=1."
            )
        super().__init__(
            backbone,
            classes[0],
            preprocessor,
            head_style,
            dropout,
            lm_weight,
            **kwargs,
        )
        self.num_classes, self.label_names = classes
        self.activation = activation
        self.multi_label = multi_label
        if multi_label:
            self.label_kind = "number"
        self.compile_by_default()

    def as_outputs(self, scores: Tensor) -> Tensor:
        return self.activate(scores)

    def probabilities(self, outputs: Tensor) -> Tensor:
        if not self.multi_label:
            return super().probabilities(outputs)
        return outputs if self.activation else ops.sigmoid(outputs)

    def activate(self, logits: Tensor) -> Tensor:
        if not self.multi_label:
            return super().activate(logits)
        return ops.sigmoid(logits) if self.activation else logits

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        outputs = self.predict(self.inputs_of(columns), verbose=0)
        yield from self.told(ops.convert_to_numpy(self.probabilities(outputs)))

    def told(self, probabilities: Any) -> Iterator[dict[str, Any]]:
        """Turn what `merged` gives into answers, in the form that `predict` writes."""
        if self.multi_label:
            return told_sets(probabilities, self.label_names)
        return told_classes(probabilities, self.label_names)

    def default_loss(self) -> Any:
        if not self.multi_label:
            return super().default_loss()
        return LabelSetCrossentropy("crossentropy", from_logits=not self.activation)

    def soft_loss(self) -> WeightedMeanLoss | None:
        return self.default_loss() if self.multi_label else super().soft_loss()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        if not self.multi_label:
            return super().default_metrics()
        logits = not self.activation
        return [LabelSetAccuracy(from_logits=logits), LabelSetF1(from_logits=logits)]

    @checked
    def classify(self, texts: Any, batch_size: int = 32) -> list[Any]:
        """Label texts, with probabilities.

        Args:
            texts: str or list of str. For pairs, a tuple of two of either, or a list of
                tuples of two strings.
            batch_size: int.

        Returns:
            For each text a list of `(label, probability)` pairs, the most probable
            first; for a single text, or pair, its list. Without `label_names`, labels
            are numbers.

        Raises:
            ValueError: if the task has no preprocessor.
        """
        if self.preprocessor is None:
            raise ValueError("`classify` needs a task with a preprocessor.")
        first = texts[0] if isinstance(texts, tuple) else texts
        check_given(self, first, labelled=False)
        if isinstance(first, str):
            pair = isinstance(texts, tuple)
            batch = tuple([part] for part in texts) if pair else [texts]
            return self.classify(batch)[0]
        if not len(first):
            return []
        outputs = self.predict(texts, batch_size=batch_size, verbose=0)
        probabilities = ops.convert_to_numpy(self.probabilities(outputs))
        return ranked_labels(probabilities, self.label_names)

    def _report(self, x, labels, given, batch_size, worst):
        outputs = self.predict(x, batch_size=batch_size, verbose=0)
        probabilities = self.probabilities(outputs)
        report = report_of_sets if self.multi_label else report_of_classes
        return report(self, x, labels, probabilities, self.label_names, worst)

    def get_config(self) -> Config:
        return {**super().get_config(), "multi_label": self.multi_label}


@keras.saving.register_keras_serializable("keras_bertfam")
class TextRegressor(SummaryTask):
    """Predicts a number for a text, or for a pair of texts as in STS-B.

    Call `fit()` to train, `predict()` for numbers, and `report()` for scores and
    errors.

    Args:
        backbone: a backbone.
        preprocessor: `TextRegressorPreprocessor`, or `None` for data that is
            preprocessed already.
        head_style: see `TextClassifier`.
        dropout: see `TextClassifier`.
        lm_weight: see `TextClassifier`.
        activation: `None`, or `"sigmoid"` for scores between 0 and 1, as cross-encoders
            give. With `"sigmoid"`, labels are from 0 to 1 and the loss is the binary
            cross-entropy.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, see `TextClassifier`.

    Returns:
        float32 tensor `(batch,)`, for packed rows `(batch, max_sequences)`.

    `fit()`, `evaluate()` and `predict()` take lists of strings, or tuples of two
    lists for pairs. `compile()` without arguments sets up BERT's fine-tuning with the
    mean squared error.

    `from_preset()` loads cross-encoders of `sentence-transformers`, too: `activation`
    is that of their config, and `None` if the config has none.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    4.1.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.TextRegressorPreprocessor(tokenizer)
    model = keras_bertfam.tasks.TextRegressor(backbone, preprocessor)
    pairs = (["A cat sits.", "A dog."], ["A cat is sitting.", "No, a car."])
    model.fit(pairs, [4.8, 0.4])
    model.predict(pairs).shape  # (2,)
    ```
    """

    preprocessor_cls = TextRegressorPreprocessor
    data_kind = "regression"
    pipeline = "text-classification"
    text_columns = ("text",)
    counterpart = SCORE
    serving_signatures = number_signatures
    merged = staticmethod(mean_numbers)
    label_kind = "number"

    def __init__(
        self,
        backbone: Model,
        preprocessor: TextRegressorPreprocessor | None = None,
        head_style: str | None = None,
        dropout: float | None = None,
        lm_weight: float | None = None,
        activation: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_activation(activation, "sigmoid")
        arguments = (preprocessor, head_style, dropout, lm_weight)
        super().__init__(backbone, 1, *arguments, **kwargs)
        self.activation = activation
        self.compile_by_default()

    def as_outputs(self, scores: Tensor) -> Tensor:
        scores = scores[..., 0]
        return ops.sigmoid(scores) if self.activation else scores

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        yield from self.told(self.predict(self.inputs_of(columns), verbose=0))

    def told(self, scores: Any) -> Iterator[dict[str, Any]]:
        """Turn what `merged` gives into answers, in the form that `predict` writes."""
        for score in scores.reshape(-1):
            yield {"score": float(score)}

    def default_loss(self) -> Any:
        if self.activation:
            return DetectionCrossentropy("crossentropy", from_logits=False)
        return WeightedMeanSquaredError()

    def soft_loss(self) -> WeightedMeanLoss:
        loss: WeightedMeanLoss = self.default_loss()
        return loss

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [UnweightedError(name="rmse")]

    def _report(self, x, labels, given, batch_size, worst):
        outputs = self.predict(x, batch_size=batch_size, verbose=0)
        return report_of_numbers(self, x, labels, outputs, worst)

    def get_config(self) -> Config:
        return {**super().get_config(), "activation": self.activation}
