#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/graph/attrs.h>
#include <strata/graph/lora_attrs.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/kernels/subspace_method.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>
#include <strata/runtime/tensor_part.h>
#include <strata/runtime/tensor_view.h>

namespace strata {

/// Identifies a value of a Program: an index into Program::values. kNoValue means "absent" (an operand that
/// is not given, a result that is not needed).
using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

enum class ValueKind : std::uint8_t {
  param,             ///< lives in a chunk; read by instructions
  grad,              ///< a parameter's gradient; lives in a chunk; written by backward
  micro_batch_grad,  ///< the part of a gradient from one of a program's micro-batches, before it is added;
                     ///< or a gradient of what is no longer trained, or a rank's part of one, which are added
                     ///< to as one
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
  std::int64_t first = 0;   ///< for these kinds: the parameter's element with which it begins
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(shape.n_elems()) * size_of(dtype); }
};

/// The norms of rows of a matrix, which is a parameter.
struct RowNorms {
  std::string of = {};       ///< the parameter; empty: none
  LoraAttrs parts = {};      ///< which rows, one part after the other
  DType dtype = DType::f32;  ///< to which its values are rounded first
};

/// A factor of the best approximation of low rank to rows of a matrix, which is a parameter: with the largest
/// singular values S of a part and its singular vectors U and V, s B A = U S V^T, where A = (S/s)^(1/2) V^T
/// and B = U (S/s)^(1/2).
struct PrincipalFactor {
  enum class Side : std::uint8_t { a, b };
  std::string of = {};       ///< the parameter; empty: none
  LoraAttrs parts = {};      ///< which rows, and how many singular values of them
  float scale = 1;           ///< s
  Side side = Side::a;       ///< A of each part [rank, inner], below each other, or B [rows, rank]
  DType dtype = DType::f32;  ///< to which the factor is rounded
  kernels::SvdMethod method = kernels::SvdMethod::exact;
};

/// Rows of a matrix, which is a parameter.
struct PickedRows {
  std::string of = {};  ///< the parameter; empty: none
  std::vector<std::int64_t> rows = {};
  std::int64_t columns = 0;  ///< columns of the matrix
};

/// Initial value of a parameter: every element is a function of (seed, parameter, index), or what `norms`,
/// `principal`, `picked` or `copy_of` says of the initial value of another one.
struct Init {
  float mean = 0;
  float std = 0;            ///< 0: every element is `mean`
  bool is_uniform = false;  ///< uniform in mean +- sqrt(3) std, which has that deviation; else normal
  RowNorms norms = {};
  PrincipalFactor principal = {};
  PickedRows picked = {};
  std::string copy_of = {};  ///< the name of a parameter of the same shape; empty: it is no copy
  /// Column j is 1 in row one_hot[j] and 0 elsewhere; empty: it is not.
  std::vector<std::int64_t> one_hot = {};
  /// Whether it is this value wherever the run's parameters come from, since no folder has it.
  bool is_constant = false;
};

struct ParamInfo {
  std::string name;
  Shape shape;
  bool trainable = true;
  bool decay = true;  ///< whether weight decay applies (not on norms and biases)
  /// If not trainable: whether the run has computed it, so that checkpoints that leave frozen parameters out
  /// hold it.
  bool derived = false;
  Init init;
  ValueId value = kNoValue;
  ValueId grad = kNoValue;  ///< set by derive_backward for trainable parameters
  /// Elements of a block, if instructions read and write values that are blocks of it (split_experts) instead
  /// of `value` and `grad`; 0: they do not.
  std::int64_t block_elems = 0;
  /// If its format is not `full`, the shape is [quantized.bytes()] of u8, and `init` that of the matrix.
  kernels::QuantizedMatrix quantized = {};
  /// Which elements of the model's parameter it consists of, if ranks share the model (partition).
  TensorPart part = {};
};

struct Instr {
  Op op = {};
  std::vector<ValueId> in;
  std::vector<ValueId> out;      ///< the workspace, if the op has one, comes last
  Attrs attrs;                   ///< have the type that the list of ops states for `op`
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
  /// Values that are read as soon as their instruction has run, and live no longer. They belong to all
  /// micro-batches together, and have names of their own.
  std::vector<ValueId> results;
  /// Number of micro-batches that one run of the program processes, see interleave_micro_batches(). Each has
  /// its own inputs and outputs, named by name_in_micro_batch().
  std::int32_t micro_batches = 1;

  ValueId add_value(ValueInfo info) {
    values.push_back(std::move(info));
    return static_cast<ValueId>(values.size() - 1);
  }
  const ValueInfo& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  /// Returns the input, state, output or result of that name, or kNoValue.
  ValueId find(std::string_view name) const noexcept;
};

/// Returns "tokens" for micro-batch 0, "tokens#1" for 1, ...
std::string name_in_micro_batch(std::string_view name, std::int32_t micro_batch);
/// Whether the program contains an instruction with that op.
bool has_op(const Program& program, Op op) noexcept;
/// One line per instruction: "12 linear(x, layers.0.qkv.weight) -> y:[512, 768]". For people and tests.
std::string to_string(const Program& program);
/// Checks that operands are written before they are read, that attributes and shapes follow the ops' rules,
/// and that only written values are accumulated into. Errors: `internal`, naming the instruction.
Status verify(const Program& program);

}  // namespace strata
