"""What isn't a number, or is a bare string, is refused by its name everywhere."""

import inspect
import math
import typing

import keras
import numpy as np
import pytest

from keras_bertfam import analysis, arguments, datasets, models, optimizers, retrieval
from keras_bertfam import tasks as all_tasks
from keras_bertfam.keras_quirks.functional_bases import Subclassed
from tests import tiny_fine_tuning as tiny

# Those that may be any number, or are lists of them.
OTHERS = {"cutoffs", "null_threshold", "seed"}


def public_models():
    for space in (models, all_tasks):
        for name in space.__all__:
            cls = getattr(space, name)
            if isinstance(cls, Subclassed):
                yield pytest.param(cls, id=name)


def numbers_of(cls):
    """The arguments of a constructor that are annotated as numbers."""
    for parameter in inspect.signature(cls.__init__).parameters.values():
        kinds = {parameter.annotation, *typing.get_args(parameter.annotation)}
        if kinds & {int, float}:
            yield parameter.name, int in kinds


@pytest.mark.parametrize("cls", [*public_models()])
def test_numbers_of_models(cls):
    for name, whole in numbers_of(cls):
        if name in OTHERS:
            continue
        least, most = arguments._NUMBERS[name]
        assert isinstance(least, int) == whole
        wrong = [math.nan, math.inf, "x", "3", *([2.5] if whole else [])]
        wrong += [x for x in (-2, 2**31, 1e9) if not least <= x <= most]
        for value in wrong:
            with pytest.raises(ValueError, match=f"`{name}` must be .*Received: "):
                cls(**{name: value})


SCHEDULES = ("WarmupPolynomialDecay", "InverseSquareRootDecay")


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0, "x"])
def test_rates(rate):
    for name in SCHEDULES:
        with pytest.raises(ValueError, match="`peak_learning_rate` must be a "):
            getattr(optimizers, name)(rate)
    for name in ("AdamW", "BertAdamW", "Lamb", "Adafactor"):
        with pytest.raises(ValueError, match="`learning_rate` must be a finite"):
            getattr(optimizers, name)(rate)
    task = all_tasks.TextClassifier(tiny.make_backbone(num_layers=1), num_classes=2)
    with pytest.raises(ValueError, match="`learning_rate` must be a "):
        task.compile(learning_rate=rate, total_steps=10)
    with pytest.raises(ValueError, match="`weight_decay` must be a finite"):
        optimizers.pretraining_optimizer(weight_decay=rate, total_steps=10)


class Encoder:
    """Vectors of any texts."""

    def encode(self, texts, kind="query", batch_size=32, too_long=None):
        return np.ones((len(texts), 2))

    def passage_digest(self):
        return "a"

    passage_sample = passage_digest


def index():
    pytest.importorskip("faiss")
    made = retrieval.Index(2)
    made.add([[1.0, 0.0]], ["a"])
    return made


CALLS = {
    "passages of add": lambda: index().add([[1.0, 0], [0, 1]], "bc"),
    "passages of build": lambda: retrieval.Index.build("ab", Encoder()),
    "batch_size": lambda: retrieval.Index.build(["a"], Encoder(), batch_size=-1),
    "ids": lambda: index().vectors([0.7]),
    "limit": lambda: datasets.load_examples("sst2", limit=-3),
    "limit of 2.5": lambda: datasets.load_examples("sst2", limit=2.5),
    "labels": lambda: analysis.probe(None, ["a b", "c"], [["x", math.nan], ["y"]]),
    "test": lambda: analysis.probe(
        None, ["a", "c"], [["x"], ["y"]], test=(["a"], [[math.nan]])
    ),
    "epochs": lambda: analysis.probe(None, ["a"], [["x"]], epochs=math.nan),
    "learning_rate": lambda: analysis.probe(None, ["a"], [["x"]], learning_rate=-1.0),
    "texts": lambda: dual_encoder().encode("ab"),
    "metric": lambda: analysis.head_importance(
        classifier(), (["a mat"], [0]), metric="zz"
    ),
}


def classifier():
    preprocessor = all_tasks.TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    backbone = tiny.make_backbone(num_layers=1)
    return all_tasks.TextClassifier(backbone, 2, preprocessor)


def dual_encoder():
    preprocessor = all_tasks.DualEncoderPreprocessor(tiny.make_tokenizer(), 16)
    return all_tasks.DualEncoder(tiny.make_backbone(num_layers=1), preprocessor)


@pytest.mark.parametrize("call", CALLS)
def test_what_isnt_right_is_named(call):
    with pytest.raises(ValueError, match=f"`{call.split()[0]}` must "):
        CALLS[call]()


def test_checks():
    arguments.check_number("a", np.float32(0.5), 0.0, 1.0)
    arguments.check_number("a", np.int64(3), 0)
    arguments.check_number("a", keras.ops.convert_to_numpy(keras.ops.ones(()))[()], 0.0)
    with pytest.raises(ValueError, match="`a` must be an int from 0 to 3. Rec"):
        arguments.check_number("a", True, 0, 3)
    with pytest.raises(ValueError, match=r"`a` must be one of \['x', 'y'\]. Received"):
        arguments.check_one_of("a", "z", ("y", "x"))
    with pytest.raises(ValueError, match="`a` must be several strings. Received: 3."):
        arguments.check_several("a", 3)
