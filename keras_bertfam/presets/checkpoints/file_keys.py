"""The keys of checkpoints' files: used, without a meaning here, or refused.

A table sorts keys into three kinds:

- keys that are used;
- keys without a meaning here, with the reason;
- keys that must have one of a few values. Other values raise an error that names the
  key.

A warning names every key that is in no table, with its value, when the checkpoint is
loaded.

Four other modules have the keys of their own formats: `config_keys` (the `config.json`
of `transformers`), `sentence_transformers`, `kerashub` and `tokenizer_pipelines`
(`tokenizer.json`). `python -m tests.key_table` prints all keys.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.types import Path


@dataclasses.dataclass(frozen=True)
class Keys:
    """The keys of one kind of file, and what becomes of each.

    Args:
        file: the name of the file, or of a part of it.
        used: keys, separated by spaces.
        only: dict from keys to the values that they may have.
        meaningless: dict from reasons to keys, separated by spaces. A key that ends
            with `*` stands for all keys with this beginning.
    """

    file: str
    used: str = ""
    only: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    meaningless: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        words = [key for key, *_ in self.entries()]
        twice = {key for key in words if words.count(key) > 1}
        if twice:
            raise ValueError(f"Keys of {self.file} must be listed once: {twice}.")

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """Yield each key, what becomes of it, and the reason or the allowed values."""
        for key in self.used.split():
            yield key, "used", ""
        for reason, keys in self.meaningless.items():
            for key in keys.split():
                yield key, "no meaning here", reason
        for key, values in self.only.items():
            yield key, "refused", f"unless {' or '.join(map(repr, values))}"

    def refuse(self, content: Mapping[str, Any], where: Path) -> None:
        """Raise a `CheckpointError` for a value that isn't in `only`."""
        for key, values in self.only.items():
            if key in content and not _is_one_of(content[key], values):
                raise CheckpointError(
                    f"{os.fspath(where)!r} must have {key}={values[0]!r}, as no model "
                    f"here has another value. Received: {content[key]!r}."
                )

    def notes(self, content: Mapping[str, Any], where: Path) -> tuple[str, ...]:
        """Refuse the values that no model here has, and name the unknown keys.

        Args:
            content: dict, the content of the file.
            where: path of the file, for messages.

        Returns:
            A tuple of one sentence that lists the unknown keys; an empty tuple if all
            keys are known. Unknown keys that are `None` aren't listed.

        Raises:
            CheckpointError: for a value that no model here has.
        """
        self.refuse(content, where)
        known = {key for key, *_ in self.entries()}
        beginnings = tuple(key[:-1] for key in known if key.endswith("*"))
        odd = {
            key: value
            for key, value in content.items()
            if key not in known
            and value is not None
            and not str(key).startswith(beginnings)
        }
        if not odd:
            return ()
        listed = ", ".join(f"{key}={str(value)[:60]!r}" for key, value in odd.items())
        name = os.path.basename(os.fspath(where))
        return (f"In {name}, and not known here: {listed}.",)


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """Tell whether `values` has a value; `True` isn't the same as 1."""
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool)
        for each in values
    )


_NONE_OR_FALSE = (False, None)
# The arguments of training that fairseq keeps beside the tensors of RoBERTa, BART and
# SpanBERT. Arguments that change the computation are used, or must have one value.
FAIRSEQ = Keys(
    "model.pt (args, or cfg)",
    used="""
        activation_fn activation_dropout attention_dropout dropout
        encoder_attention_heads decoder_attention_heads encoder_normalize_before
        layernorm_embedding share_all_embeddings encoder_learned_pos no_scale_embedding
        encoder_layers encoder_embed_dim encoder_ffn_embed_dim
        decoder_layers decoder_embed_dim decoder_ffn_embed_dim
        hidden_act num_attention_heads hidden_dropout_prob
        attention_probs_dropout_prob""",
    only={
        "pair_target_layer": (-1,),
        "clamp_attention": _NONE_OR_FALSE,
        "no_token_positional_embeddings": _NONE_OR_FALSE,
        "adaptive_input": _NONE_OR_FALSE,
        "adaptive_softmax_cutoff": (None, ""),
        "cross_self_attention": _NONE_OR_FALSE,
        "no_cross_attention": _NONE_OR_FALSE,
        "spectral_norm_classification_head": _NONE_OR_FALSE,
        "pooler_activation_fn": ("tanh", None),
        "decoder_learned_pos": (True, None),
        "encoder_layers_to_keep": (None, ""),
        "decoder_layers_to_keep": (None, ""),
        "no_encoder_attn": _NONE_OR_FALSE,
        "char_inputs": _NONE_OR_FALSE,
        "no_share_discriminator": _NONE_OR_FALSE,
    },
    meaningless={
        "said by the tensors": """
            arch _name untie_weights_roberta share_decoder_input_output_embed
            share_encoder_input_output_embed decoder_normalize_before
            decoder_input_dim decoder_output_dim encoder_embed_path decoder_embed_path
            max_positions max_source_positions max_target_positions tokens_per_sample
            vocab_size type_vocab_size max_position_embeddings hidden_size
            intermediate_size num_hidden_layers num_classes num_segment
            regression_target pair_positional_embedding_size max_pair_targets
            sentence_class_num sent_loss apply_bert_init""",
        "dropout that published models do without, or of heads": """
            relu_dropout pooler_dropout classifier_dropout encoder_layerdrop
            decoder_layerdrop quant_noise_* attention_dropout_all head_dropout
            adaptive_softmax_dropout adaptive_softmax_factor tie_adaptive_weights
            tie_adaptive_proj""",
        "of the tokenizer's files": """
            bpe gpt2_encoder_json gpt2_vocab_bpe sentencepiece_model tokenizer
            source_lang target_lang langs add_bos_token bert_model_name
            bpe_codes bpe_separator""",
        "of training, and of how it was run": """
            task data criterion optimizer optimizer_overrides lr lr_* min_lr warmup_*
            total_num_update max_update max_epoch end_learning_rate power force_anneal
            adam_* use_old_adam weight_decay clip_norm update_freq seed fp16* bf16
            memory_efficient_* min_loss_scale threshold_loss_scale stop_min_lr
            stop_time_hours use_bmuf block_momentum block_lr use_nbm average_sync
            distributed_* device_id world_size local_rank ddp_backend bucket_cap_mb
            fix_batches_to_gpus find_unused_parameters fast_stat_sync nprocs_per_node
            pipeline_* zero_sharding tpu cpu no_progress_bar log_* tensorboard_*
            wandb_* azureml_logging profile empty_cache_freq all_gather_list_size
            broadcast_buffers localsgd_frequency slowmo_* batch_size* max_tokens*
            max_sentences* required_batch_size_multiple dataset_impl data_buffer_size
            num_workers skip_invalid_size_inputs_valid_test train_subset valid_subset
            gen_subset validate_* disable_validation fixed_validation_seed num_shards
            shard_id curriculum save_* restore_file reset_* keep_* no_save*
            no_last_checkpoints no_epoch_checkpoints no_save_optimizer_state
            best_checkpoint_metric maximize_best_checkpoint_metric patience
            checkpoint_* finetune_from_model write_checkpoints_asynchronously
            model_parallel_size user_dir load_* truncate_* left_pad_* upsample_primary
            raw_text lazy_load memory_dataset sample_break_mode mask*
            leave_unmasked_prob random_token_prob freq_weighted_replacement
            random_ngram shuffle*
            replace_length rotate permute insert poisson_lambda permute_sentences
            label_smoothing sentence_avg ignore_prefix_size report_accuracy eval_*
            classification_head_name init_token separator_token no_shuffle
            add_prev_output_tokens shorten_* max_option_length max_source_length
            max_target_length num_options criterion_* truncate_sequence
            save_predictions use_cls ranking_head_name margin
            path input quiet beam nbest max_len_a max_len_b min_len match_source_len
            no_early_stop unnormalized no_beamable_mm lenpen unkpen replace_unk
            sacrebleu score_reference prefix_size no_repeat_ngram_size sampling*
            diverse_* print_* model_overrides results_path remove_bpe
            quantization_config_path
            scoring simul_type ema_* amp* on_cpu_convert_precision
            no_reshard_after_forward cpu_offload use_sharded_state post_process
            gradient_as_bucket_view offload_activations min_params_to_wrap
            heartbeat_timeout plasma_path grouped_shuffling update_epoch_batch_itr
            update_ordered_indices_seed load_checkpoint_heads combine_valid_subsets
            ignore_unused_valid_subsets suppress_crashes common* config
            use_plasma_view num_pretrain* static_* span* geometric_p pair_loss_weight
            no_nsp short_seq_prob tagged_anchor_prob max_span_length replacement
            masking_scheme return_only_spans endpoints next_sent_loss schemes
            not_share_pair_embedding cased_* warmup decay best_*""",
    },
)
# Values that RoBERTa must have. BART may have others.
FAIRSEQ_ROBERTA = Keys(
    "model.pt (args, or cfg) of RoBERTa",
    only={
        "encoder_normalize_before": _NONE_OR_FALSE,
        "layernorm_embedding": (True, None),
        "encoder_learned_pos": (True, None),
        "no_scale_embedding": (True, None),
    },
)
# Parts of fairseq's nested settings that don't describe the model.
FAIRSEQ_PARTS = """
    _name common common_eval distributed_training dataset optimization checkpoint bmuf
    generation eval_lm interactive task criterion optimizer lr_scheduler scoring bpe
    tokenizer ema job_logging_cfg reset_logging simul_type""".split()

# Settings of Mesh TensorFlow's code: a configurable, a point and its parameter.
GIN = Keys(
    "operative_config.gin",
    used="""
        DenseReluDense.activation d_ff d_kv d_model num_heads num_layers""",
    only={
        "Unitransformer.positional_embedding": (False,),
        "Unitransformer.sinusoid_positional_embedding": (False,),
        "Unitransformer.ensemble": (None,),
        "Unitransformer.input_full_attention": _NONE_OR_FALSE,
        "Bitransformer.shared_embedding": (True,),
        "SelfAttention.num_memory_heads": (0, None),
        "SelfAttention.shared_kv": (False, None),
        "SelfAttention.attention_kwargs": (None,),
        "SelfAttention.relative_attention_type": ("bias_shared",),
        "SelfAttention.combine_dims": (True,),
        "SelfAttention.keep_query_heads_dims": (False,),
        "SelfAttention.fold_scaling_into_initializer": (True,),
        "EncDecAttention.relative_attention_type": (None,),
        "LayerStack.norm_epsilon": (1e-6,),
        "LayerStack.recompute_grads": _NONE_OR_FALSE,
    },
    meaningless={
        "said by the tensors": """
            Unitransformer.d_model Unitransformer.shared_embedding_and_softmax_weights
            Unitransformer.vocab_divisor SelfAttention.num_heads
            SelfAttention.key_value_size SelfAttention.relative_attention_num_buckets
            EncDecAttention.num_heads EncDecAttention.key_value_size
            DenseReluDense.hidden_size make_layer_stack.* make_bitransformer.*
            DenseReluDense.use_bias""",
        "of training, and of how it was run": """
            Unitransformer.label_smoothing Unitransformer.loss_denominator
            Unitransformer.loss_fn Unitransformer.loss_on_targets_only
            Unitransformer.max_length Unitransformer.token_dropout_rate
            Unitransformer.z_loss dropout_rate
            LayerStack.dropout_rate SelfAttention.dropout_rate
            DenseReluDense.dropout_rate EncDecAttention.dropout_rate
            AdafactorOptimizer.* AdamWeightDecayOptimizer.* learning_rate_* constant_*
            linear_* truncated_rsqrt.* slanted_triangular.* run.* mesh_* tpu_* utils.*
            serialize_num_microbatches.* get_variable_dtype.* batch_size
            tokens_per_batch init_checkpoint MIXTURE_NAME mixture* TASK* inputs_length
            targets_length mean_noise_span_length noise_density denoise.*
            noise_* random_spans_* iid_* select_random_chunk.* reduce_concat_tokens.*
            split_tokens.* unsupervised.* get_sentencepiece_model_path.*
            get_vocabulary.* sentencepiece_* preprocess* pack_* dataset.* decode.*
            infer_model.* eval_model.* eval_checkpoint_step model_dir
            VarianceScalingInitializer.* num_parallel_calls sample_* beam_* train_*
            compute_lr_factor.* keep_checkpoint_max save_checkpoints_steps
            ensemble_* pretrained_* all_mix* rate_* get_components_* nonnoise_*
            auto_* logits.* maybe_*""",
    },
)

# The encoder's part of the Model Garden's settings.
PARAMS = Keys(
    "params.yaml (encoder)",
    used="""
        type num_layers hidden_size num_attention_heads intermediate_size vocab_size
        type_vocab_size max_position_embeddings embedding_size embedding_width
        hidden_activation dropout_rate attention_dropout_rate""",
    only={
        "norm_first": _NONE_OR_FALSE,
        "inner_activation": ("gelu",),
        "num_hidden_instances": (1,),
        "output_range": (None,),
    },
    meaningless={
        "of new weights, or of what is returned": """
            initializer_range return_all_encoder_outputs return_attention_scores
            return_word_embeddings""",
    },
)

ELMO = Keys(
    "options.json",
    used="""
        lstm.projection_dim lstm.cell_clip lstm.proj_clip lstm.dim lstm.n_layers
        char_cnn.filters char_cnn.n_highway char_cnn.embedding.dim
        char_cnn.max_characters_per_token""",
    only={
        "lstm.use_skip_connections": (True,),
        "char_cnn.activation": ("relu",),
        "char_cnn.n_characters": (262, 261),
        "bidirectional": (True,),
    },
    meaningless={
        "of training": """
            all_clip_norm_val batch_size dropout n_epochs n_negative_samples_batch
            n_predict n_tokens_vocab n_train_tokens unroll_steps learning_rate
            optimizer softmax""",
    },
)

_ROLES = "bos_token eos_token unk_token sep_token cls_token pad_token mask_token"
TOKENIZER_CONFIG = Keys(
    "tokenizer_config.json",
    used="""
        tokenizer_class do_lower_case strip_accents tokenize_chinese_chars keep_accents
        add_prefix_space extra_ids special_tokens_in_strings split_number_commas
        model_max_length truncation_side max_input_chars_per_word
        added_tokens_decoder additional_special_tokens extra_special_tokens
        bos_token eos_token sep_token cls_token mask_token""",
    only={
        "do_basic_tokenize": (True, None),
        "remove_space": (True, None),
        "wordpieces_prefix": ("##", None),
        "never_split": (None, []),
        "split_special_tokens": _NONE_OR_FALSE,
        "sp_model_kwargs": ({}, None),
        "normalization": _NONE_OR_FALSE,
        "do_word_tokenize": (True, None),
        "do_subword_tokenize": (True, None),
    },
    meaningless={
        "who wrote it, and what for": """
            name_or_path special_tokens_map_file tokenizer_file from_slow use_fast
            backend is_local local_files_only vocab_file merges_file spm_file
            processor_class tokenizer_type auto_map
            transformers_version vocab_size vocab unk_id _commit_hash""",
        "of reading ids back": """
            clean_up_tokenization_spaces errors spaces_between_special_tokens
            decode_with_prefix_space""",
        "of rows, which preprocessors lay out here": """
            model_input_names padding_side max_length max_len stride
            truncation_strategy truncation padding pad_to_multiple_of
            pad_token_type_id add_bos_token add_eos_token trim_offsets
            return_token_type_ids""",
        "padding is masked, and the vocabulary has the unknown token": """
            pad_token unk_token""",
        "of chats, and of parts that no tokenizer here has": """
            chat_template use_default_system_prompt legacy legacy_behaviour
            cls_token_box sep_token_box pad_token_box pad_token_label
            only_label_first_subword language task src_lang tgt_lang
            _spm_precompiled_charsmap mask_token_type""",
    },
)
SPECIAL_TOKENS_MAP = Keys(
    "special_tokens_map.json",
    used="""
        bos_token eos_token sep_token cls_token mask_token additional_special_tokens
        extra_special_tokens""",
    meaningless={
        "padding is masked, and the vocabulary has the unknown token": """
            pad_token unk_token"""
    },
)
# Keys of an object that Keras wrote. Its class refuses unknown keys of its `config`.
SERIALIZED = Keys(
    "config.json, task.json, preprocessor.json, tokenizer.json of a preset",
    used="registered_name class_name module config name",
    meaningless={
        "the classes build themselves anew": "build_config compile_config",
        "of other code": "assets weights date_saved keras_version",
    },
)
METADATA = Keys(
    "metadata.json of a preset",
    meaningless={
        "who wrote it": "keras_version keras_hub_version keras_nlp_version date_saved",
        "said by the tensors": "parameter_count",
        "the tasks that KerasHub has for the class": "tasks",
    },
)
# Each key is a token and its value the id: the vocabulary's own, or one behind its end.
ADDED_TOKENS = Keys("added_tokens.json", used="*")
# ColBERT keeps the settings of a whole experiment.
COLBERT = Keys(
    "artifact.metadata",
    used="""
        query_maxlen doc_maxlen query_token_id doc_token_id attend_to_mask_tokens
        mask_punctuation""",
    only={"similarity": ("cosine", None), "interaction": ("colbert", None)},
    meaningless={
        "the names of the markers in messages": "query_token doc_token",
        "said by the projection's shape": "dim",
        "how it was trained": """
            bsize accumsteps lr maxsteps save_every resume resume_optimizer warmup
            warmup_bert relu nway use_ib_negatives reranker distillation_alpha
            ignore_scores model_name checkpoint triples amp fixed_memory""",
        "of the index": """
            nbits kmeans_niters index_name index_path index_bsize index_root
            load_index_with_mmap ncells centroid_score_threshold ndocs partitions
            sample_rate""",
        "of the experiment": """
            collection queries overwrite root experiment name rank nranks gpus
            avoid_fork_if_possible total_visible_gpus use_rocm meta""",
    },
)
ALL = (
    COLBERT,
    FAIRSEQ,
    FAIRSEQ_ROBERTA,
    GIN,
    PARAMS,
    ELMO,
    TOKENIZER_CONFIG,
    SPECIAL_TOKENS_MAP,
    SERIALIZED,
    METADATA,
    ADDED_TOKENS,
)
