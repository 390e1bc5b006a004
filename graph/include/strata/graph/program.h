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

/// Names a value of a Program; an index into Program::values. kNoValue stands for "not given" or "not
/// wanted".
using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

enum class ValueKind : std::uint8_t {
  param,             ///< lives in a chunk; read by instructions
  grad,              ///< a parameter's gradient; lives in a chunk; written by backward
  micro_batch_grad,  ///< that of one micro-batch of several in a program, on its way into the gradient
  input,             ///< filled before the program runs (tokens, targets)
  activation,        ///< produced and consumed by instructions
  workspace,         ///< scratch of one instruction
  state,             ///< outlives a run of the program: instructions read it and write into it in place
  host,              ///< an activation away from the device, in host memory
  stored,            ///< the same, on the slow tier
};

struct ValueInfo {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  ValueKind kind = ValueKind::activation;
  std::int32_t param = -1;  ///< for kinds param and grad: index into Program::params
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(shape.n_elems()) * size_of(dtype); }
};

/// How a parameter begins its life: every element is a function of (seed, parameter, index).
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
  accumulate,  ///< (a part of a gradient) -> the gradient, or added to it
  cached_attention,
  // Moves compute nothing. What a begin makes is in flight: its end alone may read it.
  offload_begin,  ///< (x) -> x on its way to the host; x stays readable
  offload_end,    ///< (x, x on its way) -> x on the host, in the same bytes; x is dead from here on
  store_begin,    ///< likewise from the host to the slow tier
  store_end,
  load_begin,  ///< likewise back to the host
  load_end,
  fetch_begin,  ///< (x on the host) -> x on its way back, whose bytes on the device are taken from here on
  fetch_end,    ///< (x on its way back, x on the host) -> x, in the same bytes
};
inline constexpr int kOps = 44;
constexpr bool is_move(Op op) noexcept { return op >= Op::offload_begin && op <= Op::fetch_end; }

/// Fixed numbers of an instruction; an op reads only those it names.
struct Attrs {
  std::int32_t seq = 0;
  std::int32_t rows = 0;  ///< tokens, where no operand tells
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t rotary_dim = 0;
  std::int32_t offset = 0;
  bool alibi = false;
  std::int32_t window = 0;  ///< of attention: keys that a query sees, 0 for all
  float softcap = 0;        ///< of attention, of logits and of softcap
  float scale = 0;          ///< of attention: of q k^T, 0 for 1 / sqrt(d); of scale
  kernels::AttentionBackend backend = kernels::AttentionBackend::mma;  ///< of attention
  bool interleaved = false;
  bool inverse = false;
  bool e5m2 = false;                         ///< of fp8_cast: the codes of a gradient, with more exponents
  bool rowwise = false, columnwise = false;  ///< of fp8_cast: which codes it makes
  DType out_dtype = DType::f32;              ///< of fp8_gemm: what its result is kept in
  bool f32_out = false;                      ///< of a linear: its result is not rounded to the dtype of x
  bool no_dx = false,
       no_dw = false;           ///< of the backward of a product: that gradient is not wanted, and empty
  bool gemm_workspace = false;  ///< of a product: it has scratch of that name as its last output
  float eps = 0;
  float weight_offset = 0;  ///< of an RMSNorm: what is added to its weight
  bool gelu = false;        ///< of swiglu: the gate is GELU's
  kernels::RopeFrequencies frequencies = {};
  std::int32_t move = 0;  ///< which offload of the program the four moves of a value are
  friend bool operator==(const Attrs&, const Attrs&) = default;
};

struct Instr {
  Op op = Op::add;
  std::vector<ValueId> in;
  std::vector<ValueId> out;  ///< scratch, where the op has any, comes last
  Attrs attrs;
  std::uint32_t accumulate = 0;  ///< bit i: output i is added to what is there instead of written
  std::int32_t region = 0;       ///< index into Program::regions; backward carries its forward's region
  bool backward = false;
};

/// A part of the model with a name; the unit of recomputation.
struct Region {
  std::string name;
  bool recompute =
      false;  ///< whether recompute_regions() may run its forward again instead of keeping its values
};

/// A model's step as data: values, and the instructions in the order in which they run. Made by Builder,
/// changed only by passes (program in, program out).
struct Program {
  std::vector<ValueInfo> values;
  std::vector<ParamInfo> params;
  std::vector<Instr> code;
  std::vector<Region> regions{Region{}};
  std::vector<ValueId> inputs;
  std::vector<ValueId> states;  ///< undefined before the first run; programs with equal states can share them
  std::vector<ValueId> outputs;  ///< live at the end (the loss; logits of a program that only infers)
  /// Whose passes are one run of it: interleave_micro_batches(). Each has its own inputs and outputs, all but
  /// the first by name_in_micro_batch().
  std::int32_t micro_batches = 1;

  ValueId add_value(ValueInfo info) {
    values.push_back(std::move(info));
    return static_cast<ValueId>(values.size() - 1);
  }
  const ValueInfo& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  /// The input, state or output of that name, or kNoValue.
  ValueId find(std::string_view name) const noexcept;
};

/// "tokens", "tokens#1", ...
std::string name_in_micro_batch(std::string_view name, std::int32_t micro_batch);
/// Whether it has that instruction.
bool has_op(const Program& program, Op op) noexcept;
/// One line an instruction: "12 linear(x, layers.0.qkv.weight) -> y:[512, 768]". For people and tests.
std::string to_string(const Program& program);
/// Every input defined before use, shapes as the op's rule says, accumulation only over what was written.
/// Errors: `internal`, naming the instruction.
Status verify(const Program& program);

}  // namespace strata
