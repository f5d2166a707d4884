"""Fine-tune on SQuAD, and print the scores.

    python finetune_qa.py --preset my_bert --train train-v1.1.json --dev dev-v1.1.json

`--preset` is the name of a published checkpoint, or a folder. Without `--train` the
articles of `--dev` are split: the first 40 to train, the others to test. Set
KERAS_BACKEND to choose the backend.
"""

import time
from typing import Annotated

import keras
import typer

import keras_bertfam


def finetune(
    train,
    dev,
    preset="bert_tiny_en_uncased",
    epochs=2,
    learning_rate=5e-5,
    batch_size=32,
    version_2=False,
    seed=0,
    load_weights=True,
    sequence_length=384,
    question_length=64,
    **compile_arguments,
):
    """Trains on questions; returns the model and its scores on others."""
    keras.utils.set_random_seed(seed)
    tasks = keras_bertfam.tasks
    model = tasks.SpanQuestionAnswering.from_preset(preset, load_weights=load_weights)
    model.preprocessor = tasks.SpanQuestionAnsweringPreprocessor(
        model.preprocessor.tokenizer, sequence_length, question_length, seed=seed
    )
    model.compile(learning_rate=learning_rate, **compile_arguments)
    model.fit(train.x, train.y, batch_size=batch_size, epochs=epochs, verbose=2)
    if version_2:
        print("threshold: {1:.3f}".format(*model.tune_null_threshold(dev.x, dev.y)))
    answers = model.predict(dev.x, verbose=0)
    texts = [answer["text"] for answer in answers]
    return model, keras_bertfam.metrics.squad_scores(dev.y, texts)


def main(
    dev: Annotated[str, typer.Option(help="SQuAD's file to test on.")],
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    train: Annotated[str | None, typer.Option(help="SQuAD's file to train on.")] = None,
    epochs: int = 2,
    learning_rate: float = 5e-5,
    batch_size: int = 32,
    version_2: Annotated[bool, typer.Option(help="Some have no answer.")] = False,
    seed: int = 0,
    limit: Annotated[int | None, typer.Option(help="Only so many questions.")] = None,
):
    task = "squad_v2" if version_2 else "squad"
    dev_set = keras_bertfam.datasets.load_examples(task, "validation", dev)
    if train is None:
        train_set, dev_set = dev_set.split_articles(40)
    else:
        train_set = keras_bertfam.datasets.load_examples(task, "train", train)
    start = time.perf_counter()
    _, scores = finetune(
        train_set[:limit],
        dev_set[:limit],
        preset,
        epochs,
        learning_rate,
        batch_size,
        version_2,
        seed,
    )
    for name, score in scores.items():
        print(f"{name} {score:.2f}")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    typer.run(main)
