"""`python -m benchmarks.instructions PRESET`: zero-shot scores on a task left out.

A T5 learns tasks as instructions, with the library's templates, several for each task.
One task is left out. Scored are the validation examples of that task and of one that it
has learned, before and after, with each template. Needs the folder of real data.
"""

from typing import Annotated

import typer

from benchmarks import tables
from benchmarks.finetune import DATA

FOLDERS = {"rte": "rte_glue"}
TASKS = "sst2", "cola", "mrpc", "rte", "stsb"


def main(
    preset: Annotated[str, typer.Argument(help="Folder of a pre-trained T5.")],
    left_out: str = "rte",
    learned: Annotated[str, typer.Option(help="A task to score beside it.")] = "sst2",
    steps: int = 1500,
    batch_size: int = 32,
    limit: Annotated[int, typer.Option(help="Examples to score of each.")] = 300,
):
    """Scores by template, before and after."""
    import keras

    from keras_bertfam import datasets, optimizers, tasks

    keras.utils.set_random_seed(0)
    if left_out not in TASKS or learned not in TASKS or left_out == learned:
        raise typer.BadParameter(f"tasks must be two of {', '.join(TASKS)}")
    folders = {name: DATA / FOLDERS.get(name, name) for name in TASKS}
    scored = {
        name: datasets.load_examples(name, "validation", folders[name]).take(limit)
        for name in (left_out, learned)
    }
    others = {name: folders[name] for name in TASKS if name != left_out}
    mixed = datasets.mixture(others, limit=10_000)
    pretrained = tasks.TextToText.from_preset(preset)
    preprocessor = tasks.TextToTextPreprocessor(
        pretrained.preprocessor.tokenizer, 128, target_length=16
    )
    model = tasks.TextToText(pretrained.backbone, preprocessor)
    rows = []

    def score(when):
        for name, examples in scored.items():
            found = datasets.zero_shot(model, examples)
            metric = examples.task.metrics[0]
            row = {"": f"{name}, {when}"}
            for number, scores in enumerate(found, 1):
                row[f"template {number}"] = f"{scores[metric]:.3f}"
            rows.append({**row, "metric": metric})
            print(*rows[-1].values(), flush=True)

    score("before")
    model.compile(optimizers.AdamW(1e-3, clipnorm=1.0))
    data = preprocessor.dataset(mixed, batch_size).repeat()
    model.fit(data, steps_per_epoch=steps, verbose=2)
    score("after")
    for name, examples in scored.items():
        most = max(examples.y.count(label) for label in {*examples.y})
        share = most / len(examples.y)
        print(f"{name}: always the same answer is right in {share:.3f}")
    print(tables.markdown(rows))


if __name__ == "__main__":
    typer.run(main)
