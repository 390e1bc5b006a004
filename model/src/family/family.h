// What distinguishes the families: one row says all that readers and writers of their files ask.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include <strata/model/decoder_config.h>

namespace strata::detail {

/// The names of a family's tensors in a Hugging Face folder; "" is a part that it does not have.
struct HfNames {
  std::string_view tokens, positions = {}, embed_norm = {}, layer;
  std::string_view attn_norm, sinks = {};
  std::array<std::string_view, 3> qkv;  ///< one fused tensor, or three
  std::string_view q_norm = {}, k_norm = {}, attn_out, attn_post_norm = {}, mlp_norm;
  std::array<std::string_view, 2> mlp_in;  ///< one tensor, or gate and up
  std::string_view mlp_out, mlp_post_norm = {}, final_norm;
  std::string_view router = {}, choice_bias = {}, experts = {};  ///< expert 3 of a layer is `experts` "3."
  std::array<std::string_view, 2> expert_in = {};                ///< gate and up
  std::string_view expert_out = {};
  /// The tensors of all experts in a folder that stacks them, and the router in it.
  std::string_view stacked_in = "mlp.experts.gate_up_proj", stacked_out = "mlp.experts.down_proj",
                   stacked_router = "mlp.gate";
  /// The stacked matrices are [experts, in, out], gates and ups in turn; there is no other form.
  bool stacked_transposed = false;
  /// The norms of a dense MLP and a mixture next to each other, those before the router and the experts, and
  /// the factors of experts and of the layer; not all of these have ".weight" at the end.
  std::string_view dense_post_norm = {}, router_norm = {}, experts_norm = {}, experts_post_norm = {},
                   expert_factors = {}, layer_factor = {};
  std::array<std::string_view, 2> shared_in = {};  ///< gate and up of the MLP beside the experts
  std::string_view shared_out = {}, shared_gate = {};
  /// The parts of a gated delta net: queries, keys and values, and the gate of its result; the strength of
  /// writing and the decay of its state for each head.
  std::array<std::string_view, 2> delta_in = {}, delta_gates = {};
  std::string_view delta_conv = {}, delta_decay = {}, delta_step = {}, delta_norm = {}, delta_out = {};
  /// The parts of Mamba-2: what is made of a token, the convolution, the rates of decay, the bias of steps,
  /// the factor of what passes by the state, the norm of the result.
  std::string_view mamba_in = {}, mamba_conv = {}, mamba_decay = {}, mamba_step = {}, mamba_skip = {},
                   mamba_norm = {}, mamba_out = {};
  /// What makes the rows of experts of the token's, and the token's of their sum.
  std::string_view latent_in = {}, latent_out = {};
  bool transposed = false;                                  ///< matrices of the layers are [in, out]
  std::string_view conv_in = {}, conv = {}, conv_out = {};  ///< short convolutions
  /// Latent attention; queries that are made of the token's row are q_up by another name.
  std::string_view q_down = {}, q_down_norm = {}, q_up = {}, q = {}, kv_down = {}, kv_down_norm = {},
                   kv_up = {};
  bool delta_by_head = false;  ///< each key head has its rows of all parts next to each other
  bool qkv_by_head = false;    ///< each head has its rows of queries, keys and values next to each other
};

/// The keys that a config.json has: each kind has a reader in hf/config/read.cpp and a writer in
/// hf/config/write.cpp.
enum class HfKeys : std::uint8_t { gpt2, opt, bloom, llama };

/// Which layers have a sliding window.
enum class HfWindows : std::uint8_t {
  none,
  all,           ///< all layers if sliding_window is a number
  from_layer,    ///< the layers from max_window_layers on if use_sliding_window is true
  listed,        ///< the layers of layer_types if use_sliding_window is true
  without_rope,  ///< the layers without RoPE if use_sliding_window is true
  by_pattern,    ///< all layers but every sliding_window_pattern-th
  with_rope,     ///< the same if sliding_window is a number; then the others have no RoPE
};

/// The keys of mixtures of experts.
enum class HfExperts : std::uint8_t {
  none,
  qwen,     ///< dense layers by mlp_only_layers and decoder_sparse_step, moe_intermediate_size
  olmoe,    ///< intermediate_size is that of an expert
  mixtral,  ///< num_local_experts, intermediate_size; chosen scores are always renormalized
  gpt_oss,  ///< the same, and swiglu_limit and swiglu_alpha
  qwen3_5,  ///< moe_intermediate_size, all layers; chosen scores are always renormalized; no dense MLP
  lfm2,     ///< moe_intermediate_size, dense layers by num_dense_layers, use_expert_bias
  granite,  ///< num_local_experts, 0 for dense layers; shared_intermediate_size; always renormalized
  // n_routed_experts in groups, n_shared_experts, dense layers by first_k_dense_replace:
  deepseek_v2,  ///< groups by topk_method
  deepseek_v3,
  glm_lite,  ///< dense layers by mlp_layer_types
  glm,
  nemotron,  ///< mixtures by layers_block_type, moe_shared_expert_intermediate_size, moe_latent_size
};

/// The keys of layers that are not attention, and which those of layer_types are that have no name of their
/// own.
enum class HfMixers : std::uint8_t {
  none,
  delta,   ///< linear_attention; linear_num_key_heads and others
  latent,  ///< all layers are latent attention; q_lora_rank and others
  lfm2,    ///< conv, else the layers of full_attn_idxs are attention; conv_L_cache
  // Mamba-2 in layers of linear_attention, which older files call mamba:
  granite,   ///< mamba_n_heads and others
  falcon,    ///< the same, in all layers beside attention; multipliers
  nemotron,  ///< layers_block_type or hybrid_override_pattern; mamba_num_heads and others
};

/// Whether a key has an effect, and whether it is always written.
enum class HfKey : std::uint8_t { ignored, read, written };

/// A family in the files of Hugging Face transformers. What follows `keys` is of the keys of LLaMA.
struct HfFamily {
  std::string_view class_name;  ///< "Llama" of LlamaForCausalLM
  std::string_view causal_lm = "ForCausalLM", classifier = "ForSequenceClassification";
  const HfNames& names;
  std::array<const char*, 3> dropouts = {};  ///< keys of those that are 0.1 without the key
  HfKeys keys = HfKeys::llama;
  HfWindows windows = HfWindows::none;
  HfKey attention_bias = HfKey::written, mlp_bias = HfKey::read;
  const char* out_bias_key = nullptr;  ///< the key of the bias of the output projection, if it is its own
  bool out_bias = true;                ///< attention_bias is true of the output projection, too
  std::int64_t head_dim = 0;           ///< without the key; 0: hidden / heads
  double norm_eps = 0;                 ///< without the key; 0: the decoder's
  double rotary_share = 0;             ///< without the key, which is refused if this is 0
  bool has_rope_scalings = true;       ///< all that strata computes
  bool has_rope_alpha = false;         ///< rope of type dynamic has a fixed alpha, by which the base grows
  bool has_query_growth = false;       ///< rope_parameters have llama_4_scaling_beta
  bool qk_norm_key = false;            ///< use_qk_norm says whether queries and keys are normalized
  bool is_gemma = false;               ///< has keys of soft caps, and hidden_activation
  bool is_gemma4 = false;              ///< has those of hf/config_gemma4.h
  bool has_factors = false;            ///< has keys of four factors, each of which is 1 without it
  const char* norm_eps_key = "rms_norm_eps";
  const char* act_key = "hidden_act";
  HfMixers mixers = HfMixers::none;
  HfExperts experts = HfExperts::none;
  /// router_aux_loss_coef without the key, which has an effect if output_router_logits is true; 0: it has
  /// none.
  double router_aux = 0;
};

/// What an architecture of llama.cpp computes of mixtures of experts.
struct GgufExperts {
  bool any = false;           ///< its MLPs are mixtures, all of them unless it has keys of rules
  bool renormalizes = false;  ///< the weights of a token's experts are always divided by their sum
  bool ffn_key = false;       ///< has a key of the inner width of experts, which else is that of the MLP
  bool rule_keys = false;     ///< has keys of the router's rule, and of the number of dense layers (GLM-4.5)
};

/// A family's architecture in llama.cpp: src/models/ there has a file for each, and conversion/ what its
/// converter from Hugging Face folders does with the tensors.
struct GgufArchitecture {
  std::string_view name;      ///< "" if there is none
  bool permutes_qk = false;   ///< RoPE turns pairs (2i, 2i + 1), where ours are (i, i + head_dim / 2)
  bool square_heads = false;  ///< heads times head_dim must be hidden
  bool slides = false;        ///< knows layers with a sliding window
  std::int64_t full_every =
      0;                    ///< then always every n-th layer sees all keys; 0: there is a key of the layers
  bool window_key = false;  ///< some versions read the window, and none of them without the key
  bool out_biases = false;  ///< has places for biases of attn_out, mlp_in and mlp_out
  bool attention_biases = false;  ///< needs those of queries, keys, values and attn_out
  bool head_required = false;     ///< a tied head must be in the file, too
  bool head_always_tied = false;
  bool rope_factors = false;    ///< reads rope_freqs.weight
  bool yarn = true;             ///< knows the scaling
  bool yarn_unrounded = false;  ///< ... and its models have it without rounding, which llama.cpp always does
  bool score_softcap = false;   ///< always has a soft cap of scores
  bool logit_softcap = false;   ///< has a key of a soft cap of logits
  std::int64_t no_rope_every = 0;     ///< every n-th layer has no RoPE
  std::int64_t layers_by_hidden = 0;  ///< in models of so many, scores have the divisor hidden / heads
  bool factors = false;               ///< has keys of the factors of embeddings, residuals, scores and logits
  bool is_70b = false, is_70b_if_grouped = false;  ///< takes a model of 80 layers for one of 70 B parameters
  std::string_view mlp_norm = "ffn_norm";          ///< the name of the norm before the MLP
  bool equal_heads = false;                        ///< as many heads of keys as of queries
  GgufExperts experts = {};
};

struct Family {
  std::string_view name;                   ///< model.family, and model_type in config.json
  void (*change)(DecoderConfig& decoder);  ///< makes the family's decoder of GPT-2's
  FamilyLimits limits;
  HfFamily hf;
  GgufArchitecture gguf;
};

/// All of them; decoder_families() has their names.
std::span<const Family> families();
/// Null for an unknown name.
const Family* find_family(std::string_view name);
/// The row of a family that is known.
const Family& family_of(const DecoderConfig& decoder);

}  // namespace strata::detail
