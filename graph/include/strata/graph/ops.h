#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <strata/graph/program.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/cached_attention.h>

namespace strata {

/// One output of an op, as inferred from its inputs.
struct OutputSpec {
  const char* name;
  Shape shape;
  DType dtype = DType::f32;
  bool workspace = false;
};

class VjpContext;

/// Everything about an op except its kernels (launch.h). The table of these is the whole op set.
struct OpDef {
  const char* name;
  /// Returns the outputs' shapes and dtypes, or `invalid` with the shapes that do not match. `in[i]` is null
  /// if operand i is absent.
  Result<std::vector<OutputSpec>> (*infer_outputs)(std::span<const ValueInfo* const> in, const Attrs& attrs);
  /// Emits the instructions of the derivative; null if the op has none.
  void (*vjp)(VjpContext& context);
  /// The output and the input that may share memory if the input is dead after this instruction; {-1, -1} if
  /// none may.
  struct InPlace {
    int out = -1, in = -1;
  } in_place;
  /// Floating-point operations, for pacing and prefetch distance.
  double (*flops)(std::span<const ValueInfo* const> in, std::span<const ValueInfo* const> out,
                  const Attrs& attrs);
  int n_in;              ///< number of operands, all of which are required ...
  int optional_in = -1;  ///< ... except this one; -1: no exception
};
const OpDef& op_def(Op op) noexcept;
/// Floating-point operations of an instruction, as counted by its op's `flops`.
double flops(const Program& program, const Instr& instr);

/// The attention heads described by an attention instruction's attributes.
kernels::AttentionHeads attention_heads(const Attrs& attrs) noexcept;
kernels::CachedAttentionShape cached_attention_shape(const Attrs& attrs) noexcept;

/// What a derivative rule works with. It reads forward values by their position and the gradients of the
/// outputs, and hands back the gradients of the inputs.
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

  /// Emits `op`. If `grad_for[i]` >= 0, output i is the gradient of that forward input. For a parameter it is
  /// written to the parameter's gradient (accumulated from the second contribution on); for an activation it
  /// is summed with the gradient that the activation already has.
  void emit(Op op, std::vector<ValueId> in, std::vector<int> grad_for, Attrs attrs = {});
  /// Makes `grad` itself the gradient of input `i` (as for both inputs of an addition).
  void propagate_grad(int i, ValueId grad);
  /// Removes and returns the gradient that activation `i` has so far, or kNoValue. It is for an op that
  /// adds that gradient to its own, so that the op's output is then the activation's whole gradient.
  ValueId consume_input_grad(int i);

 private:
  void accumulate_grad(ValueId value, ValueId grad);
  Program& program_;
  const Instr forward_;
  std::vector<ValueId>& grads_;
  const std::vector<bool>& needs_grad_;
};

}  // namespace strata
