"""Pre-training and fine-tuning tasks, each beside the preprocessor that feeds it."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.tasks.finetuning.cross_encoder import CrossEncoder
    from keras_bertfam.tasks.finetuning.cross_encoder_preprocessor import (
        CrossEncoderPreprocessor,
    )
    from keras_bertfam.tasks.finetuning.dependency_parser import DependencyParser
    from keras_bertfam.tasks.finetuning.dependency_parser_preprocessor import (
        DependencyParserPreprocessor,
    )
    from keras_bertfam.tasks.finetuning.elmo_preprocessor import (
        ElmoTextClassifierPreprocessor,
        ElmoTokenClassifierPreprocessor,
    )
    from keras_bertfam.tasks.finetuning.embedding_losses import (
        CoSENT,
        CosineSimilarityError,
        GuidedNegatives,
        InBatchNegatives,
        MarginError,
        Matryoshka,
        ScoreDistillation,
        TripletMargin,
        VectorDistillation,
    )
    from keras_bertfam.tasks.finetuning.ensemble import Ensemble
    from keras_bertfam.tasks.finetuning.entity_marks import mark_entities
    from keras_bertfam.tasks.finetuning.multiple_choice import MultipleChoice
    from keras_bertfam.tasks.finetuning.multiple_choice_preprocessor import (
        MultipleChoicePreprocessor,
    )
    from keras_bertfam.tasks.finetuning.ranking_losses import (
        LambdaLoss,
        ListwiseCrossentropy,
        PairwiseLogistic,
        PointwiseCrossentropy,
        ScoreMargins,
    )
    from keras_bertfam.tasks.finetuning.relation_classifier import RelationClassifier
    from keras_bertfam.tasks.finetuning.relation_classifier_preprocessor import (
        RelationClassifierPreprocessor,
    )
    from keras_bertfam.tasks.finetuning.span_question_answering import (
        SpanQuestionAnswering,
    )
    from keras_bertfam.tasks.finetuning.span_question_answering_preprocessor import (
        SpanQuestionAnsweringPreprocessor,
    )
    from keras_bertfam.tasks.finetuning.sparse_encoder import SparseEncoder
    from keras_bertfam.tasks.finetuning.text_classifier import (
        TextClassifier,
        TextRegressor,
    )
    from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
        TextClassifierPreprocessor,
        TextRegressorPreprocessor,
    )
    from keras_bertfam.tasks.finetuning.text_embedder import TextEmbedder
    from keras_bertfam.tasks.finetuning.text_embedder_preprocessor import (
        SparseEncoderPreprocessor,
        TextEmbedderPreprocessor,
    )
    from keras_bertfam.tasks.finetuning.token_classifier import TokenClassifier
    from keras_bertfam.tasks.finetuning.token_classifier_preprocessor import (
        TokenClassifierPreprocessor,
    )
    from keras_bertfam.tasks.generation.causal_lm import CausalLM
    from keras_bertfam.tasks.generation.causal_lm_preprocessor import (
        CausalLMPreprocessor,
    )
    from keras_bertfam.tasks.generation.denoising_preprocessor import (
        DenoisingPreprocessor,
    )
    from keras_bertfam.tasks.generation.settings import GenerationSettings
    from keras_bertfam.tasks.generation.text_to_text import TextToText
    from keras_bertfam.tasks.generation.text_to_text_preprocessor import (
        TextToTextPreprocessor,
    )
    from keras_bertfam.tasks.losses import MaskedCrossentropy
    from keras_bertfam.tasks.masking.denoising_autoencoder import DenoisingAutoencoder
    from keras_bertfam.tasks.masking.denoising_autoencoder_preprocessor import (
        DenoisingAutoencoderPreprocessor,
    )
    from keras_bertfam.tasks.masking.distiller import DISTILLATION_RECIPES, Distiller
    from keras_bertfam.tasks.masking.masked_autoencoder import MaskedAutoencoder
    from keras_bertfam.tasks.masking.masked_autoencoder_preprocessor import (
        MaskedAutoencoderPreprocessor,
    )
    from keras_bertfam.tasks.masking.masked_diffusion_lm import MaskedDiffusionLM
    from keras_bertfam.tasks.masking.masked_diffusion_lm_preprocessor import (
        MaskedDiffusionLMPreprocessor,
    )
    from keras_bertfam.tasks.masking.masked_lm import MaskedLM
    from keras_bertfam.tasks.masking.masked_lm_preprocessor import (
        DistillerPreprocessor,
        MaskedLMPreprocessor,
    )
    from keras_bertfam.tasks.masking.masked_lm_sentence_pair import (
        MaskedLMSentencePair,
    )
    from keras_bertfam.tasks.masking.masked_lm_sentence_pair_preprocessor import (
        MaskedLMSentencePairPreprocessor,
    )
    from keras_bertfam.tasks.masking.masked_permuted_lm import MaskedPermutedLM
    from keras_bertfam.tasks.masking.masked_permuted_lm_preprocessor import (
        MaskedPermutedLMPreprocessor,
    )
    from keras_bertfam.tasks.masking.replaced_token_detection import (
        ReplacedTokenDetection,
    )
    from keras_bertfam.tasks.masking.replaced_token_detection_preprocessor import (
        ReplacedTokenDetectionPreprocessor,
    )
    from keras_bertfam.tasks.masking.span_boundary_lm import SpanBoundaryLM
    from keras_bertfam.tasks.masking.span_boundary_lm_preprocessor import (
        SpanBoundaryLMPreprocessor,
    )
    from keras_bertfam.tasks.phases import Phase, pretraining_phases, train_in_phases
    from keras_bertfam.tasks.recipes import fine_tuning_recipe, pretraining_recipe
    from keras_bertfam.tasks.recurrent.bidirectional_lm import BidirectionalLM
    from keras_bertfam.tasks.recurrent.bidirectional_lm_preprocessor import (
        BidirectionalLMPreprocessor,
    )
    from keras_bertfam.tasks.recurrent.permutation_lm import PermutationLM
    from keras_bertfam.tasks.recurrent.permutation_lm_preprocessor import (
        PermutationLMPreprocessor,
    )
    from keras_bertfam.tasks.recurrent.recurrent_lm import RecurrentLM
    from keras_bertfam.tasks.recurrent.recurrent_lm_preprocessor import (
        RecurrentLMPreprocessor,
    )
    from keras_bertfam.tasks.resizing import add_special_tokens, resize_vocabulary
    from keras_bertfam.tasks.retrieval.dual_encoder import DualEncoder
    from keras_bertfam.tasks.retrieval.dual_encoder_preprocessor import (
        DualEncoderPreprocessor,
    )
    from keras_bertfam.tasks.retrieval.knowledge_augmented_masked_lm import (
        KnowledgeAugmentedMaskedLM,
    )
    from keras_bertfam.tasks.retrieval.knowledge_augmented_masked_lm_preprocessor import (  # noqa: E501
        KnowledgeAugmentedMaskedLMPreprocessor,
    )
    from keras_bertfam.tasks.retrieval.late_interaction import LateInteraction
    from keras_bertfam.tasks.retrieval.late_interaction_preprocessor import (
        LateInteractionPreprocessor,
    )
    from keras_bertfam.tasks.retrieval.open_question_answering import (
        OpenQuestionAnswering,
    )
    from keras_bertfam.tasks.retrieval.open_question_answering_preprocessor import (
        OpenQuestionAnsweringPreprocessor,
    )
    from keras_bertfam.tasks.retrieval.passages_preprocessor import PassageSearch
    from keras_bertfam.tasks.retrieval.refresh_index import RefreshIndex
    from keras_bertfam.tasks.retrieval.retrieval_augmented_generator import (
        RetrievalAugmentedGenerator,
    )
    from keras_bertfam.tasks.retrieval.retrieval_augmented_generator_preprocessor import (  # noqa: E501
        RetrievalAugmentedGeneratorPreprocessor,
    )

__all__ = [
    "BidirectionalLM",
    "BidirectionalLMPreprocessor",
    "CausalLM",
    "CausalLMPreprocessor",
    "CoSENT",
    "CosineSimilarityError",
    "CrossEncoder",
    "CrossEncoderPreprocessor",
    "DISTILLATION_RECIPES",
    "DenoisingAutoencoder",
    "DenoisingAutoencoderPreprocessor",
    "DenoisingPreprocessor",
    "DependencyParser",
    "DependencyParserPreprocessor",
    "Distiller",
    "DistillerPreprocessor",
    "DualEncoder",
    "DualEncoderPreprocessor",
    "ElmoTextClassifierPreprocessor",
    "ElmoTokenClassifierPreprocessor",
    "Ensemble",
    "GenerationSettings",
    "GuidedNegatives",
    "InBatchNegatives",
    "KnowledgeAugmentedMaskedLM",
    "KnowledgeAugmentedMaskedLMPreprocessor",
    "LambdaLoss",
    "LateInteraction",
    "LateInteractionPreprocessor",
    "ListwiseCrossentropy",
    "MarginError",
    "MaskedCrossentropy",
    "MaskedAutoencoder",
    "MaskedAutoencoderPreprocessor",
    "MaskedDiffusionLM",
    "MaskedDiffusionLMPreprocessor",
    "MaskedLM",
    "MaskedLMPreprocessor",
    "MaskedLMSentencePair",
    "MaskedLMSentencePairPreprocessor",
    "MaskedPermutedLM",
    "MaskedPermutedLMPreprocessor",
    "Matryoshka",
    "MultipleChoice",
    "MultipleChoicePreprocessor",
    "OpenQuestionAnswering",
    "OpenQuestionAnsweringPreprocessor",
    "PairwiseLogistic",
    "PassageSearch",
    "PermutationLM",
    "PermutationLMPreprocessor",
    "Phase",
    "PointwiseCrossentropy",
    "RecurrentLM",
    "RecurrentLMPreprocessor",
    "RefreshIndex",
    "RelationClassifier",
    "RelationClassifierPreprocessor",
    "ReplacedTokenDetection",
    "ReplacedTokenDetectionPreprocessor",
    "RetrievalAugmentedGenerator",
    "RetrievalAugmentedGeneratorPreprocessor",
    "ScoreDistillation",
    "ScoreMargins",
    "SpanBoundaryLM",
    "SpanBoundaryLMPreprocessor",
    "SpanQuestionAnswering",
    "SpanQuestionAnsweringPreprocessor",
    "SparseEncoder",
    "SparseEncoderPreprocessor",
    "TextClassifier",
    "TextClassifierPreprocessor",
    "TextEmbedder",
    "TextEmbedderPreprocessor",
    "TextRegressor",
    "TextRegressorPreprocessor",
    "TextToText",
    "TextToTextPreprocessor",
    "TokenClassifier",
    "TokenClassifierPreprocessor",
    "TripletMargin",
    "VectorDistillation",
    "add_special_tokens",
    "fine_tuning_recipe",
    "mark_entities",
    "pretraining_phases",
    "pretraining_recipe",
    "resize_vocabulary",
    "train_in_phases",
]

lazy.attach(__name__)
