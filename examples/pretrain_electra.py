"""Pre-train ELECTRA on your own text files.

    python pretrain_electra.py 'corpus/*.txt' --size small --output my_electra

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Set KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train a discriminator of the tokens that a generator replaced."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    preprocessor = tasks.ReplacedTokenDetectionPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    discriminator = building.make_backbone(run, tokenizer)
    # The generator is a quarter as wide and shares the embeddings.
    arguments = {
        "generator_size": 1 / 4,
        "variant": "electra",
        **building.task_arguments(run),
    }
    model = tasks.ReplacedTokenDetection(discriminator, preprocessor, **arguments)
    building.compiled(run, model)
    # Fine-tuning needs the discriminator; the generator's encoder is written to
    # `OUTPUT-generator`.
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(
    main,
    fixed={"objective": "rtd", "preset": None},
    family="electra",
    output="my_electra",
)

if __name__ == "__main__":
    typer.run(command)
