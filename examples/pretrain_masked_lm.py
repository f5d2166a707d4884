"""Pre-train BERT on your own text files: python pretrain_masked_lm.py 'corpus/*.txt'.

The files have blank lines between documents. Set KERAS_BACKEND to choose the backend.
"""

import sys

import keras_bertfam


def main(pattern, epochs=10, vocabulary_size=8000, architecture="bert_mini_en_uncased"):
    documents = keras_bertfam.layers.read_documents(pattern)
    tokenizer = keras_bertfam.tokenizers.train_word_piece(documents, vocabulary_size)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, sequence_length=128, seed=0
    )
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        architecture, load_weights=False, vocabulary_size=tokenizer.vocabulary_size()
    )
    model = keras_bertfam.tasks.MaskedLM(backbone, preprocessor)
    model.compile(learning_rate=5e-4, warmup_steps=0.05)
    # Killed and started again, it goes on where it was.
    backup = keras_bertfam.callbacks.BackupAndResume("backup", save_freq=500)
    data = preprocessor.dataset(documents, batch_size=64)
    model.fit(data, epochs=epochs, callbacks=[backup])
    model.save_to_preset("my_bert")
    return model


if __name__ == "__main__":
    main(sys.argv[1])
