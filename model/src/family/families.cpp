#include "family/family.h"

#include <algorithm>

#include <strata/runtime/assert.h>

#include "family/decoders.h"
#include "family/names.h"

namespace strata {
namespace detail {
namespace {

// clang-format off
constexpr Family kFamilies[] = {
    {.name = "gpt2", .change = decoders::gpt2, .limits = {.title = "GPT-2", .grouped_queries = false, .head_dim = false},
     .hf = {.class_name = "GPT2", .causal_lm = "LMHeadModel", .names = kGpt2,
            .dropouts = {"attn_pdrop", "embd_pdrop", "resid_pdrop"}, .keys = HfKeys::gpt2},
     .gguf = {.name = "gpt2", .square_heads = true, .out_biases = true}},
    {.name = "opt", .change = decoders::opt, .limits = {.title = "OPT", .grouped_queries = false, .head_dim = false},
     .hf = {.class_name = "OPT", .names = kOpt, .dropouts = {"dropout"}, .keys = HfKeys::opt},
     .gguf = {.name = ""}},
    {.name = "bloom", .change = decoders::bloom, .limits = {.title = "BLOOM", .grouped_queries = false, .head_dim = false, .ffn_factor = 4},
     .hf = {.class_name = "Bloom", .names = kBloom, .keys = HfKeys::bloom},
     .gguf = {.name = "bloom", .square_heads = true, .out_biases = true}},
    {.name = "llama", .change = decoders::llama, .limits = {.title = "LLaMA"},
     .hf = {.class_name = "Llama", .names = kLlama, .mlp_bias = HfKey::written},
     .gguf = {.name = "llama", .permutes_qk = true, .out_biases = true, .rope_factors = true, .is_70b_if_grouped = true}},
    {.name = "qwen2", .change = decoders::qwen2, .limits = {.title = "Qwen2"},
     .hf = {.class_name = "Qwen2", .names = kLlama, .windows = HfWindows::from_layer, .attention_bias = HfKey::ignored},
     .gguf = {.name = "qwen2", .square_heads = true, .is_70b = true}},
    {.name = "qwen3", .change = decoders::qwen3, .limits = {.title = "Qwen3"},
     .hf = {.class_name = "Qwen3", .names = kLlama, .windows = HfWindows::from_layer, .head_dim = 128},
     .gguf = {.name = "qwen3"}},
    {.name = "glm", .change = decoders::glm, .limits = {.title = "GLM-4"},
     .hf = {.class_name = "Glm", .names = kGlm, .out_bias = false, .head_dim = 128, .rotary_share = 0.5},
     .gguf = {.name = "chatglm", .square_heads = true}},
    {.name = "glm4", .change = decoders::glm4, .limits = {.title = "GLM-4-0414"},
     .hf = {.class_name = "Glm4", .names = kGlm, .out_bias = false, .head_dim = 128,
            .norm_eps = 1.5625e-7,  // its models have another one
            .rotary_share = 0.5},
     .gguf = {.name = "glm4"}},
    {.name = "mistral", .change = decoders::mistral, .limits = {.title = "Mistral"},
     .hf = {.class_name = "Mistral", .names = kLlama, .windows = HfWindows::all,
            .attention_bias = HfKey::ignored, .mlp_bias = HfKey::ignored},
     .gguf = {.name = "llama", .permutes_qk = true, .out_biases = true, .rope_factors = true, .is_70b_if_grouped = true}},
    {.name = "olmo2", .change = decoders::olmo2, .limits = {.title = "OLMo 2"},
     .hf = {.class_name = "Olmo2", .names = kOlmo2},
     .gguf = {.name = "olmo2", .square_heads = true, .head_required = true}},
    {.name = "olmo3", .change = decoders::olmo3, .limits = {.title = "OLMo 3"},
     .hf = {.class_name = "Olmo3", .names = kOlmo2, .windows = HfWindows::by_pattern, .mlp_bias = HfKey::ignored},
     .gguf = {.name = ""}},
    {.name = "ministral3", .change = decoders::ministral3, .limits = {.title = "Ministral 3"},
     .hf = {.class_name = "Ministral3", .names = kLlama, .windows = HfWindows::all, .attention_bias = HfKey::ignored,
            .mlp_bias = HfKey::ignored, .head_dim = 128, .has_query_growth = true},
     .gguf = {.name = ""}},
    {.name = "seed_oss", .change = decoders::qwen2, .limits = {.title = "Seed-OSS"},
     .hf = {.class_name = "SeedOss", .names = kLlama, .dropouts = {"attention_dropout", "residual_dropout"},
            .mlp_bias = HfKey::written, .out_bias_key = "attention_out_bias", .head_dim = 128},
     .gguf = {.name = ""}},
    {.name = "exaone4", .change = decoders::exaone4, .limits = {.title = "EXAONE 4"},
     .hf = {.class_name = "Exaone4", .names = kOlmo2, .windows = HfWindows::with_rope, .attention_bias = HfKey::ignored,
            .mlp_bias = HfKey::ignored},
     .gguf = {.name = ""}},
    {.name = "hunyuan_v1_dense", .change = decoders::hunyuan, .limits = {.title = "Hunyuan"},
     .hf = {.class_name = "HunYuanDenseV1", .names = kHunyuan, .mlp_bias = HfKey::ignored, .has_rope_alpha = true},
     .gguf = {.name = ""}},
    {.name = "phi3", .change = decoders::phi3, .limits = {.title = "Phi-3"},
     .hf = {.class_name = "Phi3", .names = kPhi3, .windows = HfWindows::all,
            .attention_bias = HfKey::ignored, .mlp_bias = HfKey::ignored, .rotary_share = 1,
            .has_rope_scalings = false},  // it only has longrope, and formerly called it yarn
     .gguf = {.name = "phi3", .square_heads = true, .window_key = true}},
    {.name = "smollm3", .change = decoders::smollm3, .limits = {.title = "SmolLM3"},
     .hf = {.class_name = "SmolLM3", .names = kLlama, .windows = HfWindows::without_rope, .mlp_bias = HfKey::written},
     .gguf = {.name = "smollm3", .permutes_qk = true, .no_rope_every = 4}},
    {.name = "gemma2", .change = decoders::gemma2, .limits = {.title = "Gemma 2"},
     .hf = {.class_name = "Gemma2", .names = kGemma, .windows = HfWindows::by_pattern, .head_dim = 256, .is_gemma = true},
     .gguf = {.name = "gemma2", .slides = true, .head_always_tied = true, .score_softcap = true, .logit_softcap = true, .layers_by_hidden = 46}},
    {.name = "gemma3_text", .change = decoders::gemma3, .limits = {.title = "Gemma 3"},
     .hf = {.class_name = "Gemma3", .classifier = "TextForSequenceClassification", .names = kGemma,
            .windows = HfWindows::by_pattern, .head_dim = 256, .is_gemma = true},
     .gguf = {.name = "gemma3", .slides = true, .yarn = false, .logit_softcap = true, .layers_by_hidden = 62}},
    {.name = "gemma4_text", .change = decoders::gemma4, .limits = {.title = "Gemma 4", .some_experts = true, .scores = false},
     .hf = {.class_name = "Gemma4", .names = kGemma4, .mlp_bias = HfKey::ignored, .head_dim = 256, .is_gemma4 = true},
     .gguf = {.name = ""}},
    {.name = "granite", .change = decoders::granite, .limits = {.title = "Granite"},
     .hf = {.class_name = "Granite", .names = kLlama, .mlp_bias = HfKey::written, .has_factors = true},
     .gguf = {.name = "granite", .permutes_qk = true, .out_biases = true, .rope_factors = true, .factors = true}},
    {.name = "qwen2_moe", .change = decoders::qwen2_moe, .limits = {.title = "Qwen2-MoE", .experts = true},
     .hf = {.class_name = "Qwen2Moe", .names = kQwenMoe, .windows = HfWindows::listed, .attention_bias = HfKey::ignored,
            .experts = HfExperts::qwen, .router_aux = 0.001},
     .gguf = {.name = "qwen2moe", .square_heads = true, .head_required = true, .experts = {.any = true, .ffn_key = true}}},
    {.name = "qwen3_moe", .change = decoders::qwen3, .limits = {.title = "Qwen3-MoE", .experts = true},
     .hf = {.class_name = "Qwen3Moe", .names = kQwenMoe, .experts = HfExperts::qwen, .router_aux = 0.001},
     .gguf = {.name = "qwen3moe", .experts = {.any = true, .renormalizes = true, .ffn_key = true}}},
    {.name = "olmoe", .change = decoders::olmoe, .limits = {.title = "OLMoE", .experts = true, .expert_ffn = false, .scores = false},
     .hf = {.class_name = "Olmoe", .names = kQwenMoe, .experts = HfExperts::olmoe, .router_aux = 0.01},
     .gguf = {.name = "olmoe", .square_heads = true, .head_required = true, .equal_heads = true, .experts = {.any = true}}},
    {.name = "mixtral", .change = decoders::mixtral, .limits = {.title = "Mixtral", .experts = true, .expert_ffn = false},
     .hf = {.class_name = "Mixtral", .names = kMixtral, .windows = HfWindows::all, .attention_bias = HfKey::ignored,
            .mlp_bias = HfKey::ignored, .experts = HfExperts::mixtral, .router_aux = 0.001},
     .gguf = {.name = "llama", .permutes_qk = true, .rope_factors = true, .experts = {.any = true, .renormalizes = true}}},
    {.name = "glm4_moe", .change = decoders::glm4_moe, .limits = {.title = "GLM-4.5", .experts = true, .scores = false},
     .hf = {.class_name = "Glm4Moe", .names = kGlmMoe, .mlp_bias = HfKey::ignored, .out_bias = false, .rotary_share = 0.5,
            .qk_norm_key = true, .experts = HfExperts::glm},
     .gguf = {.name = "glm4moe", .mlp_norm = "post_attention_norm", .experts = {.any = true, .ffn_key = true, .rule_keys = true}}},
    {.name = "qwen3_5_text", .change = decoders::qwen3_5, .limits = {.title = "Qwen3.5", .delta = true},
     .hf = {.class_name = "Qwen3_5", .classifier = "TextForSequenceClassification", .names = kQwen35, .mlp_bias = HfKey::ignored, .head_dim = 256, .rotary_share = 0.25, .mixers = HfMixers::delta},
     .gguf = {.name = ""}},
    {.name = "qwen3_5_moe_text", .change = decoders::qwen3_5_moe, .limits = {.title = "Qwen3.5-MoE", .experts = true, .expert_ffn = false, .scores = false, .delta = true},
     .hf = {.class_name = "Qwen3_5Moe", .names = kQwen35Moe, .mlp_bias = HfKey::ignored, .head_dim = 256, .rotary_share = 0.25,
            .mixers = HfMixers::delta, .experts = HfExperts::qwen3_5, .router_aux = 0.001},
     .gguf = {.name = ""}},
    {.name = "qwen3_next", .change = decoders::qwen3_5_moe, .limits = {.title = "Qwen3-Next", .experts = true, .delta = true},
     .hf = {.class_name = "Qwen3Next", .names = kQwen3Next, .mlp_bias = HfKey::ignored, .head_dim = 256, .rotary_share = 0.25,
            .mixers = HfMixers::delta, .experts = HfExperts::qwen, .router_aux = 0.001},
     .gguf = {.name = ""}},
    {.name = "deepseek_v2", .change = decoders::deepseek_v2, .limits = {.title = "DeepSeek-V2", .grouped_queries = false, .experts = true, .latent = true},
     .hf = {.class_name = "DeepseekV2", .names = kDeepSeek, .mlp_bias = HfKey::read, .mixers = HfMixers::latent, .experts = HfExperts::deepseek_v2},
     .gguf = {.name = ""}},
    {.name = "deepseek_v3", .change = decoders::deepseek_v3, .limits = {.title = "DeepSeek-V3", .grouped_queries = false, .experts = true, .latent = true},
     .hf = {.class_name = "DeepseekV3", .names = kDeepSeek, .mlp_bias = HfKey::ignored, .mixers = HfMixers::latent, .experts = HfExperts::deepseek_v3},
     .gguf = {.name = ""}},
    {.name = "glm4_moe_lite", .change = decoders::glm4_moe_lite, .limits = {.title = "GLM-4.7-Flash", .grouped_queries = false, .experts = true, .scores = false, .latent = true},
     .hf = {.class_name = "Glm4MoeLite", .names = kDeepSeek, .mlp_bias = HfKey::ignored, .mixers = HfMixers::latent, .experts = HfExperts::glm_lite},
     .gguf = {.name = ""}},
    {.name = "lfm2", .change = decoders::lfm2, .limits = {.title = "LFM2", .scores = false, .short_conv = true},
     .hf = {.class_name = "Lfm2", .names = kLfm2, .attention_bias = HfKey::ignored, .mlp_bias = HfKey::ignored, .norm_eps_key = "norm_eps",
            .mixers = HfMixers::lfm2},
     .gguf = {.name = ""}},
    {.name = "lfm2_moe", .change = decoders::lfm2_moe, .limits = {.title = "LFM2-MoE", .experts = true, .scores = false, .short_conv = true},
     .hf = {.class_name = "Lfm2Moe", .names = kLfm2Moe, .attention_bias = HfKey::ignored, .mlp_bias = HfKey::ignored, .norm_eps_key = "norm_eps",
            .mixers = HfMixers::lfm2, .experts = HfExperts::lfm2},
     .gguf = {.name = ""}},
    {.name = "granitemoehybrid", .change = decoders::granitemoehybrid,
     .limits = {.title = "Granite 4", .some_experts = true, .experts = true, .any_shared_ffn = true, .scores = false, .mamba = true},
     .hf = {.class_name = "GraniteMoeHybrid", .names = kGraniteHybrid, .mlp_bias = HfKey::ignored, .has_factors = true,
            .mixers = HfMixers::granite, .experts = HfExperts::granite, .router_aux = 0.001},
     .gguf = {.name = ""}},
    {.name = "falcon_h1", .change = decoders::falcon_h1, .limits = {.title = "Falcon-H1", .scores = false, .mamba = true},
     .hf = {.class_name = "FalconH1", .names = kFalconH1, .mlp_bias = HfKey::written, .mixers = HfMixers::falcon},
     .gguf = {.name = ""}},
    {.name = "nemotron_h", .change = decoders::nemotron_h,
     .limits = {.title = "Nemotron-H", .some_experts = true, .experts = true, .any_shared_ffn = true, .scores = false, .mamba = true},
     .hf = {.class_name = "NemotronH", .names = kNemotronH, .attention_bias = HfKey::ignored, .mlp_bias = HfKey::written,
            .norm_eps_key = "layer_norm_epsilon", .act_key = "mlp_hidden_act", .mixers = HfMixers::nemotron, .experts = HfExperts::nemotron},
     .gguf = {.name = ""}},
    {.name = "gpt_oss", .change = decoders::gpt_oss, .limits = {.title = "gpt-oss", .experts = true, .expert_ffn = false},
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
