"""What users of Keras do around `fit()`."""

import gc
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import optimizers
from keras_bertfam.layers.heads.replaced_tokens import ReplacedTokenHead
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import MaskedLMPreprocessor
from keras_bertfam.tasks.losses import DetectionCrossentropy
from keras_bertfam.tasks.task import PretrainingTask
from tests import tiny_masked_lm as tiny

BACKEND = keras.backend.backend()


@pytest.fixture
def model():
    return tiny.make_model()


def weights_of(model):
    return [ops.convert_to_numpy(variable) for variable in model.variables]


OPTIMIZERS = {
    "published": {},
    "accumulated": {"gradient_accumulation_steps": 2},
    "Lamb": {"optimizer": optimizers.Lamb()},
    "Adafactor": {"optimizer": optimizers.Adafactor()},
    "of Keras": {"optimizer": "adam"},
}


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_task_is_saved_before_its_first_step(model, kind, tmp_path):
    """Keras would warn of moments that the file lacks."""
    model.compile(**OPTIMIZERS[kind])
    assert not model.optimizer.built
    model.save(tmp_path / "model.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert not loaded.optimizer.built


@pytest.mark.slow
@pytest.mark.any_backend
def test_keras_callbacks_work_as_with_any_model(model, tmp_path):
    checkpoint = tmp_path / "best.weights.h5"
    history = model.fit(
        tiny.stream(model),
        epochs=2,
        validation_data=tiny.stream(model, training=False),
        callbacks=[
            keras.callbacks.ModelCheckpoint(
                checkpoint, save_best_only=True, save_weights_only=True
            ),
            keras.callbacks.CSVLogger(tmp_path / "log.csv"),
            keras.callbacks.TensorBoard(tmp_path / "board"),
            keras.callbacks.BackupAndRestore(tmp_path / "backup"),
        ],
        verbose=0,
    ).history
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0].split(",") == ["epoch", *sorted(history)]
    assert [float(line.split(",")[2]) for line in lines[1:]] == history["loss"]
    assert any((tmp_path / "board" / "train").iterdir())
    other = tiny.make_model()
    other.load_weights(checkpoint)
    best = other.evaluate(tiny.stream(other, training=False), return_dict=True)
    assert best["loss"] == pytest.approx(min(history["val_loss"]), rel=1e-4)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("jit_compile", [True, False])
def test_compiled_or_not_gives_the_same_losses(model, jit_compile):
    if BACKEND == "torch" and jit_compile:
        pytest.skip("torch.compile needs a C++ compiler, and minutes")
    model.compile(pretraining_optimizer(1e-2, 40, 2), jit_compile=jit_compile)
    history = model.fit(tiny.stream(model).take(3), verbose=0).history
    model = tiny.make_model()
    model.compile(pretraining_optimizer(1e-2, 40, 2), run_eagerly=BACKEND != "jax")
    expected = model.fit(tiny.stream(model).take(3), verbose=0).history
    assert history["loss"] == pytest.approx(expected["loss"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_accumulated_gradients_move_the_weights_every_second_step(model):
    optimizer = pretraining_optimizer(1e-2, 40, 0, gradient_accumulation_steps=2)
    model.compile(optimizer)
    moved = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            moved.append(weights_of(self.model))  # as JAX needs it in mid-epoch

    before = weights_of(model)
    model.fit(tiny.stream(model).take(4), callbacks=[Watch()], verbose=0)
    steps = [before, *moved]
    changes = [
        any(np.any(old != new) for old, new in zip(*pair, strict=True))
        for pair in zip(steps, steps[1:], strict=False)
    ]
    assert changes == [False, True, False, True]


@pytest.mark.slow
def test_sequences_packed_in_a_row_are_trained_apart(model):
    tokenizer = model.preprocessor.tokenizer
    model.preprocessor = MaskedLMPreprocessor(tokenizer, 16, sequence_ids=True)
    data = model.preprocessor.dataset(tiny.documents(), 8)
    assert max(int(np.max(x["sequence_ids"])) for x, _, _ in data) > 1
    history = model.fit(data, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]


@pytest.mark.slow
def test_steps_per_epoch_goes_on_through_the_data(model):
    model.fit(tiny.stream(model).repeat(), epochs=3, steps_per_epoch=5, verbose=0)
    assert int(model.optimizer.iterations) == 15
    # Two passes of 7 batches, and one of the third.
    assert model.preprocessor.position.epoch == 3


@pytest.mark.slow
@pytest.mark.any_backend
def test_validation_masks_stay_and_training_masks_change(model):
    held_out = tiny.stream(model, training=False)

    class Masks(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def on_epoch_end(self, epoch, logs=None):
            self.seen.append([y.tolist() for _, y, _ in held_out.as_numpy_iterator()])

    masks = Masks()
    model.compile(keras.optimizers.SGD(0.0))
    history = model.fit(
        tiny.stream(model),
        epochs=3,
        validation_data=held_out,
        callbacks=[masks],
        verbose=0,
    ).history
    assert masks.seen[0] == masks.seen[1] == masks.seen[2]
    # With weights that stay, only other masks can change the loss.
    assert len(set(np.round(history["val_loss"], 6))) == 1
    assert len(set(np.round(history["loss"], 6))) == 3


@pytest.mark.slow
def test_loss_is_that_of_the_batches_that_are_there(model):
    # Weights stay and dropout is 0: each batch's loss is the same in both.
    model.compile(keras.optimizers.SGD(0.0))
    data = list(tiny.stream(model))
    losses = [model.evaluate(*batch[:2], sample_weight=batch[2]) for batch in data]
    model.preprocessor.position.set(0)
    history = model.fit(tiny.stream(model), verbose=0).history
    assert int(model.optimizer.iterations) == len(data) == 7
    assert history["loss"][0] == pytest.approx(np.mean([x[0] for x in losses]), 1e-4)


class Batches(keras.utils.PyDataset):
    def __init__(self, items):
        super().__init__()
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "dataset",
        "arrays",
        pytest.param(
            "strings", marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
        ),
        "py_dataset",
    ],
)
def test_the_schedule_learns_how_long_the_training_is(model, kind):
    data = tiny.stream(model, training=False).take(2)
    fit = {"x": data}
    if kind == "strings":
        fit = {"x": [text.decode() for text in tiny.documents(40).as_numpy_iterator()]}
    elif kind == "arrays":
        x, y, weights = next(data.unbatch().batch(16).as_numpy_iterator())
        fit = {"x": x, "y": y, "sample_weight": weights, "batch_size": 8}
    elif kind == "py_dataset":
        fit = {"x": Batches(list(data.as_numpy_iterator()))}
    model.compile()
    model.fit(**fit, epochs=2, verbose=0)
    assert int(model.optimizer.iterations) == 4
    assert model.optimizer._learning_rate.total_steps == 4


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "kind",
    [
        "rows",
        pytest.param(
            "texts", marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
        ),
    ],
)
def test_arrays_are_shuffled_as_in_keras(kind, recwarn):
    """By default, anew at each pass; a dataset is taken as it comes."""
    if kind == "rows":
        data = next(iter(tiny.stream(tiny.make_model(), batch_size=24)))
        data = keras.tree.map_structure(ops.convert_to_numpy, data)
    else:
        data = ([text.decode() for text in tiny.documents(24).as_numpy_iterator()],)

    names = ("x", "y", "sample_weight")
    fit = dict(zip(names, data, strict=False), batch_size=8, verbose=0)

    def make(total_steps=None):
        model = tiny.make_model()
        settings = {"total_steps": total_steps, "jit_compile": BACKEND == "jax"}
        model.compile(learning_rate=1e-2, **settings)
        return model

    # The schedule counts the rows that are left to train on.
    model, part = make(), make()
    model.fit(**fit, epochs=2)
    part.fit(**fit, epochs=2, validation_split=1 / 3)
    steps = [each.optimizer._learning_rate.total_steps for each in (model, part)]
    assert steps == [6, 4]

    shuffled, model = weights_of(model), make(total_steps=6)
    start = [ops.convert_to_numpy(variable) for variable in model.weights]

    def trained(shuffle, *epochs):
        """The weights after a fit for each of `epochs`, always from the same ones."""
        for variable, value in zip(model.weights, start, strict=True):
            variable.assign(value)
        for variable in model.optimizer.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype))
        for first, last in epochs:
            model.fit(**fit, initial_epoch=first, epochs=last, shuffle=shuffle)
        return weights_of(model)

    def equal(one, other):
        return all(map(np.array_equal, one, other))

    # The order is the epoch's, also in a run that goes on.
    assert equal(shuffled, trained(True, (0, 1), (1, 2)))
    assert not equal(shuffled, trained(True, (0, 1), (0, 1)))
    assert not equal(shuffled, trained(False, (0, 2)))
    assert not [w for w in recwarn if "shuffle" in str(w.message)]


@pytest.mark.slow
def test_validation_arrays_come_in_batches_of_their_size(model):
    x, y, weights = next(iter(tiny.stream(model, batch_size=24)))
    steps = []
    count = keras.callbacks.LambdaCallback(
        on_test_batch_end=lambda step, logs: steps.append(step)
    )
    for options in ({"batch_size": 8}, {"batch_size": 8, "validation_batch_size": 4}):
        validation = {"validation_data": (x, y, weights), "callbacks": [count]}
        model.fit(x, y, sample_weight=weights, **validation, **options, verbose=0)
    assert steps == [*range(3), *range(6)]


class Parity(PretrainingTask):
    """Says of each token whether its id is odd: an objective in a few lines."""

    def __init__(self, backbone, preprocessor=None, **kwargs):
        super().__init__(backbone, preprocessor, **kwargs)
        self.head = ReplacedTokenHead()
        self.head.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile()

    def call(self, inputs, training=None):
        outputs = self.backbone(inputs, return_pooled=False, training=training)
        return self.head(outputs["sequence_output"])

    def default_loss(self):
        return DetectionCrossentropy()


@pytest.mark.slow
def test_a_new_objective_trains_all_but_the_pooler(model):
    model = Parity(model.backbone)
    model.compile(keras.optimizers.SGD(1.0))
    ids = np.array([[5, 6, 7, 8], [8, 7, 6, 5]])
    segments = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    before = weights_of(model)
    model.fit({"token_ids": ids, "segment_ids": segments}, ids % 2, verbose=0)
    pooler = {id(variable) for variable in model.backbone.pooler.variables}
    trained = {id(variable) for variable in model.trainable_variables}
    pairs = zip(model.variables, before, strict=True)
    for variable, old in pairs:
        moved = (ops.convert_to_numpy(variable) != old).any()
        if id(variable) in pooler:
            assert not moved and variable.trainable
        elif id(variable) in trained:
            assert moved, variable.path


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_graph_of_a_step_goes_with_its_model():
    from tensorflow.python.framework.func_graph import FuncGraph

    def steps():
        gc.collect()
        graphs = (x for x in gc.get_objects() if isinstance(x, FuncGraph))
        return sum(graph.name == "one_step_on_data" for graph in graphs)

    before = steps()
    model = tiny.make_model()
    x, y, weights = next(iter(tiny.stream(model)))
    model.train_on_batch(x, y, weights)
    assert steps() == before + 1
    del model
    assert steps() == before
