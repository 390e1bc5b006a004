#pragma once

#include <initializer_list>
#include <string>

#include <strata/graph/program.h>

namespace strata {

/// A symbolic tensor while a model is being recorded. A dead one (after an error) makes further dead ones.
struct Value {
  ValueId id = kNoValue;
};

struct ParamOptions {
  Init init = {};
  bool decay = true;
  bool trainable = true;
};

/// Query heads, and the key heads they share.
struct Heads {
  int query = 1;
  int key = 1;
};

/// What becomes of scores: as AttentionHeads has it.
struct ScoreOptions {
  bool alibi = false;
  int window = 0;
  float softcap = 0;
  float scale = 0;
};

/// Records a model: looks eager, executes nothing. Sticky: the first error is kept with op name and shapes,
/// later calls return dead values, and finish() returns it.
///
/// Shapes: T = batch * seq tokens, one row a token; weights are [out, in].
class Builder {
 public:
  /// Parameters and activations are `compute`: f32, bf16 or f16. Statistics, sums and losses are f32 whatever
  /// it is.
  explicit Builder(DType compute = DType::f32) : compute_(compute) {}

  Value param(std::string name, Shape shape, ParamOptions options);
  Value input(std::string name, Shape shape, DType dtype);
  /// f32 that stays from run to run.
  Value state(std::string name, Shape shape);
  /// Instructions from here on belong to region `name`. A block whose forward may run again in backward says
  /// so.
  void region(std::string name, bool recompute);

  Value embedding(Value ids, Value table, int offset = 0);        ///< [T] i32 -> [T, h]: rows ids + offset
  Value layernorm(Value x, Value weight, Value bias, float eps);  ///< [T, h] -> [T, h]
  /// [T, h] -> [T, h]; what scales is weight + offset.
  Value rmsnorm(Value x, Value weight, float eps, float offset = 0);
  /// Of [T, (heads + 2 kv_heads) d]: RMSNorm of each query and key head by itself where weights are [d], of
  /// all queries and of all keys of a token where they are [heads d] and [kv_heads d].
  Value qk_norm(Value qkv, Value q_weight, Value k_weight, Heads heads, float eps, float offset = 0);
  Value linear(Value x, Value weight, Value bias = {});  ///< [T, K] x [N, K] -> [T, N]
  /// The same in f32 whatever x is; has no derivative unless x is f32.
  Value linear_f32(Value x, Value weight);
  Value gelu(Value x);  ///< tanh form
  Value relu(Value x);
  Value swiglu(Value gate_up);  ///< [T, 2f] -> [T, f]
  Value geglu(Value gate_up);   ///< the same with GELU, tanh form
  Value scale(Value x, float factor);
  Value softcap(Value x, float cap);  ///< cap tanh(x / cap) of f32; has no derivative
  /// Where a token stands in its row of `seq`, or in its document where doc_start says where that begins:
  /// [tokens] i32.
  Value positions(std::int64_t tokens, int seq, Value doc_start = {});
  /// Cosines and sines of all angles, by position: [positions, rotary_dim].
  Value rope_table(int positions, int rotary_dim, const kernels::RopeFrequencies& frequencies);
  /// Turns the query and key heads of qkv. A pair is (i, i + n / 2), or (2i, 2i + 1) when interleaved.
  Value rope(Value qkv, Value positions, Value table, Heads heads, bool interleaved);
  /// Causal: [T, (heads + 2 kv_heads) d] -> [T, heads d]. Tokens see their document alone where doc_start is
  /// given.
  Value attention(Value qkv, Heads heads, int seq, const ScoreOptions& scores = {}, Value doc_start = {});
  /// Of tokens [R] at `positions` [R] i32 of the sequences `slots` [R] i32 (-1: none), whose keys and values
  /// join the states keys and values [sequences, kv_heads, capacity, d]: [R, (heads + 2 kv_heads) d] -> [R,
  /// heads d].
  Value cached_attention(Value qkv, Value positions, Value slots, Value keys, Value values, Heads heads,
                         const ScoreOptions& scores = {});
  /// Rows `rows` [N] i32 of x: [R, h] -> [N, h].
  Value select_rows(Value x, Value rows);
  Value add(Value a, Value b);
  /// [T, V], [T] -> loss [1]: the sum over targets from 0 on, over the divisor [1] or, without one, their
  /// number.
  Value cross_entropy(Value logits, Value targets, Value divisor = {});
  /// The cross entropy of linear(x, weight), or of its softcap(), whose logits never exist whole.
  Value linear_cross_entropy(Value x, Value weight, Value targets, Value divisor = {}, float softcap = 0);

  /// The program with these values alive at its end. Errors: the first one met.
  Result<Program> finish(std::initializer_list<std::pair<std::string, Value>> outputs);

 private:
  Value op(Op op, std::initializer_list<Value> in, Attrs attrs = {});
  const DType compute_;
  Program program_;
  Status error_;
};

}  // namespace strata
