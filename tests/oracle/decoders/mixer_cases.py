"""The cases of families that have other layers than plain attention; make_folders.py has what all cases share."""


def mixer_cases(Case, llama_like, YARN):
    def hybrid(model_type, name, **more):
        return llama_like(model_type, name, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=8,
                          linear_conv_kernel_dim=4, partial_rotary_factor=0.25, attention_bias=False) | more  # fmt: skip

    def short_conv(model_type, name, **more):
        base = llama_like(model_type, name, norm_eps=1e-3, conv_bias=False, conv_L_cache=3, block_auto_adjust_ff_dim=False, tie_word_embeddings=True)
        for key in ("rms_norm_eps", "hidden_act"):
            del base[key]
        return base | more

    def latent(model_type, name, **more):
        return llama_like(model_type, name, num_key_value_heads=4, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                          n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=28, kv_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8,
                          v_head_dim=16, num_nextn_predict_layers=0, attention_bias=False) | more  # fmt: skip

    def mamba(model_type, class_name, **more):
        sizes = dict(mamba_n_heads=8, mamba_d_state=12, mamba_d_head="auto", mamba_n_groups=1, mamba_expand=2, mamba_d_conv=4)
        return llama_like(model_type, class_name, attention_bias=False) | sizes | more

    def nemotron(types, **more):
        config = llama_like("nemotron_h", "NemotronH", head_dim=16, num_hidden_layers=5)
        config |= dict(layer_norm_epsilon=1e-5, layers_block_type=types, mamba_num_heads=6, mamba_head_dim=8, n_groups=2, ssm_state_size=12,
                       mlp_hidden_act="relu2", n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                       moe_shared_expert_intermediate_size=40)  # fmt: skip
        config |= more
        return {k: v for k, v in config.items() if v is not None and k not in ("rms_norm_eps", "attention_bias", "hidden_act")}

    return [
        Case("qwen3_5", hybrid("qwen3_5_text", "Qwen3_5", head_dim=16, layer_types=["linear_attention"] * 2 + ["full_attention"]), saved=True),
        Case("qwen3_5-wide", hybrid("qwen3_5_text", "Qwen3_5", head_dim=24, num_hidden_layers=4, tie_word_embeddings=True, attention_bias=True,
                                    linear_num_key_heads=3, linear_num_value_heads=3, linear_value_head_dim=20, linear_conv_kernel_dim=3,
                                    partial_rotary_factor=0.5), dtype="BF16", shards=2),
        Case("qwen3_5_moe", hybrid("qwen3_5_moe_text", "Qwen3_5Moe", head_dim=16, layer_types=["linear_attention", "full_attention"], num_hidden_layers=2,
                                   num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=32), saved=True),
        Case("qwen3_next", hybrid("qwen3_next", "Qwen3Next", head_dim=16, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                  num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=32, mlp_only_layers=[1]), saved=True),
        Case("lfm2", short_conv("lfm2", "Lfm2", layer_types=["conv", "full_attention", "conv"]), saved=True),
        Case("lfm2-biased", short_conv("lfm2", "Lfm2", full_attn_idxs=[1], conv_bias=True, conv_L_cache=4, block_ff_dim=96, block_multiple_of=16,
                                       block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.25, tie_embedding=False), dtype="BF16", shards=2),
        Case("deepseek_v3", latent("deepseek_v3", "DeepseekV3", n_group=3, topk_group=2, routed_scaling_factor=1.75, n_shared_experts=2,
                                   rope_scaling=YARN | dict(mscale=1.0, mscale_all_dim=1.0)), saved=True),
        Case("deepseek_v3-halves", latent("deepseek_v3", "DeepseekV3", n_group=1, topk_group=1, q_lora_rank=None, rope_interleave=False,
                                          attention_bias=True, norm_topk_prob=False), shards=2),
        Case("deepseek_v2", latent("deepseek_v2", "DeepseekV2", n_group=3, topk_group=2, topk_method="group_limited_greedy",
                                   routed_scaling_factor=2.5, n_shared_experts=2, rope_scaling=YARN | dict(mscale=0.7, mscale_all_dim=0.9)), saved=True),
        Case("deepseek_v2-lite", latent("deepseek_v2", "DeepseekV2", topk_method="greedy", q_lora_rank=None, v_head_dim=20), dtype="BF16"),
        Case("glm4_moe_lite", latent("glm4_moe_lite", "Glm4MoeLite", n_group=1, topk_group=1, mlp_layer_types=["dense", "sparse", "sparse"],
                                     v_head_dim=16), saved=True),
        Case("deepseek_v32", latent("deepseek_v32", "DeepseekV32", n_group=3, topk_group=2, first_k_dense_replace=2, index_topk=64, index_head_dim=12,
                                    index_n_heads=3, mlp_layer_types=["dense", "sparse", "sparse"], rope_scaling=YARN | dict(mscale=1.0, mscale_all_dim=1.0)), saved=True),
        Case("glm_moe_dsa", latent("glm_moe_dsa", "GlmMoeDsa", n_group=1, topk_group=1, index_topk=40, index_head_dim=12, index_n_heads=2,
                                   indexer_types=["full", "shared", "full"], rope_parameters={"rope_type": "default", "rope_theta": 5000.0}), dtype="BF16", shards=2),
        Case("lfm2_moe", short_conv("lfm2_moe", "Lfm2Moe", layer_types=["conv", "full_attention", "conv"], num_experts=6, num_experts_per_tok=2,
                                    moe_intermediate_size=24, num_dense_layers=1, routed_scaling_factor=1.5), saved=True),
        Case("lfm2_moe-plain", short_conv("lfm2_moe", "Lfm2Moe", layer_types=["full_attention", "conv", "conv"], num_experts=4, num_experts_per_tok=3,
                                          moe_intermediate_size=40, num_dense_layers=0, norm_topk_prob=False, use_expert_bias=False), dtype="BF16", shards=2),
        Case("granite4", mamba("granitemoehybrid", "GraniteMoeHybrid", layer_types=["linear_attention", "full_attention", "linear_attention"],
                               num_local_experts=6, num_experts_per_tok=2, shared_intermediate_size=40, intermediate_size=24, embedding_multiplier=3.0,
                               residual_multiplier=0.7, attention_multiplier=0.2, logits_scaling=2.0, tie_word_embeddings=True), saved=True),
        Case("granite4-dense", mamba("granitemoehybrid", "GraniteMoeHybrid", layer_types=["mamba", "attention"], num_hidden_layers=2, num_local_experts=0,
                                     shared_intermediate_size=56, mamba_n_groups=2, mamba_d_conv=3, mamba_proj_bias=True, mamba_conv_bias=False,
                                     position_embedding_type="rope", time_step_limit=[0.1, 0.9]), dtype="BF16", shards=2),
        Case("falcon_h1", mamba("falcon_h1", "FalconH1", num_hidden_layers=2, mamba_d_ssm=96, mamba_n_heads=6, mamba_n_groups=2, embedding_multiplier=2.5,
                                lm_head_multiplier=0.4, key_multiplier=0.6, mlp_multipliers=[0.8, 0.5], attention_out_multiplier=0.9,
                                attention_in_multiplier=1.2, ssm_multipliers=[0.35, 0.25, 1.5, 0.5, 0.7], ssm_in_multiplier=1.25, ssm_out_multiplier=0.6), saved=True),
        Case("falcon_h1-norm", mamba("falcon_h1", "FalconH1", num_hidden_layers=2, mamba_d_ssm=64, mamba_n_heads=4, mamba_rms_norm=True,
                                     mamba_norm_before_gate=False, mamba_n_groups=2, attention_bias=True, mlp_bias=True, projectors_bias=True,
                                     mamba_proj_bias=True, head_dim=24, tie_word_embeddings=True), dtype="BF16", shards=2),
        Case("falcon_h1-before", mamba("falcon_h1", "FalconH1", num_hidden_layers=1, mamba_d_ssm=64, mamba_n_heads=4, mamba_rms_norm=True,
                                       mamba_norm_before_gate=True), saved=True),
        Case("nemotron_h", nemotron(["linear_attention", "moe", "full_attention", "mlp", "linear_attention"], n_group=3, topk_group=2,
                                    routed_scaling_factor=2.5), saved=True),
        Case("nemotron_h-latent", nemotron(["moe", "linear_attention", "full_attention"], moe_latent_size=20, mlp_bias=True, use_bias=True,
                                           norm_topk_prob=False), shards=2),
        Case("nemotron_h-dense", nemotron(None, hybrid_override_pattern="M-*-M", n_groups=1, use_conv_bias=False, time_step_min=0.2), dtype="BF16"),
    ]  # fmt: skip
