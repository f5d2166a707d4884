"""Pre-train BERT (MLM + NSP) or ALBERT (MLM + SOP) on your own text files.

    python pretrain_sentence_pairs.py 'corpus/*.txt' --family albert --output my_albert

The files have blank lines between documents. `--help` lists the options, those of
`python -m keras_bertfam pretrain`; started again after a kill, with `--resume`, it
goes on where it was. Unlike the command it keeps the tokenised text in memory, and
takes neither `--mix-exponent` nor a prepared corpus. Set KERAS_BACKEND to choose the
backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by masked language modelling and an objective of pairs of segments."""
    run, documents = pretraining.begin(run)
    tokenizer = building.make_tokenizer(run, documents)
    preprocessor = tasks.MaskedLMSentencePairPreprocessor(
        tokenizer,
        run.sequence_length,
        **building.preprocessor_settings(run),
    )
    backbone = building.make_backbone(run, tokenizer)
    model = tasks.MaskedLMSentencePair(
        backbone, preprocessor, **building.task_arguments(run)
    )
    building.compiled(run, model)
    # Tokenised once; paired and masked anew in each pass.
    pretraining.train(run, model, preprocessor.pack(documents).cache())
    return model


command = options.takes_a_run(
    main,
    fixed={"preset": None, "text_share": 1.0},
    task="MaskedLMSentencePair",
    output="my_bert",
)

if __name__ == "__main__":
    typer.run(command)
