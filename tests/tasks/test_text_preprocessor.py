"""What text preprocessors have in common, and one of text to text."""

import inspect

import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.layers.data.base import PreprocessingLayer
from keras_bertfam.layers.data.rows.rows import PackedRows
from keras_bertfam.tasks.text_preprocessor import PackingPreprocessor

WORDS = [f"w{i}" for i in range(40)]
SENTINELS = [f"<extra_id_{i}>" for i in range(9)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", *SENTINELS]
PRETRAINING = [
    tasks.CausalLMPreprocessor,
    tasks.DenoisingPreprocessor,
    tasks.MaskedLMPreprocessor,
    tasks.MaskedLMSentencePairPreprocessor,
    tasks.PermutationLMPreprocessor,
    tasks.ReplacedTokenDetectionPreprocessor,
    tasks.SpanBoundaryLMPreprocessor,
]
FINE_TUNING = [
    tasks.MultipleChoicePreprocessor,
    tasks.SpanQuestionAnsweringPreprocessor,
    tasks.TextClassifierPreprocessor,
    tasks.TextEmbedderPreprocessor,
    tasks.TextRegressorPreprocessor,
    tasks.TokenClassifierPreprocessor,
]


@pytest.fixture
def documents():
    rng = np.random.default_rng(0)
    texts = [
        "\n".join(" ".join(rng.choice(WORDS, 6)) for _ in range(5)) for _ in range(70)
    ]
    return tf.data.Dataset.from_tensor_slices(texts)


def arguments(cls):
    """Names, kinds and defaults of `dataset`'s arguments but the data."""
    _, _, *rest = inspect.signature(cls.dataset).parameters.values()
    return {p.name: (p.kind, p.default) for p in rest}


def test_dataset_has_one_signature():
    first, *others = map(arguments, PRETRAINING)
    assert all(list(other.items()) == list(first.items()) for other in others)
    shared = list(first.items())[:3]
    assert [name for name, _ in shared] == ["batch_size", "training", "shuffle_buffer"]
    for cls in FINE_TUNING:
        assert list(arguments(cls).items())[:3] == shared


@pytest.mark.parametrize("cls", PRETRAINING)
def test_no_preprocessor_is_one_of_another_objective(cls):
    assert sum(issubclass(cls, other) for other in PRETRAINING) == 1


def rows_of(batch):
    return len(tf.nest.flatten(batch)[0])


@pytest.mark.slow
@pytest.mark.parametrize("cls", PRETRAINING)
def test_the_default_is_keras_own_batch_size(cls, documents):
    preprocessor = cls(BertTokenizer(VOCABULARY), 16)
    assert rows_of(next(iter(preprocessor.dataset(documents)))) == 32
    with pytest.raises(ValueError, match="`shuffle_buffer` must be .*at least 0.*-1"):
        preprocessor.dataset(documents, shuffle_buffer=-1)
    with pytest.raises(ValueError, match="`duplicates` must be .*at least 1.*0"):
        preprocessor.dataset(documents, duplicates=0)
    with pytest.raises(TypeError):
        preprocessor.dataset(documents, 4, 100)  # by its name only


@pytest.mark.slow
def test_duplicates_of_orders(documents):
    preprocessor = tasks.PermutationLMPreprocessor(BertTokenizer(VOCABULARY), 16)
    data = preprocessor.dataset(documents, 4, duplicates=2)
    passes = [[x["perm_ranks"].numpy().tolist() for x, *_ in data] for _ in range(3)]
    assert passes[0] == passes[2] != passes[1]


def test_arguments_that_make_no_sense_are_refused(documents):
    preprocessor = tasks.PermutationLMPreprocessor(BertTokenizer(VOCABULARY), 16)
    for name, value in {"packing": "doc", "tokens_per_batch": 64}.items():
        with pytest.raises(ValueError, match=f"`{name}` must be `None`.*{value}"):
            preprocessor.dataset(documents, **{name: value})
    assert not hasattr(preprocessor, "pack")
    assert "sequence_ids" not in preprocessor.get_config()
    with pytest.raises(ValueError, match='`span_unit` must be .*"token".*words'):
        tasks.PermutationLMPreprocessor(BertTokenizer(VOCABULARY), span_unit="words")
    preprocessor = tasks.MaskedLMPreprocessor(BertTokenizer(VOCABULARY), 16)
    packed = preprocessor.pack(documents)
    for name, value in {"packing": "doc", "break_lines": False}.items():
        with pytest.raises(ValueError, match=f"given to `pack`.*{name}=.?{value}"):
            preprocessor.dataset(packed, **{name: value})


# === Text to text: targets of another length, no mask token, no start, no end ===


class HalvePrefix(PreprocessingLayer):
    """Keeps the first tokens of rows, and says what follows."""

    row_arguments = ()

    def call(self, token_ids, seed=None):
        keep = token_ids.shape[-1] // 4
        return {"kept": token_ids[..., :keep], "rest": token_ids[..., keep:]}


class PrefixLMPreprocessor(PackingPreprocessor):
    def __init__(self, tokenizer, sequence_length=16, **kwargs):
        super().__init__(tokenizer, sequence_length, **kwargs)
        self.build_if_ready()

    def make_rows(self):
        return PackedRows(self.tokenizer, self.sequence_length)

    def make_corruption(self):
        return HalvePrefix()

    def example(self, rows, corrupted):
        y = corrupted["rest"]
        weights = tf.cast(rows["padding_mask"][..., -y.shape[-1] :], tf.float32)
        return {"encoder_token_ids": corrupted["kept"]}, y, weights


def letters():
    """Byte-level BPE that has neither a mask token nor one of padding's own."""
    tokens = ["<|endoftext|>", *"abcdefgh", "Ġ", "Ġa"]
    return keras_hub.tokenizers.GPT2Tokenizer(
        {token: number for number, token in enumerate(tokens)}, ["Ġ a"]
    )


@pytest.mark.slow
def test_text_to_text():
    preprocessor = PrefixLMPreprocessor(letters(), seed=2)
    documents = tf.data.Dataset.from_tensor_slices(["abcdefgh" * 9, "hgfe" * 5])
    blocks = list(preprocessor.pack(documents))
    ids = np.concatenate([b["token_ids"][b["padding_mask"]] for b in blocks])
    assert ids.tolist() == [*range(1, 9)] * 9 + [8, 7, 6, 5] * 5
    for data in (documents, preprocessor.pack(documents).cache()):
        batches = list(preprocessor.dataset(data, 2))
        assert len(batches) == len(blocks) // 2 == 3
        for x, y, weights in batches:
            assert x["encoder_token_ids"].shape == (2, 4)
            assert y.shape == weights.shape == (2, 12)
        preprocessor.position.set(0)
    encoded = preprocessor.encode(["abc", "h"])
    assert encoded["token_ids"].numpy().tolist() == [[1, 2, 3], [8, 0, 0]]
    x, y, weights = preprocessor("abcdefg")
    assert x["encoder_token_ids"].numpy().tolist() == [1, 2, 3, 4]
    assert y.numpy()[:4].tolist() == [5, 6, 7, 0] and weights.numpy().sum() == 3


def test_base_errors():
    with pytest.raises(ValueError, match="`tokenizer` must be .*: <object"):
        PrefixLMPreprocessor(object())
    with pytest.raises(ValueError, match="`tokenizer` must have a mask token.*GPT2"):
        tasks.MaskedLMPreprocessor(letters())
    with pytest.raises(TypeError, match="Half must define `make_rows`"):
        type("Half", (PackingPreprocessor,), {})(letters()).build()
