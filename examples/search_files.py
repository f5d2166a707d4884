"""Find what answers questions in files: python search_files.py PRESET FILES QUESTION

Each paragraph of the files is a passage, shown with the file that it is from. The
preset is that of a `TextEmbedder`, or of the task that `--task` names. With `--index`
the vectors are kept in a folder, and later only those of new paragraphs are made. With
`--export` the folder has the encoder, too, and `search_service.py` answers from it.
`--reader` is the preset of a `SpanQuestionAnswering` task, to answer from the best
passage.
"""

import glob
import json
import pathlib
from typing import Annotated, Literal

import typer

import keras_bertfam

Task = Literal["TextEmbedder", "DualEncoder", "SparseEncoder", "LateInteraction"]


def up_to_date(encoder, sources, folder=None, export=False):
    """Make an index of passages, with the vectors that a folder has of them.

    Args:
        encoder: a task with `encode`.
        sources: dict from passages to the files that they are from.
        folder: path of a folder to keep, or `None`.
        export: bool. Whether the encoder is written to the folder, as a SavedModel.
    """
    if folder is None:
        return keras_bertfam.retrieval.Index.build(sources, encoder)
    folder = pathlib.Path(folder)
    encoder_folder = folder / "encoder"
    exported = encoder_folder.exists()
    if not (folder / "index").exists():
        export, exported = export or exported, False  # it may be of another encoder
        index = keras_bertfam.retrieval.Index.build(sources, encoder)
    else:
        index = keras_bertfam.retrieval.Index.load(folder / "index", encoder)
        new, old = index.update(sources)
        print(f"{new} paragraphs are new, {old} are gone.")
    folder.mkdir(parents=True, exist_ok=True)
    # The index comes last: if it is there, so is the encoder that made it.
    if export and not exported:
        keras_bertfam.export.export_saved_model(encoder, encoder_folder)
    written = folder / "sources.json.new"
    written.write_text(json.dumps(sources), encoding="utf-8")
    written.replace(folder / "sources.json")
    index.save(folder / "index")
    return index


def search(
    encoder,
    files,
    questions,
    reader=None,
    k=3,
    folder=None,
    export=False,
    min_words=3,
):
    """For each question an answer, or `None`, and `(score, file, passage)`s."""
    sources = {}
    for path in sorted(glob.glob(files, recursive=True)):
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
        for paragraph in text.split("\n\n"):
            if len(paragraph.split()) >= min_words:  # not headings
                sources.setdefault(" ".join(paragraph.split()), path)
    if not sources:
        raise typer.BadParameter(
            f"{files} must name files that have a paragraph of {min_words} words."
        )
    index = up_to_date(encoder, sources, folder, export)
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
    questions: Annotated[list[str], typer.Argument(help="What to ask.")] = (),
    task: Annotated[Task, typer.Option(help="What the preset is of.")] = "TextEmbedder",
    index: Annotated[str | None, typer.Option(help="Folder for vectors.")] = None,
    export: Annotated[bool, typer.Option("--export", help="And the encoder.")] = False,
    reader: Annotated[str | None, typer.Option(help="Preset of a reader.")] = None,
    k: Annotated[int, typer.Option(help="Passages for each question.")] = 3,
    min_words: Annotated[int, typer.Option(help="Words of a passage, at least.")] = 3,
):
    if export and (index is None or task not in ("TextEmbedder", "DualEncoder")):
        raise typer.BadParameter(
            "`--export` needs `--index`, and a TextEmbedder or DualEncoder."
        )
    encoder = getattr(keras_bertfam.tasks, task).from_preset(preset)
    if reader is not None:
        reader = keras_bertfam.tasks.SpanQuestionAnswering.from_preset(reader)
    found = search(encoder, files, questions, reader, k, index, export, min_words)
    for question, (answer, passages) in zip(questions, found, strict=True):
        print(question if answer is None else f"{question} {answer}")
        for score, path, passage in passages:
            print(f"  {score:.3f}  {path}: {passage[:200]}")


if __name__ == "__main__":
    typer.run(main)
