"""Pre-train Transformer-XL on your own text files, and measure it on held-out ones.

    python pretrain_transformer_xl.py 'corpus/*.txt' --held-out held_out.txt

The files have blank lines between documents. Started again after a kill, with the
same files, it goes on where it was. The perplexity of the held-out text is with
memories of other lengths than in training. Set KERAS_BACKEND to choose the backend.
"""

import pathlib
import shutil

import typer

from keras_bertfam import callbacks, layers, models, tasks, tokenizers


def main(
    files: str,
    held_out: str | None = None,
    output: str = "my_transformer_xl",
    vocabulary_size: int = 8000,
    sequence_length: int = 64,
    memory_length: int = 64,
    batch_size: int = 16,
    epochs: int = 3,
    num_layers: int = 4,
    hidden_dim: int = 256,
    one_per_file: bool = False,
):
    """Pre-train by predicting the next token, with a memory."""
    text = pathlib.Path(held_out).read_text("utf-8") if held_out else None
    documents = layers.read_documents(files, one_per_file=one_per_file)
    tokenizer = tokenizers.train_word_piece(documents, vocabulary_size)
    backbone = models.TransformerXLBackbone(
        tokenizer.vocabulary_size(),
        num_layers,
        max(1, hidden_dim // 64),
        hidden_dim,
        4 * hidden_dim,
    )
    preprocessor = tasks.RecurrentLMPreprocessor(tokenizer, sequence_length)
    model = tasks.RecurrentLM(
        backbone, preprocessor, memory_length=memory_length, batch_size=batch_size
    )
    backup = callbacks.BackupAndResume(
        f"{output}-backup", save_freq=500, delete_checkpoint=False
    )
    batches = preprocessor.dataset(documents, batch_size)
    model.fit(batches, epochs=epochs, callbacks=[backup])
    model.save_to_preset(output)
    shutil.rmtree(backup.backup_dir)
    if text:
        for length in (0, memory_length, 4 * memory_length):
            limits = {"same_length": True, "clamp_length": memory_length + 1}
            found = model.perplexity(text, memory_length=length, **limits)
            print(f"memory of {length} tokens: perplexity {found:.2f}")
    return model


if __name__ == "__main__":
    typer.run(main)
