"""Pre-train XLNet on your own text files.

    python pretrain_xlnet.py 'corpus/*.txt' --output my_xlnet

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Set KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam import models, tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by permutation language modelling, with memory."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    preprocessor = tasks.PermutationLMPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    backbone = building.make_backbone(run, tokenizer)
    # Half of the rows of a batch are read backwards, and each row remembers what came
    # before it.
    arguments = building.task_arguments(run)
    model = tasks.PermutationLM(backbone, preprocessor, **arguments)
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    # Without the query stream: an encoder, for any task.
    return models.XLNetBackbone.from_preset(run.output)


command = options.takes_a_run(
    main, fixed={"objective": "plm", "preset": None}, family="xlnet", output="my_xlnet"
)

if __name__ == "__main__":
    typer.run(command)
