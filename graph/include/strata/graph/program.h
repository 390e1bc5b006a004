#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/kernels/attention.h>
#include <strata/kernels/rope.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>
#include <strata/runtime/tensor_view.h>

namespace strata {

/// Identifies a value of a Program: an index into Program::values. kNoValue means "absent" (an operand that
/// is not given, a result that is not needed).
using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

enum class ValueKind : std::uint8_t {
  param,             ///< lives in a chunk; read by instructions
  grad,              ///< a parameter's gradient; lives in a chunk; written by backward
  micro_batch_grad,  ///< the part of a gradient from one of a program's micro-batches, before it is added
  input,             ///< filled before the program runs (tokens, targets)
  activation,        ///< produced and consumed by instructions
  workspace,         ///< scratch memory of one instruction
  state,             ///< outlives a run of the program; instructions read it and write it in place
  host,              ///< an activation offloaded to host memory
  stored,            ///< an activation offloaded to the slow tier
};

struct ValueInfo {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  ValueKind kind = ValueKind::activation;
  std::int32_t param = -1;  ///< for kinds param and grad: index into Program::params
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(shape.n_elems()) * size_of(dtype); }
};

/// Initial value of a parameter: every element is a function of (seed, parameter, index).
struct Init {
  float mean = 0;
  float std = 0;  ///< 0: every element is `mean`
};

struct ParamInfo {
  std::string name;
  Shape shape;
  bool trainable = true;
  bool decay = true;  ///< whether weight decay applies (not on norms and biases)
  Init init;
  ValueId value = kNoValue;
  ValueId grad = kNoValue;  ///< set by derive_backward for trainable parameters
};

enum class Op : std::uint8_t {
  embedding,
  embedding_backward,
  layernorm,
  layernorm_backward,
  add_layernorm,
  linear,
  linear_backward_input,
  linear_backward_weight,
  linear_backward_bias,
  gelu,
  gelu_backward,
  relu,
  relu_backward,
  scale,
  softcap,
  swiglu,
  swiglu_backward,
  rmsnorm,
  rmsnorm_backward,
  add_rmsnorm,
  qk_norm,
  qk_norm_backward,
  positions,
  rope_table,
  rope,
  attention,
  attention_backward,
  add,
  cross_entropy,
  cross_entropy_backward,
  linear_cross_entropy,
  linear_cross_entropy_backward,
  fp8_cast,
  fp8_gemm,
  accumulate,  ///< (the gradient of one micro-batch) -> the parameter's gradient, written or added to
  cached_attention,
  // Moves compute nothing. The output of a begin is in flight: only the matching end may read it.
  offload_begin,  ///< (x) -> x in flight to the host; x itself stays readable
  offload_end,  ///< (x, x in flight) -> x on the host, in the same bytes; x on the device is dead after this
  store_begin,  ///< the same from the host to the slow tier
  store_end,
  load_begin,  ///< the same from the slow tier back to the host
  load_end,
  fetch_begin,  ///< (x on the host) -> x in flight to the device, where its bytes are allocated from here on
  fetch_end,    ///< (x in flight, x on the host) -> x on the device, in the same bytes
};
inline constexpr int kOps = 44;
constexpr bool is_move(Op op) noexcept { return op >= Op::offload_begin && op <= Op::fetch_end; }

/// Constant attributes of an instruction; each op reads only those it needs.
struct Attrs {
  std::int32_t seq = 0;
  std::int32_t rows = 0;  ///< number of tokens, where no operand determines it
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t rotary_dim = 0;
  std::int32_t offset = 0;
  bool alibi = false;
  std::int32_t window = 0;  ///< of attention: number of keys that a query sees; 0: all
  float softcap = 0;        ///< of attention, of logits and of the op softcap
  float scale = 0;  ///< of attention: factor of q k^T, 0 for 1 / sqrt(d); also the factor of the op scale
  kernels::AttentionBackend backend = kernels::AttentionBackend::mma;  ///< of attention
  bool interleaved = false;
  bool inverse = false;
  bool e5m2 = false;  ///< of fp8_cast: quantize to e5m2, for gradients, which need more exponent bits
  bool rowwise = false, columnwise = false;  ///< of fp8_cast: which layouts to write
  DType out_dtype = DType::f32;              ///< of fp8_gemm: dtype of its result
  bool f32_out = false;                      ///< of linear: the result is not rounded to the dtype of x
  bool no_dx = false,
       no_dw = false;           ///< of the backward of a GEMM: that gradient is not needed, and empty
  bool gemm_workspace = false;  ///< of a GEMM: its last output is a workspace of that name
  float eps = 0;
  float weight_offset = 0;  ///< of an RMSNorm: added to its weight
  bool gelu = false;        ///< of swiglu: the gate is GELU instead of SiLU
  kernels::RopeFrequencies frequencies = {};
  std::int32_t move = 0;  ///< number of the offload that a move belongs to; all moves of one value share it
  friend bool operator==(const Attrs&, const Attrs&) = default;
};

struct Instr {
  Op op = Op::add;
  std::vector<ValueId> in;
  std::vector<ValueId> out;  ///< the workspace, if the op has one, comes last
  Attrs attrs;
  std::uint32_t accumulate = 0;  ///< bit i: output i is added to what is there instead of overwriting it
  std::int32_t region = 0;       ///< index into Program::regions; backward has its forward's region
  bool backward = false;
};

/// A named part of the model; the unit of recomputation.
struct Region {
  std::string name;
  bool recompute = false;  ///< whether backward may recompute its values instead of reading stored ones
};

/// A model's step as data: its values, and its instructions in execution order. Created by Builder and
/// changed only by passes (program in, program out).
struct Program {
  std::vector<ValueInfo> values;
  std::vector<ParamInfo> params;
  std::vector<Instr> code;
  std::vector<Region> regions{Region{}};
  std::vector<ValueId> inputs;
  std::vector<ValueId> states;  ///< undefined before the first run; programs with equal states can share them
  std::vector<ValueId> outputs;  ///< live at the end (the loss; the logits of an inference program)
  /// Number of micro-batches that one run of the program processes, see interleave_micro_batches(). Each has
  /// its own inputs and outputs, named by name_in_micro_batch().
  std::int32_t micro_batches = 1;

  ValueId add_value(ValueInfo info) {
    values.push_back(std::move(info));
    return static_cast<ValueId>(values.size() - 1);
  }
  const ValueInfo& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  /// Returns the input, state or output of that name, or kNoValue.
  ValueId find(std::string_view name) const noexcept;
};

/// Returns "tokens" for micro-batch 0, "tokens#1" for 1, ...
std::string name_in_micro_batch(std::string_view name, std::int32_t micro_batch);
/// Whether the program contains an instruction with that op.
bool has_op(const Program& program, Op op) noexcept;
/// One line per instruction: "12 linear(x, layers.0.qkv.weight) -> y:[512, 768]". For people and tests.
std::string to_string(const Program& program);
/// Checks that operands are written before they are read, that shapes follow the ops' rules, and that only
/// written values are accumulated into. Errors: `internal`, naming the instruction.
Status verify(const Program& program);

}  // namespace strata
