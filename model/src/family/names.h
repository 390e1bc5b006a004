// The names of tensors in the Hugging Face folders of the families.
#pragma once

#include "family/family.h"

namespace strata::detail {

// clang-format off
inline constexpr HfNames kGpt2 = {
    .tokens = "transformer.wte", .positions = "transformer.wpe", .layer = "transformer.h.", .attn_norm = "ln_1",
    .qkv = {"attn.c_attn"}, .attn_out = "attn.c_proj", .mlp_norm = "ln_2", .mlp_in = {"mlp.c_fc"}, .mlp_out = "mlp.c_proj",
    .final_norm = "transformer.ln_f", .transposed = true};
inline constexpr HfNames kOpt = {
    .tokens = "model.decoder.embed_tokens", .positions = "model.decoder.embed_positions", .layer = "model.decoder.layers.",
    .attn_norm = "self_attn_layer_norm", .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .attn_out = "self_attn.out_proj", .mlp_norm = "final_layer_norm", .mlp_in = {"fc1"}, .mlp_out = "fc2",
    .final_norm = "model.decoder.final_layer_norm"};
inline constexpr HfNames kBloom = {
    .tokens = "transformer.word_embeddings", .embed_norm = "transformer.word_embeddings_layernorm", .layer = "transformer.h.",
    .attn_norm = "input_layernorm", .qkv = {"self_attention.query_key_value"}, .attn_out = "self_attention.dense",
    .mlp_norm = "post_attention_layernorm", .mlp_in = {"mlp.dense_h_to_4h"}, .mlp_out = "mlp.dense_4h_to_h",
    .final_norm = "transformer.ln_f", .qkv_by_head = true};
inline constexpr HfNames kLlama = {
    .tokens = "model.embed_tokens", .layer = "model.layers.", .attn_norm = "input_layernorm",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm", .attn_out = "self_attn.o_proj", .mlp_norm = "post_attention_layernorm",
    .mlp_in = {"mlp.gate_proj", "mlp.up_proj"}, .mlp_out = "mlp.down_proj", .final_norm = "model.norm"};
// clang-format on
inline constexpr HfNames kGlm = [] {
  HfNames names = kLlama;
  names.attn_post_norm = "post_self_attn_layernorm";
  names.mlp_in = {"mlp.gate_up_proj"};
  names.mlp_post_norm = "post_mlp_layernorm";
  return names;
}();
inline constexpr HfNames kPhi3 = [] {
  HfNames names = kLlama;
  names.qkv = {"self_attn.qkv_proj"};
  names.mlp_in = {"mlp.gate_up_proj"};
  return names;
}();
inline constexpr HfNames kOlmo2 = [] {
  HfNames names = kLlama;
  names.attn_post_norm = "post_attention_layernorm";
  names.mlp_post_norm = "post_feedforward_layernorm";
  return names;
}();
inline constexpr HfNames kHunyuan = [] {
  HfNames names = kLlama;
  names.q_norm = "self_attn.query_layernorm";
  names.k_norm = "self_attn.key_layernorm";
  return names;
}();
inline constexpr HfNames kGemma = [] {
  HfNames names = kOlmo2;
  names.mlp_norm = "pre_feedforward_layernorm";
  return names;
}();

inline constexpr HfNames kGemma4 = [] {
  HfNames names = kGemma;
  names.layer_factor = "layer_scalar";
  names.dense_post_norm = "post_feedforward_layernorm_1";
  names.experts_norm = "pre_feedforward_layernorm_2";
  names.experts_post_norm = "post_feedforward_layernorm_2";
  names.router_norm = "router.scale";
  names.expert_factors = "router.per_expert_scale";
  names.stacked_router = "router.proj";
  names.stacked_in = "experts.gate_up_proj";
  names.stacked_out = "experts.down_proj";
  return names;
}();

inline constexpr HfNames kQwenMoe = [] {
  HfNames names = kLlama;
  names.router = "mlp.gate";
  names.experts = "mlp.experts.";
  names.expert_in = {"gate_proj", "up_proj"};
  names.expert_out = "down_proj";
  names.shared_in = {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"};
  names.shared_out = "mlp.shared_expert.down_proj";
  names.shared_gate = "mlp.shared_expert_gate";
  return names;
}();
inline constexpr HfNames kMixtral = [] {
  HfNames names = kLlama;
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts.";
  names.expert_in = {"w1", "w3"};
  names.expert_out = "w2";
  return names;
}();
inline constexpr HfNames kGlmMoe = [] {
  HfNames names = kQwenMoe;
  names.choice_bias = "mlp.gate.e_score_correction_bias";
  names.shared_in = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"};
  names.shared_out = "mlp.shared_experts.down_proj";
  names.shared_gate = {};
  return names;
}();
constexpr HfNames with_delta(HfNames names) {
  names.delta_in = {"linear_attn.in_proj_qkv", "linear_attn.in_proj_z"};
  names.delta_gates = {"linear_attn.in_proj_b", "linear_attn.in_proj_a"};
  names.delta_conv = "linear_attn.conv1d";
  names.delta_decay = "linear_attn.A_log";
  names.delta_step = "linear_attn.dt_bias";
  names.delta_norm = "linear_attn.norm";
  names.delta_out = "linear_attn.out_proj";
  return names;
}
inline constexpr HfNames kQwen35 = with_delta(kLlama);
inline constexpr HfNames kQwen35Moe = with_delta(kQwenMoe);
inline constexpr HfNames kQwen3Next = [] {
  HfNames names = kQwen35Moe;
  names.delta_in = {"linear_attn.in_proj_qkvz"};
  names.delta_gates = {"linear_attn.in_proj_ba"};
  names.delta_by_head = true;
  return names;
}();
constexpr HfNames with_latent(HfNames names) {
  names.q_down = "self_attn.q_a_proj";
  names.q_down_norm = "self_attn.q_a_layernorm";
  names.q_up = "self_attn.q_b_proj";
  names.q = "self_attn.q_proj";
  names.kv_down = "self_attn.kv_a_proj_with_mqa";
  names.kv_down_norm = "self_attn.kv_a_layernorm";
  names.kv_up = "self_attn.kv_b_proj";
  return names;
}
inline constexpr HfNames kDeepSeek = with_latent(kGlmMoe);
inline constexpr HfNames kLfm2 = [] {
  HfNames names = kLlama;
  names.attn_norm = "operator_norm";
  names.mlp_norm = "ffn_norm";
  names.q_norm = "self_attn.q_layernorm";
  names.k_norm = "self_attn.k_layernorm";
  names.attn_out = "self_attn.out_proj";
  names.mlp_in = {"feed_forward.w1", "feed_forward.w3"};
  names.mlp_out = "feed_forward.w2";
  names.final_norm = "model.embedding_norm";
  names.conv_in = "conv.in_proj";
  names.conv = "conv.conv";
  names.conv_out = "conv.out_proj";
  return names;
}();
inline constexpr HfNames kLfm2Moe = [] {
  HfNames names = kLfm2;
  names.router = names.stacked_router = "feed_forward.gate";
  names.choice_bias = "feed_forward.expert_bias";
  names.experts = "feed_forward.experts.";
  names.expert_in = {"w1", "w3"};
  names.expert_out = "w2";
  names.stacked_in = "feed_forward.experts.gate_up_proj";
  names.stacked_out = "feed_forward.experts.down_proj";
  return names;
}();
constexpr HfNames with_mamba(HfNames names, std::string_view in, std::string_view conv,
                             std::string_view decay, std::string_view step, std::string_view skip,
                             std::string_view norm, std::string_view out) {
  names.mamba_in = in;
  names.mamba_conv = conv;
  names.mamba_decay = decay;
  names.mamba_step = step;
  names.mamba_skip = skip;
  names.mamba_norm = norm;
  names.mamba_out = out;
  return names;
}
constexpr HfNames with_mamba(HfNames names) {
  return with_mamba(names, "mamba.in_proj", "mamba.conv1d", "mamba.A_log", "mamba.dt_bias", "mamba.D",
                    "mamba.norm", "mamba.out_proj");
}
inline constexpr HfNames kGraniteHybrid = [] {
  HfNames names = with_mamba(kLlama);
  names.mlp_in = names.shared_in = {"shared_mlp.input_linear"};
  names.mlp_out = names.shared_out = "shared_mlp.output_linear";
  names.stacked_router = names.router = "block_sparse_moe.router.layer";
  names.stacked_in = "block_sparse_moe.input_linear.weight";
  names.stacked_out = "block_sparse_moe.output_linear.weight";
  return names;
}();
inline constexpr HfNames kFalconH1 = [] {
  HfNames names = with_mamba(kLlama);
  names.mlp_norm = "pre_ff_layernorm";
  names.mlp_in = {"feed_forward.gate_proj", "feed_forward.up_proj"};
  names.mlp_out = "feed_forward.down_proj";
  names.final_norm = "model.final_layernorm";
  return names;
}();
inline constexpr HfNames kNemotronH = [] {
  HfNames names = with_mamba(kLlama, "mixer.in_proj", "mixer.conv1d", "mixer.A_log", "mixer.dt_bias",
                             "mixer.D", "mixer.norm", "mixer.out_proj");
  names.tokens = "backbone.embeddings";
  names.layer = "backbone.layers.";
  names.attn_norm = names.mlp_norm = "norm";
  names.qkv = {"mixer.q_proj", "mixer.k_proj", "mixer.v_proj"};
  names.attn_out = "mixer.o_proj";
  names.mlp_in = {"mixer.up_proj"};
  names.mlp_out = "mixer.down_proj";
  names.final_norm = "backbone.norm_f";
  names.router = names.stacked_router = "mixer.gate";
  names.choice_bias = "mixer.gate.e_score_correction_bias";
  names.experts = "mixer.experts.";
  names.expert_in = {"up_proj"};
  names.expert_out = "down_proj";
  names.stacked_in = "mixer.experts.up_proj";
  names.stacked_out = "mixer.experts.down_proj";
  names.shared_in = {"mixer.shared_experts.up_proj"};
  names.shared_out = "mixer.shared_experts.down_proj";
  names.latent_in = "mixer.fc1_latent_proj";
  names.latent_out = "mixer.fc2_latent_proj";
  return names;
}();
inline constexpr HfNames kGptOss = [] {
  HfNames names = kLlama;
  names.sinks = "self_attn.sinks";
  names.stacked_router = "mlp.router";
  names.stacked_transposed = true;
  return names;
}();

}  // namespace strata::detail
