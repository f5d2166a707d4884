"""Make a sparse vector for each text: tokens of the vocabulary that stand for it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import check_number, check_several, checked
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.checkpoints import sentence_transformers
from keras_bertfam.presets.converting.heads import Counterpart
from keras_bertfam.tasks.finetuning.embedding_losses import InBatchNegatives
from keras_bertfam.tasks.finetuning.embedding_task import EmbeddingTask
from keras_bertfam.tasks.finetuning.text_embedder_preprocessor import (
    SparseEncoderPreprocessor,
    refuse_packed,
)
from keras_bertfam.tasks.losses import without_last
from keras_bertfam.tasks.summary import flat_rows
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.tasks.vectors import check_exported_layout
from keras_bertfam.tokenizers import pipeline_ops
from keras_bertfam.types import Config, Model, Path, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class SparseEncoder(EmbeddingTask):
    """Turns texts into sparse vectors over the vocabulary, as SPLADE does.

    Call `fit()` to train, `encode()` for vectors of queries or passages, `terms()` to
    see which tokens they have, `similarity()` to compare texts, and `report()` for
    scores and errors.

    A masked language model's head gives each token of a text a logit for each token of
    the vocabulary. A vocabulary token's number in the vector is the greatest `log(1 +
    relu(logit))` over the text. Most numbers are 0. Tokens that aren't in the text may
    have a number, too: a passage about cats is found by "kitten". An inverted index
    searches such vectors as it searches words.

    Logits are wide: for 32 texts of 256 tokens and a vocabulary of 30,522 they take 1
    GB. A smaller `batch_size` limits them; in training, so does `gradient_cache_rows`.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`. The best one is that of a
            trained masked language model: `from_preset()` loads its head, too.
        preprocessor: `SparseEncoderPreprocessor`, or `None` for data that is
            preprocessed already.
        pooling: `"max"` over the tokens of a text, or `"sum"`.
        activation: `"relu"`, or `"log1p_relu"`, which takes the logarithm twice.
        prompts: see `TextEmbedder`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone, `(batch, length)`; for tuples,
            such as pairs, `(batch, texts, length)`.

    Returns:
        float32 tensor `(batch, vocabulary_size)`, for tuples `(batch, texts,
        vocabulary_size)`: numbers of at least 0.

    Raises:
        ValueError: for an unknown `pooling` or `activation`.

    `fit()` takes the same data as `TextEmbedder.fit()`. Without labels it trains with
    in-batch negatives, scored by inner products. To learn from a teacher's scores, give
    `compile(loss=...)` `MarginError` or `ScoreDistillation`.

    `from_preset()` reads the folders of `sentence-transformers`, and
    `export_to_sentence_transformers()` writes one.

    References: [Formal et al., 2021](https://arxiv.org/abs/2107.05720), with `"sum"`;
    [Formal et al., 2021](https://arxiv.org/abs/2109.10086), with `"max"`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.SparseEncoderPreprocessor(tokenizer)
    model = keras_bertfam.tasks.SparseEncoder(backbone, preprocessor)
    model.fit((["Who purrs?", "Who barks?"], ["A cat.", "A dog."]))
    model.terms("A cat.", top_k=2)  # [("cat", 1.9), ("kitten", 0.7)]
    index = keras_bertfam.retrieval.Index.build(["A cat.", "A dog."], model)
    ```
    """

    backbone_cls = EncoderBackbone
    preprocessor_cls = SparseEncoderPreprocessor
    counterpart = Counterpart("ForMaskedLM", {"masked_lm": "head"}, asked_for=True)
    index_kind = "inverted"
    pipeline = "feature-extraction"
    fixed_arguments = ("pooling", "activation")

    def __init__(
        self,
        backbone: Model,
        preprocessor: SparseEncoderPreprocessor | None = None,
        pooling: str = "max",
        activation: str = "relu",
        prompts: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        for name, value, known in (
            ("pooling", pooling, sentence_transformers.SPARSE_POOLINGS),
            ("activation", activation, sentence_transformers.SPARSE_ACTIVATIONS),
        ):
            if value not in known:
                raise ValueError(
                    f"`{name}` must be one of {list(known)}. "
                    f"Received: {name}={value!r}."
                )
        refuse_packed(getattr(preprocessor, "packed", False))
        super().__init__(backbone, preprocessor, prompts, **kwargs)
        self.pooling = pooling
        self.activation = activation
        self.head = masked_lm_head(backbone)
        self.penalty_growth = PenaltyGrowth(name="penalty_growth")
        self.built = True
        self.compile_by_default()

    @checked
    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "auto",
        loss: Any = "auto",
        *,
        query_penalty: float = 3e-4,
        passage_penalty: float = 1e-4,
        penalty_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Compile with penalties that make most numbers 0.

        For queries and for passages, the loss gets a penalty: the weight
        `query_penalty` or `passage_penalty` times the sum over the vocabulary of the
        squared mean of a token's numbers in the batch. That sum stands for the products
        that a search has to compute. Penalties begin at 0 and grow with the square of
        the steps since `compile()` or loading.

        Args:
            optimizer: see `TextClassifier.compile`.
            loss: `"auto"`, `InBatchNegatives(scale=1.0, normalize=False)`, or another
                loss of vectors.
            query_penalty: float. Weight for each example's first text, if the loss
                distinguishes queries from passages.
            passage_penalty: float. Weight for the other texts.
            penalty_steps: int or `None`. Steps until penalties have their full weight.
                `None` means a third of the steps of the next `fit()`, as in
                sentence-transformers and in SPLADE's code (50,000 of 150,000). Without
                a `fit()`, as with `train_on_batch()`, penalties then have their full
                weight from the beginning.
            **kwargs: other arguments of `TextEmbedder.compile`, such as
                `gradient_cache_rows`.

        Raises:
            ValueError: for `loss=None`.

        The defaults are those of SPLADE's code for in-batch negatives. Other losses
        need other weights: with `MarginError` on a teacher's scores, SPLADE's code has
        0.5 and 0.4.

        Reference: [Paria et al., 2020](https://arxiv.org/abs/2004.05665), section 3.
        """
        if loss is None:
            raise ValueError(
                '`loss` must be "auto" or a loss of vectors. Received: None.'
            )
        super().compile(optimizer, loss, **kwargs)
        self._penalties = {
            "query_penalty": query_penalty,
            "passage_penalty": passage_penalty,
            "penalty_steps": penalty_steps,
        }
        self.penalty_growth.begin(penalty_steps)

    def get_compile_config(self) -> Config:
        config = super().get_compile_config()
        return {**config, **self._penalties} if config else config

    def default_loss(self) -> InBatchNegatives:
        return InBatchNegatives(scale=1.0, normalize=False)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [ActiveTerms()]

    def _needs_total_steps(self) -> bool:
        return self._penalties_wait() or super()._needs_total_steps()

    def _take_total_steps(self, steps: int | None) -> None:
        super()._take_total_steps(steps)
        if not self._penalties_wait():
            return
        if steps is None:
            raise ValueError(
                "`penalty_steps` must be given to `compile()`, or `steps_per_epoch` "
                "to `fit()`, if batches can't be counted. Received: neither."
            )
        self.penalty_growth.begin(max(1, steps // 3))

    def _penalties_wait(self):
        """Tell whether the first `fit()` has yet to say how many steps there are."""
        names = ("query_penalty", "passage_penalty")
        return (
            any(self._penalties[name] for name in names)
            and not self.penalty_growth.has_begun()
        )

    def make_vectors(self, inputs: dict[str, Tensor], training: bool | None) -> Tensor:
        refuse_packed("sequence_starts" in inputs)
        shape: Any = (-1,)
        if len(inputs["token_ids"].shape) == 3:
            inputs, shape = flat_rows(inputs)
        outputs = self.backbone(inputs, return_pooled=False, training=training)
        logits = self.head(outputs["sequence_output"])
        mask = inputs.get("padding_mask")
        if mask is not None:
            mask = ops.expand_dims(ops.cast(mask, "bool"), -1)
            logits = ops.where(mask, logits, 0.0)
        # The logarithm of the maximum is the maximum of the logarithms.
        if self.pooling == "max":
            vectors = self._saturate(ops.max(logits, axis=1))
        else:
            vectors = ops.sum(self._saturate(logits), axis=1)
        return ops.reshape(vectors, (*shape, vectors.shape[-1]))

    def _saturate(self, logits):
        # Runtimes of exports don't have `log1p`; the difference is 1e-7.
        logits = ops.log(1.0 + ops.relu(logits))
        if self.activation == "log1p_relu":
            logits = ops.log(1.0 + logits)
        return logits

    def vector_layers(self) -> list[Any]:
        return [self.backbone, self.head]

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        return ops.sum(a * b, axis=-1)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor | None:
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        penalty = self._penalty(y_pred, sample_weight)
        return loss + penalty * self.penalty_growth(training=training)

    def _penalty(self, vectors, sample_weight):
        """Compute the penalties of a batch at their full weight."""
        if len(vectors.shape) == 2:
            vectors = ops.expand_dims(vectors, 1)
        weights = ops.ones_like(vectors[:, 0, 0])
        if sample_weight is not None:
            weights *= ops.cast(without_last(sample_weight, 1), "float32")
        has_roles = getattr(self.loss, "has_roles", False) and vectors.shape[1] > 1
        queries = int(has_roles)
        penalty = self._penalties["passage_penalty"] * products_of_search(
            vectors[:, queries:], weights
        )
        if queries:
            penalty += self._penalties["query_penalty"] * products_of_search(
                vectors[:, :queries], weights
            )
        return penalty

    @checked
    def terms(
        self,
        texts: str | Sequence[str],
        top_k: int | None = None,
        kind: str = "passage",
        batch_size: int = 32,
    ) -> list[Any]:
        """List the tokens that stand for texts, with their numbers.

        Args:
            texts: str, or a list of them.
            top_k: int or `None`. The most tokens to list; `None` for all.
            kind: `"query"` or `"passage"`. Its prompt is put before the texts.
            batch_size: int.

        Returns:
            List of pairs of a token and its number, above 0, the greatest first; for
            several texts, a list for each.

        Raises:
            ValueError: for a `top_k` below 1, and as `encode`.

        Example:

        ```python
        model = keras_bertfam.tasks.SparseEncoder.from_preset("my_bert")
        model.terms("A cat.", top_k=2)  # [("cat", 1.9), ("kitten", 0.7)]
        ```
        """
        if isinstance(texts, str):
            return self.terms([texts], top_k, kind, batch_size)[0]
        if top_k is not None:
            check_number("top_k", top_k, 1)
        check_several("texts", texts, "texts")
        found: list[Any] = []
        for begin in range(0, len(texts), batch_size):  # because vectors are wide
            part = texts[begin : begin + batch_size]
            found += self._terms(self.encode(part, kind, batch_size), top_k)
        return found

    def _terms(self, vectors, top_k):
        strings = pipeline_ops.token_strings(self.preprocessor.tokenizer)
        found = []
        for vector in vectors:
            order = np.argsort(-vector, kind="stable")[: np.count_nonzero(vector)]
            # An embedding table may have rows beyond the tokenizer's last token.
            order = [k for k in order if k < len(strings)][:top_k]
            found.append([(strings[k], float(vector[k])) for k in order])
        return found

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        for pairs in self.terms(self.inputs_of(columns)):
            # Several tokens of bytes may decode to the same string.
            yield {"terms": [list(pair) for pair in pairs]}

    def _passage_parts(self):
        settings = {"pooling": self.pooling, "activation": self.activation}
        if prompt := self.prompt_of("passage"):
            settings["prompt"] = prompt
        return self.vector_layers(), settings

    def get_config(self) -> Config:
        own = {"pooling": self.pooling, "activation": self.activation}
        return {**super().get_config(), **own}

    def export_to_sentence_transformers(self, path: Path) -> None:
        """Write a folder from which their `SparseEncoder` gives the same vectors.

        Args:
            path: path of the folder to write.

        Raises:
            ValueError: without a preprocessor, and as `export_to_transformers`.
            ImportError: without safetensors, which the `hf` extra installs.

        Example:

        ```python
        model = keras_bertfam.tasks.SparseEncoder.from_preset("my_bert")
        model.export_to_sentence_transformers("for_sentence_transformers")
        ```
        """
        check_exported_layout(self.preprocessor)
        sentence_transformers.export_sparse(self, path)


class PenaltyGrowth(keras.layers.Layer):
    """Counts steps, and gives the share of the penalty that applies by now.

    After 2 of 4 steps it is a quarter: the square of the share of the steps that were
    made. The count belongs to a run, and isn't saved.

    Call arguments:
        training: bool. Whether this call counts as a step.

    Returns:
        float32 scalar, from 0 to 1; 1 before `begin` was told of the steps.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._step, self._steps = (
            # `add_weight` can't make a variable with the same count on all replicas.
            keras.Variable(
                0.0,
                dtype="float32",
                trainable=False,
                autocast=False,
                aggregation="only_first_replica",
                name=name,
            )
            for name in ("step", "steps")
        )
        self.built = True

    def begin(self, steps: int | None) -> None:
        """Count from 0 to a number of steps, which may be unknown yet."""
        self._step.assign(0.0)
        self._steps.assign(float(steps or 0))

    def has_begun(self) -> bool:
        """Tell whether the number of steps is known."""
        return float(ops.convert_to_numpy(self._steps)) > 0

    def call(self, training: bool | None = None) -> Tensor:
        if training:
            self._step.assign(self._step + 1.0)
        share = self._step / ops.maximum(self._steps, 1e-6)
        return ops.square(ops.minimum(share, 1.0))

    def save_own_variables(self, store: Any) -> None:
        """Save nothing."""

    def load_own_variables(self, store: Any) -> None:
        """Load nothing."""


def products_of_search(vectors: Tensor, weights: Tensor) -> Tensor:
    """Compute SPLADE's penalty in the form that a replica returns as a loss.

    For the vectors `[1, 0, 2]` and `[0, 0, 1]` it is `0.5 ** 2 + 0 ** 2 + 1.5 ** 2 =
    2.5`: the sum over the vocabulary of `mean(number) ** 2`, with the mean over all
    texts of all replicas. It stands for the products that a search computes, if numbers
    are as common in queries as in passages.

    Args:
        vectors: float32 tensor `(batch, texts, width)`, none below 0.
        weights: float32 tensor `(batch,)`.

    Returns:
        float32 scalar.
    """
    total = distribution.global_sum(ops.sum(weights)) * vectors.shape[1]
    own = ops.sum(vectors * weights[:, None, None], axis=(0, 1))
    own = ops.divide_no_nan(own, total)
    mean = distribution.global_sum(ops.stop_gradient(own))
    # As in `distribution.global_mean`, the gradient is that of this replica's part, and
    # the replicas' values add up to the whole.
    part = 2 * ops.sum(mean * own)
    value = ops.sum(ops.square(mean)) / distribution.num_replicas()
    return part + ops.stop_gradient(value - part)


@keras.saving.register_keras_serializable("keras_bertfam")
class ActiveTerms(keras.metrics.Mean):
    """The mean number of entries above 0 in a vector.

    Example:

    ```python
    from keras_bertfam.tasks.finetuning.sparse_encoder import ActiveTerms
    metric = ActiveTerms()
    metric.update_state(None, [[[1.0, 0.0, 2.0], [0.0, 0.0, 1.0]]])
    metric.result()  # 1.5
    ```
    """

    def __init__(self, name: str = "active_terms", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(
        self, y_true: Any, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        vectors = ops.convert_to_tensor(y_pred)
        counts = ops.sum(ops.cast(vectors > 0, "float32"), axis=-1)
        if len(counts.shape) == 2:
            counts = ops.mean(counts, axis=1)
        if sample_weight is not None:
            sample_weight = without_last(sample_weight, 1) > 0
        super().update_state(counts, sample_weight)
