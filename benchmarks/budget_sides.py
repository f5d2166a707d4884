"""Pre-training within a budget of time: ours, KerasHub's, and that of `transformers`.

Each side does as its documentation does, from the same paragraphs, and is imported
before its clock starts. All have AdamW without decay of biases and norms, gradients
clipped to norm 1, and a rate that is a function of the budget's share, `rate_factor`.
"""

import dataclasses

from benchmarks.budget import (
    EPSILON,
    FOREVER,
    WEIGHT_DECAY,
    Curve,
    Stopwatch,
    rate_factor,
)
from benchmarks.budget_transformers import transformers, transformers_lines
from benchmarks.held_out import HeldOut
from benchmarks.recipes import Recipe, phases

# How many paragraphs follow each other in a piece of running text.
PIECE = 50


@dataclasses.dataclass(frozen=True)
class Work:
    """What is equal for all sides.

    Attributes:
        train: list of a list of paragraphs for each file.
        held_out: as `train`.
        vocabulary: list of str.
        recipe: `Recipe`. Other sides than ours take length, batch, rate, warm-up,
            dropout, masking rate and precision from it.
        seconds: float, the budget.
        num_layers: int.
        hidden_dim: int.
        num_heads: int.
        points: int. Evaluations.
        rows: int. See `HeldOut`, as the next.
        sentences: int.
        seed: int.
        output: where lines of JSON are added.
        known: dict. What these lines say of the run.
    """

    train: list
    held_out: list
    vocabulary: list
    recipe: Recipe
    seconds: float
    num_layers: int
    hidden_dim: int
    num_heads: int
    points: int
    rows: int
    sentences: int
    seed: int
    output: str
    known: dict

    @property
    def paragraphs(self):
        return [text for file in self.train for text in file]

    def architecture(self, vocabulary_size):
        return {
            "vocabulary_size": vocabulary_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": 4 * self.hidden_dim,
            "max_sequence_length": max(128, self.recipe.sequence_length),
            "dropout": self.recipe.dropout,
        }

    def scored(self, vocabulary):
        """Rows to be scored on."""
        return HeldOut(
            self.held_out, vocabulary, rows=self.rows, sentences=self.sentences
        )

    def curve(self):
        """A curve whose clock runs."""
        stopwatch = Stopwatch(self.seconds)
        return Curve(stopwatch, self.points, self.output, self.known)


def keras_bertfam(work):
    """Ours: `preprocessor.dataset` and `fit` of a task."""
    import keras
    import tensorflow as tf

    from keras_bertfam import models, optimizers, tasks, tokenizers

    recipe = work.recipe
    electra = recipe.objective == "electra"
    objective = tasks.ReplacedTokenDetection if electra else tasks.MaskedLM
    keras.utils.set_random_seed(work.seed)
    keras.config.set_dtype_policy(recipe.precision)
    scored = None if recipe.vocabulary_size else work.scored(work.vocabulary)
    curve = work.curve()
    texts = work.paragraphs
    if recipe.packing != "best_fit":
        texts = [
            "\n".join(file[start : start + PIECE])
            for file in work.train
            for start in range(0, len(file), PIECE)
        ]
    documents = tf.data.Dataset.from_tensor_slices(texts)
    if recipe.vocabulary_size:
        tokenizer = tokenizers.train_word_piece(documents, recipe.vocabulary_size)
        with curve.stopwatch.paused():
            scored = work.scored(tokenizer.get_vocabulary())
    else:
        tokenizer = tokenizers.BertTokenizer(work.vocabulary, lowercase=True)
    backbone = models.BertBackbone(
        **work.architecture(tokenizer.vocabulary_size()),
        norm_first=recipe.norm_first,
        initializer_range=recipe.initializer_range,
    )
    model = objective(backbone)
    optimizer = optimizers.pretraining_optimizer(
        **_adamw(recipe) | {"weight_decay": recipe.weight_decay},
        schedule_form="constant",
        optimizer=recipe.optimizer,
    )
    model.compile(optimizer)

    def logits(token_ids, padding_mask, positions):
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask.astype("bool")}
        outputs = model.masked_lm_logits(inputs | {"mask_positions": positions})
        return keras.ops.convert_to_numpy(outputs)

    callback = _in_budget(curve, recipe, lambda: scored.evaluate(logits))
    for end, length, rows, rate in phases(recipe):
        preprocessor = objective.preprocessor_cls(
            tokenizer,
            sequence_length=length,
            mask_selection_rate=rate,
            strategy=recipe.strategy,
            seed=work.seed,
        )
        data = preprocessor.dataset(
            documents,
            batch_size=rows,
            shuffle_documents=len(texts),
            packing=recipe.packing or None,
        )
        callback.end = end
        model.fit(
            data.repeat(), steps_per_epoch=FOREVER, verbose=0, callbacks=[callback]
        )
        if curve.stopwatch.share() >= 1:
            break


def keras_hub(work):
    """KerasHub's: `fit` of a `BertMaskedLM` on strings, a paragraph a row, compiled."""
    import keras
    import keras_hub
    import tensorflow as tf

    from keras_bertfam.optimizers.base import exclude_norms_and_biases

    recipe = work.recipe
    keras.utils.set_random_seed(work.seed)
    keras.config.set_dtype_policy(recipe.precision)
    scored = work.scored(work.vocabulary)
    curve = work.curve()
    paragraphs = work.paragraphs
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(
        keras_hub.tokenizers.BertTokenizer(work.vocabulary, lowercase=True),
        sequence_length=recipe.sequence_length,
        mask_selection_rate=recipe.mask_selection_rate,
        # Its default of 96 is for rows of 512 tokens, and would cost it time.
        mask_selection_length=round(
            recipe.mask_selection_rate * recipe.sequence_length + 0.5
        ),
    )
    model = keras_hub.models.BertMaskedLM(
        keras_hub.models.BertBackbone(**work.architecture(len(work.vocabulary))),
        preprocessor,
    )
    optimizer = keras.optimizers.AdamW(**_adamw(recipe))
    exclude_norms_and_biases(optimizer)
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=keras.backend.backend() != "torch",
    )
    data = tf.data.Dataset.from_tensor_slices(paragraphs)
    data = data.shuffle(len(paragraphs), seed=work.seed).repeat()

    def logits(token_ids, padding_mask, positions):
        inputs = {
            "token_ids": token_ids,
            "segment_ids": 0 * token_ids,
            "padding_mask": padding_mask,
            "mask_positions": positions,
        }
        return keras.ops.convert_to_numpy(model(inputs, training=False))

    model.fit(
        data.batch(recipe.batch_size, drop_remainder=True),
        steps_per_epoch=FOREVER,
        verbose=0,
        callbacks=[_in_budget(curve, recipe, lambda: scored.evaluate(logits))],
    )


def _adamw(recipe):
    return {
        "learning_rate": recipe.learning_rate,
        "weight_decay": WEIGHT_DECAY,
        "epsilon": EPSILON,
        "global_clipnorm": 1.0,
    }


def _in_budget(curve, recipe, evaluate):
    """A Keras callback that sets the rate before each step and ends in time."""
    import keras

    class InBudget(keras.callbacks.Callback):
        end = 1.0  # the share of the budget after which `fit()` stops

        def on_train_batch_begin(self, step, logs=None):
            factor = rate_factor(curve.stopwatch.share(), recipe.warmup)
            self.model.optimizer.learning_rate = factor * recipe.learning_rate

        def on_train_batch_end(self, step, logs=None):
            float(logs["loss"])  # wait for the step where they are asynchronous
            model = self.model  # with JAX this gives the model its weights
            spent = curve.after_step(evaluate)
            if spent or curve.stopwatch.share() >= self.end:
                model.stop_training = True

    return InBudget()


SIDES = {
    "keras_bertfam": keras_bertfam,
    "keras_hub": keras_hub,
    "transformers": transformers,
    "transformers_lines": transformers_lines,
}
