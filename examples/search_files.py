"""Find what answers questions in files: python search_files.py PRESET FILES QUESTION

Each paragraph of the files is a passage, shown with the file that it is from. The
preset is that of a `TextEmbedder`, or with `--dual` of a `DualEncoder`. `--reader` is
the preset of a `SpanQuestionAnswering` task, to answer from the best passage.
"""

import glob
import pathlib
from typing import Annotated

import typer

import keras_bertfam


def search(encoder, files, questions, reader=None, k=3):
    """For each question an answer, or `None`, and `(score, file, passage)`s."""
    sources = {}
    for path in sorted(glob.glob(files, recursive=True)):
        for paragraph in pathlib.Path(path).read_text(encoding="utf-8").split("\n\n"):
            if paragraph.strip():
                sources.setdefault(" ".join(paragraph.split()), path)
    index = keras_bertfam.retrieval.Index.build(sources, encoder)
    results, k = [], min(k, len(index))
    for question, found in zip(questions, index.find(questions, k), strict=True):
        answer = None
        if reader is not None:
            asked = {"question": question, "context": found[0].passage}
            answer = reader.predict(asked, verbose=0)["text"]
        passages = [(each.score, sources[each.passage], each.passage) for each in found]
        results.append((answer, passages))
    return results


def main(
    preset: Annotated[str, typer.Argument(help="Name or folder of an encoder.")],
    files: Annotated[str, typer.Argument(help="A pattern, such as 'notes/*.txt'.")],
    questions: Annotated[list[str], typer.Argument(help="What to ask.")],
    dual: Annotated[bool, typer.Option(help="The preset is a DualEncoder's.")] = False,
    reader: Annotated[str | None, typer.Option(help="Preset of a reader.")] = None,
    k: Annotated[int, typer.Option(help="Passages for each question.")] = 3,
):
    tasks = keras_bertfam.tasks
    encoder = (tasks.DualEncoder if dual else tasks.TextEmbedder).from_preset(preset)
    if reader is not None:
        reader = tasks.SpanQuestionAnswering.from_preset(reader)
    found = search(encoder, files, questions, reader, k)
    for question, (answer, passages) in zip(questions, found, strict=True):
        print(question if answer is None else f"{question} {answer}")
        for score, path, passage in passages:
            print(f"  {score:.3f}  {path}: {passage[:200]}")


if __name__ == "__main__":
    typer.run(main)
