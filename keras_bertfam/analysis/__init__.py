"""Analyse what trained models have learned."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.analysis import plots
    from keras_bertfam.analysis.cloze import cloze_facts
    from keras_bertfam.analysis.heads.attention_view import attention_view
    from keras_bertfam.analysis.heads.importance import head_importance
    from keras_bertfam.analysis.heads.pruning import prune_heads, pruning_curve
    from keras_bertfam.analysis.heads.roles import head_roles
    from keras_bertfam.analysis.layerwise import (
        layer_transitions,
        plot_layer_transitions,
    )
    from keras_bertfam.analysis.likelihood import minimal_pairs, pseudo_log_likelihood
    from keras_bertfam.analysis.occurrences import word_vectors
    from keras_bertfam.analysis.probes.data import entities
    from keras_bertfam.analysis.probes.edges import read_edges
    from keras_bertfam.analysis.probes.probe import probe
    from keras_bertfam.analysis.reliability import calibration
    from keras_bertfam.analysis.saliency import token_saliency
    from keras_bertfam.analysis.static_vectors import (
        read_static_vectors,
        similar_words,
        train_static_vectors,
    )
    from keras_bertfam.analysis.word_states import embed_words

__all__ = [
    "attention_view",
    "calibration",
    "cloze_facts",
    "embed_words",
    "entities",
    "head_importance",
    "head_roles",
    "layer_transitions",
    "minimal_pairs",
    "plot_layer_transitions",
    "plots",
    "probe",
    "prune_heads",
    "pruning_curve",
    "pseudo_log_likelihood",
    "read_static_vectors",
    "read_edges",
    "token_saliency",
    "similar_words",
    "train_static_vectors",
    "word_vectors",
]

lazy.attach(__name__)
