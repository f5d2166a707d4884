"""Pre-train BERT (MLM + NSP) or ALBERT (MLM + SOP) on your own text files.

python pretrain_sentence_pairs.py bert 'corpus/*.txt'
python pretrain_sentence_pairs.py albert 'corpus/*.txt'

The files have blank lines between documents. Set KERAS_BACKEND to choose the backend.
"""

import sys

import keras_bertfam
from keras_bertfam.models import AlbertBackbone, BertBackbone

# The backbone, its size, the sentence objective, what is masked, and the peak rate: of
# AdamW, and of ALBERT's LAMB.
PAPERS = {
    "bert": (BertBackbone, "bert_mini_en_uncased", "nsp", "tokens", 5e-4),
    "albert": (AlbertBackbone, "albert_base_en_uncased", "sop", "ngrams", 0.00176),
}


def main(paper, pattern, epochs=10, vocabulary_size=8000, **size):
    cls, architecture, objective, strategy, rate = PAPERS[paper]
    documents = keras_bertfam.layers.read_documents(pattern)
    tokenizer = keras_bertfam.tokenizers.train_word_piece(documents, vocabulary_size)
    preprocessor = keras_bertfam.tasks.MaskedLMSentencePairPreprocessor(
        tokenizer,
        sequence_length=128,
        sentence_objective=objective,
        strategy=strategy,
        seed=0,
    )
    size["vocabulary_size"] = tokenizer.vocabulary_size()
    backbone = cls.from_preset(architecture, load_weights=False, **size)
    model = keras_bertfam.tasks.MaskedLMSentencePair(backbone, preprocessor)
    model.compile(learning_rate=rate, warmup_steps=0.05)
    # Tokenised once; paired and masked anew in each pass.
    data = preprocessor.dataset(preprocessor.pack(documents).cache(), batch_size=32)
    # Killed and started again, it goes on where it was.
    backup = keras_bertfam.callbacks.BackupAndResume("backup", save_freq=500)
    model.fit(data, epochs=epochs, callbacks=[backup])
    model.save_to_preset(f"my_{paper}")
    return model


if __name__ == "__main__":
    main(*sys.argv[1:3])
