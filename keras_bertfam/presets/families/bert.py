"""BERT's record."""

import dataclasses

from keras_bertfam.presets.families.parts import keras_hub_weights as keras_hub
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import (
    Family,
    HeadStyle,
    Layout,
    Variant,
    size,
)
from keras_bertfam.presets.families.parts.tables import (
    BLOCK,
    KerasHubTable,
    TensorFlow1Table,
    TransformersTable,
)
from keras_bertfam.presets.families.parts.transformers_weights import (
    BERT_CONFIG,
    BERT_WEIGHTS,
    DROPOUT,
    ENCODER_ARGUMENTS,
    NO_DECODER,
    POOLER,
    label_heads,
    masked_lm_head,
    span_boundary_head,
)
from keras_bertfam.presets.families.parts.weight_maps import dense

_SIZES = {
    f"bert_l{layers}_h{width}_en_uncased": size(
        30522,
        layers,
        width,
        source=f"google/bert_uncased_L-{layers}_H-{width}_A-{width // 64}",
    )
    for layers in (2, 4, 6, 8, 10, 12)
    for width in (128, 256, 512, 768)
}
# Sizes that also have names of their own.
_SIZES |= {
    f"bert_{name}_en_uncased": _SIZES[f"bert_l{layers}_h{width}_en_uncased"]
    for name, layers, width in (
        ("tiny", 2, 128),
        ("mini", 4, 256),
        ("small", 4, 512),
        ("medium", 8, 512),
    )
}
_SIZES |= {
    name: size(vocabulary_size, *shape, source=f"google-bert/bert-{source}")
    for name, vocabulary_size, shape, source in (
        ("bert_base_en_uncased", 30522, (12, 768), "base-uncased"),
        ("bert_base_en", 28996, (12, 768), "base-cased"),
        ("bert_base_zh", 21128, (12, 768), "base-chinese"),
        ("bert_base_multi", 119547, (12, 768), "base-multilingual-cased"),
        ("bert_base_multi_uncased", 105879, (12, 768), "base-multilingual-uncased"),
        ("bert_large_en_uncased", 30522, (24, 1024), "large-uncased"),
        ("bert_large_en", 28996, (24, 1024), "large-cased"),
        (
            "bert_large_en_uncased_whole_word",
            30522,
            (24, 1024),
            "large-uncased-whole-word-masking",
        ),
        (
            "bert_large_en_whole_word",
            28996,
            (24, 1024),
            "large-cased-whole-word-masking",
        ),
    )
}

_MACBERT_SIZES = {
    f"macbert_{name}_zh": size(21128, *shape, source=f"hfl/chinese-macbert-{name}")
    for name, shape in (("base", (12, 768)), ("large", (24, 1024)))
}
_SIZES |= _MACBERT_SIZES

# Appendix A.2. The released code has the batch, the steps and the form of the schedule
# as well. Nine tenths of the steps had rows of 128 tokens.
_PRETRAINING = PretrainingRecipe(
    task="MaskedLMSentencePair",
    source="Devlin et al., 2018, appendix A.2; google-research/bert, optimization.py",
    learning_rate=1e-4,
    warmup_steps=10_000,
    total_steps=1_000_000,
    batch_size=256,
    schedule_form="hold",
    rows="segment_pairs",
    masking={"mask_selection_rate": 0.15, "mask_selection_length": 80},
    task_arguments={"sentence_objective": "nsp"},
    lengths=((0.9, 128), (0.1, 512)),
)

# The release's README, May 2019.
_WHOLE_WORD = dataclasses.replace(
    _PRETRAINING, masking={**_PRETRAINING.masking, "strategy": "words"}
)

# The release's README on languages: they are sampled by this power.
_LANGUAGES = dataclasses.replace(_PRETRAINING, mix_exponent=0.7)
# No code of its pre-training was released. Words and n-grams of words are masked. Each
# word is replaced by a similar one, as the preprocessor's `similar_words` gives it.
_MACBERT = dataclasses.replace(
    _PRETRAINING,
    source="Cui et al., 2020, section 3: masks and pairs; the rest is BERT's",
    masking={
        "mask_selection_rate": 0.15,
        "strategy": {
            "module": "keras_bertfam.layers.corruption.word_strategies",
            "class_name": "NGrams",
            "config": {"max_n": 4, "weights": [4.0, 3.0, 2.0, 1.0]},
            "registered_name": "keras_bertfam>NGrams",
        },
        "replacement_unit": "word",
    },
    task_arguments={"sentence_objective": "sop"},
)

_FINE_TUNING = FineTuningRecipe(
    source="Devlin et al., 2018, appendix A.3 and sections 4.2 to 4.4"
)
_MINIATURE = FineTuningRecipe(
    (3e-4, 1e-4, 5e-5, 3e-5),
    (8, 16, 32, 64, 128),
    (4,),
    source="google-research/bert, README, the miniatures' grid",
)

BERT = Family(
    name="bert",
    backbone="BertBackbone",
    license="Apache-2.0",
    tokenizer="word_piece",
    tokenizer_class="BertTokenizer",
    layout=Layout("bert", start_token="[CLS]"),  # [CLS] A [SEP] B [SEP]
    head_style=HeadStyle("bert", activation="tanh", pooler=True),
    arguments={"num_segments": 2, "pooler": True, "activation": "gelu_tanh"},
    sizes=_SIZES,
    pretraining={
        "": _PRETRAINING,
        **dict.fromkeys((n for n in _SIZES if n.endswith("_whole_word")), _WHOLE_WORD),
        **dict.fromkeys((n for n in _SIZES if "_multi" in n), _LANGUAGES),
        **dict.fromkeys(_MACBERT_SIZES, _MACBERT),
    },
    fine_tuning={
        "": _FINE_TUNING,
        "squad": _FINE_TUNING.fixed(5e-5, 32, 3),
        "squad_v2": _FINE_TUNING.fixed(5e-5, 48, 2),
        "swag": _FINE_TUNING.fixed(2e-5, 16, 3),
    },
    variants={"miniature": Variant((128, 256, 512), {"": _MINIATURE})},
    transformers=TransformersTable(
        title="Bert",
        prefix="bert",
        config=BERT_CONFIG,
        weights=BERT_WEIGHTS + POOLER,
        heads={
            "masked_lm": masked_lm_head(
                "cls.predictions.transform.dense",
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.bias",
            ),
            "sentence": dense("dense", "cls.seq_relationship"),
            # For SpanBERT's own files. `transformers` has no such head.
            "span_boundary": span_boundary_head("cls.pair_target_predictions"),
            **label_heads("classifier"),
        },
        fixed=ENCODER_ARGUMENTS,
        required_config=NO_DECODER,
        output="cls.predictions.decoder.weight",
        pooled=("Model", "ForPreTraining", "ForSequenceClassification")
        + ("ForMultipleChoice",),
        dropouts=dict.fromkeys(("classifier", "token", "choice"), DROPOUT),
        signs=("hidden_size", "type_vocab_size"),
    ),
    keras_hub=KerasHubTable(
        "BertBackbone",
        {**keras_hub.SIZES, **keras_hub.SEGMENTS},
        keras_hub.TANH,
        (
            *keras_hub.TABLES,
            *keras_hub.BERT_BLOCKS,
            *keras_hub.dense("pooled_dense", "pooler.dense"),
        ),
        {
            "MaskedLM": keras_hub.masked_lm_head(
                "cls.predictions.transform.dense",
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.bias",
            ),
            "TextClassifier": keras_hub.classifier_head("classifier"),
        },
    ),
    tensorflow1=TensorFlow1Table(
        ("bert/",),
        (
            *BLOCK,
            (r"^output_(weights|bias)$", r"classifier/output_\1"),
            (r"^cls/squad/", "qa_outputs/"),
        ),
    ),
)
