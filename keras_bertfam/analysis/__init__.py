"""What trained models have learned."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.analysis import plots
    from keras_bertfam.analysis.heads.attention_view import (
        AttentionView,
        attention_view,
    )
    from keras_bertfam.analysis.heads.importance import head_importance
    from keras_bertfam.analysis.heads.measures import word_attention
    from keras_bertfam.analysis.heads.pruning import (
        add_head_gates,
        least_important,
        plot_pruning,
        prune_heads,
        pruning_curve,
    )
    from keras_bertfam.analysis.heads.roles import HeadRoles, head_roles
    from keras_bertfam.analysis.layerwise import (
        layer_transitions,
        plot_layer_transitions,
    )
    from keras_bertfam.analysis.likelihood import (
        log_likelihood,
        minimal_pairs,
        pseudo_log_likelihood,
        read_blimp,
    )
    from keras_bertfam.analysis.occurrences import WordVectors, word_vectors
    from keras_bertfam.analysis.probes.data import arcs, entities
    from keras_bertfam.analysis.probes.probe import probe
    from keras_bertfam.analysis.probes.report import (
        ProbeReport,
        center_of_gravity,
        expected_layer,
    )
    from keras_bertfam.analysis.reliability import calibration, plot_calibration
    from keras_bertfam.analysis.report import Report
    from keras_bertfam.analysis.saliency import Saliency, token_saliency
    from keras_bertfam.analysis.word_states import embed_words

__all__ = [
    "AttentionView",
    "HeadRoles",
    "ProbeReport",
    "Report",
    "Saliency",
    "WordVectors",
    "add_head_gates",
    "arcs",
    "attention_view",
    "calibration",
    "center_of_gravity",
    "embed_words",
    "entities",
    "expected_layer",
    "head_importance",
    "head_roles",
    "layer_transitions",
    "least_important",
    "log_likelihood",
    "minimal_pairs",
    "plot_calibration",
    "plot_layer_transitions",
    "plot_pruning",
    "plots",
    "probe",
    "prune_heads",
    "pruning_curve",
    "pseudo_log_likelihood",
    "read_blimp",
    "token_saliency",
    "word_attention",
    "word_vectors",
]

lazy.attach(__name__)
