#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include <strata/graph/program.h>
#include <strata/kernels/align/log_prob_scaling.h>
#include <strata/kernels/align/loss_options.h>

namespace strata {

namespace kernels {
struct RopeFrequencies;
struct RouterRule;
struct ExpertGate;
struct DividedColumns;
struct LatentHeads;
struct DeltaHeads;
struct ScanHeads;
struct ColumnScales;
struct StepLimits;
}  // namespace kernels
struct LoraRowsAttrs;
struct RouterLossAttrs;

/// A symbolic tensor in a model that is being recorded. After an error values are dead, and any op on a dead
/// value returns a dead value.
struct Value {
  ValueId id = kNoValue;
};

struct ParamOptions {
  Init init = {};
  bool decay = true;
  bool trainable = true;
  /// It is f32 whatever the dtype of the program is, does not train, and is part of every checkpoint, since a
  /// run may set it (RouterRule's bias of the choice).
  bool is_f32_state = false;
  /// It is f32 whatever the dtype of the program is, and trains like any other (rates of decay).
  bool is_f32 = false;
};

/// Number of query heads, and of the key/value heads that they share.
struct Heads {
  int query = 1;
  int key = 1;
};

/// How attention scores are computed; the fields mean the same as in AttentionAttrs.
struct ScoreOptions {
  bool alibi = false;
  int window = 0;
  float softcap = 0;
  float scale = 0;
};

/// Results of ops that have several; the second is a dead value where it was not asked for.
struct LogProbs {
  Value log_probs, entropies;
};
struct LossAndStats {
  Value loss, stats;
};

/// The k experts of each token and their weights, [T, k].
struct Routed {
  Value experts, weights;
};
/// The columns of a matrix in two.
struct ColumnParts {
  Value first, second;
};
/// Keys and values of all positions of a cache.
struct KeysValues {
  Value keys, values;
};
/// What is added to a loss, [1], and losses that are shown beside it.
struct AddedLosses {
  Value zero, losses;
};
/// The order in which experts compute the R = T k rows of tokens: see kernels/experts/rows.h.
struct RoutedRows {
  Value offsets, source, position;
};

/// What a token does to the states of the delta rule, [T, value heads] f32: log decays and rates of writing.
struct DeltaGates {
  Value g, beta;
};

/// What a token does to the states of a state scan, [T, heads] f32: steps and log decays.
struct ScanGates {
  Value step, g;
};

/// Operands of losses; kernels/align/ describes them and the statistics of each loss.
struct PolicyLossOperands {
  Value log_probs, old_log_probs, advantages, weights, ref_log_probs, divisor;
};
struct ValueLossOperands {
  Value values, old_values, returns, weights, divisor;
};
struct PairLossOperands {
  Value scores, ref_scores, weights, margins, divisor;
};

/// Records a model: calls look eager, but nothing is executed. Errors are sticky: the first one is stored
/// with op name and shapes, later calls return dead values, and finish() returns the error.
///
/// Shapes: T = batch * seq tokens, one row a token; weights are [out, in].
class Builder {
 public:
  /// `compute` is the dtype of parameters and activations: f32, bf16 or f16. Statistics, sums and losses are
  /// always f32.
  explicit Builder(DType compute = DType::f32) : compute_(compute) {}

  Value param(std::string name, Shape shape, const ParamOptions& options);
  Value input(std::string name, Shape shape, DType dtype);
  /// A tensor in the dtype of the recording that persists from one run of the program to the next.
  Value state(std::string name, Shape shape) { return state(std::move(name), shape, compute_); }
  Value state(std::string name, Shape shape, DType dtype);
  /// The instructions that follow belong to region `name`. `recompute` marks a block whose forward may run
  /// again in backward.
  void region(std::string name, bool recompute);

  /// Records an instruction of any op, with attributes of the type that the list of ops states, and returns
  /// its first output. Aborts if the op has another number of operands or other attributes. The functions
  /// below do this for the ops that models use.
  Value op(Op op, std::initializer_list<Value> in, Attrs attrs = {});
  /// Output i of the instruction whose first output is `first`.
  Value output(Value first, std::size_t i) const;

  /// [T] i32 -> [T, h]; row t is table[ids[t] + offset].
  Value embedding(Value ids, Value table, int offset = 0);
  Value layernorm(Value x, Value weight, Value bias, float eps);  ///< [T, h] -> [T, h]
  /// [T, h] -> [T, h]; the normalized values are multiplied by weight + offset.
  Value rmsnorm(Value x, Value weight, float eps, float offset = 0);
  /// Normalizes the query and key heads of [T, (heads + 2 kv_heads) d] with RMSNorm: each head by itself if
  /// the weights are [d]; all query heads of a token together, and all its key heads together, if they are
  /// [heads d] and [kv_heads d]. With `values` the value heads, too, without a weight.
  Value qk_norm(Value qkv, Value q_weight, Value k_weight, Heads heads, float eps, float offset = 0,
                bool values = false);
  Value linear(Value x, Value weight, Value bias = {});  ///< [T, K] x [N, K] -> [T, N]
  /// Like linear(), with an f32 result whatever the dtype of x is; its derivative needs a gradient in the
  /// dtype of x.
  Value linear_f32(Value x, Value weight);
  /// Chooses k of E experts for each token: logits [T, E] f32, bias [E] f32 or none; see
  /// kernels/experts/router.h.
  Routed router_top_k(Value logits, std::int32_t k, const kernels::RouterRule& rule, Value bias = {});
  RoutedRows route_rows(const Routed& routed, std::int32_t experts);
  /// Adds a bias [E] to logits [T, E] f32; and the sum of the weighted biases [E, H] of the experts of each
  /// token, [T, H]. See kernels/experts/biases.h.
  Value router_bias(Value logits, Value bias);
  Value expert_bias(Value biases, const Routed& routed, const RoutedRows& rows);
  /// The weights of the chosen experts, each times the factor of its expert, [E] f32.
  Value expert_scale(const Routed& routed, const RoutedRows& rows, Value factors);
  /// The sums of which the losses of routers are made, after those of the layers before, if there are any;
  /// see kernels/experts/router_losses.h.
  Value router_sums(Value logits, const RoutedRows& rows, Value before = {});
  /// Losses [2] of routers from the sums of all layers. A loss to which `zero` is added keeps its value, and
  /// its gradient gets that of these losses by their coefficients, times `factor` [1] if there is one.
  AddedLosses router_losses(Value sums, const RouterLossAttrs& attrs, Value factor = {});
  /// The rows of tokens in the order of experts, [T, H] -> [T k, H]; and their sums by token, plus a base
  /// [T, H] if there is one.
  Value gather_rows(Value x, const RoutedRows& rows, std::int32_t k);
  Value sum_rows(Value ys, const RoutedRows& rows, std::int32_t k, Value base = {});
  /// Each row times the matrix of its expert: [R, K] x [E, N, K] -> [R, N], with biases [E, N] or none.
  Value expert_linear(Value x, Value weights, const RoutedRows& rows, Value biases = {});
  /// The gated activation of an expert times the weight of its result, [R, 2 F] -> [R, F]; without a source,
  /// the rows are the choices in order. See kernels/experts/gate.h.
  Value expert_gate(Value gate_up, Value weights, Value source, const kernels::ExpertGate& gate);
  /// Adds u B^T of each part to its columns of base; see kernels/lora.h.
  Value lora_up(Value base, Value u, Value b, const LoraAttrs& parts);
  /// Norms of the adapted rows of a matrix, [rows of all parts] f32, which have no derivative; and the
  /// columns of the parts times magnitudes / norms, with a bias on all columns. See kernels/dora.h.
  Value dora_norm(Value weight, Value a, Value b, const LoraAttrs& parts, float scale);
  Value scale_columns(Value x, Value magnitudes, Value norms, Value bias, const LoraAttrs& parts);
  /// Adds s B A x to the rows of base whose value of `adapters` [T] i32 is the adapter's number; x is [T, K],
  /// a [ranks, K], b as for lora_up(). See kernels/lora_rows.h.
  Value lora_rows(Value base, Value x, Value a, Value b, Value adapters, const LoraRowsAttrs& attrs);
  Value gelu(Value x);  ///< tanh approximation
  Value relu(Value x);
  Value relu2(Value x);                     ///< relu(x)^2
  Value swiglu(Value gate_up);              ///< [T, 2f] -> [T, f]
  Value geglu(Value gate_up);               ///< like swiglu, with GELU (tanh approximation) as the gate
  Value multiply(Value a, Value b);         ///< element by element
  Value sigmoid_gate(Value x, Value gate);  ///< x * sigmoid(gate)
  Value silu_gate(Value x, Value gate);     ///< x * silu(gate)
  /// The columns of x [T, all] in two matrices; see kernels/mixers/divided_columns.h.
  ColumnParts divide_columns(Value x, const kernels::DividedColumns& columns);
  Value unite_columns(const ColumnParts& parts, const kernels::DividedColumns& columns);  ///< the inverse
  /// Queries, keys and values of latent attention as attention() takes them, and its result without what
  /// values were padded with; see kernels/mixers/latent_heads.h. Without `kv`, keys and values are zeros, but
  /// for what turns.
  Value latent_qkv(Value q, Value kv, Value rotated_key, const kernels::LatentHeads& heads);
  Value trim_heads(Value x, const kernels::LatentHeads& heads);
  Value scale(Value x, float factor);
  Value scale_by(Value x, Value by);  ///< x times `by` [1] f32, which has no derivative
  /// Each of up to 8 adjacent parts of the columns of x [T, n] times a factor; see
  /// kernels/mixers/scale_parts.h.
  Value scale_parts(Value x, const kernels::ColumnScales& scales);
  /// x / (1 - p) for the elements that are kept by the rows' keys [T, 2] i32; see kernels/adapters/dropout.h.
  Value dropout(Value x, Value keys, float p, std::uint32_t stream);
  Value softcap(Value x, float cap);  ///< cap * tanh(x / cap), f32 only; has no derivative
  /// Position of every token, [tokens] i32: its index in its row of `seq` tokens, or in its document if
  /// doc_start, the index at which each token's document begins, is given.
  Value positions(std::int64_t tokens, int seq, Value doc_start = {});
  /// Cosines and sines of all rotation angles by position: [positions, rotary_dim].
  Value rope_table(int positions, int rotary_dim, const kernels::RopeFrequencies& frequencies);
  /// Rotates the query and key heads of qkv (RoPE). Elements are paired as (i, i + n / 2), or as (2i, 2i + 1)
  /// if interleaved.
  Value rope(Value qkv, Value positions, Value table, Heads heads, bool interleaved);
  /// Causal attention, [T, (heads + 2 kv_heads) d] -> [T, heads d]. If doc_start is given, tokens attend only
  /// to tokens of their own document. `sinks` [heads]: a score of each head that takes its part of the
  /// softmax, and has no value.
  Value attention(Value qkv, Heads heads, int seq, const ScoreOptions& scores = {}, Value doc_start = {},
                  Value sinks = {});
  /// Attention over a KV cache for R tokens of the sequences `slots` [R] i32 (-1: unused row), at `positions`
  /// [R] i32 in them: [R, (heads + 2 kv_heads) d] -> [R, heads d]. The tokens' keys and values are first
  /// written to the states keys and values [sequences, kv_heads, capacity, d].
  Value cached_attention(Value qkv, Value positions, Value slots, Value keys, Value values, Heads heads,
                         const ScoreOptions& scores = {}, Value sinks = {});
  /// The same over keys and values that latent_keys_values() has made, with those of the tokens.
  Value stored_attention(Value qkv, Value positions, Value slots, const KeysValues& of, Heads heads,
                         const ScoreOptions& scores = {}, Value sinks = {});
  /// A KV cache of latent attention, the state `cache` [sequences, capacity, rank + rotated]: stores the
  /// tokens' latent rows [R, rank] and what turns of their keys, from qkv, and returns the latent rows of all
  /// sequences [sequences * capacity, rank]; then keys and values of what a linear layer has made of these,
  /// [sequences * capacity, kv_width]. See kernels/mixers/latent_cache.h.
  Value cached_latents(Value latent, Value qkv, Value positions, Value slots, Value cache,
                       const kernels::LatentHeads& heads);
  KeysValues latent_keys_values(Value kv, Value positions, Value slots, Value cache,
                                const kernels::LatentHeads& heads);
  /// A convolution of each channel of x [T, C] over the rows of its document, with weights [C, taps], and
  /// SiLU of it on request; see kernels/recurrent/causal_conv.h. The second is for rows of sequences `slots`
  /// [R] i32 at `positions` [R] i32, whose last rows are in the state `kept` [sequences, taps - 1, C].
  Value causal_conv(Value x, Value weight, Value bias, int seq, bool silu, Value doc_start = {});
  Value cached_causal_conv(Value x, Value weight, Value bias, Value positions, Value slots, Value kept,
                           bool silu);
  /// The gates of the delta rule from rows b | a [T, 2 value heads], and rates and biases [value heads] f32.
  DeltaGates delta_gates(Value ba, Value a_log, Value dt_bias);
  /// The gated delta rule: rows q | k | v [T, heads.qkv_width()] -> [T, value_heads value_dim]; see
  /// kernels/recurrent/delta_rule.h. The second is for rows of sequences as above, whose states are
  /// `kept` [sequences, key_heads, kernels::delta_state_elems(heads)] f32.
  Value delta_rule(Value qkv, const DeltaGates& gates, const kernels::DeltaHeads& heads,
                   Value doc_start = {});
  Value cached_delta_rule(Value qkv, const DeltaGates& gates, Value positions, Value slots, Value kept,
                          const kernels::DeltaHeads& heads);
  /// The gates of the state scan from rows dt [T, heads], and rates and biases [heads] f32.
  ScanGates scan_gates(Value dt, Value a_log, Value dt_bias, const kernels::StepLimits& limits);
  /// The state space layer of Mamba-2 (Dao and Gu 2024): rows x | B | C [T, heads.xbc_width()], d [heads] f32
  /// -> [T, heads head_dim]; see kernels/recurrent/state_scan.h. The second is for rows of sequences as
  /// above, whose states are `kept` [sequences, heads.blocks(), kernels::scan_state_elems(heads)] f32.
  Value state_scan(Value xbc, const ScanGates& gates, Value d, const kernels::ScanHeads& heads,
                   Value doc_start = {});
  Value cached_state_scan(Value xbc, const ScanGates& gates, Value d, Value positions, Value slots,
                          Value kept, const kernels::ScanHeads& heads);
  /// RMSNorm of every head of x [T, heads n] with a weight [n] or [heads n], times SiLU of z [T, heads n]; or
  /// RMSNorm of that product (Mamba-2). n is head_dim or, if that is 0, the length of the weight.
  Value gated_rmsnorm(Value x, Value z, Value weight, float eps, int head_dim = 0, bool gate_first = false);
  /// Gathers rows: x [R, h], `rows` [N] i32 -> [N, h].
  Value select_rows(Value x, Value rows);
  Value add(Value a, Value b);
  /// logits [T, V], targets [T] -> loss [1]: the sum over all targets >= 0, divided by divisor [1] or, if
  /// there is none, by the number of such targets.
  Value cross_entropy(Value logits, Value targets, Value divisor = {});
  /// Cross entropy of linear(x, weight), or of its softcap(), without ever storing the whole logits.
  Value linear_cross_entropy(Value x, Value weight, Value targets, Value divisor = {}, float softcap = 0);

  /// Log-probabilities [T] f32 of targets [T] i32 under the softmax of linear(x, weight), with a soft cap and
  /// then a temperature, and on request its entropies [T] f32, which have no derivative. The logits are never
  /// stored as a whole. Both are 0 where a target is below 0.
  LogProbs linear_log_probs(Value x, Value weight, Value targets, const kernels::LogProbScaling& scaling = {},
                            bool entropy = false);
  /// Scores of rows, the head of a reward or value model: x [T, K], weight [1, K], bias [1] or none -> [T]
  /// f32.
  Value row_scores(Value x, Value weight, Value bias = {});
  /// Sums of x [T] f32 over n segments, or means: segments [T] i32, below 0 for none -> [n] f32; an empty
  /// segment has 0.
  Value segment_sum(Value x, Value segments, std::int32_t n, bool mean = false);
  /// The clipped loss of PPO, GRPO and DAPO: operands [T] f32 -> loss [1], the sum over tokens times their
  /// weights / divisor [1], and stats [6]. Only log_probs have a derivative; ref_log_probs may be absent.
  /// See kernels/align/policy_loss.h.
  LossAndStats policy_loss(const PolicyLossOperands& of, const kernels::PolicyLossOptions& options = {});
  /// The loss of PPO's value function, likewise, with stats [4]. Only values have a derivative; old_values
  /// may be absent if nothing is clipped. See kernels/align/value_loss.h.
  LossAndStats value_loss(const ValueLossOperands& of, const kernels::ValueLossOptions& options = {});
  /// The loss of P pairs of a chosen and a rejected response, which are neighbours in scores and ref_scores
  /// [2 P] f32: of reward models, DPO and IPO, with weights and margins [P] and stats [4]. Only scores have a
  /// derivative; ref_scores and margins may be absent. See kernels/align/pair_loss.h.
  LossAndStats pair_loss(const PairLossOperands& of, const kernels::PairLossOptions& options = {});

  /// Returns the program with these named outputs, which stay alive to its end. Errors: the first error of
  /// the recording.
  Result<Program> finish(std::span<const std::pair<std::string, Value>> outputs);
  Result<Program> finish(std::initializer_list<std::pair<std::string, Value>> outputs) {
    return finish(std::span(outputs.begin(), outputs.size()));
  }

 private:
  const DType compute_;
  Program program_;
  Status error_;
};

}  // namespace strata
