"""Pre-train ERNIE 1.0 on your own text files, in its three stages.

    python pretrain_ernie.py 'corpus/*.txt' --phrases phrases.txt --entities names.txt

The files have blank lines between documents; the lists have an entry per line, and are
looked up in the text. With `--tagger`, the preset of a `TokenClassifier`, entities are
what that finds: `finetune --task wnut17` trains one for six types. Text that is marked
already, ⟪phrases⟫ and ⟦entities⟧, needs neither. Started again after a kill, with the
same files, it goes on. Set KERAS_BACKEND to choose the backend.
"""

import os

import tensorflow as tf
import typer

from keras_bertfam import callbacks, layers, models, tasks, tokenizers


def main(
    files: str,
    phrases: str | None = None,
    entities: str | None = None,
    tagger: str | None = None,
    output: str = "my_ernie",
    vocabulary_size: int = 8000,
    sequence_length: int = 128,
    batch_size: int = 32,
    epochs: int = 1,  # of each stage
    num_layers: int = 4,
    hidden_dim: int = 256,
    learning_rate: float = 1e-4,  # small models learn faster by 1e-3, without dropout
    dropout: float = 0.1,
):
    """Pre-train by masking words, then whole phrases, then whole entities."""
    documents = layers.read_documents(files)
    tokenizer = tokenizers.train_word_piece(documents, vocabulary_size)
    for found, kind in ((phrases, "phrase"), (entities, "entity")):
        if found:
            documents = documents.map(layers.Lexicon(found, kind))
    if tagger:
        texts = [text.decode() for text in documents.as_numpy_iterator()]
        texts = tasks.mark_entities(tasks.TokenClassifier.from_preset(tagger), texts)
        documents = tf.data.Dataset.from_tensor_slices(texts)
    sizes = (num_layers, max(1, hidden_dim // 64), hidden_dim, 4 * hidden_dim)
    sizes = (tokenizer.vocabulary_size(), *sizes)
    model = tasks.MaskedLM(models.ErnieBackbone(*sizes, dropout=dropout))
    for stage in ("basic", "phrase", "entity"):
        place = f"{output}-{stage}"
        if os.path.isdir(place):
            print(f"{place} is there, and isn't trained again: delete it to do so.")
            model = tasks.MaskedLM.from_preset(place)
            continue
        known = (
            tokenizer if model.preprocessor is None else model.preprocessor.tokenizer
        )
        model.preprocessor = tasks.MaskedLMPreprocessor(
            known, sequence_length, strategy=layers.KnowledgeMasking(stage)
        )
        model.compile(learning_rate=learning_rate)
        backup = [callbacks.BackupAndResume(f"{place}-backup")]
        batches = model.preprocessor.dataset(documents, batch_size)
        model.fit(batches, epochs=epochs, callbacks=backup)
        model.save_to_preset(place)
    return model


if __name__ == "__main__":
    typer.run(main)
