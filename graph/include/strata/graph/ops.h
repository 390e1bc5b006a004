#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <strata/graph/program.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/cached_attention.h>

namespace strata {

/// What an op says of its outputs, given its inputs.
struct OutputSpec {
  const char* name;
  Shape shape;
  DType dtype = DType::f32;
  bool workspace = false;
};

class VjpContext;

/// One op: everything about it but its kernels (launch.h). The table is the whole op set.
struct OpDef {
  const char* name;
  /// Output shapes, or `invalid` with the shapes that do not go together. `in[i]` is null where not given.
  Result<std::vector<OutputSpec>> (*infer_outputs)(std::span<const ValueInfo* const> in, const Attrs& attrs);
  /// Emits the instructions of the derivative; null where the op is itself a derivative.
  void (*vjp)(VjpContext& context);
  /// (output, input) that may share memory when the input dies here; {-1, -1}: none.
  struct InPlace {
    int out = -1, in = -1;
  } in_place;
  /// Floating-point operations, for pacing and prefetch distance.
  double (*flops)(std::span<const ValueInfo* const> in, std::span<const ValueInfo* const> out,
                  const Attrs& attrs);
  int n_in;              ///< operands, each of which must be given ...
  int optional_in = -1;  ///< ... but for this one
};
const OpDef& op_def(Op op) noexcept;
/// Floating-point operations of an instruction, as its op counts them.
double flops(const Program& program, const Instr& instr);

/// The heads that an attention instruction's attributes describe.
kernels::AttentionHeads attention_heads(const Attrs& attrs) noexcept;
kernels::CachedAttentionShape cached_attention_shape(const Attrs& attrs) noexcept;

/// What a derivative rule may do. Forward values are named by position; gradients of outputs are given,
/// gradients of inputs are handed back.
class VjpContext {
 public:
  VjpContext(Program& program, const Instr& forward, std::vector<ValueId>& grads,
             const std::vector<bool>& needs_grad)
      : program_(program), forward_(forward), grads_(grads), needs_grad_(needs_grad) {}

  ValueId in(int i) const { return forward_.in[static_cast<std::size_t>(i)]; }
  ValueId out(int i) const { return forward_.out[static_cast<std::size_t>(i)]; }
  const Attrs& attrs() const { return forward_.attrs; }
  ValueId grad_output(int i) const { return grads_[static_cast<std::size_t>(out(i))]; }
  bool needs_input_grad(int i) const {
    return in(i) != kNoValue && needs_grad_[static_cast<std::size_t>(in(i))];
  }

  /// Emits `op`. `grad_for[i]` >= 0 says that output i is the gradient of that forward input: a parameter's
  /// goes to its gradient (accumulating from the second contribution on), an activation's is summed with what
  /// it has.
  void emit(Op op, std::vector<ValueId> in, std::vector<int> grad_for, Attrs attrs = {});
  /// The gradient of input `i` is the value itself (as for both sides of an addition).
  void propagate_grad(int i, ValueId grad);
  /// The gradient that activation `i` has so far, for an op that adds its own to it: then the op's is all it
  /// has.
  ValueId consume_input_grad(int i);

 private:
  void accumulate_grad(ValueId value, ValueId grad);
  Program& program_;
  const Instr forward_;
  std::vector<ValueId>& grads_;
  const std::vector<bool>& needs_grad_;
};

}  // namespace strata
