"""Pre-train SpanBERT on your own text files.

    python pretrain_spanbert.py 'corpus/*.txt' --output my_spanbert

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Set KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by masking spans and predicting them from their boundaries."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    preprocessor = tasks.SpanBoundaryLMPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    backbone = building.make_backbone(run, tokenizer)
    # Losses of both objectives are means, per token as in the paper, or separate ones.
    arguments = {"reduction": "per_token", **building.task_arguments(run)}
    model = tasks.SpanBoundaryLM(backbone, preprocessor, **arguments)
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(
    main,
    fixed={"objective": "sbo", "preset": None},
    family="spanbert",
    output="my_spanbert",
)

if __name__ == "__main__":
    typer.run(command)
