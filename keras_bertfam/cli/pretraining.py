"""From documents to a trained `MaskedLM`: what the commands share."""

import dataclasses
import sys
from collections.abc import Sequence

import keras

from keras_bertfam.layers import train_word_piece
from keras_bertfam.models import BertBackbone
from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor
from keras_bertfam.types import Config, TFDataset


@dataclasses.dataclass
class Recipe:
    """The choices of a pre-training run.

    Attributes:
        architecture: name of a published BERT size.
        vocabulary_size: most tokens to learn.
        lowercase: whether to lower-case and strip accents.
        sequence_length: tokens in a row.
        batch_size: rows in a batch.
        epochs: how often to go through the data.
        steps_per_epoch: batches in an epoch; `None` is one pass over the data.
        learning_rate: its peak.
        warmup_steps: as `MaskedLM.compile` takes it.
        strategy: which positions are masked, as `MaskedLMPreprocessor` takes it.
        seed: of weights, shuffling and masks.
        overrides: arguments of `BertBackbone` other than the size's.
    """

    architecture: str = "bert_mini_en_uncased"
    vocabulary_size: int = 8000
    lowercase: bool = True
    sequence_length: int = 128
    batch_size: int = 64
    epochs: int = 10
    steps_per_epoch: int | None = None
    learning_rate: float = 1e-4
    warmup_steps: float = 0.01
    strategy: str = "tokens"
    seed: int = 0
    overrides: Config = dataclasses.field(default_factory=dict)

    def build(self, documents: TFDataset) -> MaskedLM:
        """Train a tokenizer and make a compiled model with new weights."""
        tokenizer = train_word_piece(
            documents, self.vocabulary_size, lowercase=self.lowercase
        )
        preprocessor = MaskedLMPreprocessor(
            tokenizer,
            sequence_length=self.sequence_length,
            strategy=self.strategy,
            seed=self.seed,
        )
        backbone = BertBackbone.from_preset(
            self.architecture,
            load_weights=False,
            vocabulary_size=tokenizer.vocabulary_size(),
            max_sequence_length=self.sequence_length,
            **self.overrides,
        )
        model = MaskedLM(backbone, preprocessor)
        model.compile(learning_rate=self.learning_rate, warmup_steps=self.warmup_steps)
        return model

    def run(
        self,
        documents: TFDataset,
        validation_documents: TFDataset | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> tuple[MaskedLM, keras.callbacks.History]:
        """Build a model and train it.

        Args:
            documents: `tf.data.Dataset` of strings.
            validation_documents: the same, or `None`.
            callbacks: list of Keras callbacks.

        Returns:
            The model and the history of its `fit()`.
        """
        model = self.build(documents)
        dataset = model.preprocessor.dataset
        data = dataset(documents, batch_size=self.batch_size)
        validation = None
        if validation_documents is not None:
            validation = dataset(
                validation_documents, batch_size=self.batch_size, training=False
            )
        if self.steps_per_epoch is not None:
            data = data.repeat()
        history = model.fit(
            data,
            epochs=self.epochs,
            steps_per_epoch=self.steps_per_epoch,
            validation_data=validation,
            callbacks=list(callbacks),
            # A bar on a terminal, a line an epoch in a file.
            verbose=1 if sys.stdout.isatty() else 2,
        )
        return model, history
