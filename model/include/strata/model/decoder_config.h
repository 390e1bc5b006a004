#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/kernels/values/expert_rules.h>
#include <strata/kernels/values/rope_frequencies.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata {

using RopeFrequencies = kernels::RopeFrequencies;

/// The experts of a decoder, some or all of whose MLPs are mixtures of experts (Shazeer et al. 2017).
struct ExpertsConfig {
  std::int64_t n = 0;           ///< experts of a layer; 0: all MLPs are dense
  std::int64_t per_token = 0;   ///< how many of them compute a token
  std::int64_t ffn = 0;         ///< inner width of an expert
  std::int64_t shared_ffn = 0;  ///< inner width of an MLP that computes every token beside them; 0: none
  bool shared_gate = false;     ///< its result is multiplied by sigmoid(x w) (Qwen2-MoE)
  bool shared_plain = false;    ///< it has such an MLP without a gate (GLM-4.5)
  kernels::RouterRule rule = {};
  /// The scores of a router have a bias for the choice alone, in f32, that does not train (DeepSeek-V3).
  bool choice_bias = false;
  bool biases = false;  ///< routers and both matrices of experts have biases (gpt-oss)
  /// The gate has limits (kernels::ExpertGate::Kind::clamped); 0: it has none.
  float gate_limit = 0, gate_alpha = 0;
  std::int64_t latent = 0;  ///< experts compute rows of so many elements, made of the token's; 0: the token's
  /// A mixture and the dense MLP compute every token, each between norms of its own; routers have a norm,
  /// too, and the weights of an expert a factor, in f32 (Gemma 4).
  bool beside_dense = false;
  std::vector<bool> layers = {};  ///< per layer: whether its MLP is a mixture; empty: see dense_layers
  std::int64_t dense_layers = 0;  ///< so many layers, the first ones, have no mixture
  bool stacked_files = false;     ///< its Hugging Face folder has the matrices of all experts in one tensor
  bool only_quantized = false;    ///< no other matrices of a quantized base are (gpt-oss, Kimi K2)
  bool operator==(const ExpertsConfig&) const = default;
};

/// What mixes the tokens of a layer.
enum class Mixer : std::uint8_t {
  attention,
  delta,       ///< a gated delta net (Yang et al. 2025)
  short_conv,  ///< a convolution over few tokens between two gates (LFM2)
  latent,  ///< attention whose keys and values are expanded from few numbers of a token (DeepSeek-AI 2024)
  mamba,   ///< Mamba-2 (Dao and Gu 2024)
  both,    ///< the sum of attention and Mamba-2 of the same rows (Falcon-H1)
  none,    ///< it has an MLP alone
};

/// The gated delta nets of a decoder. Each head of values has a state [key_dim, value_dim]; value_heads /
/// key_heads of them next to each other share queries and keys.
struct DeltaConfig {
  std::int64_t key_heads = 0;    ///< 0: heads
  std::int64_t value_heads = 0;  ///< 0: 2 key_heads
  std::int64_t key_dim = 0;      ///< width of a head of queries and keys; 0: head_dim / 2
  std::int64_t value_dim = 0;    ///< width of a head of values; 0: key_dim
  std::int64_t taps =
      0;  ///< the convolution of queries, keys and values has so many; 0: there are no delta nets

  std::int64_t keys() const noexcept { return key_heads * key_dim; }
  std::int64_t values() const noexcept { return value_heads * value_dim; }
  /// What the convolution computes: queries, keys and values.
  std::int64_t channels() const noexcept { return 2 * keys() + values(); }
  bool operator==(const DeltaConfig&) const = default;
};

/// The Mamba-2 layers of a decoder. Each head has a state [state, head_dim]; heads / groups of them next to
/// each other share what writes and reads it.
struct MambaConfig {
  enum class Norm : std::uint8_t {
    none,        ///< the result is multiplied by SiLU of the gate alone
    gate_first,  ///< RMSNorm of that product, of each group's elements by themselves
    norm_first,  ///< the product of that norm of the result and SiLU of the gate
  };
  std::int64_t heads = 0;     ///< 0: heads of 2 hidden elements together
  std::int64_t head_dim = 0;  ///< 0: the head_dim of attention, or less if it divides 2 hidden
  std::int64_t groups = 0;    ///< 0: 1
  std::int64_t state = 0;     ///< rows of the state of a head; 0: 2 head_dim
  std::int64_t taps = 0;      ///< the convolution has so many; 0: there are no such layers
  bool conv_bias = true, in_bias = false, out_bias = false;
  float step_low = 0, step_high = std::numeric_limits<float>::infinity();  ///< the limits of steps
  Norm norm = Norm::gate_first;
  bool beside_attention = false;  ///< every layer has both (Falcon-H1)

  std::int64_t inner() const noexcept { return heads * head_dim; }
  std::int64_t group_states() const noexcept { return groups * state; }
  /// What the convolution computes: the values, and what writes and reads the state.
  std::int64_t channels() const noexcept { return inner() + 2 * group_states(); }
  /// What a layer makes of a token: the gate, those channels, and the steps.
  std::int64_t in_width() const noexcept { return inner() + channels() + heads; }
  bool operator==(const MambaConfig&) const = default;
};

/// Falcon-H1's constant factors of what its matrices read or write.
struct HybridFactors {
  float head = 1;                                ///< multiplies the logits
  float key = 1;                                 ///< multiplies the keys
  float gate = 1, down = 1;                      ///< the MLP's gate before its function, and its result
  float attn_in = 1, attn_out = 1;               ///< what attention reads, and its result
  float mamba_in = 1, mamba_out = 1;             ///< the same for Mamba-2
  std::array<float, 5> mamba = {1, 1, 1, 1, 1};  ///< its gate, values, B, C and steps
  bool operator==(const HybridFactors&) const = default;
};

/// The latent attention of a decoder. Its heads have plain + rotated elements, the last of which turn with
/// the position; their norms have an eps of 1e-6, whatever the others have.
struct LatentConfig {
  std::int64_t kv_rank =
      0;  ///< numbers of a token of which keys and values are made; 0: there is no such attention
  std::int64_t q_rank = 0;  ///< the same of queries; 0: they are made of the token's row
  std::int64_t plain = 0, rotated = 0;
  std::int64_t value = 0;  ///< elements of a head of values
  float mscale_all = 0;    ///< YaRN's factor of scores, by a multiple of its logarithm; 0: none
  /// The model has an index that selects so many keys for a query (DeepSeek-V3.2, GLM-5). It is not computed:
  /// no sequence may be longer. 0: there is none.
  std::int64_t selects = 0;
  bool operator==(const LatentConfig&) const = default;
};

/// The heads of layers that see all keys, in a decoder whose sliding layers have others (Gemma 4).
struct FullHeads {
  std::int64_t head_dim = 0;   ///< 0: twice that of the others
  std::int64_t kv_heads = 0;   ///< 0: a fourth of those of the others, if their number is a multiple of 4
  bool keys_as_values = true;  ///< values have the keys' projection, and a norm of their own
  double rotary_share = 0.25;  ///< RoPE turns that share of a head's pairs, the first ones
  bool operator==(const FullHeads&) const = default;
};

/// The shape of a decoder-only transformer. A family is a value of this type; there is no code per family.
/// The defaults are GPT-2's; decoder_for_family() returns those of other families.
struct DecoderConfig {
  enum class Norm : std::uint8_t { layer, rms };
  enum class Position : std::uint8_t { learned, rope, alibi };
  enum class Mlp : std::uint8_t { gelu, relu, relu2, swiglu, geglu };
  enum class QkNorm : std::uint8_t {
    none,
    heads,  ///< RMSNorm of each query and key head (Qwen3, Gemma 3)
    whole,  ///< RMSNorm of all query heads together and of all key heads together (OLMo 2)
  };

  std::string family = "gpt2";
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< key and value heads; 0: same as `heads`
  std::int64_t head_dim = 0;  ///< 0: hidden / heads
  std::int64_t ffn = 0;       ///< inner width of the MLP
  std::int64_t vocab = 0;
  std::int64_t seq = 0;        ///< tokens of one sequence
  std::int64_t positions = 0;  ///< maximum positions, >= seq; rows of a learned table; 0: same as `seq`

  Norm norm = Norm::layer;
  float norm_eps = 1e-5f;
  float norm_offset = 0;    ///< added to the stored weight of an RMSNorm (Gemma: 1)
  bool embed_norm = false;  ///< a norm directly after the embedding (BLOOM)
  bool pre_norms = true;    ///< a norm before the attention and the MLP of each block (not OLMo 2)
  bool post_norms = false;  ///< a norm on the output of attention and MLP (GLM-4-0414, OLMo 2, Gemma)
  QkNorm qk_norm = QkNorm::none;
  bool value_norm = false;          ///< values, too, with QkNorm::heads, but without a weight (Gemma 4)
  bool qk_norm_after_rope = false;  ///< queries and keys are rotated before they are normalized (Hunyuan)
  bool scaled_embedding = false;    ///< embeddings are multiplied by sqrt(hidden) (Gemma)
  float embedding_factor = 1;       ///< embeddings are multiplied by it, too (Granite, as the next three)
  float residual_factor = 1;        ///< what attention and MLP add to the residual stream is multiplied by it
  float score_factor = 0;           ///< scores are multiplied by it; 0: see query_scalar
  float logit_divisor = 1;          ///< logits are divided by it
  bool layer_factor = false;        ///< a layer's result has a factor, which is not trained (Gemma 4)

  Position position = Position::learned;
  std::int64_t position_offset = 0;  ///< row of position 0 in the learned table (OPT: 2)
  std::int64_t rotary_dim = 0;       ///< elements of a head that RoPE rotates; 0: all
  std::int64_t rotary_divisor = 1;   ///< 0 elements are head_dim / rotary_divisor (GLM-4.5: 2)
  bool rotary_interleaved = false;   ///< pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  RopeFrequencies frequencies = {};
  /// RoPE frequencies of sliding layers if they differ (Gemma 3).
  std::optional<RopeFrequencies> sliding_frequencies = {};
  std::int64_t no_rope_every = 0;      ///< every n-th layer has no RoPE (SmolLM3); 0: all layers have it
  std::vector<bool> rope_layers = {};  ///< per layer: whether it has RoPE; empty: see no_rope_every

  /// Keys that a query of a sliding-window layer sees, up to its own (Beltagy et al. 2020); 0: no such
  /// layers.
  std::int64_t window = 0;
  std::int64_t full_every = 0;  ///< every n-th layer sees all keys (Gemma); 0: all layers slide
  bool full_last = false;       ///< the last one does, too (Gemma 4)
  std::optional<FullHeads> full_heads = {};
  std::vector<bool> sliding = {};  ///< per layer: whether it slides; empty: see full_every
  float score_softcap = 0;         ///< scores s become cap tanh(s / cap) (Gemma 2); 0: no softcap
  float logit_softcap = 0;         ///< the same for logits
  bool sinks = false;              ///< each head has a score that takes its part of the softmax (gpt-oss)
  /// From this position on, queries would be multiplied by 1 + query_growth log(1 + floor(position /
  /// query_growth_from)) (Ministral 3), which is not computed: no sequence may be longer. 0: there is no such
  /// position.
  std::int64_t query_growth_from = 0;
  float query_growth = 0;
  float query_scalar = 0;  ///< scores are divided by its square root; 0: by sqrt(head_dim)

  std::vector<Mixer> mixers = {};  ///< per layer; empty: see attention_every
  /// Every n-th layer has attention, the others what else the family has; of a family whose layers have one
  /// part, every second layer has an MLP, and this counts the others.
  std::int64_t attention_every = 1;
  DeltaConfig delta = {};
  MambaConfig mamba = {};
  LatentConfig latent = {};
  HybridFactors hybrid_factors = {};
  bool one_part = false;       ///< a layer has either a mixer or an MLP, with one norm (Nemotron-H)
  std::int64_t conv_taps = 0;  ///< short convolutions have so many; 0: no layer is one
  bool conv_bias = false;      ///< these and both of their projections have biases
  bool output_gate = false;  ///< queries come with a gate, sigmoid of which multiplies what attention returns

  Mlp mlp = Mlp::gelu;
  ExpertsConfig experts = {};
  bool qkv_bias = true, out_bias = true, mlp_bias = true;
  bool tied_head = true;  ///< the head shares the token embedding
  /// Instead of logits it has one score of a sequence: a reward model, with the parameter "score.weight" (see
  /// align/pairs.h). record_decoder() does not record it.
  bool scores = false;

  bool operator==(const DecoderConfig&) const = default;
};

/// Whether the MLP is gated, so that its first matrix computes both gate and up.
constexpr bool is_gated(DecoderConfig::Mlp mlp) noexcept { return mlp >= DecoderConfig::Mlp::swiglu; }
/// The supported families.
const std::vector<std::string_view>& decoder_families();
/// A config of `family` whose sizes are still 0; nullopt for an unknown family.
std::optional<DecoderConfig> decoder_for_family(std::string_view family);
/// What no file of a family can state, so that no new model may have it.
struct FamilyLimits {
  std::string_view title;       ///< as its authors write it
  bool grouped_queries = true;  ///< several query heads may share one of keys and values
  bool head_dim = true;         ///< the width of a head may differ from hidden / heads
  std::int64_t ffn_factor = 0;  ///< `ffn` is that many times `hidden`; 0: it is any
  bool some_experts = false;    ///< some of its models have mixtures of experts, others have not
  bool experts = false;         ///< its MLPs are mixtures of experts, or those of a new model are ...
  bool expert_ffn = true;       ///< ... whose inner width may differ from `ffn`
  bool any_shared_ffn = false;  ///< the MLP beside the experts need not be a multiple of theirs
  bool scores = true;           ///< it may be a reward model
  bool delta = false;           ///< some of its layers may be gated delta nets ...
  bool short_conv = false;      ///< ... or short convolutions
  bool latent = false;          ///< its attention is latent
  bool mamba = false;           ///< some of its layers may be Mamba-2
};
/// Empty for an unknown family.
FamilyLimits family_limits(std::string_view family);
/// Tokens of the longest sequence that is computed; 0: any number.
std::int64_t longest_sequence(const DecoderConfig& config);
/// Whether a layer has an MLP. `config` has its derived sizes.
bool has_mlp(const DecoderConfig& config, std::size_t layer);
/// The factor of embeddings.
float embedding_scale(const DecoderConfig& config);
/// The factor of attention scores; 0: 1 / sqrt(head_dim). `config` has its derived sizes.
float score_scale(const DecoderConfig& config);
/// The heads of a layer that has attention. `config` has its derived sizes.
struct LayerHeads {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool keys_as_values = false;  ///< as in FullHeads

  std::int64_t q_width() const noexcept { return heads * head_dim; }
  std::int64_t kv_width() const noexcept { return kv_heads * head_dim; }
};
LayerHeads layer_heads(const DecoderConfig& config, std::size_t layer);
/// The losses of routers of experts that are added to the gradient of the loss, which keeps its value: see
/// kernels/experts/router_losses.h.
struct RouterLosses {
  float aux_coef = 0, z_coef = 0;
  bool any() const noexcept { return aux_coef != 0 || z_coef != 0; }
};
/// Whether it has mixtures of experts whose scores are softmaxes, of which losses of routers are made.
bool has_softmax_routers(const DecoderConfig& config);
/// Returns `config` with the sizes filled in that follow from others.
DecoderConfig with_derived_sizes(DecoderConfig config);

/// Reports all problems at once, each with its key and both numbers. Errors: `invalid`.
Status validate(const DecoderConfig& config);
/// Number of parameters of the model; tied ones count once.
std::int64_t count_parameters(const DecoderConfig& config);

/// Sizes of a program with a KV cache.
struct CacheShape {
  std::int64_t rows = 1;        ///< tokens per run, of one or of several sequences
  std::int64_t sequences = 1;   ///< sequence slots of the cache
  std::int64_t context = 0;     ///< tokens of one sequence, at most DecoderConfig::positions
  std::int64_t logit_rows = 1;  ///< rows of logits per run
  /// Snapshots of the states of each sequence. They are the engine's (ProgramSet::set_snapshots()), and
  /// change no program.
  std::int64_t snapshots = 0;
  /// Latent attention keeps latent rows, of which keys and values are made for each run, instead of these.
  bool latent = false;
};
/// Bytes of the states that record_cached_decoder() declares, and of their snapshots.
std::uint64_t cache_bytes(const DecoderConfig& config, const CacheShape& shape, DType compute = DType::f32);

}  // namespace strata
