#include "family/family.h"

#include <algorithm>

#include <strata/runtime/assert.h>

#include "family/names.h"

namespace strata {
namespace detail {
namespace {

using Norm = DecoderConfig::Norm;
using Position = DecoderConfig::Position;
using Mlp = DecoderConfig::Mlp;

// The decoders, as changes to GPT-2's.

void gpt2(DecoderConfig&) {}
void opt(DecoderConfig& c) {
  c.mlp = Mlp::relu;
  c.position_offset = 2;
}
void bloom(DecoderConfig& c) {
  c.position = Position::alibi;
  c.embed_norm = true;
}
void llama(DecoderConfig& c) {
  c.norm = Norm::rms;
  c.norm_eps = 1e-6f;
  c.position = Position::rope;
  c.mlp = Mlp::swiglu;
  c.qkv_bias = c.out_bias = c.mlp_bias = false;
  c.tied_head = false;
}
void qwen2(DecoderConfig& c) {
  llama(c);
  c.qkv_bias = true;
}
void qwen3(DecoderConfig& c) {
  llama(c);
  c.qk_norm = DecoderConfig::QkNorm::heads;
}
void glm(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1.5625e-7f;
  c.qkv_bias = true;
  c.rotary_interleaved = true;  // with_derived_sizes() sets rotary_dim to half a head
}
void glm4(DecoderConfig& c) {
  glm(c);
  c.norm_eps = 1e-5f;
  c.post_norms = true;
}

void mistral(DecoderConfig& c) {
  llama(c);
  c.window = 4096;
}
void olmo2(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qk_norm = DecoderConfig::QkNorm::whole;
  c.pre_norms = false;
  c.post_norms = true;
}
void olmo3(DecoderConfig& c) {
  olmo2(c);
  c.window = 4096;
  c.full_every = 4;
  c.frequencies.theta = 5e5f;
  c.sliding_frequencies = c.frequencies;
}
void ministral3(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.frequencies.theta = 1e6f;
}
void exaone4(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.pre_norms = false;
  c.post_norms = true;
  c.window = 4096;
  c.full_every = c.no_rope_every = 4;
}
void hunyuan(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.qk_norm_after_rope = true;
}
void phi3(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
}
void smollm3(DecoderConfig& c) {
  llama(c);
  c.tied_head = true;
  c.frequencies.theta = 2e6f;
  c.no_rope_every = 4;
}
void gemma2(DecoderConfig& c) {
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
void gemma3(DecoderConfig& c) {
  gemma2(c);
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.full_every = 6;
  c.score_softcap = c.logit_softcap = 0;
  c.frequencies.theta = 1e6f;
  c.sliding_frequencies.emplace();
}
void granite(DecoderConfig& c) {
  llama(c);
  c.embedding_factor = 12;
  c.residual_factor = 0.22f;
  c.score_factor = 0.015625f;
  c.logit_divisor = 8;
}
void qwen2_moe(DecoderConfig& c) {
  qwen2(c);
  c.experts.shared_gate = true;
}
void olmoe(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.qk_norm = DecoderConfig::QkNorm::whole;
}
void mixtral(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.frequencies.theta = 1e6f;
  c.experts.rule.renormalize = true;
}
void glm4_moe(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.rotary_divisor = 2;
  c.experts.rule = {.score = kernels::RouterRule::Score::sigmoid, .renormalize = true, .eps = 1e-20f};
  c.experts.shared_plain = c.experts.choice_bias = true;
  c.experts.dense_layers = 1;
}
void qwen3_5(DecoderConfig& c) {
  qwen3(c);
  c.norm_offset = 1;
  c.rotary_divisor = 4;
  c.output_gate = true;
  c.delta.taps = 4;
  c.attention_every = 4;
}
void qwen3_5_moe(DecoderConfig& c) {
  qwen3_5(c);
  c.experts.shared_gate = true;
  c.experts.rule.renormalize = true;
}
void glm4_moe_lite(DecoderConfig& c) {
  glm4_moe(c);
  c.rotary_divisor = 1;
  c.rotary_interleaved = true;
}
void deepseek_v3(DecoderConfig& c) {
  glm4_moe_lite(c);
  c.norm_eps = 1e-6f;
}
void deepseek_v2(DecoderConfig& c) {
  deepseek_v3(c);
  c.experts.rule = {};
  c.experts.choice_bias = false;
}
void lfm2(DecoderConfig& c) {
  llama(c);
  c.norm_eps = 1e-5f;
  c.tied_head = true;
  c.frequencies.theta = 1e6f;
  c.qk_norm = DecoderConfig::QkNorm::heads;
  c.attention_every = 3;
  c.conv_taps = 3;
}
void gpt_oss(DecoderConfig& c) {
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

// clang-format off
constexpr Family kFamilies[] = {
    {.name = "gpt2", .change = gpt2, .limits = {.title = "GPT-2", .grouped_queries = false, .head_dim = false},
     .hf = {.class_name = "GPT2", .causal_lm = "LMHeadModel", .names = kGpt2,
            .dropouts = {"attn_pdrop", "embd_pdrop", "resid_pdrop"}, .keys = HfKeys::gpt2},
     .gguf = {.name = "gpt2", .square_heads = true, .out_biases = true}},
    {.name = "opt", .change = opt, .limits = {.title = "OPT", .grouped_queries = false, .head_dim = false},
     .hf = {.class_name = "OPT", .names = kOpt, .dropouts = {"dropout"}, .keys = HfKeys::opt},
     .gguf = {.name = ""}},
    {.name = "bloom", .change = bloom, .limits = {.title = "BLOOM", .grouped_queries = false, .head_dim = false, .ffn_factor = 4},
     .hf = {.class_name = "Bloom", .names = kBloom, .keys = HfKeys::bloom},
     .gguf = {.name = "bloom", .square_heads = true, .out_biases = true}},
    {.name = "llama", .change = llama, .limits = {.title = "LLaMA"},
     .hf = {.class_name = "Llama", .names = kLlama, .mlp_bias = HfKey::written},
     .gguf = {.name = "llama", .permutes_qk = true, .out_biases = true, .rope_factors = true, .is_70b_if_grouped = true}},
    {.name = "qwen2", .change = qwen2, .limits = {.title = "Qwen2"},
     .hf = {.class_name = "Qwen2", .names = kLlama, .windows = HfWindows::from_layer, .attention_bias = HfKey::ignored},
     .gguf = {.name = "qwen2", .square_heads = true, .is_70b = true}},
    {.name = "qwen3", .change = qwen3, .limits = {.title = "Qwen3"},
     .hf = {.class_name = "Qwen3", .names = kLlama, .windows = HfWindows::from_layer, .head_dim = 128},
     .gguf = {.name = "qwen3"}},
    {.name = "glm", .change = glm, .limits = {.title = "GLM-4"},
     .hf = {.class_name = "Glm", .names = kGlm, .out_bias = false, .head_dim = 128, .rotary_share = 0.5},
     .gguf = {.name = "chatglm", .square_heads = true}},
    {.name = "glm4", .change = glm4, .limits = {.title = "GLM-4-0414"},
     .hf = {.class_name = "Glm4", .names = kGlm, .out_bias = false, .head_dim = 128,
            .norm_eps = 1.5625e-7,  // its models have another one
            .rotary_share = 0.5},
     .gguf = {.name = "glm4"}},
    {.name = "mistral", .change = mistral, .limits = {.title = "Mistral"},
     .hf = {.class_name = "Mistral", .names = kLlama, .windows = HfWindows::all,
            .attention_bias = HfKey::ignored, .mlp_bias = HfKey::ignored},
     .gguf = {.name = "llama", .permutes_qk = true, .out_biases = true, .rope_factors = true, .is_70b_if_grouped = true}},
    {.name = "olmo2", .change = olmo2, .limits = {.title = "OLMo 2"},
     .hf = {.class_name = "Olmo2", .names = kOlmo2},
     .gguf = {.name = "olmo2", .square_heads = true, .head_required = true}},
    {.name = "olmo3", .change = olmo3, .limits = {.title = "OLMo 3"},
     .hf = {.class_name = "Olmo3", .names = kOlmo2, .windows = HfWindows::by_pattern, .mlp_bias = HfKey::ignored},
     .gguf = {.name = ""}},
    {.name = "ministral3", .change = ministral3, .limits = {.title = "Ministral 3"},
     .hf = {.class_name = "Ministral3", .names = kLlama, .windows = HfWindows::all, .attention_bias = HfKey::ignored,
            .mlp_bias = HfKey::ignored, .head_dim = 128, .has_query_growth = true},
     .gguf = {.name = ""}},
    {.name = "seed_oss", .change = qwen2, .limits = {.title = "Seed-OSS"},
     .hf = {.class_name = "SeedOss", .names = kLlama, .dropouts = {"attention_dropout", "residual_dropout"},
            .mlp_bias = HfKey::written, .out_bias_key = "attention_out_bias", .head_dim = 128},
     .gguf = {.name = ""}},
    {.name = "exaone4", .change = exaone4, .limits = {.title = "EXAONE 4"},
     .hf = {.class_name = "Exaone4", .names = kOlmo2, .windows = HfWindows::with_rope, .attention_bias = HfKey::ignored,
            .mlp_bias = HfKey::ignored},
     .gguf = {.name = ""}},
    {.name = "hunyuan_v1_dense", .change = hunyuan, .limits = {.title = "Hunyuan"},
     .hf = {.class_name = "HunYuanDenseV1", .names = kHunyuan, .mlp_bias = HfKey::ignored, .has_rope_alpha = true},
     .gguf = {.name = ""}},
    {.name = "phi3", .change = phi3, .limits = {.title = "Phi-3"},
     .hf = {.class_name = "Phi3", .names = kPhi3, .windows = HfWindows::all,
            .attention_bias = HfKey::ignored, .mlp_bias = HfKey::ignored, .rotary_share = 1,
            .has_rope_scalings = false},  // it only has longrope, and formerly called it yarn
     .gguf = {.name = "phi3", .square_heads = true, .window_key = true}},
    {.name = "smollm3", .change = smollm3, .limits = {.title = "SmolLM3"},
     .hf = {.class_name = "SmolLM3", .names = kLlama, .windows = HfWindows::without_rope, .mlp_bias = HfKey::written},
     .gguf = {.name = "smollm3", .permutes_qk = true, .no_rope_every = 4}},
    {.name = "gemma2", .change = gemma2, .limits = {.title = "Gemma 2"},
     .hf = {.class_name = "Gemma2", .names = kGemma, .windows = HfWindows::by_pattern, .head_dim = 256, .is_gemma = true},
     .gguf = {.name = "gemma2", .slides = true, .head_always_tied = true, .score_softcap = true, .logit_softcap = true, .layers_by_hidden = 46}},
    {.name = "gemma3_text", .change = gemma3, .limits = {.title = "Gemma 3"},
     .hf = {.class_name = "Gemma3", .classifier = "TextForSequenceClassification", .names = kGemma,
            .windows = HfWindows::by_pattern, .head_dim = 256, .is_gemma = true},
     .gguf = {.name = "gemma3", .slides = true, .yarn = false, .logit_softcap = true, .layers_by_hidden = 62}},
    {.name = "granite", .change = granite, .limits = {.title = "Granite"},
     .hf = {.class_name = "Granite", .names = kLlama, .mlp_bias = HfKey::written, .has_factors = true},
     .gguf = {.name = "granite", .permutes_qk = true, .out_biases = true, .rope_factors = true, .factors = true}},
    {.name = "qwen2_moe", .change = qwen2_moe, .limits = {.title = "Qwen2-MoE", .experts = true},
     .hf = {.class_name = "Qwen2Moe", .names = kQwenMoe, .windows = HfWindows::listed, .attention_bias = HfKey::ignored,
            .experts = HfExperts::qwen, .router_aux = 0.001},
     .gguf = {.name = "qwen2moe", .square_heads = true, .head_required = true, .experts = {.any = true, .ffn_key = true}}},
    {.name = "qwen3_moe", .change = qwen3, .limits = {.title = "Qwen3-MoE", .experts = true},
     .hf = {.class_name = "Qwen3Moe", .names = kQwenMoe, .experts = HfExperts::qwen, .router_aux = 0.001},
     .gguf = {.name = "qwen3moe", .experts = {.any = true, .renormalizes = true, .ffn_key = true}}},
    {.name = "olmoe", .change = olmoe, .limits = {.title = "OLMoE", .experts = true, .expert_ffn = false, .scores = false},
     .hf = {.class_name = "Olmoe", .names = kQwenMoe, .experts = HfExperts::olmoe, .router_aux = 0.01},
     .gguf = {.name = "olmoe", .square_heads = true, .head_required = true, .equal_heads = true, .experts = {.any = true}}},
    {.name = "mixtral", .change = mixtral, .limits = {.title = "Mixtral", .experts = true, .expert_ffn = false},
     .hf = {.class_name = "Mixtral", .names = kMixtral, .windows = HfWindows::all, .attention_bias = HfKey::ignored,
            .mlp_bias = HfKey::ignored, .experts = HfExperts::mixtral, .router_aux = 0.001},
     .gguf = {.name = "llama", .permutes_qk = true, .rope_factors = true, .experts = {.any = true, .renormalizes = true}}},
    {.name = "glm4_moe", .change = glm4_moe, .limits = {.title = "GLM-4.5", .experts = true, .scores = false},
     .hf = {.class_name = "Glm4Moe", .names = kGlmMoe, .mlp_bias = HfKey::ignored, .out_bias = false, .rotary_share = 0.5,
            .qk_norm_key = true, .experts = HfExperts::glm},
     .gguf = {.name = "glm4moe", .mlp_norm = "post_attention_norm", .experts = {.any = true, .ffn_key = true, .rule_keys = true}}},
    {.name = "qwen3_5_text", .change = qwen3_5, .limits = {.title = "Qwen3.5", .delta = true},
     .hf = {.class_name = "Qwen3_5", .classifier = "TextForSequenceClassification", .names = kQwen35, .mlp_bias = HfKey::ignored, .head_dim = 256, .rotary_share = 0.25, .mixers = HfMixers::delta},
     .gguf = {.name = ""}},
    {.name = "qwen3_5_moe_text", .change = qwen3_5_moe, .limits = {.title = "Qwen3.5-MoE", .experts = true, .expert_ffn = false, .scores = false, .delta = true},
     .hf = {.class_name = "Qwen3_5Moe", .names = kQwen35Moe, .mlp_bias = HfKey::ignored, .head_dim = 256, .rotary_share = 0.25,
            .mixers = HfMixers::delta, .experts = HfExperts::qwen3_5, .router_aux = 0.001},
     .gguf = {.name = ""}},
    {.name = "qwen3_next", .change = qwen3_5_moe, .limits = {.title = "Qwen3-Next", .experts = true, .delta = true},
     .hf = {.class_name = "Qwen3Next", .names = kQwen3Next, .mlp_bias = HfKey::ignored, .head_dim = 256, .rotary_share = 0.25,
            .mixers = HfMixers::delta, .experts = HfExperts::qwen, .router_aux = 0.001},
     .gguf = {.name = ""}},
    {.name = "deepseek_v2", .change = deepseek_v2, .limits = {.title = "DeepSeek-V2", .grouped_queries = false, .experts = true, .latent = true},
     .hf = {.class_name = "DeepseekV2", .names = kDeepSeek, .mlp_bias = HfKey::read, .mixers = HfMixers::latent, .experts = HfExperts::deepseek_v2},
     .gguf = {.name = ""}},
    {.name = "deepseek_v3", .change = deepseek_v3, .limits = {.title = "DeepSeek-V3", .grouped_queries = false, .experts = true, .latent = true},
     .hf = {.class_name = "DeepseekV3", .names = kDeepSeek, .mlp_bias = HfKey::ignored, .mixers = HfMixers::latent, .experts = HfExperts::deepseek_v3},
     .gguf = {.name = ""}},
    {.name = "glm4_moe_lite", .change = glm4_moe_lite, .limits = {.title = "GLM-4.7-Flash", .grouped_queries = false, .experts = true, .scores = false, .latent = true},
     .hf = {.class_name = "Glm4MoeLite", .names = kDeepSeek, .mlp_bias = HfKey::ignored, .mixers = HfMixers::latent, .experts = HfExperts::glm_lite},
     .gguf = {.name = ""}},
    {.name = "lfm2", .change = lfm2, .limits = {.title = "LFM2", .scores = false, .short_conv = true},
     .hf = {.class_name = "Lfm2", .names = kLfm2, .attention_bias = HfKey::ignored, .mlp_bias = HfKey::ignored, .norm_eps_key = "norm_eps",
            .mixers = HfMixers::lfm2},
     .gguf = {.name = ""}},
    {.name = "gpt_oss", .change = gpt_oss, .limits = {.title = "gpt-oss", .experts = true, .expert_ffn = false},
     .hf = {.class_name = "GptOss", .names = kGptOss, .windows = HfWindows::by_pattern, .mlp_bias = HfKey::ignored,
            .head_dim = 64, .experts = HfExperts::gpt_oss, .router_aux = 0.001},
     .gguf = {.name = "gpt-oss", .slides = true, .full_every = 2, .out_biases = true, .attention_biases = true, .head_required = true,
              .yarn_unrounded = true, .mlp_norm = "post_attention_norm", .experts = {.any = true, .renormalizes = true, .ffn_key = true}}},
};
// clang-format on

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                         [&](const Family& family) { return family.name == name; });
  return found == std::end(kFamilies) ? nullptr : found;
}

const Family& family_of(const DecoderConfig& decoder) {
  const Family* const found = find_family(decoder.family);
  STRATA_ASSERT(found != nullptr, "a family that is not known", decoder.family);
  return *found;
}

}  // namespace detail

const std::vector<std::string_view>& decoder_families() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const detail::Family& family : detail::families()) all.push_back(family.name);
    return all;
  }();
  return names;
}

std::optional<DecoderConfig> decoder_for_family(std::string_view family) {
  const detail::Family* const found = detail::find_family(family);
  if (found == nullptr) return std::nullopt;
  DecoderConfig config;
  config.family = family;
  found->change(config);
  return config;
}

FamilyLimits family_limits(std::string_view family) {
  const detail::Family* const found = detail::find_family(family);
  return found == nullptr ? FamilyLimits{} : found->limits;
}

}  // namespace strata
