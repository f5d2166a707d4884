"""Pre-train T5 on your own text files.

    python pretrain_t5.py 'corpus/*.txt' --output my_t5

The files have blank lines between documents. `--objective` takes any of T5's, BART's
and MASS's; `--help` lists the options, those of `python -m keras_bertfam pretrain`;
started again after a kill, with `--resume`, it goes on where it was. Set KERAS_BACKEND
to choose the backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by leaving out spans of the inputs, which are the targets."""
    run, documents = pretraining.begin(run)
    # Its vocabulary has a hundred sentinels, which stand for the spans.
    tokenizer = building.make_tokenizer(run, documents)
    preprocessor = tasks.DenoisingPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    backbone = building.make_backbone(run, tokenizer)
    model = tasks.TextToText(backbone, preprocessor, **building.task_arguments(run))
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(
    main, fixed={"preset": None}, task="TextToText", family="t5", output="my_t5"
)

if __name__ == "__main__":
    typer.run(command)
