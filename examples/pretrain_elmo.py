"""Pre-train ELMo on your own text files, and classify words with it.

    python pretrain_elmo.py 'corpus/*.txt' --output my_elmo

The files have blank lines between documents. Started again after a kill, with the
same files, it goes on where it was. `my_elmo` is then what a tagger takes, see
`FeatureBackbone`:

    elmo = keras_bertfam.models.Backbone.from_preset("my_elmo")
    features = keras_bertfam.models.FeatureBackbone(elmo, lstm_dim=256)
    keras_bertfam.tasks.TokenClassifier(features, preprocessor=..., label_names=...)

Set KERAS_BACKEND to choose the backend.
"""

import shutil

import typer

from keras_bertfam import callbacks, layers, models, tasks, tokenizers


def main(
    files: str,
    output: str = "my_elmo",
    vocabulary_size: int = 20_000,
    sequence_length: int = 20,
    batch_size: int = 32,  # half of them forward, and half backward
    epochs: int = 3,
    hidden_dim: int = 256,
    cell_dim: int = 512,
    num_sampled: int = 2048,
    learning_rate: float = 0.2,  # of Adagrad
    dropout: float = 0.1,
    one_per_file: bool = False,
):
    """Pre-train by predicting the next word of both directions."""
    documents = layers.read_documents(files, one_per_file=one_per_file)
    tokenizer = tokenizers.train_words(documents, vocabulary_size)
    size = tokenizer.vocabulary_size()
    preprocessor = tasks.BidirectionalLMPreprocessor(tokenizer, sequence_length)
    backbone = models.ElmoBackbone.from_preset(
        "elmo_small_en",
        load_weights=False,
        vocabulary_size=size,
        hidden_dim=hidden_dim,
        cell_dim=cell_dim,
        filters=[(1, 32), (2, 32), (3, 64), (4, 128)],
        dropout=dropout,
    )
    model = tasks.BidirectionalLM(
        backbone,
        preprocessor,
        batch_size=batch_size,  # each row goes on where that of the last batch ended
        num_sampled=num_sampled if num_sampled < size else None,
    )
    model.compile(learning_rate=learning_rate)
    backup = callbacks.BackupAndResume(
        f"{output}-backup", save_freq=500, delete_checkpoint=False
    )
    batches = preprocessor.dataset(documents, batch_size)
    model.fit(batches, epochs=epochs, callbacks=[backup])
    model.save_to_preset(output)
    shutil.rmtree(backup.backup_dir)
    return model


if __name__ == "__main__":
    typer.run(main)
