"""Model masked language with the help of retrieved passages: REALM."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.tasks.retrieval.knowledge_augmented_masked_lm_preprocessor import (
    KnowledgeAugmentedMaskedLMPreprocessor,
)
from keras_bertfam.tasks.retrieval.passage_reader import (
    TokensOfPassages,
    by_row,
    flat,
    rows_of,
)
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.types import Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class KnowledgeAugmentedMaskedLM(TokensOfPassages):
    """Predicts masked tokens from a text and passages retrieved for it, as REALM.

    Call `fit()` to train, and `log_probabilities()` and `passage_scores()` for
    probabilities of tokens and scores of passages.

    An index, which may be older than the weights, gives candidate passages. Both towers
    of the retriever are trained through `p(z | x)`: the softmax over the candidates of
    the inner products of the towers' vectors, computed with the weights of each step.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`, the reader.
        preprocessor: `KnowledgeAugmentedMaskedLMPreprocessor`, or `None` for batches
            that already have passages.
        retriever: `keras_bertfam.tasks.DualEncoder` with the reader's vocabulary, best
            trained by the inverse cloze task.
        marginalization: `"sequence"`, the paper's `log sum_z p(z) prod_j p(y_j | z)`,
            or `"token"`, the released code's `sum_j log sum_z p(z) p(y_j | z)`. Both
            are divided by the number of masked tokens.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, as the preprocessor makes them: the reader's rows,
            int `(batch, candidates, length)`, with `mask_positions`, `(batch, count)`;
            and those of the retriever, `query_token_ids` and others, `(batch,
            query_length)`, and `passage_token_ids` and others, `(batch, candidates,
            passage_length)`.

    Returns:
        Dict of float32 tensors: `logits`, `(batch, candidates, count,
        vocabulary_size)`, and `passage_scores`, `(batch, candidates)`.
        `log_probabilities` combines the two.

    Apart from the loss, `compile()` without arguments sets up the training of the
    backbone's family. The index isn't saved with the task.
    `keras_bertfam.tasks.RefreshIndex` keeps it up to date.

    Raises:
        ValueError: for an unknown `marginalization`, no `retriever`, or a retriever
            with another vocabulary.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    retriever = keras_bertfam.tasks.DualEncoder(
        keras_bertfam.models.Backbone.from_preset("my_bert"),
        keras_bertfam.tasks.DualEncoderPreprocessor(
            tokenizer, sequence_length=32, query_length=16))
    passages = ["⟦Jane Austen⟧ wrote Emma.", "⟦Paris⟧ is in France.", "A ⟦cat⟧ sat."]
    plain = [p.replace("⟦", "").replace("⟧", "") for p in passages]
    index = keras_bertfam.retrieval.Index.build(plain, retriever)
    search = keras_bertfam.tasks.PassageSearch(retriever, index)
    preprocessor = keras_bertfam.tasks.KnowledgeAugmentedMaskedLMPreprocessor(
        tokenizer, sequence_length=16, passage_length=16, num_candidates=3)
    preprocessor.search = search
    reader = keras_bertfam.models.Backbone.from_preset("my_bert")
    model = keras_bertfam.tasks.KnowledgeAugmentedMaskedLM(
        reader, preprocessor, retriever)
    texts = tf.data.Dataset.from_tensor_slices({"text": passages, "source": [0, 1, 2]})
    refresh = keras_bertfam.tasks.RefreshIndex(
        search, "my_indices", every=1, background=False)
    model.fit(preprocessor.dataset(texts, batch_size=3), callbacks=[refresh])
    ```

    Reference: [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.
    """

    preprocessor_cls = KnowledgeAugmentedMaskedLMPreprocessor
    backbone_cls = EncoderBackbone

    def __init__(
        self,
        backbone: Model,
        preprocessor: Any = None,
        retriever: Any = None,
        marginalization: str = "sequence",
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, retriever, marginalization, **kwargs)
        theirs = self.retriever.backbone.vocabulary_size
        if theirs != backbone.vocabulary_size:
            raise ValueError(
                "`retriever` must have the reader's vocabulary. Expected: "
                f"vocabulary_size={backbone.vocabulary_size}. Received: {theirs}."
            )
        self.head = masked_lm_head(backbone)
        self.built = True
        self.compile_by_default()

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        count = inputs["token_ids"].shape[1]
        labels = self.repeated_labels(inputs, count)
        rows = flat(rows_of(inputs))
        positions = ops.repeat(inputs["mask_positions"], count, axis=0)
        outputs = self.backbone(
            rows, positions=positions, return_pooled=False, training=training
        )
        logits = self.predict_tokens(
            self.head, outputs["sequence_output"], labels=labels
        )
        return {
            "logits": by_row(logits, count),
            "passage_scores": self.passage_scores(inputs, training),
        }
