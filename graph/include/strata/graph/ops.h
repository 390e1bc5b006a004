#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <strata/graph/program.h>
#include <strata/graph/shard_placement.h>
#include <strata/kernels/values/attention_backend.h>

namespace strata {

class Backend;
class Stream;
class VjpContext;
struct OpCall;

/// One output of an op, as inferred from its inputs.
struct OutputSpec {
  const char* name;
  Shape shape;
  DType dtype = DType::f32;
  bool workspace = false;
};

/// The operands or the outputs of an instruction in order; null for an absent operand.
using ValueInfos = std::span<const ValueInfo* const>;

/// The kind of work of an op, which determines the rate at which it runs.
enum class OpKind : std::uint8_t {
  memory_bound,
  gemm,         ///< its attributes contain GemmAttrs
  expert_gemm,  ///< GEMMs of experts; its weights, or their gradients, are [E, N, K]
  attention,
  attention_backward,
  recurrent,  ///< small products in f32, chunk by chunk
  move,       ///< computes nothing and has no kernel: the executor copies the value to another kind of memory
  collective,  ///< exchanged among ranks by the executor; its attributes are CollectiveAttrs
  message,     ///< sent from one rank to another one by the executor; its attributes are MessageAttrs
};

/// How use_fp8() reads an operand of a GEMM in 8 bits.
struct Fp8Operand {
  bool transposed = false;  ///< read in its columnwise layout
  bool gradient = false;    ///< needs more exponent bits
  bool weight = false;      ///< a parameter
};
/// How use_fp8() runs a GEMM, with LinearAttrs, on quantized operands: as a b^T + bias, where a is operand 0
/// and b is operand 1.
struct Fp8Gemm {
  Fp8Operand a = {}, b = {};
  int bias = -1;  ///< operand; -1: none
};

/// The output and the input that may share memory if the input is dead after the instruction; -1: none may.
struct InPlace {
  int out = -1, in = -1;
};

/// Which operands of an op may be absent: none, one or two.
class OptionalOperands {
 public:
  constexpr OptionalOperands() = default;
  constexpr OptionalOperands(int operand) : first_(operand) {}  // NOLINT(google-explicit-constructor)
  constexpr OptionalOperands(int first, int second) : first_(first), second_(second) {}
  constexpr bool contains(std::size_t operand) const noexcept {
    const auto k = static_cast<int>(operand);
    return k == first_ || k == second_;
  }
  constexpr int last() const noexcept { return std::max(first_, second_); }

 private:
  int first_ = -1, second_ = -1;
};

/// What an op moves that works on blocks of rows, each with GEMMs of its own.
struct BlockedWork {
  std::int64_t rows = 0;  ///< in a block: one side of its GEMMs
  double gemm_bytes = 0;  ///< that the GEMMs of all blocks read and write of what is larger than a block
  double row_bytes = 0;   ///< that exist within a block, written and read
};

/// Everything that the rest of strata asks about an op. There is one for each op in the list, defined in
/// src/ops; fields without a default have to be given.
struct OpDef {
  OpKind kind = OpKind::memory_bound;
  int n_in;                           ///< number of operands, all of which are required ...
  OptionalOperands optional_in = {};  ///< ... except these
  /// Operand that is read only for its shape, as derivatives read a parameter; -1: none.
  int shape_only_in = -1;
  /// Returns the outputs' shapes and dtypes, or `invalid` with the shapes that do not match.
  Result<std::vector<OutputSpec>> (&infer_outputs)(ValueInfos in, const Attrs& attrs);
  /// Emits the instructions of the derivative; null if the op has none.
  void (*vjp)(VjpContext& context) = nullptr;
  /// Whether the derivative differentiates only output 0. It is an error if the loss depends on another one.
  bool only_first_out = false;
  /// Operand whose gradient the derivative sums in f32, whatever its dtype is; -1: none.
  int f32_grad_in = -1;
  InPlace in_place = {};
  /// Floating-point operations, for pacing and prefetch distance.
  double (&flops)(ValueInfos in, ValueInfos out, const Attrs& attrs);
  /// Null: the op reads and writes each operand once.
  BlockedWork (*blocks)(ValueInfos in, const Attrs& attrs) = nullptr;
  /// Queues the kernel: see launch() in launch.h.
  Status (&launch)(const OpCall& call, Backend& backend, Stream& stream);

  /// Whether its kernel can add to a gradient (Instr::accumulate). What others make is added by an
  /// instruction of its own.
  bool adds_to_gradients = true;
  /// Whether its result is its operand, and only its derivative computes something.
  bool is_identity = false;
  /// The ways in which the op runs on shards (partition), cheapest in memory last; null: on whole values
  /// only.
  std::vector<ShardStrategy> (*shard)(const ShardQuery& query) = nullptr;
  /// How the columns of operand 0 have to be cut, where those of the result are to be cut like `out`; null:
  /// in any way.
  Cut (*operand_columns)(const ValueInfo& operand, const Attrs& attrs, const Cut& out) = nullptr;

  // Graph passes read the following fields.

  /// The op that fuses a preceding addition into this one (fuse_add_norm): its operands 0 and 1 are the
  /// summands, and the sum is one more output.
  std::optional<Op> fused_with_add = std::nullopt;
  /// How the op runs on 8-bit operands (use_fp8); null: it does not.
  const Fp8Gemm* fp8 = nullptr;
  /// The weight of an output byte when recompute_regions() compares memory with work. An fp8 value takes the
  /// place of a 16-bit one, so it counts twice.
  int saved_bytes_per_byte = 1;
  /// Returns the backend that runs the op on a GPU if `requested` is asked for (select_attention_backend);
  /// null: there is only one. The workspace is the last output.
  kernels::AttentionBackend (*effective_backend)(ValueInfos in, const Attrs& attrs,
                                                 kernels::AttentionBackend requested) = nullptr;
};
const OpDef& op_def(Op op) noexcept;
inline bool is_move(Op op) noexcept { return op_def(op).kind == OpKind::move; }
inline bool is_collective(Op op) noexcept { return op_def(op).kind == OpKind::collective; }
inline bool is_message(Op op) noexcept { return op_def(op).kind == OpKind::message; }

/// The infos of `ids`, null where an id is kNoValue. They are valid until a value is added to the program.
std::vector<const ValueInfo*> value_infos(const Program& program, std::span<const ValueId> ids);
/// The outputs that the op's rule infers for the instruction, whose own outputs are not read.
Result<std::vector<OutputSpec>> infer_outputs(const Program& program, const Instr& instr);
/// Adds an output of an instruction to the program, named "<prefix>.<name of the output>".
ValueId add_output(Program& program, std::string_view prefix, const OutputSpec& spec);
/// Floating-point operations of an instruction, as counted by its op's `flops`.
double flops(const Program& program, const Instr& instr);

/// A derivative rule works with this interface. The rule reads forward values by their position and the
/// gradients of the outputs, and hands back the gradients of the inputs.
class VjpContext {
 public:
  /// Both vectors are indexed by value: `grads` has the gradient that the value has so far; `sums` has the
  /// value that its gradient is summed in, or kNoValue.
  VjpContext(Program& program, const Instr& forward, std::vector<ValueId>& grads,
             const std::vector<ValueId>& sums, const std::vector<bool>& needs_grad)
      : program_(program), forward_(forward), grads_(grads), sums_(sums), needs_grad_(needs_grad) {}

  ValueId in(int i) const { return forward_.in[static_cast<std::size_t>(i)]; }
  ValueId out(int i) const { return forward_.out[static_cast<std::size_t>(i)]; }
  const Attrs& attrs() const { return forward_.attrs; }
  ValueId grad_output(int i) const { return grads_[static_cast<std::size_t>(out(i))]; }
  bool needs_input_grad(int i) const {
    return in(i) != kNoValue && needs_grad_[static_cast<std::size_t>(in(i))];
  }

  /// Emits `op`. If `grad_for[i]` >= 0, output i is the gradient of that forward input. For a parameter it is
  /// written to the parameter's gradient (accumulated from the second contribution on); for an activation it
  /// is summed with the gradient that the activation already has. Returns the index of the instruction.
  std::size_t emit(Op op, std::vector<ValueId> in, std::vector<int> grad_for, Attrs attrs = {});
  /// Output `i` of an emitted instruction.
  ValueId emitted(std::size_t instr, std::size_t i) const { return program_.code[instr].out[i]; }
  /// The first operand of the last instruction that has written `value`.
  ValueId made_from(ValueId value) const;
  /// Makes `grad` itself the gradient of input `i` (as for both inputs of an addition).
  void propagate_grad(int i, ValueId grad);
  /// Removes and returns the gradient that activation `i` has so far, or kNoValue. It is for an op that
  /// adds that gradient to its own, so that the op's output is then the activation's whole gradient.
  ValueId consume_input_grad(int i);
  /// Lets the emitted instruction `by` write the forward's first `n` outputs, which it computes as its
  /// outputs from `first` on. The forward instruction is then removed.
  void replace_forward(std::size_t by, std::size_t first, std::size_t n);
  bool is_forward_replaced() const { return is_forward_replaced_; }

 private:
  void accumulate_grad(ValueId value, ValueId grad);
  void move_readers_behind(std::size_t by, std::vector<ValueId> written);
  Program& program_;
  const Instr forward_;
  /// The value that the gradient of a parameter, or of what stands for one, is summed in.
  ValueId sum_of(ValueId value) const {
    return static_cast<std::size_t>(value) < sums_.size() ? sums_[static_cast<std::size_t>(value)] : kNoValue;
  }
  std::vector<ValueId>& grads_;
  const std::vector<ValueId>& sums_;
  const std::vector<bool>& needs_grad_;
  bool is_forward_replaced_ = false;
};

}  // namespace strata
