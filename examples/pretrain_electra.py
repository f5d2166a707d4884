"""Pre-train ELECTRA on your own text files: python pretrain_electra.py 'corpus/*.txt'.

The files have blank lines between documents. Set KERAS_BACKEND to choose the backend.
"""

import sys

import keras_bertfam


def main(
    pattern,
    epochs=10,
    vocabulary_size=8000,
    architecture="electra_small_discriminator_uncased_en",
    variant="electra",
    batch_size=64,
    **sizes,
):
    documents = keras_bertfam.layers.read_documents(pattern)
    tokenizer = keras_bertfam.tokenizers.train_word_piece(documents, vocabulary_size)
    preprocessor = keras_bertfam.tasks.ReplacedTokenDetectionPreprocessor(
        tokenizer, sequence_length=128, seed=0
    )
    discriminator = keras_bertfam.models.ElectraBackbone.from_preset(
        architecture,
        load_weights=False,
        vocabulary_size=tokenizer.vocabulary_size(),
        **sizes,
    )
    # The generator is a quarter as wide and shares the embeddings.
    model = keras_bertfam.tasks.ReplacedTokenDetection(
        discriminator, preprocessor, generator_size=1 / 4, variant=variant
    )
    model.compile(warmup_steps=0.05)
    # Killed and started again, it goes on where it was.
    backup = keras_bertfam.callbacks.BackupAndResume("backup", save_freq=500)
    data = preprocessor.dataset(documents, batch_size)
    model.fit(data, epochs=epochs, callbacks=[backup])
    # Fine-tuning needs the discriminator; the generator is a masked language model.
    model.save_to_preset("my_electra")
    model.generator.save_to_preset("my_electra_generator")
    return model


if __name__ == "__main__":
    main(sys.argv[1])
