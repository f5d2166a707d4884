"""Distil a BERT into half of its layers: python distill.py my_bert 'corpus/*.txt'.

`my_bert` is a preset, such as pretrain_masked_lm.py saves. Set KERAS_BACKEND to choose
the backend.
"""

import sys

import keras_bertfam


def main(teacher, pattern, epochs=3, recipe="single_gpu", layers=None, batch_size=64):
    teacher = keras_bertfam.tasks.MaskedLM.from_preset(teacher)
    # Every layer of the student begins as one of the teacher's.
    student = keras_bertfam.tasks.MaskedLM.from_teacher(teacher, layers)
    model = keras_bertfam.tasks.Distiller(
        student, teacher, **keras_bertfam.tasks.DISTILLATION_RECIPES[recipe]
    )
    documents = keras_bertfam.layers.read_documents(pattern)
    data = model.preprocessor.dataset(documents, batch_size)
    model.fit(data, epochs=epochs)
    student.save_to_preset("my_distilbert")
    return student


if __name__ == "__main__":
    main(*sys.argv[1:])
