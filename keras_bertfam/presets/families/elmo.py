"""ELMo's record."""

from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import (
    Family,
    HeadStyle,
    Layout,
    PublishedSize,
)

_FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


def _size(cell_dim: int, projection_dim: int, num_highways: int) -> PublishedSize:
    return PublishedSize(
        {
            "vocabulary_size": 793_471,
            "num_layers": 2,
            "hidden_dim": 2 * projection_dim,
            "cell_dim": cell_dim,
            "embedding_dim": 16,
            "filters": _FILTERS,
            "num_highways": num_highways,
        }
    )


# The rate and the batch are those of the released code, for three GPUs and ten epochs
# of 768,648,884 words. Here a row is read in one direction.
_PRETRAINING = PretrainingRecipe(
    task="BidirectionalLM",
    source="Peters et al., 2018, section 3.4; allenai/bilm-tf, bin/train_elmo.py",
    learning_rate=0.2,
    warmup_steps=0,
    total_steps=1_000_840,
    batch_size=768,
    sequence_length=20,
    optimizer="adagrad",
    schedule_form="constant",
    weight_decay=0.0,
    global_clipnorm=10.0,
    rows="word_streams",
    task_arguments={"num_sampled": 8192},
)

ELMO = Family(
    name="elmo",
    backbone="ElmoBackbone",
    license="Apache-2.0",
    tokenizer="words",
    tokenizer_class="ElmoTokenizer",
    layout=Layout("elmo", start_token="<S>"),  # <S> A </S> B </S>
    head_style=HeadStyle("elmo", activation=None, dropout=0.5),
    sizes={
        "elmo_small_en": _size(1024, 128, 1),
        "elmo_medium_en": _size(2048, 256, 1),
        "elmo_original_en": _size(4096, 512, 2),
        "elmo_original_5.5b_en": _size(4096, 512, 2),
    },
    pretraining={"": _PRETRAINING},
    fine_tuning={
        "": FineTuningRecipe(
            (1e-3,),
            (32,),
            (10,),
            warmup_steps=0.0,
            weight_decay=0.0,
            source="Peters et al., 2018, appendix A",
        )
    },
)
