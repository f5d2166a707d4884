"""Pre-train GPT-2 on your own text files.

    python pretrain_gpt.py 'corpus/*.txt' --output my_gpt

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Set KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by predicting each token from those before it."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    # With `--set preprocessor.sequence_ids=true` a document isn't seen by the next one
    # in its row.
    preprocessor = tasks.CausalLMPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    backbone = building.make_backbone(run, tokenizer)
    model = tasks.CausalLM(backbone, preprocessor, **building.task_arguments(run))
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(
    main, fixed={"objective": "clm", "preset": None}, family="gpt2", output="my_gpt"
)

if __name__ == "__main__":
    typer.run(command)
