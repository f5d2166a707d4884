"""Go on pre-training on text of a domain, then fine-tune.

python adapt_domain.py "papers/*.txt" --preset bert_tiny_en_uncased --output adapted

Words of the domain that the tokenizer splits are added to its vocabulary, their
embeddings start as the means of those of their pieces, and masked language modelling
goes on. `python -m keras_bertfam finetune --preset adapted ...` fine-tunes the result.
As SciBERT (Beltagy et al., 2019, the variant with BERT's vocabulary) and LEGAL-BERT-FP
(Chalkidis et al., 2020).
"""

import time
from typing import Annotated

import keras
import typer

import keras_bertfam


def adapt(
    documents,
    preset,
    output,
    new_words=0,
    epochs=1,
    learning_rate=5e-5,
    batch_size=32,
    sequence_length=128,
    seed=0,
    load_weights=True,
    **compile_arguments,
):
    """Adapts a preset to documents; returns the model and its history."""
    keras.utils.set_random_seed(seed)
    tasks = keras_bertfam.tasks
    model = tasks.MaskedLM.from_preset(preset, load_weights=load_weights)
    tokenizer = model.preprocessor.tokenizer
    model.preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer, sequence_length=sequence_length, seed=seed
    )
    if new_words:
        tokenizer = keras_bertfam.tokenizers.extend_vocabulary(
            tokenizer, documents, new_words
        )
        model = tasks.resize_vocabulary(model, tokenizer)
    model.compile(learning_rate=learning_rate, warmup_steps=0.06, **compile_arguments)
    data = model.preprocessor.dataset(documents, batch_size=batch_size)
    history = model.fit(data, epochs=epochs, verbose=2).history
    model.save_to_preset(output)
    return model, history


def main(
    files: Annotated[list[str], typer.Argument(help="Text files of the domain.")],
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    output: Annotated[str, typer.Option(help="Preset directory to write.")],
    new_words: Annotated[int, typer.Option(help="Words to add, at most.")] = 0,
    epochs: int = 1,
    learning_rate: float = 5e-5,
    batch_size: int = 32,
    sequence_length: int = 128,
    seed: int = 0,
):
    source = files[0] if len(files) == 1 else files
    documents = keras_bertfam.layers.read_documents(source)
    start = time.perf_counter()
    model, history = adapt(
        documents,
        preset,
        output,
        new_words,
        epochs,
        learning_rate,
        batch_size,
        sequence_length,
        seed,
    )
    print("loss:", " ".join(f"{loss:.4f}" for loss in history["loss"]))
    print(f"{model.preprocessor.tokenizer.vocabulary_size()} tokens")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    typer.run(main)
