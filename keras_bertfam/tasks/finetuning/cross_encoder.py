"""Score how relevant a passage is to a query, reading both together."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.tasks.finetuning.cross_encoder_preprocessor import (
    CrossEncoderPreprocessor,
    score_signatures,
)
from keras_bertfam.tasks.finetuning.fine_tuning import (
    check_activation,
    report_of_numbers,
)
from keras_bertfam.tasks.finetuning.ranking_losses import PointwiseOrListwise
from keras_bertfam.tasks.finetuning.summary_task import SummaryTask
from keras_bertfam.tasks.finetuning.text_classifier import SCORE, named_activation
from keras_bertfam.tasks.gradient_cache import check_rows, in_chunks
from keras_bertfam.tasks.ranking import rank_passages
from keras_bertfam.tasks.summary import flat_rows
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class CrossEncoder(SummaryTask):
    """Scores passages by how relevant they are to a query, with any backbone.

    Call `fit()` to train, `rank()` to order passages, `predict()` for scores, and
    `report()` for scores and errors.

    The model reads query and passage together. That is more exact than comparing their
    vectors, but takes a forward pass for each pair. So it is used to reorder the
    passages that an index or BM25 has found.

    Args:
        backbone: a backbone.
        preprocessor: `CrossEncoderPreprocessor`, or `None` for data that is
            preprocessed already.
        head_style: see `TextClassifier`.
        dropout: see `TextClassifier`.
        activation: `"sigmoid"` or `None`. `predict()` and `rank()` apply it to the
            logits; losses read the logits themselves. Defaults to `"sigmoid"`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone, each `(batch, passages,
            length)`, or `(batch, length)`.

    Returns:
        float32 tensor `(batch, passages)`, or `(batch,)`: logits.

    `fit()`, `evaluate()` and `predict()` take what `CrossEncoderPreprocessor` takes.
    `fit((queries, relevant, others, ...))` needs no labels.

    `compile()` without arguments sets up the fine-tuning of the backbone's family. Its
    loss is the binary cross-entropy if a query has one passage, and the cross-entropy
    of the softmax over the passages if it has a list. `compile(loss=...)` takes other
    losses: `PointwiseCrossentropy`, also for lists, `ListwiseCrossentropy`,
    `PairwiseLogistic`, `LambdaLoss`, and `ScoreMargins` for a teacher's scores.

    `from_preset()` loads cross-encoders of `sentence-transformers` with their
    activation.

    References: [Nogueira and Cho, 2019](https://arxiv.org/abs/1901.04085); [Gao et al.,
    2021](https://arxiv.org/abs/2101.08751).

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.CrossEncoderPreprocessor(tokenizer)
    model = keras_bertfam.tasks.CrossEncoder(backbone, preprocessor)
    queries = ["Who purrs?", "Who barks?"]
    model.fit((queries, ["A cat.", "A dog."], ["A fish.", "A bird."]))
    model.rank("Who purrs?", ["A dog.", "A cat."])  # [(1, 0.8), (0, 0.3)]
    ```
    """

    preprocessor_cls = CrossEncoderPreprocessor
    pipeline = "text-ranking"
    text_columns = ("query", "passage")
    # Without an activation in the config it is the default, as elsewhere.
    counterpart = dataclasses.replace(SCORE, asked_for=True, arguments=named_activation)
    serving_signatures = score_signatures
    fixed_arguments = ("head_style", "dropout")
    label_kind = "number"

    def __init__(
        self,
        backbone: Model,
        preprocessor: CrossEncoderPreprocessor | None = None,
        head_style: str | None = None,
        dropout: float | None = None,
        activation: str | None = "sigmoid",
        **kwargs: Any,
    ) -> None:
        check_activation(activation, "sigmoid")
        # No loss of a language model is added: it would count the queries' tokens, too.
        super().__init__(
            backbone, 1, preprocessor, head_style, dropout, lm_weight=0.0, **kwargs
        )
        self.activation = activation
        self._gradient_cache_rows: int | None = None
        self.compile_by_default()

    def as_outputs(self, scores: Tensor) -> Tensor:
        return scores[..., 0]

    def activate(self, logits: Tensor) -> Tensor:
        """Apply the activation to what the model returns."""
        return ops.sigmoid(logits) if self.activation else logits

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        layers = [self.backbone, self.head]
        rows = self._gradient_cache_rows
        return in_chunks(self._scores, layers, inputs, rows, training)

    def _scores(self, inputs, training):
        if len(inputs["token_ids"].shape) == 2:
            return super().call(inputs, training)
        rows, group = flat_rows(inputs)
        return ops.reshape(super().call(rows, training), group)

    @checked
    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = None,
        gradient_cache_rows: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Compile as other fine-tuning tasks do, for lists of any length.

        Args:
            optimizer, metrics: see `TextClassifier.compile`.
            loss: `"auto"`, or a loss of scores; see the class.
            gradient_cache_rows: int or `None`. How many queries, each with its
                passages, a step keeps in memory at a time for the gradient; see
                `TextEmbedder.compile`.
            **kwargs: other arguments of `compile`, such as `learning_rate`.
        """
        check_rows(gradient_cache_rows, kwargs)
        super().compile(optimizer, loss, metrics=metrics, **kwargs)
        self._gradient_cache_rows = gradient_cache_rows
        if self.preprocessor is not None:
            self.preprocessor.expect_labels_of(self.loss)

    def get_compile_config(self) -> Config:
        config = super().get_compile_config()
        rows = self._gradient_cache_rows
        return {**config, "gradient_cache_rows": rows} if config else config

    def default_loss(self) -> PointwiseOrListwise:
        return PointwiseOrListwise()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return []

    @checked
    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        return self._activated(self._logits(x, batch_size, **kwargs))

    def _logits(self, x, batch_size, **kwargs):
        logits = super().predict(x, batch_size, **kwargs)
        single = self._takes_raw(x) and not self.preprocessor.has_lists(x)
        return logits[:, 0] if single else logits

    def _activated(self, logits):
        return ops.convert_to_numpy(self.activate(logits))

    @checked
    def rank(
        self,
        query: str | Sequence[str],
        passages: Sequence[Any],
        top_k: int | None = None,
        batch_size: int = 32,
    ) -> list[Any]:
        """Sort passages by their scores, the best first.

        Args:
            query: str, or a list of them.
            passages: list of str, or of tuples of a title and a text, which are joined;
                for several queries, a list for each, of any lengths.
            top_k: int or `None`. How many are returned; `None` for all.
            batch_size: int.

        Returns:
            List of pairs of a passage's index in `passages` and its score; for several
            queries, a list for each. Passages with equal scores keep their order.

        Raises:
            ValueError: without a preprocessor, or a list of passages for each query,
                and for a `top_k` below 1.

        Example:

        ```python
        model = keras_bertfam.tasks.CrossEncoder.from_preset("my_bert")
        model.rank("Who purrs?", ["A dog.", "A cat."], top_k=1)  # [(1, 0.8)]
        model.rank(["Who purrs?", "Who?"], [["A dog.", "A cat."], ["A dog."]])
        ```
        """

        def scores_of(queries, passages):
            each = [q for q, ps in zip(queries, passages, strict=True) for _ in ps]
            flat = [passage for texts in passages for passage in texts]
            titled = (tuple, list)
            flat = [" ".join(x).strip() if isinstance(x, titled) else x for x in flat]
            # The sigmoid makes large logits equal, so logits are sorted before it.
            logits = self._logits((each, flat), batch_size, verbose=0)
            ends = np.cumsum([len(texts) for texts in passages])[:-1]
            scores = np.split(self._activated(logits), ends)
            return zip(np.split(logits, ends), scores, strict=True)

        return rank_passages(self, query, passages, top_k, scores_of)

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        for score in self.predict(self.inputs_of(columns), verbose=0):
            yield {"score": score.tolist()}

    def _report(self, x, labels, given, batch_size, worst):
        x, labels = self.preprocessor.one_by_one(x, labels)
        scores = self.predict(x, batch_size, verbose=0)
        return report_of_numbers(self, x, labels, scores, worst)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["lm_weight"]
        return {**config, "activation": self.activation}
