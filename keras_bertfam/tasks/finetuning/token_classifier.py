"""Label each word: named entities, parts of speech, chunks."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.analysis.report import class_report
from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.labels import class_numbers, have_labels
from keras_bertfam.layers.data.pipelines import checked_batch_size
from keras_bertfam.layers.data.user_inputs import as_label_tensor
from keras_bertfam.layers.heads.summary_heads import SummaryHead
from keras_bertfam.metrics import compute_metrics, scheme_of
from keras_bertfam.metrics.scores import marks_entities
from keras_bertfam.presets.converting.heads import Counterpart
from keras_bertfam.tasks.finetuning.fine_tuning import (
    FineTuningTask,
    LabelledTask,
    check_activation,
    ranked_labels,
    report_title,
    settle_classes,
    texts_of,
)
from keras_bertfam.tasks.finetuning.token_classifier_preprocessor import (
    TokenClassifierPreprocessor,
    tag_signatures,
)
from keras_bertfam.tasks.summary import states_of
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TokenClassifier(LabelledTask, FineTuningTask):
    """Labels words by the state of their first piece, with any backbone.

    Call `fit()` to train, `tag()` for labels, and `report()` for scores and errors.

    The last block of the backbone computes only the first pieces. There is one label,
    weight and output for each word: loss and metrics ignore other pieces.

    Args:
        backbone: a backbone.
        num_classes: int. May be left out with `label_names`.
        preprocessor: `TokenClassifierPreprocessor`, or `None` for data that is
            preprocessed already.
        label_names: sequence of strings or `None`: the classes in order. With
            them, labels may be strings. `None` means the preprocessor's.
        dropout: float. Dropout rate in the head, which is dropout and dense. ModernBERT
            has the head of its other tasks.
        activation: `None` for logits, or `"softmax"` for probabilities.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone, and `word_positions`, int
            `(batch, words)`, the positions to label. Without it, all positions are
            labelled.

    Returns:
        float32 tensor `(batch, words or length, num_classes)`.

    Raises:
        ValueError: for an unknown `activation`, or contradicting classes.

    `fit()`, `evaluate()` and `predict()` take lists of lists of words, and lists of
    lists of labels. `predict()` returns an array as wide as the longest list of words,
    with zeros after shorter ones; `tag()` returns the labels. A sentence that is too
    long for a row is split into parts. `compile()` without arguments sets up BERT's
    fine-tuning.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    5.3.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.TokenClassifierPreprocessor(tokenizer)
    model = keras_bertfam.tasks.TokenClassifier(
        backbone, preprocessor=preprocessor, label_names=["O", "B-PER", "I-PER"])
    model.fit([["Ada", "Lovelace", "wrote"]], [["B-PER", "I-PER", "O"]])
    model.tag(["Ada", "wrote"])  # [("Ada", "B-PER", 0.9), ("wrote", "O", 0.9)]
    ```
    """

    preprocessor_cls = TokenClassifierPreprocessor
    data_kind = "tagging"
    pipeline = "token-classification"
    text_columns = ("text",)
    counterpart = Counterpart(
        "ForTokenClassification", {"token": "head"}, labelled=True
    )
    serving_signatures = tag_signatures
    fixed_arguments = ("num_classes", "dropout")

    def __init__(
        self,
        backbone: Model,
        num_classes: int | None = None,
        preprocessor: TokenClassifierPreprocessor | None = None,
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
        style = getattr(backbone.record, "head_style", None)
        self.head = SummaryHead(
            self.num_classes,
            **(style.layers(backbone) if style is not None and style.tokens else {}),
            dropout=dropout,
            initializer=backbone.make_initializer(),
            dtype=backbone.dtype_policy,
            name="head",
        )
        self.head.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        inputs.pop("word_mask", None)
        positions = inputs.pop("word_positions", None)
        states = states_of(self.backbone, inputs, positions, training)
        return self.activate(self.head(states, training=training))

    @checked
    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        if not self._takes_raw(x):
            return super().predict(x, batch_size=batch_size, **kwargs)
        words = self.preprocessor.as_tensors(x)
        if kwargs.get("steps"):
            words = words[: kwargs.pop("steps") * checked_batch_size(batch_size)]
        sentences = [[word for word in row if word] for row in texts_of(words)["text"]]
        parts, owners = self.preprocessor.fitting_parts(sentences)
        if len(parts) == sum(map(bool, sentences)):  # no sentence was cut
            return super().predict(words, batch_size=batch_size, **kwargs)
        outputs = super().predict(parts, batch_size=batch_size, **kwargs)
        joined = np.zeros((*words.shape, outputs.shape[-1]), outputs.dtype)
        done = np.zeros(len(sentences), int)
        for part, row, owner in zip(parts, outputs, owners, strict=True):
            end = done[owner] + len(part)
            joined[owner, done[owner] : end] = row[: len(part)]
            done[owner] = end
        return joined

    @checked
    def tag(
        self,
        sentences: Sequence[Any],
        batch_size: int = 32,
        verbose: int | str | None = None,
    ) -> list[Any]:
        """Label words, with probabilities.

        Args:
            sentences: list of words, or a list of such lists.
            batch_size: int.
            verbose: see `keras.Model.predict`. `None` shows a progress bar if there are
                several batches.

        Returns:
            For each sentence a list with a tuple `(word, label, probability)` for each
            word; for a single sentence, its list. Without `label_names`, labels are
            numbers. A sentence that is too long for a row is labelled in parts.

        Raises:
            ValueError: if the task has no preprocessor, or for what isn't words.
        """
        if self.preprocessor is None:
            raise ValueError("`tag` needs a task with a preprocessor.")
        if not isinstance(sentences, (list, tuple, np.ndarray)):
            raise ValueError(
                "`sentences` must be words, or lists of words: split a text first. "
                f"Received: {sentences!r}."
            )
        if len(sentences) and isinstance(sentences[0], str):
            return self.tag([sentences], batch_size, verbose)[0]
        rows = self._probabilities_of_words(sentences, batch_size, verbose)
        tagged = []
        for words, row in zip(sentences, rows, strict=True):
            ranked = ranked_labels(row, self.label_names)
            pairs = zip(words, (labels[0] for labels in ranked), strict=True)
            tagged.append([(word, *answer) for word, answer in pairs])
        return tagged

    def _probabilities_of_words(self, sentences, batch_size, verbose=0):
        """Compute for each sentence an array `(words, num_classes)`."""
        parts, owners = self.preprocessor.fitting_parts(sentences)
        found: list[Any] = [[np.zeros((0, self.num_classes))] for _ in sentences]
        if parts:
            if verbose is None:
                verbose = "auto" if len(parts) > batch_size else 0
            outputs = self.predict(parts, batch_size=batch_size, verbose=verbose)
            probabilities = ops.convert_to_numpy(self.probabilities(outputs))
            for words, row, owner in zip(parts, probabilities, owners, strict=True):
                found[owner].append(row[: len(words)])
        return [np.concatenate(rows) for rows in found]

    def _report(self, x, labels, given, batch_size, worst):
        mask = x.numpy() != b""
        labels = as_label_tensor(labels.numpy()[mask])
        labelled = have_labels(labels).numpy()
        if not labelled.any():
            raise ValueError("`x` must have words with labels. Received: none.")
        sentences = [[word for word in row if word] for row in texts_of(x)["text"]]
        labels = labels[labelled]
        numbers = class_numbers(labels, self.num_classes, self.label_names).numpy()
        rows = self._probabilities_of_words(sentences, batch_size)
        texts = {
            "word": [word for words in sentences for word in words],
            "sentence": [" ".join(words) for words in sentences for _ in words],
        }
        texts = {
            name: [text for text, keep in zip(part, labelled, strict=True) if keep]
            for name, part in texts.items()
        }
        title = report_title(self, len(numbers), "words")
        probabilities = np.concatenate(rows)[labelled]
        names = self.label_names
        ends = np.cumsum([0, *map(len, sentences)])
        sizes = np.diff(np.cumsum([0, *labelled])[ends])
        scores = self._entity_scores(sizes, numbers, probabilities)
        return class_report(title, texts, numbers, probabilities, names, worst, scores)

    def _entity_scores(self, sizes, numbers, probabilities):
        """Measure seqeval's F1, if the labels mark entities."""
        names = self.label_names or [""]
        if not marks_entities(names):
            return {}
        ends = np.cumsum(list(sizes))[:-1]
        tags = (
            [[names[k] for k in part] for part in np.split(each, ends)]
            for each in (numbers, probabilities.argmax(axis=1))
        )
        return compute_metrics(["entity_f1"], *tags, scheme=scheme_of(names))

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        sentences = [t.split() if isinstance(t, str) else t for t in columns[0]]
        for tagged in self.tag(sentences, verbose=0):
            words, tags = [w for w, _, _ in tagged], [t for _, t, _ in tagged]
            yield {"words": words, "tags": tags}

    def get_config(self) -> Config:
        return {**super().get_config(), "dropout": self.dropout}
