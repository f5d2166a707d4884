"""Pre-train a masked language model on texts, and on sentences beside translations.

    python pretrain_translations.py en+is=texts.en en+is=texts.is 'en=en/*.txt' \
        'is=is/*.txt' --mix-exponent 0.7 --output my_xlm

The lines of the first two files are translations of each other; other files have blank
lines between documents. `--help` lists the options, those of `python -m keras_bertfam
pretrain`; started again after a kill, with `--resume`, it goes on where it was. Set
KERAS_BACKEND to choose the backend.
"""

import typer

from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Pre-train by masking texts of one language, and pairs of two on both sides."""
    run, documents = pretraining.begin(run)
    # With `family="xlm"` the encoder has a vector of each language.
    model = building.build(run, documents)
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(main, family="xlm", output="my_xlm", mix_exponent=0.7)

if __name__ == "__main__":
    typer.run(command)
