"""Pre-train BERT or RoBERTa by masked language modelling on your own text files.

    python pretrain_masked_lm.py 'corpus/*.txt' --family roberta --output my_roberta

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Set KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by masked language modelling."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    backbone = building.make_backbone(run, tokenizer)
    model = tasks.MaskedLM(backbone, preprocessor, **building.task_arguments(run))
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(
    main, fixed={"objective": "mlm", "preset": None}, output="my_bert"
)

if __name__ == "__main__":
    typer.run(command)
