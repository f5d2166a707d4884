"""Parse sentences into dependency trees: which word depends on which."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.analysis.report import Report
from keras_bertfam.arguments import checked
from keras_bertfam.layers.heads.biaffine import BiaffineHead
from keras_bertfam.layers.heads.span_heads import NOWHERE
from keras_bertfam.metrics.dependencies import attachment_scores, best_tree
from keras_bertfam.tasks.finetuning.dependency_parser_preprocessor import (
    DependencyParserPreprocessor,
    parse_signatures,
)
from keras_bertfam.tasks.finetuning.fine_tuning import (
    FineTuningTask,
    LabelledTask,
    report_title,
    settle_classes,
)
from keras_bertfam.tasks.finetuning.words_preprocessor import checked_words
from keras_bertfam.tasks.losses import UnweightedAccuracy, token_crossentropy
from keras_bertfam.tasks.summary import states_of
from keras_bertfam.types import Config, Model, Tensor

_SENTENCES_AT_ONCE = 256


@keras.saving.register_keras_serializable("keras_bertfam")
class DependencyParser(LabelledTask, FineTuningTask):
    """Finds the head of each word, and its relation to it, with any backbone.

    Call `fit()` to train, `parse()` for trees, and `report()` for scores.

    The head is deep biaffine attention over the states of the words' first pieces. The
    last block of the backbone computes only these. The tree is the one with the best
    sum of arc scores that has a single root. Each word then gets the best relation to
    its head.

    Args:
        backbone: a backbone. `keras_bertfam.models.FeatureBackbone` with an LSTM makes
            the paper's parser on frozen states.
        num_classes: int, the number of relations. May be left out with `label_names`.
        preprocessor: `DependencyParserPreprocessor`, or `None` for data that is
            preprocessed already.
        label_names: sequence of strings or `None`: the relations in order. With them,
            labels may have strings. `None` means the preprocessor's.
        arc_dim: int. Width of the perceptrons that score arcs. Defaults to `100`, as
            for SciBERT's fine-tuning; the parser's paper has 500.
        relation_dim: int. Width of the perceptrons that score relations. Defaults to
            `100`.
        dropout: float. Dropout rate of the head. Defaults to `0.1`, as for SciBERT's
            fine-tuning; the parser's paper has .33.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone; `word_positions`, int `(batch,
            words)`, where words begin (without it, every token counts as a word);
            optionally `word_mask`, bool of that shape; for training `word_heads`, int
            of that shape.

    Returns:
        A dict of `arcs`, float32 `(batch, words, words + 1)`, and `relations`, int32 of
        that shape. `arcs` has the score of each possible head; the first is the root. A
        head that is impossible has -1e30, as have all heads in a place without a word.
        `relations` has the best relation to each head. With `word_heads` there is,
        instead of `relations`, `relation_logits`, float32 `(batch, words,
        num_classes)`, for the given heads.

    Raises:
        ValueError: for `num_classes` and `label_names` that contradict each other or
            the preprocessor's.

    `fit()` and `evaluate()` take lists of lists of words, and a pair `(head, relation)`
    for each word, see `DependencyParserPreprocessor`. The loss is the mean
    cross-entropy of the heads plus that of the relations to the correct heads. The
    metrics are the share of correct heads, taken word by word and not from a tree, and
    the share of correct relations to the correct heads. `predict()` returns arrays as
    wide as the longest sentence. `compile()` without arguments sets up BERT's
    fine-tuning.

    References:
        [Dozat and Manning, 2016](https://arxiv.org/abs/1611.01734), section 3;
        [Beltagy et al., 2019](https://arxiv.org/abs/1903.10676), section 3.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.DependencyParserPreprocessor(tokenizer)
    model = keras_bertfam.tasks.DependencyParser(
        backbone, preprocessor=preprocessor, label_names=["root", "nsubj", "obj"])
    model.fit([["Ada", "wrote", "notes"]], [[(2, "nsubj"), (0, "root"), (2, "obj")]])
    model.parse(["Ada", "wrote"])  # [("Ada", 2, "nsubj"), ("wrote", 0, "root")]
    ```
    """

    preprocessor_cls = DependencyParserPreprocessor
    data_kind = "parsing"
    pipeline = "token-classification"
    text_columns = ("text",)
    serving_signatures = parse_signatures
    extra_inputs = ("word_positions", "word_mask")
    fixed_arguments = ("num_classes", "arc_dim", "relation_dim", "dropout")

    def __init__(
        self,
        backbone: Model,
        num_classes: int | None = None,
        preprocessor: DependencyParserPreprocessor | None = None,
        label_names: Sequence[str] | None = None,
        arc_dim: int = 100,
        relation_dim: int = 100,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        classes = settle_classes(preprocessor, num_classes, label_names)
        super().__init__(backbone, preprocessor, **kwargs)
        self.num_classes, self.label_names = classes
        self.activation = None
        self.arc_dim = arc_dim
        self.relation_dim = relation_dim
        self.dropout = dropout
        self.head = BiaffineHead(
            self.num_classes,
            arc_dim,
            relation_dim,
            dropout,
            backbone.make_initializer(),
            dtype=backbone.dtype_policy,
            name="head",
        )
        self.head.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        names = ("word_positions", "word_mask", "word_heads")
        positions, mask, heads = (inputs.pop(name, None) for name in names)
        states = states_of(self.backbone, inputs, positions, training)
        arcs, logits = self.head(states, heads, training=training)
        words = ops.shape(states)[1]
        places = ops.arange(words + 1, dtype="int32")
        allowed = ops.expand_dims(places[1:], 1) != places  # no word is its own head
        allowed = ops.expand_dims(allowed, 0)
        if mask is not None:
            mask = ops.cast(mask, "bool")
            root = ops.ones_like(mask[:, :1])
            there = ops.concatenate([root, mask], axis=1)
            allowed = allowed & ops.expand_dims(there, 1) & ops.expand_dims(mask, 2)
        arcs = ops.where(allowed, arcs, NOWHERE)
        if heads is not None:
            return {"arcs": arcs, "relation_logits": logits}
        best = ops.cast(ops.argmax(logits, axis=-1), "int32")
        return {"arcs": arcs, "relations": best}

    def default_loss(self) -> Any:
        return None

    def soft_loss(self) -> None:
        return None

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        losses = token_crossentropy(x["word_heads"], y_pred["arcs"])
        losses += token_crossentropy(y, y_pred["relation_logits"])
        weights = ops.ones_like(losses)
        if sample_weight is not None:
            weights = weights * ops.cast(sample_weight, losses.dtype)
        # A word of weight 0 may have a head that was cut off.
        losses = ops.where(weights > 0, losses, 0.0)
        loss = distribution.global_mean(ops.sum(losses * weights), ops.sum(weights))
        return loss + self.added_losses()

    def default_metrics(self) -> Any:
        return {
            "arcs": [UnweightedAccuracy(name="accuracy")],
            "relation_logits": [UnweightedAccuracy(name="accuracy")],
        }

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        names = {"arcs": x["word_heads"], "relation_logits": y}
        weights = None if sample_weight is None else dict.fromkeys(names, sample_weight)
        return super().compute_metrics(x, names, y_pred, weights)

    @checked
    def parse(self, sentences: Sequence[Any], batch_size: int = 32) -> list[Any]:
        """Find the trees of sentences.

        Args:
            sentences: list of words, or a list of such lists.
            batch_size: int.

        Returns:
            For each sentence a list with a tuple `(word, head, relation)` for each
            word. `head` is the number of the word that it depends on, counted from 1; 0
            is the root. Without `label_names`, relations are numbers. A word that
            doesn't fit into the row has `None` for both. For a single sentence, its
            list.

        Raises:
            ValueError: if the task has no preprocessor, or for what isn't words.
            ImportError: if the best heads don't form a tree and networkx, of the
                `evaluation` extra, isn't installed.
        """
        if self.preprocessor is None:
            raise ValueError("`parse` needs a task with a preprocessor.")
        if not isinstance(sentences, (list, tuple, np.ndarray)):
            raise ValueError(
                "`sentences` must be words, or lists of words: split a text first. "
                f"Received: {sentences!r}."
            )
        if len(sentences) and isinstance(sentences[0], str):
            return self.parse([sentences], batch_size)[0]
        found: list[Any] = [[] for _ in sentences]
        order = sorted(range(len(sentences)), key=lambda k: len(sentences[k]))
        order = [k for k in order if len(sentences[k])]
        names = self.label_names or range(self.num_classes)
        for at in range(0, len(order), _SENTENCES_AT_ONCE):
            numbers = order[at : at + _SENTENCES_AT_ONCE]
            part = [checked_words(sentences[k], k, "sentences") for k in numbers]
            outputs = self.predict(part, batch_size=batch_size, verbose=0)
            rows = zip(
                numbers, part, outputs["arcs"], outputs["relations"], strict=True
            )
            for k, words, arcs, relations in rows:
                # Words that may be the root, even if their scores are NaN.
                count = int((~(arcs[:, 0] <= NOWHERE / 2)).sum())
                heads = best_tree(arcs[:count, : count + 1])
                best: list[tuple[Any, Any]] = [
                    (head, names[relations[word, head]])
                    for word, head in enumerate(heads)
                ]
                best += [(None, None)] * (len(words) - count)
                found[k] = [
                    (word, *pair) for word, pair in zip(words, best, strict=True)
                ]
        return found

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        sentences = [t.split() if isinstance(t, str) else t for t in columns[0]]
        for tree in self.parse(sentences):
            names = ("words", "heads", "relations")
            yield {name: [each[k] for each in tree] for k, name in enumerate(names)}

    def _report(self, x, labels, given, batch_size, worst):
        words = [[w.decode() for w in row if w] for row in x.numpy().tolist()]
        names = self.label_names
        right = [
            [
                (int(head), _without_subtype(_named(relation, names)))
                for head, relation in row[: len(part)]
            ]
            for row, part in zip(labels.numpy().tolist(), words, strict=True)
        ]
        found = self.parse(words, batch_size)
        found = [
            [(head, _without_subtype(relation)) for _, head, relation in row]
            for row in found
        ]
        errors = []
        for sentence, true, predicted in zip(words, right, found, strict=True):
            score = attachment_scores([true], [predicted])["las"]
            wrong = [
                f"{word}: {one[0]} {one[1]}, found {other[0]} {other[1]}"
                for word, one, other in zip(sentence, true, predicted, strict=True)
                if str(one[1]) != "-100" and one != other
            ]
            if wrong:
                errors.append({"sentence": " ".join(sentence), "wrong": wrong})
                errors[-1]["las"] = score
        errors.sort(key=lambda error: error["las"])
        title = report_title(self, sum(map(len, words)), "words")
        scores = attachment_scores(right, found)
        return Report(title, scores, errors[:worst], _by_relation(right, found))

    def get_config(self) -> Config:
        config = {
            **super().get_config(),
            "arc_dim": self.arc_dim,
            "relation_dim": self.relation_dim,
            "dropout": self.dropout,
        }
        del config["activation"]
        return config


def _by_relation(right, found):
    """Score each relation; one counts as correct only if its head is correct, too."""
    pairs = [
        pair
        for rows in zip(right, found, strict=True)
        for pair in zip(*rows, strict=True)
        if str(pair[0][1]) != "-100"
    ]
    true, predicted = (Counter(pair[k][1] for pair in pairs) for k in (0, 1))
    both = Counter(one[1] for one, other in pairs if one == other)
    return {
        name: {
            "precision": both[name] / max(predicted[name], 1),
            "recall": both[name] / true[name],
            "f1": 2 * both[name] / (predicted[name] + true[name]),
            "support": true[name],
        }
        for name in sorted(true, key=str)
    }


def _without_subtype(relation):
    """Cut the subtype off, as `attachment_scores` does: `"acl:relcl"` to `"acl"`."""
    return relation.partition(":")[0] if isinstance(relation, str) else relation


def _named(relation, names):
    """Give a relation of a label tensor as `parse` does."""
    if isinstance(relation, bytes):
        return relation.decode()
    return relation if names is None or relation < 0 else names[relation]
