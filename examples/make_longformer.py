"""Make a Longformer of a RoBERTa or BERT, and go on with long rows of your text.

    python make_longformer.py roberta_base_en my_longformer 'corpus/*.txt'

Positions and projections are copied, so it begins with what the other has learned. The
files have blank lines between documents. Set KERAS_BACKEND to choose the backend.
"""

from typing import Annotated

import typer

from keras_bertfam import layers, models, tasks


def main(
    preset: Annotated[str, typer.Argument(help="Name or folder of the other model.")],
    output: Annotated[str, typer.Argument(help="Folder to write.")],
    files: Annotated[list[str], typer.Argument(help="Text files, or patterns.")],
    sequence_length: Annotated[int, typer.Option(help="Longest row.")] = 4096,
    attention_window: Annotated[int, typer.Option(help="What each token sees.")] = 512,
    batch_size: Annotated[int, typer.Option(help="Rows of a step.")] = 2,
    steps: Annotated[int, typer.Option(help="Updates; 0 for none.")] = 2000,
    learning_rate: Annotated[float, typer.Option(help="Peak rate.")] = 3e-5,
):
    """Make a Longformer, and train it."""
    other = tasks.MaskedLM.from_preset(preset)
    tokenizer = other.preprocessor.tokenizer
    model = models.make_longformer(other, sequence_length, attention_window)
    model.preprocessor = tasks.MaskedLMPreprocessor(tokenizer, sequence_length)
    if steps:
        documents = layers.read_documents(files)
        data = model.preprocessor.dataset(documents, batch_size=batch_size).repeat()
        model.compile(learning_rate=learning_rate, total_steps=steps)
        model.fit(data, steps_per_epoch=steps)
    model.backbone.copy_global_projections()
    model.save_to_preset(output)
    return model


if __name__ == "__main__":
    typer.run(main)
