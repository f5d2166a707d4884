"""Search a published grid with KerasTuner: python tune_finetuning.py --preset ...

The grid is the one that the family of the preset was fine-tuned with: learning rates,
batch sizes and epochs. `--task` may have texts or pairs of them with a class (GLUE);
without `--data`, the task's folder, it is downloaded. Needs
`pip install keras-bertfam[search,evaluation]`.
Set KERAS_BACKEND to choose the backend.
"""

import hashlib
from typing import Annotated

import keras
import keras_tuner
import typer

import keras_bertfam


class Grid(keras_tuner.HyperModel):
    """A classifier, and the settings that its family's recipe has."""

    def __init__(self, preset, facts, **compile_arguments):
        super().__init__()
        self.preset, self.facts, self.arguments = preset, facts, compile_arguments

    def build(self, hp):
        model = keras_bertfam.tasks.TextClassifier.from_preset(
            self.preset, label_names=self.facts.label_names
        )
        recipe = keras_bertfam.tasks.fine_tuning_recipe(
            type(model.backbone).__name__, self.facts.name, model.backbone.hidden_dim
        )
        rate = hp.Choice("learning_rate", recipe.learning_rates)
        hp.Choice("batch_size", recipe.batch_sizes)
        hp.Choice("epochs", recipe.epochs)
        model.compile(learning_rate=rate, **self.arguments)
        return model

    def fit(self, hp, model, x, y, **kwargs):
        size, epochs = hp.get("batch_size"), hp.get("epochs")
        return model.fit(x, y, batch_size=size, epochs=epochs, **kwargs)


def search(
    task="mrpc",
    preset="bert_tiny_en_uncased",
    data=None,
    trials=2,
    limit=None,
    seed=0,
    folder="tuning",
    verbose=2,
    **compile_arguments,
):
    """Tries settings; returns the tuner, whose best trial is the first."""
    keras.utils.set_random_seed(seed)
    load = keras_bertfam.datasets.load_examples
    train, validation = (
        load(task, split, data, limit) for split in ("train", "validation")
    )
    # Trials of another preset or other data have a folder of their own.
    asked = repr((preset, data, limit, seed, compile_arguments))
    digest = hashlib.sha256(asked.encode()).hexdigest()
    metrics = keras_bertfam.metrics.TaskMetrics(validation)  # the official ones
    tuner = keras_tuner.RandomSearch(
        Grid(preset, train.task, **compile_arguments),
        keras_tuner.Objective(f"val_{train.task.metrics[0]}", "max"),
        max_trials=trials,
        seed=seed,
        directory=folder,
        project_name=f"{task}-{digest[:12]}",
    )
    tuner.search(train.x, train.y, callbacks=[metrics], verbose=verbose)
    return tuner


def main(
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    task: Annotated[str, typer.Option(help="mrpc, sst2, cola, rte, ...")] = "mrpc",
    data: Annotated[str | None, typer.Option(help="The task's folder.")] = None,
    trials: Annotated[int, typer.Option(help="Points of the grid to try.")] = 2,
    limit: Annotated[int | None, typer.Option(help="Only so many examples.")] = None,
    seed: int = 0,
    folder: Annotated[str, typer.Option(help="For trials; resumes.")] = "tuning",
    output: Annotated[str | None, typer.Option(help="Preset to write.")] = None,
):
    tuner = search(task, preset, data, trials, limit, seed, folder)
    for trial in tuner.oracle.get_best_trials(trials):
        print(f"{trial.score:.4f}: {trial.hyperparameters.values}")
    if output is not None:
        (model,) = tuner.get_best_models()
        model.save_to_preset(output)


if __name__ == "__main__":
    typer.run(main)
