"""Answer questions from files, and say from where: RAG.

    python answer_with_sources.py PRESET PAIRS FILES QUESTION...

The preset is that of a `DualEncoder`, as `search_files.py` takes it. `PAIRS` is a file
with a question, a tab and its answer in each line, which a small T5 with new weights
learns from, or `--generator` is the preset of a `TextToText`. Each paragraph of the
files is a passage. Set KERAS_BACKEND to choose the backend.
"""

import glob
import pathlib
from typing import Annotated

import typer

import keras_bertfam


def read_passages(files):
    """Paragraphs, each once, and the file that it is from."""
    passages = {}
    for path in sorted(glob.glob(files, recursive=True)):
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
        for paragraph in text.split("\n\n"):
            if paragraph.strip():
                passages.setdefault(" ".join(paragraph.split()), path)
    if not passages:
        raise typer.BadParameter(f"{files} must name files that have a paragraph.")
    return passages


def read_pairs(path):
    """Questions and their answers, from lines with a tab."""
    pairs = []
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            pair = line.strip().split("\t")
            if len(pair) == 2:
                pairs.append(pair)
            elif line.strip():
                raise typer.BadParameter(
                    f"{path}, line {number}: expected a question, a tab and an answer. "
                    f"Received: {line.strip()!r}."
                )
    if not pairs:
        raise typer.BadParameter(f"{path} must have a question and its answer.")
    return [list(side) for side in zip(*pairs, strict=True)]


def make_model(retriever, index, generator=None, length=128, passages=5):
    """A `RetrievalAugmentedGenerator` of a preset, or of a small T5."""
    if generator is None:
        tokenizer = retriever.preprocessor.tokenizer
        backbone = keras_bertfam.models.T5Backbone(
            tokenizer.vocabulary_size(), 3, 4, hidden_dim=256, intermediate_dim=1024
        )
    else:
        backbone = keras_bertfam.tasks.TextToText.from_preset(generator)
        tokenizer = backbone.preprocessor.tokenizer
    preprocessor = keras_bertfam.tasks.RetrievalAugmentedGeneratorPreprocessor(
        tokenizer, length, num_passages=min(passages, len(index))
    )
    preprocessor.search = keras_bertfam.tasks.PassageSearch(retriever, index)
    return keras_bertfam.tasks.RetrievalAugmentedGenerator(
        backbone, preprocessor, retriever
    )


def main(
    preset: Annotated[str, typer.Argument(help="Preset of a DualEncoder.")],
    pairs: Annotated[pathlib.Path, typer.Argument(help="Questions and answers.")],
    files: Annotated[str, typer.Argument(help="A pattern, such as 'notes/*.txt'.")],
    questions: Annotated[list[str], typer.Argument(help="What to ask.")],
    generator: Annotated[str | None, typer.Option(help="Preset to go on from.")] = None,
    length: Annotated[int, typer.Option(help="Tokens of passage and question.")] = 128,
    epochs: int = 10,
    batch_size: int = 16,
    learning_rate: float = 1e-3,
):
    """Train on pairs, answer questions, and print the passages behind each answer."""
    asked, answers = read_pairs(pairs)
    files_of = read_passages(files)
    retriever = keras_bertfam.tasks.DualEncoder.from_preset(preset)
    index = keras_bertfam.retrieval.Index.build(files_of, retriever)
    model = make_model(retriever, index, generator, length)
    model.compile(keras_bertfam.optimizers.AdamW(learning_rate, clipnorm=1.0))
    data = model.preprocessor.dataset((asked, answers), batch_size)
    model.fit(data, epochs=epochs, verbose=2)
    texts, sources = model.generate(questions, max_length=32, return_sources=True)
    for question, text, found in zip(questions, texts, sources, strict=True):
        print(f"{question} {text}")
        for passage, share in found:
            print(f"  {share:.2f}  {files_of[passage]}: {passage[:200]}")
    return texts, sources


if __name__ == "__main__":
    typer.run(main)
