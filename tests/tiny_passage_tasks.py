"""Tasks that read passages, real data and all, small enough to run anywhere."""

import types

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.optimizers import pretraining_optimizer
from tests import tiny_passages, tiny_text_to_text
from tests.tasks.generation.text_to_text_tokenizers import word_piece

TEXTS = tiny_passages.passages() * 3
BATCH_SIZE = 4


def marked(text):
    """A text whose second and third word are an entity, and the last a second one."""
    first, second, third, *others, last = text.split()
    return " ".join([first, f"⟦{second} {third}⟧", *others, f"⟦{last}⟧"])


def compiled(task, rate=1e-2):
    jit_compile = keras.backend.backend() == "jax"
    optimizer = pretraining_optimizer(rate, 60, 2, global_clipnorm=0.5)
    task.compile(optimizer, jit_compile=jit_compile)
    return task


def searching(preprocessor):
    """A preprocessor with a search of its own, and the retriever of that."""
    preprocessor.search = tiny_passages.make_search(trained=True)
    return preprocessor, preprocessor.search.retriever


def make_realm(dropout=0.0):
    preprocessor, retriever = searching(
        tasks.KnowledgeAugmentedMaskedLMPreprocessor(
            word_piece(),
            sequence_length=9,
            passage_length=7,
            num_candidates=3,
            mask_selection_length=3,
        )
    )
    reader = tiny_passages.bert(dropout=dropout)
    task = tasks.KnowledgeAugmentedMaskedLM(reader, preprocessor, retriever)
    return compiled(task, 2e-2)  # what is masked differs from pass to pass


def realm_stream(model, training=True):
    rows = {
        "text": [*map(marked, TEXTS)],
        "source": np.arange(len(TEXTS)) % len(tiny_passages.passages()),
    }
    rows = tf.data.Dataset.from_tensor_slices(rows)
    return model.preprocessor.dataset(rows, BATCH_SIZE, training=training)


def make_rag(dropout=0.0):
    preprocessor, retriever = searching(
        tasks.RetrievalAugmentedGeneratorPreprocessor(
            word_piece(), sequence_length=16, target_length=4, num_passages=2
        )
    )
    size = word_piece().vocabulary_size()
    generator = tiny_text_to_text.make(
        "T5", vocabulary_size=size, num_layers=1, dropout=dropout
    )
    return compiled(
        tasks.RetrievalAugmentedGenerator(generator, preprocessor, retriever)
    )


def rag_stream(model, training=True):
    answers = [text.split()[0] for text in TEXTS]
    return model.preprocessor.dataset((TEXTS, answers), BATCH_SIZE, training=training)


def make_open(dropout=0.0):
    preprocessor, retriever = searching(
        tasks.OpenQuestionAnsweringPreprocessor(
            word_piece(), sequence_length=14, num_passages=3, max_answer_length=2
        )
    )
    reader = tiny_passages.bert(dropout=dropout)
    task = tasks.OpenQuestionAnswering(
        reader, preprocessor, retriever, max_answer_length=2
    )
    return compiled(task, 5e-3)


def open_stream(model, training=True):
    """Two words of each text, some of which are in no passage that is found."""
    answers = [[" ".join(text.split()[1:3]), text.split()[1]] for text in TEXTS]
    return model.preprocessor.dataset((TEXTS, answers), BATCH_SIZE, training=training)


realm = types.SimpleNamespace(make_model=make_realm, stream=realm_stream)
rag = types.SimpleNamespace(make_model=make_rag, stream=rag_stream)
open_questions = types.SimpleNamespace(make_model=make_open, stream=open_stream)
