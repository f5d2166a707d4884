"""Pre-train BART on your own text files.

    python pretrain_bart.py 'corpus/*.txt' --output my_bart

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Set KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam import layers, tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by writing documents anew that have been made noisy."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    # Any of its noises, one after the other.
    noises = [layers.SentencePermutation(), layers.TextInfilling(rate=0.3)]
    settings = {**building.preprocessor_settings(run), "objective": noises}
    preprocessor = tasks.DenoisingPreprocessor(
        tokenizer, run.sequence_length, **settings
    )
    backbone = building.make_backbone(run, tokenizer)
    model = tasks.TextToText(backbone, preprocessor, **building.task_arguments(run))
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(
    main, fixed={"objective": "bart", "preset": None}, family="bart", output="my_bart"
)

if __name__ == "__main__":
    typer.run(command)
