"""Pre-train MPNet on your own text files.

    python pretrain_mpnet.py 'corpus/*.txt' --output my_mpnet

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Set KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by predicting masked tokens in random orders."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    preprocessor = tasks.MaskedPermutedLMPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    backbone = building.make_backbone(run, tokenizer)
    model = tasks.MaskedPermutedLM(
        backbone, preprocessor, **building.task_arguments(run)
    )
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(
    main,
    fixed={"objective": "mpnet", "preset": None},
    family="mpnet",
    output="my_mpnet",
)

if __name__ == "__main__":
    typer.run(command)
