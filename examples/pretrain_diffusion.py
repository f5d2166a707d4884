"""Pre-train an encoder by masked diffusion on your own text files, and let it write.

    python pretrain_diffusion.py 'corpus/*.txt' --output my_diffusion

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Set KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by filling in masks at any rate, and write four texts."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    preprocessor = tasks.MaskedDiffusionLMPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    backbone = building.make_backbone(run, tokenizer)
    model = tasks.MaskedDiffusionLM(
        backbone, preprocessor, **building.task_arguments(run)
    )
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    # The fewer steps, the sooner, and the less do words know of each other.
    for steps in (24, 12, 6, 3):
        text = model.generate("the", 24, steps, temperature=1.0, seed=0)
        print(f"{steps:2} steps: {text}")
    return model


command = options.takes_a_run(
    main, fixed={"objective": "diffusion", "preset": None}, output="my_diffusion"
)

if __name__ == "__main__":
    typer.run(command)
