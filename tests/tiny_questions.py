"""Questions with answers, and a model that can learn them, small enough to run."""

import keras
import numpy as np

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.tasks import (
    SpanQuestionAnswering,
    SpanQuestionAnsweringPreprocessor,
)
from tests.tiny_fine_tuning import FAMILIES, SIZES, compiled
from tests.tiny_masked_lm import SPECIALS

PLACES = "mat hat tree box bed car bus bag".split()
ANIMALS = "cat dog cow hen".split()
WORDS = [*"where is the a sat on under . ? é e".split(), *PLACES, *ANIMALS]


def make_preprocessor(sequence_length=24, family="bert", **kwargs):
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    settings = {"question_length": 6, "doc_stride": 8, **kwargs}
    if family == "xlnet":
        settings.setdefault("layout", "xlnet")
    return SpanQuestionAnsweringPreprocessor(tokenizer, sequence_length, **settings)


def make_model(family="bert", preprocessor=None, **kwargs):
    keras.utils.set_random_seed(3)
    preprocessor = preprocessor or make_preprocessor(family=family)
    settings = {**SIZES, "dropout": 0.0}
    if family != "xlnet":
        settings["max_sequence_length"] = 32
    size = preprocessor.tokenizer.vocabulary_size()
    backbone = FAMILIES[family](size, **settings)
    return compiled(SpanQuestionAnswering(backbone, preprocessor, n_best=3, **kwargs))


def questions(count=64, impossible=0.0, sentences=(1, 5), seed=0):
    """`The cat sat on a mat.` a few times; where one of the animals is."""
    rng = np.random.default_rng(seed)
    x, y = {"question": [], "context": []}, []
    for _ in range(count):
        animals = rng.permutation(ANIMALS)[: rng.integers(*sentences)]
        places = rng.choice(PLACES, len(animals))
        parts = [
            f"The {a}  sat on é a {p}." for a, p in zip(animals, places, strict=True)
        ]
        context = " ".join(parts)
        if rng.random() < impossible:
            animal, answer = sorted({*ANIMALS, "bus"} - {*animals})[0], None
        else:
            chosen = rng.integers(len(animals))
            animal, answer = animals[chosen], f"a {places[chosen]}"
        x["question"].append(f"Where is the {animal}?")
        x["context"].append(context)
        texts = [] if answer is None else [answer]
        begin = sum(len(part) + 1 for part in parts[: chosen + 1]) if answer else 0
        starts = [context.rindex(answer, 0, begin)] if answer else []
        y.append({"text": texts, "answer_start": starts})
    return x, y
