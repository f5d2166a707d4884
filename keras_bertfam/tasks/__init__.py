"""Pre-training and fine-tuning tasks, each beside the preprocessor that feeds it."""

from keras_bertfam.layers.preprocessing.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.layers.preprocessing.masked_lm_sentence_pair_preprocessor import (
    MaskedLMSentencePairPreprocessor,
)
from keras_bertfam.layers.preprocessing.multiple_choice_preprocessor import (
    MultipleChoicePreprocessor,
)
from keras_bertfam.layers.preprocessing.permutation_lm_preprocessor import (
    PermutationLMPreprocessor,
)
from keras_bertfam.layers.preprocessing.replaced_token_detection_preprocessor import (
    ReplacedTokenDetectionPreprocessor,
)
from keras_bertfam.layers.preprocessing.span_boundary_lm_preprocessor import (
    SpanBoundaryLMPreprocessor,
)
from keras_bertfam.layers.preprocessing.span_question_answering_preprocessor import (
    SpanQuestionAnsweringPreprocessor,
)
from keras_bertfam.layers.preprocessing.text_classifier_preprocessor import (
    TextClassifierPreprocessor,
    TextRegressorPreprocessor,
)
from keras_bertfam.layers.preprocessing.text_embedder_preprocessor import (
    TextEmbedderPreprocessor,
)
from keras_bertfam.layers.preprocessing.token_classifier_preprocessor import (
    TokenClassifierPreprocessor,
)
from keras_bertfam.tasks.distillation import DISTILLATION_RECIPES
from keras_bertfam.tasks.distiller import Distiller
from keras_bertfam.tasks.losses import (
    MaskedCrossentropy,
    Perplexity,
    WeightedMeanSquaredError,
)
from keras_bertfam.tasks.masked_lm import MaskedLM
from keras_bertfam.tasks.masked_lm_sentence_pair import MaskedLMSentencePair
from keras_bertfam.tasks.multiple_choice import MultipleChoice
from keras_bertfam.tasks.permutation_lm import PermutationLM
from keras_bertfam.tasks.recipes import (
    FINE_TUNING_RECIPES,
    FineTuningRecipe,
    fine_tuning_recipe,
)
from keras_bertfam.tasks.replaced_token_detection import ReplacedTokenDetection
from keras_bertfam.tasks.resizing import resize_vocabulary
from keras_bertfam.tasks.span_boundary_lm import SpanBoundaryLM
from keras_bertfam.tasks.span_question_answering import SpanQuestionAnswering
from keras_bertfam.tasks.text_classifier import TextClassifier
from keras_bertfam.tasks.text_embedder import CosineSimilarityError, TextEmbedder
from keras_bertfam.tasks.text_regressor import TextRegressor
from keras_bertfam.tasks.token_classifier import TokenClassifier

__all__ = [
    "CosineSimilarityError",
    "DISTILLATION_RECIPES",
    "Distiller",
    "FINE_TUNING_RECIPES",
    "FineTuningRecipe",
    "MaskedCrossentropy",
    "MaskedLM",
    "MaskedLMPreprocessor",
    "MaskedLMSentencePair",
    "MaskedLMSentencePairPreprocessor",
    "MultipleChoice",
    "MultipleChoicePreprocessor",
    "PermutationLM",
    "PermutationLMPreprocessor",
    "Perplexity",
    "ReplacedTokenDetection",
    "ReplacedTokenDetectionPreprocessor",
    "SpanBoundaryLM",
    "SpanBoundaryLMPreprocessor",
    "SpanQuestionAnswering",
    "SpanQuestionAnsweringPreprocessor",
    "TextClassifier",
    "TextClassifierPreprocessor",
    "TextEmbedder",
    "TextEmbedderPreprocessor",
    "TextRegressor",
    "TextRegressorPreprocessor",
    "TokenClassifier",
    "TokenClassifierPreprocessor",
    "WeightedMeanSquaredError",
    "fine_tuning_recipe",
    "resize_vocabulary",
]
