"""The keys of a `config.json` of `transformers`: read, or without a meaning here."""

from collections.abc import Mapping
from typing import Any

from keras_bertfam.presets.converting.heads import counterparts
from keras_bertfam.presets.families import transformers_tables

# Keys without a meaning here, by their reasons.
MEANINGLESS = {
    "who wrote it, and what for": """
        _name_or_path transformers_version finetuning_task task_specific_params
        tokenizer_class prefix save_step torchscript torch_dtype dtype xla_device
        tf_legacy_loss language kwargs pretrained_model_name_or_path""",
    "how it is run, or what is returned": """
        output_attentions output_hidden_states output_past output_scores return_dict
        return_dict_in_generate use_return_dict use_cache use_bfloat16 use_mems_eval
        use_mems_train mem_len reuse_len chunk_size_feed_forward gradient_checkpointing
        deterministic_flash_attn reference_compile repad_logits_with_grad onnx_export
        reorder_and_upcast_attn sparse_prediction sparse_pred_ignore_index
        attention_mode ignore_attention_mask _attn_implementation
        _attn_implementation_autoset auto_map trust_remote_code pretraining_tp""",
    "names that preprocessors are given as `languages`": "lang2id id2lang lang_id",
    "the tokenizer's": """
        bos_index eos_index mask_index pad_index unk_index
        bos_token_id cls_token_id eos_token_id eos_token_ids mask_token_id
        pad_token_id pad_token_ids sep_token_id unk_token_id bos_token eos_token
        mask_token pad_token""",
    "arguments of `generate()` here": """
        bad_words_ids begin_suppress_tokens decoder_start_token_id diversity_penalty
        do_sample early_stopping encoder_no_repeat_ngram_size
        exponential_decay_length_penalty force_bos_token_to_be_generated
        forced_bos_token_id forced_eos_token_id length_penalty max_length min_length
        no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
        remove_invalid_values repetition_penalty suppress_tokens temperature top_k top_p
        typical_p""",
    "of training, or of new weights": """
        classif_dropout classifier_init_range decoder_layerdrop encoder_layerdrop init
        init_range init_std initializer_cutoff_factor initializer_factor
        sinusoidal_embeddings embed_init_std
        sinusoidal_pos_embds qa_dropout summary_first_dropout summary_last_dropout
        layerdrop pooler_dropout""",
    "said by shapes, or by other keys": """
        num_hidden_layers d_head dim_head n_ctx n_token n_positions n_special
        add_bias_logits num_labels _num_labels
        extra_pos_embeddings max_position_embeddings hidden_size num_attention_heads
        intermediate_size task_type_vocab_size untie_r global_attn_every_n_layers""",
    "of parts that no model here has": """
        asm_cutoffs asm_div_value
        directionality down_scale_factor gap_size layers_to_keep net_structure_type
        num_memory_blocks pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
        pooler_size_per_head pooler_type predict_special_tokens
        pooler_hidden_size legacy
        cross_attention_hidden_size is_encoder_decoder is_decoder tie_encoder_decoder
        tie_weights_ start_n_top end_n_top classifier_dropout summary_activation
        summary_proj_to_labels summary_type summary_use_proj""",
}
# Keys that are read but aren't in a family's table.
_READ = """
    architectures model_type id2label label2id problem_type pruned_heads
    tie_word_embeddings sentence_transformers sbert_ce_default_activation_function
    layer_types local_attention sliding_window dense_act_fn is_gated_act
    rope_parameters rope_scaling global_rope_theta local_rope_theta
    relative_attention max_relative_positions position_biased_input
    pos_att_type position_buckets norm_rel_ebd share_att_key conv_act conv_groups
    embedding_size type_vocab_size n_words gelu_activation n_langs
    use_lang_emb""".split()


def unknown_keys(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """List the unknown keys of a config, with their values.

    Args:
        family: a key of `FAMILIES`.
        config: dict.

    Returns:
        dict, without keys that are `None`.
    """
    table = transformers_tables()[family]
    known = {*_READ, *" ".join(MEANINGLESS.values()).split()}
    known |= {theirs for _, theirs, _ in table.config} | {*table.required_config}
    known |= {*table.styles, *table.other_names.values(), *table.also_read}
    for keys in (*table.dropouts.values(), *table.required_heads.values()):
        known |= {*keys}
    for ours in counterparts().values():
        known |= {*ours.config, *ours.required_config}
    return {k: v for k, v in config.items() if k not in known and v is not None}
