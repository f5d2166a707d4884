"""Classify how two spans of a text are related, as in ChemProt and SciERC."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.heads.summary_heads import SummaryHead
from keras_bertfam.tasks.finetuning.fine_tuning import (
    FineTuningTask,
    LabelledTask,
    check_activation,
    ranked_labels,
    report_of_classes,
    settle_classes,
)
from keras_bertfam.tasks.finetuning.merging import mean_classes, told_classes
from keras_bertfam.tasks.finetuning.relation_classifier_preprocessor import (
    RelationClassifierPreprocessor,
    relation_signatures,
)
from keras_bertfam.tasks.summary import states_of
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class RelationClassifier(LabelledTask, FineTuningTask):
    """Classifies how two spans of a text are related, with any backbone.

    Call `fit()` to train, `classify()` for relations, and `report()` for scores and
    errors.

    Markers, which are new tokens, stand around both spans. The head reads the states of
    the two markers before the spans, side by side: dropout, then a dense layer. The
    last block of the backbone computes only these two states.

    Args:
        backbone: a backbone.
        num_classes: int. May be left out with `label_names`.
        preprocessor: `RelationClassifierPreprocessor`, or `None` for data that is
            preprocessed already.
        label_names: sequence of strings or `None`: the classes in order. With
            them, labels may be strings. `None` means the preprocessor's.
        dropout: float. Dropout rate in the head. Defaults to `0.1`.
        activation: `None` for logits, or `"softmax"` for probabilities.
        **kwargs: arguments of `keras.Model`.

    If the backbone's embeddings have no rows for the markers, it is copied into one
    with random weights in these rows. The copy is the attribute `backbone`.

    Call arguments:
        inputs: dict of tensors: those of the backbone, and `word_positions`, int
            `(batch, 2)`: the positions of the markers before the first and the second
            span.

    Returns:
        float32 tensor `(batch, num_classes)`: logits, or probabilities.

    Raises:
        ValueError: for an unknown `activation`, or contradicting classes.

    `fit()`, `evaluate()` and `predict()` take dicts of texts, or lists of words, and
    spans, see `RelationClassifierPreprocessor`, and integer labels (or strings, with
    `label_names`). `predict()` returns arrays, `classify()` labels with probabilities.
    `compile()` without arguments sets up BERT's fine-tuning. A frozen `FeatureBackbone`
    keeps the markers' random rows, which its LSTM can tell apart.

    References:
        [Baldini Soares et al., 2019](https://arxiv.org/abs/1906.03158), section 3.2,
        "entity start"; [Wadden et al., 2019](https://arxiv.org/abs/1909.03546), for
        SciERC's data.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.RelationClassifierPreprocessor(tokenizer)
    model = keras_bertfam.tasks.RelationClassifier(
        backbone, preprocessor=preprocessor, label_names=["none", "treats"])
    x = {"text": ["Aspirin helps a headache."], "first": [[0, 7]], "second": [[16, 24]]}
    model.fit(x, ["treats"])
    model.classify(x)  # [[("treats", 0.9), ("none", 0.1)]]
    ```
    """

    preprocessor_cls = RelationClassifierPreprocessor
    data_kind = "relations"
    pipeline = "text-classification"
    text_columns = ("text", "first", "second")
    serving_signatures = relation_signatures
    merged = staticmethod(mean_classes)
    extra_inputs = ("word_positions",)
    fixed_arguments = ("num_classes", "dropout")

    def __init__(
        self,
        backbone: Model,
        num_classes: int | None = None,
        preprocessor: RelationClassifierPreprocessor | None = None,
        label_names: Sequence[str] | None = None,
        dropout: float = 0.1,
        activation: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_activation(activation)
        classes = settle_classes(preprocessor, num_classes, label_names)
        super().__init__(backbone, preprocessor, **kwargs)
        self.num_classes, self.label_names = classes
        self.dropout = dropout
        self.activation = activation
        # The sum of two dense layers, one for each state, equals a dense layer of both
        # side by side.
        self.head, self.second_head = (
            SummaryHead(
                self.num_classes,
                dropout=dropout,
                initializer=backbone.make_initializer(),
                dtype=backbone.dtype_policy,
                name=name,
            )
            for name in ("head", "second_head")
        )
        for head in (self.head, self.second_head):
            head.build((None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        positions = inputs.pop("word_positions")
        states = states_of(self.backbone, inputs, positions, training)
        logits = self.head(states[:, 0], training=training)
        logits += self.second_head(states[:, 1], training=training)
        return self.activate(logits)

    @checked
    def classify(self, x: Any, batch_size: int = 32) -> list[Any]:
        """Classify relations, with probabilities.

        Args:
            x: dict of texts or words, and spans; or a list of dicts, or one of them.
            batch_size: int.

        Returns:
            For each example a list of `(label, probability)` pairs, the most probable
            first; for a single example, its list. Without `label_names`, labels are
            numbers.

        Raises:
            ValueError: if the task has no preprocessor, and for what `fit()` refuses.
        """
        if self.preprocessor is None:
            raise ValueError("`classify` needs a task with a preprocessor.")
        if isinstance(x, (list, tuple)) and not len(x):
            return []
        x = self.preprocessor.as_tensors(x)
        if x["text"].shape.rank == 0:
            x = {name: value[None] for name, value in x.items()}
            return self.classify(x, batch_size)[0]
        outputs = self.predict(x, batch_size=batch_size, verbose=0)
        probabilities = ops.convert_to_numpy(self.probabilities(outputs))
        return ranked_labels(probabilities, self.label_names)

    def inputs_of(self, columns: Sequence[Sequence[Any]]) -> Any:
        x = dict(zip(("text", "first", "second"), columns, strict=True))
        if any(isinstance(text, list) for text in x["text"]):
            x["words"] = x.pop("text")
        return x

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        outputs = self.predict(self.inputs_of(columns), verbose=0)
        yield from self.told(ops.convert_to_numpy(self.probabilities(outputs)))

    def told(self, probabilities: Any) -> Iterator[dict[str, Any]]:
        """Turn what `merged` gives into answers, in the form that `predict` writes."""
        return told_classes(probabilities, self.label_names)

    def _report(self, x, labels, given, batch_size, worst):
        outputs = self.predict(x, batch_size=batch_size, verbose=0)
        marked = self.preprocessor.marked(x)
        probabilities, names = self.probabilities(outputs), self.label_names
        return report_of_classes(self, marked, labels, probabilities, names, worst)

    def get_config(self) -> Config:
        return {**super().get_config(), "dropout": self.dropout}
