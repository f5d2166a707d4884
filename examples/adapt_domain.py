"""Go on pre-training on text of a domain, with its words.

    python adapt_domain.py 'papers/*.txt' --preset my_bert --new-words 500

Words of the domain that the tokenizer splits are added to its vocabulary, their
embeddings start as the means of those of their pieces, and masked language modelling
goes on. `python -m keras_bertfam finetune --preset adapted ...` fine-tunes the result.
As SciBERT (Beltagy et al., 2019, the variant with BERT's vocabulary) and LEGAL-BERT-FP
(Chalkidis et al., 2020). `--help` lists the options, those of
`python -m keras_bertfam pretrain`.
"""

import typer

from keras_bertfam import tasks, tokenizers
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Go on with masked language modelling on text of a domain."""
    run, documents = pretraining.begin(run)
    model = tasks.MaskedLM.from_preset(
        run.preset, backbone_arguments=run.backbone_arguments, **run.task_arguments
    )
    tokenizer = model.preprocessor.tokenizer
    model.preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer, run.sequence_length, **building.preprocessor_settings(run)
    )
    if run.new_words:
        tokenizer = tokenizers.extend_vocabulary(tokenizer, documents, run.new_words)
        model = tasks.resize_vocabulary(model, tokenizer)
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    return model


command = options.takes_a_run(
    main,
    fixed={"objective": "mlm"},
    epochs=1,
    learning_rate=5e-5,
    warmup_steps=0.06,
    output="adapted",
)

if __name__ == "__main__":
    typer.run(command)
