// The decoders of the families, as changes to GPT-2's.
#pragma once

#include <strata/model/decoder_config.h>

namespace strata::detail::decoders {

using Norm = DecoderConfig::Norm;
using Position = DecoderConfig::Position;
using Mlp = DecoderConfig::Mlp;

inline void gpt2(DecoderConfig&) {}
inline void opt(DecoderConfig& c) {
  c.mlp = Mlp::relu;
  c.position_offset = 2;
}
inline void bloom(DecoderConfig& c) {
  c.position = Position::alibi;
  c.embed_norm = true;
}
inline void llama(DecoderConfig& c) {
  c.norm = Norm::rms;
  c.norm_eps = 1e-6f;
  c.position = Position::rope;
  c.mlp = Mlp::swiglu;
  c.qkv_bias = c.out_bias = c.mlp_bias = false;
  c.tied_head = false;
}
inline void qwen2(DecoderConfig& c) {
  llama(c);
  c.qkv_bias = true;
}
inline void qwen3(DecoderConfig& c) {
  llama(c);
  c.qk_norm = DecoderConfig::QkNorm::heads;
}
inline void glm(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1.5625e-7f;
  c.qkv_bias = true;
  c.rotary_interleaved = true;  // with_derived_sizes() sets rotary_dim to half a head
}
inline void glm4(DecoderConfig& c) {
  glm(c);
  c.norm_eps = 1e-5f;
  c.post_norms = true;
}

inline void mistral(DecoderConfig& c) {
  llama(c);
  c.window = 4096;
}
inline void olmo2(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qk_norm = DecoderConfig::QkNorm::whole;
  c.pre_norms = false;
  c.post_norms = true;
}
inline void olmo3(DecoderConfig& c) {
  olmo2(c);
  c.window = 4096;
  c.full_every = 4;
  c.frequencies.theta = 5e5f;
  c.sliding_frequencies = c.frequencies;
}
inline void ministral3(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.frequencies.theta = 1e6f;
}
inline void exaone4(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.pre_norms = false;
  c.post_norms = true;
  c.window = 4096;
  c.full_every = c.no_rope_every = 4;
}
inline void hunyuan(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.qk_norm_after_rope = true;
}
inline void phi3(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
}
inline void smollm3(DecoderConfig& c) {
  llama(c);
  c.tied_head = true;
  c.frequencies.theta = 2e6f;
  c.no_rope_every = 4;
}
inline void gemma2(DecoderConfig& c) {
  llama(c);
  c.tied_head = true;
  c.norm_offset = 1;
  c.post_norms = true;
  c.scaled_embedding = true;
  c.mlp = Mlp::geglu;
  c.window = 4096;
  c.full_every = 2;
  c.score_softcap = 50;
  c.logit_softcap = 30;
}
inline void gemma3(DecoderConfig& c) {
  gemma2(c);
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.full_every = 6;
  c.score_softcap = c.logit_softcap = 0;
  c.frequencies.theta = 1e6f;
  c.sliding_frequencies.emplace();
}
inline void gemma4(DecoderConfig& c) {
  gemma3(c);
  c.norm_offset = 0;
  c.window = 512;
  c.logit_softcap = 30;
  c.score_factor = 1;
  c.value_norm = c.full_last = c.layer_factor = true;
  c.full_heads.emplace();
  c.experts.rule.renormalize = true;
  c.experts.beside_dense = true;
}
inline void granite(DecoderConfig& c) {
  llama(c);
  c.embedding_factor = 12;
  c.residual_factor = 0.22f;
  c.score_factor = 0.015625f;
  c.logit_divisor = 8;
}
inline void qwen2_moe(DecoderConfig& c) {
  qwen2(c);
  c.experts.shared_gate = true;
}
inline void olmoe(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qk_norm = DecoderConfig::QkNorm::whole;
}
inline void mixtral(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.frequencies.theta = 1e6f;
  c.experts.rule.renormalize = true;
}
inline void glm4_moe(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.rotary_divisor = 2;
  c.experts.rule = {.score = kernels::RouterRule::Score::sigmoid, .renormalize = true, .eps = 1e-20f};
  c.experts.shared_plain = c.experts.choice_bias = true;
  c.experts.dense_layers = 1;
}
inline void qwen3_5(DecoderConfig& c) {
  qwen3(c);
  c.norm_offset = 1;
  c.rotary_divisor = 4;
  c.output_gate = true;
  c.delta.taps = 4;
  c.attention_every = 4;
}
inline void qwen3_5_moe(DecoderConfig& c) {
  qwen3_5(c);
  c.experts.shared_gate = true;
  c.experts.rule.renormalize = true;
}
inline void glm4_moe_lite(DecoderConfig& c) {
  glm4_moe(c);
  c.rotary_divisor = 1;
  c.rotary_interleaved = true;
}
inline void deepseek_v3(DecoderConfig& c) {
  glm4_moe_lite(c);
  c.norm_eps = 1e-6f;
}
inline void deepseek_v2(DecoderConfig& c) {
  deepseek_v3(c);
  c.experts.rule = {};
  c.experts.choice_bias = false;
}
inline void lfm2(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.tied_head = true;
  c.frequencies.theta = 1e6f;
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.attention_every = 3;
  c.conv_taps = 3;
}
inline void lfm2_moe(DecoderConfig& c) {
  lfm2(c);
  c.experts.rule = {.score = kernels::RouterRule::Score::sigmoid, .renormalize = true, .eps = 1e-6f};
  c.experts.choice_bias = true;
  c.experts.dense_layers = 2;
}
inline void granitemoehybrid(DecoderConfig& c) {
  granite(c);
  c.rope_layers.clear();
  c.no_rope_every = 1;
  c.attention_every = 10;
  c.mamba.taps = 4;
  c.experts.rule.renormalize = true;  // as a softmax of the chosen logits alone
  c.experts.shared_plain = c.experts.stacked_files = true;
}
inline void falcon_h1(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.mamba.taps = 4;
  c.mamba.beside_attention = true;
  c.mamba.norm = MambaConfig::Norm::none;
}
inline void nemotron_h(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.mlp = Mlp::relu2;
  c.no_rope_every = 1;
  c.one_part = true;
  c.attention_every = 4;
  c.mamba.taps = 4;
  c.mamba.step_low = 0.001f;
  c.experts.rule = {.score = kernels::RouterRule::Score::sigmoid, .renormalize = true, .eps = 1e-20f};
  c.experts.shared_plain = c.experts.choice_bias = true;
}
inline void gpt_oss(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qkv_bias = c.out_bias = c.sinks = true;
  c.window = 128;
  c.full_every = 2;
  c.frequencies = {.scaling = RopeFrequencies::Scaling::yarn,
                   .theta = 150000,
                   .factor = 32,
                   .original_positions = 4096,
                   .attention_factor = 1.3465736f,  // 0.1 ln(32) + 1
                   .truncate = false};
  c.experts.rule.renormalize = true;  // as a softmax of the chosen logits alone
  c.experts.biases = true;
  c.experts.gate_limit = 7;
  c.experts.gate_alpha = 1.702f;
  c.experts.only_quantized = true;  // its releases have all other matrices in bf16, and so has a base
}

}  // namespace strata::detail::decoders
