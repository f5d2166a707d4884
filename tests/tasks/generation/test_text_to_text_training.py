"""From texts to trained models that write texts, and their presets."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import GPT2Backbone, T5Backbone
from keras_bertfam.tasks import (
    CausalLM,
    CausalLMPreprocessor,
    DenoisingPreprocessor,
    TextToText,
    TextToTextPreprocessor,
)
from tests.tasks.generation.text_to_text_tokenizers import (
    as_dataset,
    byte_pair,
    random_texts,
    t5,
)

SIZE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
LENGTH = 24


def make(task, preprocessor):
    keras.utils.set_random_seed(2)
    size = preprocessor.tokenizer.vocabulary_size()
    if task is CausalLM:
        backbone = GPT2Backbone(size, max_sequence_length=LENGTH, dropout=0.0, **SIZE)
    else:
        backbone = T5Backbone(size, head_dim=8, dropout=0.0, **SIZE)
    model = task(backbone, preprocessor)
    model.compile(keras.optimizers.Adam(3e-2))
    return model


def losses(model, data, epochs=6):
    return model.fit(data, epochs=epochs, verbose=0).history["loss"]


PREPROCESSORS = {
    "denoising": (TextToText, lambda: DenoisingPreprocessor(t5(), LENGTH)),
    "pairs": (TextToText, lambda: TextToTextPreprocessor(t5(), LENGTH, packed=True)),
    "next token": (CausalLM, lambda: CausalLMPreprocessor(byte_pair("gpt2"), LENGTH)),
}


slow = [pytest.mark.slow("release"), pytest.mark.any_backend]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, packing",
    [
        ("denoising", "best_fit"),
        pytest.param("denoising", None, marks=slow),
        pytest.param("pairs", "best_fit", marks=slow),
        pytest.param("pairs", None, marks=slow),
        pytest.param("next token", "best_fit", marks=slow),
        pytest.param("next token", None, marks=slow),
    ],
)
def test_training_from_texts(name, packing):
    task, preprocessor = PREPROCESSORS[name]
    model = make(task, preprocessor())
    assert model._scoring
    texts = random_texts(24)
    if name == "pairs":
        if packing is None:
            model.preprocessor.packed = False
        data = model.preprocessor.dataset((texts, texts), 4, training=True)
    else:
        data = model.preprocessor.dataset(as_dataset(texts), 4, packing=packing)
    x = next(iter(data))[0]
    assert any("sequence_ids" in key for key in x) == (packing is not None)
    history = losses(model, data)
    assert history[-1] < 0.8 * history[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["denoising", "pairs", pytest.param("next token", marks=slow)]
)
def test_presets_keep_their_preprocessor(name, tmp_path):
    task, preprocessor = PREPROCESSORS[name]
    model = make(task, preprocessor())
    model.save_to_preset(str(tmp_path))
    again = task.from_preset(str(tmp_path))
    assert type(again.preprocessor) is type(model.preprocessor)
    texts = random_texts(3)
    x = model.preprocessor((texts, texts) if name == "pairs" else texts)[0]
    x = {key: ops.convert_to_tensor(value.numpy()) for key, value in x.items()}
    np.testing.assert_allclose(
        ops.convert_to_numpy(again(x)), ops.convert_to_numpy(model(x)), atol=1e-5
    )
