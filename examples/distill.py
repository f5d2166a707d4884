"""Distil a BERT into half of its layers, on your own text files.

    python distill.py 'corpus/*.txt' --teacher my_bert --output my_distilbert

`my_bert` is a preset, such as pretrain_masked_lm.py saves. `--help` lists the options,
which are those of `python -m keras_bertfam pretrain`. Set KERAS_BACKEND to choose the
backend.
"""

import typer

from keras_bertfam import tasks
from keras_bertfam.cli import building, options, pretraining


def main(run):
    """Distil a masked language model into half of its layers."""
    run, documents = pretraining.begin(run)
    teacher = tasks.MaskedLM.from_preset(run.teacher)
    # Every layer of the student begins as one of the teacher's.
    student = tasks.MaskedLM.from_teacher(teacher, **run.backbone_arguments)
    preprocessor = tasks.DistillerPreprocessor(
        teacher.preprocessor.tokenizer,
        run.sequence_length,
        **building.preprocessor_settings(run),
    )
    weights = {**tasks.DISTILLATION_RECIPES["single_gpu"], **run.task_arguments}
    model = tasks.Distiller(student, teacher, preprocessor, **weights)
    building.compiled(run, model)
    pretraining.train(run, model, documents)
    return student


command = options.takes_a_run(
    main,
    fixed={"objective": "distillation"},
    family="distilbert",
    epochs=3,
    output="my_distilbert",
)

if __name__ == "__main__":
    typer.run(command)
