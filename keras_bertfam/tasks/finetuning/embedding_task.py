"""Share code among tasks that make vectors of texts, and learn from tuples of texts."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.tasks.finetuning.embedding_losses import NegativesOrSimilarities
from keras_bertfam.tasks.finetuning.fine_tuning import (
    FineTuningTask,
    report_of_numbers,
    texts_of,
)
from keras_bertfam.tasks.finetuning.text_embedder_preprocessor import (
    TextEmbedderPreprocessor,
    are_texts,
    vector_signatures,
)
from keras_bertfam.tasks.gradient_cache import check_rows, in_chunks
from keras_bertfam.tasks.vectors import PASSAGE_PROMPTS, TextVectors
from keras_bertfam.types import Config, Model, Tensor


class EmbeddingTask(TextVectors, FineTuningTask):
    """Base class of the tasks that make a vector of each text.

    A subclass defines `make_vectors`, `vector_layers` and `compare`.

    Args:
        backbone: a backbone.
        preprocessor: `TextEmbedderPreprocessor`, or `None` for data that is
            preprocessed already.
        prompts: dict or `None`. Strings that `encode()` puts before texts, by their
            kind: `"query"`, and `"passage"`, `"document"` or `"corpus"`. Training puts
            them there, too, if its loss distinguishes queries from passages.
        **kwargs: arguments of `keras.Model`.
    """

    preprocessor_cls = TextEmbedderPreprocessor
    label_kind = "number"
    # Section 3.1 of the Sentence-BERT paper, and the code of SPLADE.
    usual_learning_rate = 2e-5
    text_columns = ("text",)
    serving_signatures = vector_signatures

    def __init__(
        self,
        backbone: Model,
        preprocessor: TextEmbedderPreprocessor | None = None,
        prompts: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        prompts = dict(prompts or {})
        if not all(isinstance(prompt, str) for prompt in prompts.values()):
            raise ValueError(
                f"`prompts` must be a dict from names to strings. Received: {prompts}."
            )
        if unread := sorted({*prompts} - {"query", *PASSAGE_PROMPTS}):
            warnings.warn(
                "Of `prompts`, only those for query and for "
                f"{', '.join(PASSAGE_PROMPTS)} are read. Others: {', '.join(unread)}.",
                stacklevel=2,
            )
        super().__init__(backbone, preprocessor, **kwargs)
        self.prompts = prompts
        self._gradient_cache_rows: int | None = None
        self._texts_of_steps: dict[str, Any] = {}

    def make_vectors(self, inputs: dict[str, Tensor], training: bool | None) -> Tensor:
        """Compute the vectors that `call` returns, for all rows that it is given."""
        raise TypeError(f"{type(self).__name__} must define `make_vectors`.")

    def vector_layers(self) -> list[Any]:
        """List the layers and models that make the vectors."""
        raise TypeError(f"{type(self).__name__} must define `vector_layers`.")

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute how similar vectors are, along the last axis."""
        raise TypeError(f"{type(self).__name__} must define `compare`.")

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
            loss: `"auto"`, or a loss. By default a `TextEmbedder` uses
                `InBatchNegatives()` for texts without labels, and
                `CosineSimilarityError()` for texts with similarities.
            gradient_cache_rows: int or `None`. A step computes the vectors of the batch
                in parts of so many rows, and each part once more for its gradient. So a
                batch of 2,048 pairs fits in little more memory than one part. The
                gradient is the same; a step takes a third more time. `None` computes
                whole batches at once.
            **kwargs: other arguments of `compile`, such as `learning_rate`.

        Reference: [Gao et al., 2021](https://arxiv.org/abs/2101.06983), section 3.
        """
        check_rows(gradient_cache_rows, kwargs)
        super().compile(optimizer, loss, metrics=metrics, **kwargs)
        self._gradient_cache_rows = gradient_cache_rows
        self._tell_preprocessor()

    def _tell_preprocessor(self):
        """Say what the loss takes; another task may have the same preprocessor."""
        if not isinstance(self.preprocessor, TextEmbedderPreprocessor):
            return
        prompts = None
        if self.prompts and getattr(self.loss, "has_roles", False):
            prompts = self.prompt_of("query"), self.prompt_of("passage")
        self.preprocessor.expect(
            similarities=getattr(self.loss, "of_similarities", False),
            prompts=prompts,
            labels_have_prompts=not isinstance(self.loss, NegativesOrSimilarities),
        )

    def _rows(self, x, y=None, sample_weight=None):
        self._tell_preprocessor()
        return super()._rows(x, y, sample_weight)

    def get_compile_config(self) -> Config:
        config = super().get_compile_config()
        rows = self._gradient_cache_rows
        return {**config, "gradient_cache_rows": rows} if config else config

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        rows = self._gradient_cache_rows
        layers = self.vector_layers()
        return in_chunks(self.make_vectors, layers, inputs, rows, training)

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        for vector in self.predict(self.inputs_of(columns), verbose=0):
            yield {"embedding": vector.tolist()}

    @as_written
    def preprocess_samples(
        self, x: Any, y: Any = None, sample_weight: Any = None
    ) -> Any:
        self._tell_preprocessor()
        if self.preprocessor is None or y is not None or not isinstance(x, tuple):
            return super().preprocess_samples(x, y, sample_weight)
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
        """Trace a step anew if the number of texts in an example changes.

        Losses read that number, and TensorFlow would trace one step for any number.
        """
        texts = _texts_of(x)
        if self._texts_of_steps.get(function, texts) != texts:
            setattr(self, function, None)
        self._texts_of_steps[function] = texts

    @checked
    def similarity(
        self,
        first: str | Sequence[str],
        second: str | Sequence[str],
        batch_size: int = 32,
    ) -> Any:
        """Compare the texts of two lists, pair by pair.

        Args:
            first: list of str, or a str.
            second: list of str, as long as `first`; or a str.
            batch_size: int.

        Returns:
            float32 NumPy array of shape `(len(first),)`; a float for two strings. A
            `TextEmbedder` gives cosines, from -1 to 1, a `SparseEncoder` inner
            products.

        Raises:
            ValueError: if the task has no preprocessor, the lists have unequal lengths,
                or only one of the two is a list.
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
        return ops.convert_to_numpy(self.compare(a, b))

    def _encode(self, texts, kind, batch_size, too_long):
        texts = [" ".join(x).strip() if isinstance(x, tuple) else x for x in texts]
        texts = [self.prompt_of(kind) + text for text in texts]
        if too_long == "error":
            self.preprocessor.check_lengths(texts)
        vectors = self.predict(texts, batch_size=batch_size, verbose=0)
        return np.asarray(vectors, "float32")

    def prompt_of(self, kind: str) -> str:
        """Give the string that `encode()` puts before each query or passage."""
        names = ("query",) if kind == "query" else PASSAGE_PROMPTS
        return next((self.prompts[n] for n in names if n in self.prompts), "")

    def _report(self, x, labels, given, batch_size, worst):
        if given is None:
            raise ValueError("`y` must be similarities. Received: None.")
        found = self.similarity(*texts_of(x).values(), batch_size)
        return report_of_numbers(self, x, labels, found, worst)

    def get_config(self) -> Config:
        return {**super().get_config(), "prompts": self.prompts}


@as_written
def _in_one(x):
    """Make one input from a dataset's tuples of texts, which aren't `(x, y)`."""
    if not (hasattr(x, "element_spec") and are_texts(x.element_spec)):
        return x
    if x.element_spec[0].shape.rank == 0:
        raise ValueError(
            "`x` must be a dataset of batches. Received: one of single texts. Call "
            "`preprocessor.dataset(x, batch_size=...)`, which shuffles and batches."
        )
    return x.map(lambda *texts: (texts,))


def _texts_of(x):
    """Count the texts of each example: the shapes of a step depend on it."""
    spec = getattr(x, "element_spec", x)
    if spec is not x and isinstance(spec, tuple) and not are_texts(spec):
        spec = spec[0]
    if isinstance(spec, dict):
        name = "sequence_starts" if "sequence_starts" in spec else "token_ids"
        return tuple(getattr(spec.get(name), "shape", ()))[1:]
    if isinstance(spec, list) and spec and isinstance(spec[0], tuple):
        spec = spec[0]
    return len(spec) if isinstance(spec, tuple) else 1
