import keras
import numpy as np
import pytest

WORDS = "the a cat dog sat ran on in mat hat and saw by tree red blue".split()
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def texts():
    """Twenty documents of a few sentences each."""
    rng = np.random.default_rng(0)

    def sentence():
        return " ".join(rng.choice(WORDS, rng.integers(4, 9))) + " ."

    return [" ".join(sentence() for _ in range(4)) for _ in range(20)]


@pytest.fixture
def make_model():
    from keras_bertfam.layers import BertTokenizer
    from keras_bertfam.models import BertBackbone
    from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor

    def make(**kwargs):
        keras.utils.set_random_seed(3)
        tokenizer = BertTokenizer([*SPECIALS, ".", *WORDS], lowercase=True)
        settings = {
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 24,
            "max_sequence_length": 16,
            "dropout": 0.0,
        }
        backbone = BertBackbone(tokenizer.vocabulary_size(), **{**settings, **kwargs})
        return MaskedLM(backbone, MaskedLMPreprocessor(tokenizer, sequence_length=16))

    return make
