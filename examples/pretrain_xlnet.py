"""Pre-train XLNet on your own text files: python pretrain_xlnet.py 'corpus/*.txt'.

The files have blank lines between documents. Half of the rows of a batch are read
backwards, and each row remembers what came before it.
"""

import sys

import keras_bertfam


def main(
    pattern, epochs=10, vocabulary_size=8000, sequence_length=128, batch_size=32, **size
):
    documents = keras_bertfam.layers.read_documents(pattern)
    tokenizer = keras_bertfam.tokenizers.train_word_piece(
        documents, vocabulary_size, lowercase=False
    )
    preprocessor = keras_bertfam.tasks.PermutationLMPreprocessor(
        tokenizer, sequence_length, seed=0
    )
    sizes = {
        "num_layers": 6,
        "num_heads": 4,
        "hidden_dim": 256,
        "intermediate_dim": 1024,
        **size,
    }
    backbone = keras_bertfam.models.XLNetBackbone(
        vocabulary_size=tokenizer.vocabulary_size(), **sizes
    )
    model = keras_bertfam.tasks.PermutationLM(
        backbone, preprocessor, memory_length=sequence_length, batch_size=batch_size
    )
    # Killed and started again, it goes on where it was.
    backup = keras_bertfam.callbacks.BackupAndResume("backup", save_freq=500)
    data = preprocessor.dataset(documents, batch_size)
    model.fit(data, epochs=epochs, callbacks=[backup])
    model.save_to_preset("my_xlnet")
    # Without the query stream: an encoder, for any task.
    return keras_bertfam.models.XLNetBackbone.from_preset("my_xlnet")


if __name__ == "__main__":
    main(sys.argv[1])
