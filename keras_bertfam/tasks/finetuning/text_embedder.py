"""A vector for each text."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.autograph import as_written
from keras_bertfam.presets.checkpoints import sentence_transformers
from keras_bertfam.presets.checkpoints.sentence_transformers import POOLINGS
from keras_bertfam.presets.converting.heads import BACKBONE
from keras_bertfam.tasks.finetuning.embedding_losses import (
    NegativesOrSimilarities,
    cosine,
    unit,
)
from keras_bertfam.tasks.finetuning.fine_tuning import (
    FineTuningTask,
    inputs_of,
    report_of_numbers,
    texts_of,
)
from keras_bertfam.tasks.finetuning.text_embedder_preprocessor import (
    TextEmbedderPreprocessor,
    are_texts,
    vector_signatures,
)
from keras_bertfam.tasks.gradient_cache import in_chunks
from keras_bertfam.tasks.summary import (
    check_layout,
    flat_rows,
    states_of,
    summary_states,
    summary_token,
)
from keras_bertfam.tasks.torch_graph import check_part
from keras_bertfam.tasks.vectors import TextVectors
from keras_bertfam.types import Config, Model, Path, Tensor

_SETTINGS = (
    "pooling",
    "normalize",
    "projection_dim",
    "projection_activation",
    "projection_bias",
    "prompts",
)


@keras.saving.register_keras_serializable("keras_bertfam")
class TextEmbedder(TextVectors, FineTuningTask):
    """Turns texts into vectors, with any backbone of the library.

    Call `fit()` to train, `predict()` for vectors, `encode()` for those of queries or
    passages, `similarity()` to compare texts, and `report()` for scores and errors.

    Args:
        backbone: a backbone.
        preprocessor: `TextEmbedderPreprocessor`, or `None` for data that is
            preprocessed already.
        pooling: `"mean"` of the states of all tokens, special ones included,
            `"weighted"`, their mean with weights 1, 2, 3, ..., `"max"` of each of their
            numbers, `"last"`, the state of the last token, or `"cls"`, that of the
            first one, XLNet's last.
        normalize: bool. Whether vectors get length 1.
        projection_dim: int or `None`. Width of a dense layer after the pooling; `None`
            for none.
        projection_activation: str or `None`. Its activation.
        projection_bias: bool. Whether it has a bias.
        prompts: dict or `None`. What `encode()` puts before texts, by their kind:
            `"query"`, and `"passage"` or `"document"`. So does training by a loss that
            tells queries from passages.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone, `(batch, length)`, or
            `(batch, texts, length)` of tuples, such as pairs; of packed rows `(batch,
            length)` with `sequence_starts`, int `(batch, max_sequences, texts)`: where
            the texts of each tuple begin, which `sequence_ids` number in that order
            from 1.

    Returns:
        float32 tensor `(batch, width)`, of tuples `(batch, texts, width)`, of packed
        rows `(batch, max_sequences, texts, width)`; `width` is `projection_dim` or
        `hidden_dim`.

    Raises:
        ValueError: for an unknown `pooling`.

    `from_preset()` reads the folders of `sentence-transformers`, and
    `export_to_sentence_transformers()` writes one.

    `predict()` takes a list of strings and returns their vectors; `encode()` does so
    for `retrieval.Index`, with a title before its text; `similarity()` compares texts.

    `fit()` takes tuples of lists, or a `tf.data.Dataset` of tuples of strings.
    `fit((queries, passages))`, or `(queries, passages, negatives, ...)`, trains with
    in-batch negatives, and `fit((texts, texts))` is unsupervised SimCSE, where only
    dropout tells a text from itself. `fit((first, second), similarities)` is
    Sentence-BERT's regression objective, the mean squared error of the cosine. These
    are what `compile()` without arguments does, with AdamW at 2e-5;
    `compile(loss=...)` takes others: `InBatchNegatives` with its arguments,
    `GuidedNegatives`, `CoSENT`, `TripletMargin`, `MarginError`, `ScoreDistillation`,
    `VectorDistillation`, and `Matryoshka` around one of them.

    References: [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084), section
    3; [Gao et al., 2021](https://arxiv.org/abs/2104.08821).

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.TextEmbedderPreprocessor(tokenizer)
    model = keras_bertfam.tasks.TextEmbedder(backbone, preprocessor)
    model.predict(["A cat sits.", "A dog."]).shape  # (2, 128)
    model.similarity(["A cat sits."], ["A cat is sitting."])  # [0.97]
    model.fit((["Who purrs?", "Who barks?"], ["A cat.", "A dog."]))
    ```
    """

    preprocessor_cls = TextEmbedderPreprocessor
    label_kind = "number"
    # Section 3.1 of the Sentence-BERT paper.
    usual_learning_rate = 2e-5
    pipeline = "sentence-similarity"
    text_columns = ("text",)
    counterpart = BACKBONE
    serving_signatures = vector_signatures

    def __init__(
        self,
        backbone: Model,
        preprocessor: TextEmbedderPreprocessor | None = None,
        pooling: str = "mean",
        normalize: bool = True,
        projection_dim: int | None = None,
        projection_activation: str | None = None,
        projection_bias: bool = True,
        prompts: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        if pooling not in POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {list(POOLINGS)}. "
                f"Received: pooling={pooling!r}."
            )
        prompts = dict(prompts or {})
        if not all(isinstance(prompt, str) for prompt in prompts.values()):
            raise ValueError(
                f"`prompts` must be strings by their names. Received: {prompts}."
            )
        if pooling == "cls":
            check_layout(preprocessor, summary_token(backbone))
        super().__init__(backbone, preprocessor, **kwargs)
        self.pooling = pooling
        self.normalize = normalize
        self.projection_dim = projection_dim
        self.projection_activation = projection_activation
        self.projection_bias = projection_bias
        self.prompts = prompts
        self.projection = None
        if projection_dim is not None:
            self.projection = keras.layers.Dense(
                projection_dim,
                activation=projection_activation,
                use_bias=projection_bias,
                dtype=backbone.dtype_policy,
                name="projection",
            )
            self.projection.build((None, backbone.hidden_dim))
        self.built = True
        self._gradient_cache_rows: int | None = None
        self._texts_of_steps: dict[str, Any] = {}
        self.compile_by_default()

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
        """Compile as other fine-tuning tasks do, for batches of any size.

        Args:
            optimizer, metrics: see `TextClassifier.compile`.
            loss: `"auto"`, `InBatchNegatives()` of texts without labels and
                `CosineSimilarityError()` with similarities; or another loss.
            gradient_cache_rows: int or `None`. Of how many examples (of packed rows, of
                how many rows) a step holds all that the gradient needs at a time. The
                vectors of a batch are computed in such parts, and each part again for
                its gradient: a third more time, and a batch of 2,048 pairs takes the
                memory of so many. The gradient is the same. `None` for whole batches.
            **kwargs: other arguments of `compile`, such as `learning_rate`.

        Reference: [Gao et al., 2021](https://arxiv.org/abs/2101.06983), section 3.
        """
        if gradient_cache_rows is not None:
            check_number("gradient_cache_rows", gradient_cache_rows, 1)
        jit_compile = kwargs.get("jit_compile")
        check_part(jit_compile, "gradient_cache_rows", gradient_cache_rows)
        super().compile(optimizer, loss, metrics=metrics, **kwargs)
        self._gradient_cache_rows = gradient_cache_rows
        if self.preprocessor is not None:
            checks = getattr(self.loss, "of_similarities", False)
            self.preprocessor.expect_similarities(checks)

    def get_compile_config(self) -> Config:
        config = super().get_compile_config()
        rows = self._gradient_cache_rows
        return {**config, "gradient_cache_rows": rows} if config else config

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        rows = self._gradient_cache_rows
        batch = inputs["token_ids"].shape[0]
        if not training or rows is None or (batch is not None and batch <= rows):
            return self._vectors(inputs, training)
        layers = [each for each in (self.backbone, self.projection) if each is not None]
        return in_chunks(
            lambda part: self._vectors(part, training), layers, inputs, rows
        )

    def _vectors(self, inputs, training):
        shape: Any = (-1,)
        if "sequence_starts" in inputs:
            shape = (-1, *inputs["sequence_starts"].shape[1:])
        elif len(inputs["token_ids"].shape) == 3:
            inputs, shape = flat_rows(inputs)
        if self.pooling == "cls":
            token = summary_token(self.backbone)
            states = summary_states(self.backbone, inputs, token, training)
            vectors = ops.cast(states, "float32")
        else:
            vectors = self._pooled(inputs, training)
        vectors = ops.reshape(vectors, (*shape, self.backbone.hidden_dim))
        if self.projection is not None:
            vectors = ops.cast(self.projection(vectors), "float32")
        return unit(vectors) if self.normalize else vectors

    def _pooled(self, inputs, training):
        """Pool what stands for each sequence, of its tokens' states."""
        inputs = dict(inputs)
        starts = inputs.pop("sequence_starts", None)
        states = states_of(self.backbone, inputs, training=training)
        states = ops.cast(states, "float32")
        if starts is not None:
            numbers = ops.arange(1, math.prod(starts.shape[1:]) + 1, dtype="int32")
            numbers = ops.reshape(numbers, (1, -1, 1))
            inside = ops.equal(ops.expand_dims(inputs["sequence_ids"], 1), numbers)
        else:
            mask = inputs.get("padding_mask")
            mask = ops.ones(ops.shape(states)[:2]) if mask is None else mask
            inside = ops.expand_dims(mask, 1)
        inside = ops.cast(inside, "float32")  # (batch, sequences, length)
        if self.pooling == "max":
            there = ops.expand_dims(ops.cast(inside, "bool"), -1)
            return ops.max(ops.where(there, ops.expand_dims(states, 1), -1e30), axis=2)
        # The place of each token in its sequence, from 1.
        places = ops.cumsum(inside, axis=2) * inside
        total = ops.sum(inside, axis=2, keepdims=True)
        if self.pooling == "weighted":
            weights = places
        elif self.pooling == "last":
            weights = inside * ops.cast(ops.equal(places, total), "float32")
        else:
            weights = inside
        total = ops.maximum(ops.sum(weights, axis=2, keepdims=True), 1.0)
        return ops.matmul(weights, states) / total

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        for vector in self.predict(inputs_of(columns), verbose=0):
            yield {"embedding": vector.tolist()}

    def default_loss(self) -> NegativesOrSimilarities:
        return NegativesOrSimilarities()

    @as_written
    def preprocess_samples(
        self, x: Any, y: Any = None, sample_weight: Any = None
    ) -> Any:
        if self.preprocessor is None or y is not None or not isinstance(x, tuple):
            return super().preprocess_samples(x, y, sample_weight)
        x = self._with_prompts(self.preprocessor.as_tensors(x), y)
        return self.preprocessor.of_texts(x, sample_weight)

    @checked
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        if "validation_data" in kwargs:
            kwargs["validation_data"] = _in_one(kwargs["validation_data"])
        self._expect("train_function", x)
        return super().fit(_in_one(x), y, batch_size, epochs, **kwargs)

    @checked
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        self._expect("test_function", x)
        return super().evaluate(_in_one(x), y, batch_size, sample_weight, **kwargs)

    @checked
    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        if not self._takes_raw(x) or kwargs.get("steps") is not None:
            return super().predict(x, batch_size, **kwargs)
        texts, of_each = self.preprocessor.one_by_one(x)
        vectors = super().predict(texts, batch_size, **kwargs)
        if of_each is None:
            return vectors
        return vectors.reshape(-1, of_each, vectors.shape[-1])

    def _expect(self, function, x):
        """Trace a step anew for examples of another number of texts.

        TensorFlow would trace a step of any number, and losses read it.
        """
        texts = _texts_of(x)
        if self._texts_of_steps.get(function, texts) != texts:
            setattr(self, function, None)
        self._texts_of_steps[function] = texts

    def _rows(self, x, y=None, sample_weight=None):
        if self._takes_raw(x):
            x = self._with_prompts(self.preprocessor.as_tensors(x), y)
        return super()._rows(x, y, sample_weight)

    def _with_prompts(self, texts, y):
        """Put prompts before tuples of texts, if the loss tells their roles."""
        by_default = isinstance(self.loss, NegativesOrSimilarities)
        has_roles = getattr(self.loss, "has_roles", False)
        has_roles = has_roles and not (by_default and y is not None)
        if not (self.prompts and has_roles and isinstance(texts, tuple)):
            return texts
        query, *passages = texts
        before = self._prompt("passage")
        return (self._prompt("query") + query, *(before + x for x in passages))

    @checked
    def similarity(
        self,
        first: str | Sequence[str],
        second: str | Sequence[str],
        batch_size: int = 32,
    ) -> Any:
        """Cosine similarities of the texts of two lists, pair by pair.

        Args:
            first: list of str, or a str.
            second: list of str, as many, or a str.
            batch_size: int.

        Returns:
            float32 NumPy array of shape `(len(first),)`, from -1 to 1; a float for
            two strings.

        Raises:
            ValueError: if the task has no preprocessor, the lists are of unequal
                length, or one is a list and the other isn't.
        """
        if self.preprocessor is None:
            raise ValueError("`similarity` needs a task with a preprocessor.")
        if not (hasattr(first, "__len__") and hasattr(second, "__len__")):
            raise ValueError(
                "`first` and `second` must be texts. Received: "
                f"first={first!r}, second={second!r}."
            )
        if isinstance(first, str) and isinstance(second, str):
            return float(self.similarity([first], [second])[0])
        if isinstance(first, str) or isinstance(second, str):
            raise ValueError(
                "`first` and `second` must both be lists, or both strings. "
                f"Received: first={first!r}, second={second!r}."
            )
        if len(first) != len(second):
            raise ValueError(
                "`first` and `second` must be of the same length. Received: "
                f"{len(first)} and {len(second)} texts."
            )
        texts = [*first, *second]
        vectors = self.predict(texts, batch_size=batch_size, verbose=0)
        vectors = ops.convert_to_tensor(vectors)
        a, b = vectors[: len(first)], vectors[len(first) :]
        return ops.convert_to_numpy(cosine(a, b))

    def _encode(self, texts, kind, batch_size, too_long):
        texts = [" ".join(x).strip() if isinstance(x, tuple) else x for x in texts]
        texts = [self._prompt(kind) + text for text in texts]
        if too_long == "error":
            self.preprocessor.check_lengths(texts)
        return self.predict(texts, batch_size=batch_size, verbose=0)

    def _prompt(self, kind):
        names = ("query",) if kind == "query" else ("passage", "document")
        return next((self.prompts[n] for n in names if n in self.prompts), "")

    def _passage_parts(self):
        settings: dict[str, Any] = {
            "pooling": self.pooling,
            "normalize": self.normalize,
        }
        if prompt := self._prompt("passage"):
            settings["prompt"] = prompt
        if self.projection is None:
            return [self.backbone], settings
        settings["activation"] = self.projection_activation
        return [self.backbone, self.projection], settings

    def _report(self, x, labels, given, batch_size, worst):
        if given is None:
            raise ValueError("`y` must be similarities. Received: None.")
        cosines = self.similarity(*texts_of(x).values(), batch_size)
        return report_of_numbers(self, x, labels, cosines, worst)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in _SETTINGS},
        }

    def export_to_sentence_transformers(self, path: Path) -> None:
        """Write a folder that `SentenceTransformer` loads, and gives the same vectors.

        Args:
            path: path of the folder to write.

        Raises:
            ValueError: without a preprocessor, and as `export_to_transformers`.
            ImportError: without safetensors, which the `hf` extra has.

        Example:

        ```python
        model = keras_bertfam.tasks.TextEmbedder.from_preset("my_bert", pooling="cls")
        model.export_to_sentence_transformers("for_sentence_transformers")
        ```
        """
        sentence_transformers.export(self, path)


@as_written
def _in_one(x):
    """Make one input of the texts of a dataset's tuples, which aren't `(x, y)`."""
    if not (hasattr(x, "element_spec") and are_texts(x.element_spec)):
        return x
    if x.element_spec[0].shape.rank == 0:
        raise ValueError(
            "`x` must be a dataset of batches. Received: one of single texts. Call "
            "`preprocessor.dataset(x, batch_size=...)`, which shuffles and batches."
        )
    return x.map(lambda *texts: (texts,))


def _texts_of(x):
    """Tell of how many texts each example is: what the shapes of a step depend on."""
    spec = getattr(x, "element_spec", x)
    if spec is not x and isinstance(spec, tuple) and not are_texts(spec):
        spec = spec[0]
    if isinstance(spec, dict):
        name = "sequence_starts" if "sequence_starts" in spec else "token_ids"
        return tuple(getattr(spec.get(name), "shape", ()))[1:]
    if isinstance(spec, list) and spec and isinstance(spec[0], tuple):
        spec = spec[0]
    return len(spec) if isinstance(spec, tuple) else 1
