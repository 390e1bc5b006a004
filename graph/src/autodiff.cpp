#include <algorithm>
#include <cstddef>
#include <utility>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata {

void VjpContext::accumulate_grad(ValueId value, ValueId grad) {
  ValueId& held = grads_[static_cast<std::size_t>(value)];
  if (held == kNoValue) {
    held = grad;
    return;
  }
  ValueInfo info = program_.value(value);
  info.name = "d(" + info.name + ")";
  info.kind = ValueKind::activation;
  const ValueId sum = program_.add_value(std::move(info));
  grads_.resize(program_.values.size(), kNoValue);
  program_.code.push_back(
      {Op::add, {grads_[static_cast<std::size_t>(value)], grad}, {sum}, {}, 0, forward_.region, true});
  grads_[static_cast<std::size_t>(value)] = sum;
}

void VjpContext::propagate_grad(int i, ValueId grad) {
  if (needs_input_grad(i)) accumulate_grad(in(i), grad);
}

ValueId VjpContext::consume_input_grad(int i) {
  if (!needs_input_grad(i) || program_.value(in(i)).param >= 0) return kNoValue;
  return std::exchange(grads_[static_cast<std::size_t>(in(i))], kNoValue);
}

std::size_t VjpContext::emit(Op op, std::vector<ValueId> in, std::vector<int> grad_for, Attrs attrs) {
  Instr instr{op, std::move(in), {}, attrs, 0, forward_.region, true};
  const auto specs = infer_outputs(program_, instr);
  STRATA_ASSERT(specs.has_value() && specs->size() == grad_for.size(), "derivative of ",
                op_name(forward_.op));
  std::vector<std::pair<ValueId, ValueId>> activations;  // (forward value, its gradient)
  for (std::size_t k = 0; k < specs->size(); ++k) {
    const OutputSpec& spec = (*specs)[k];
    const ValueId target = grad_for[k] < 0 ? kNoValue : this->in(grad_for[k]);
    const std::int32_t param = target == kNoValue ? -1 : program_.value(target).param;
    if (param >= 0 && program_.params[static_cast<std::size_t>(param)].grad != kNoValue) {
      const ValueId grad = program_.params[static_cast<std::size_t>(param)].grad;
      if (grads_[static_cast<std::size_t>(target)] != kNoValue) instr.accumulate |= 1u << k;
      grads_[static_cast<std::size_t>(target)] = grad;
      instr.out.push_back(grad);
      continue;
    }
    const ValueId out = add_output(program_, op_name(op), spec);
    instr.out.push_back(out);
    if (target != kNoValue && needs_input_grad(grad_for[k])) activations.emplace_back(target, out);
  }
  grads_.resize(program_.values.size(), kNoValue);
  const std::size_t index = program_.code.size();
  program_.code.push_back(std::move(instr));
  for (const auto& [value, grad] : activations) accumulate_grad(value, grad);
  return index;
}

void VjpContext::replace_forward(std::size_t by, std::size_t first, std::size_t n) {
  std::vector<ValueId>& out = program_.code[by].out;
  for (std::size_t k = 0; k < n; ++k) out[first + k] = forward_.out[k];
  is_forward_replaced_ = true;
}

namespace {

/// A gradient is rounded once to its dtype (contract C2). One with several contributions is summed in f32,
/// and so is one that the derivative of an op sums in f32.
DType grad_dtype(const Program& program, const ParamInfo& param) {
  std::int64_t uses = 0;
  for (const Instr& instr : program.code)
    if (op_def(instr.op).vjp != nullptr)  // what it makes is a constant in backward otherwise
      uses += std::count(instr.in.begin(), instr.in.end(), param.value);
  const bool is_sum = std::any_of(program.code.begin(), program.code.end(), [&](const Instr& instr) {
    const int operand = op_def(instr.op).f32_grad_in;
    return operand >= 0 && instr.in[static_cast<std::size_t>(operand)] == param.value;
  });
  return uses > 1 || is_sum ? DType::f32 : program.value(param.value).dtype;
}

/// Gives every trainable parameter a value for its gradient. Returns false if there is none.
bool add_param_grads(Program& program) {
  bool any = false;
  for (ParamInfo& param : program.params) {
    if (!param.trainable) continue;
    any = true;
    param.grad =
        program.add_value({"d(" + param.name + ")", param.shape, grad_dtype(program, param), ValueKind::grad,
                           static_cast<std::int32_t>(&param - program.params.data())});
  }
  return any;
}

/// For every value, whether it needs a gradient: it depends on a trainable parameter.
std::vector<bool> values_that_need_grads(const Program& program) {
  std::vector<bool> needs(program.values.size(), false);
  for (const ParamInfo& param : program.params)
    if (param.trainable) needs[static_cast<std::size_t>(param.value)] = true;
  for (const Instr& instr : program.code)
    if (std::any_of(instr.in.begin(), instr.in.end(),
                    [&](ValueId id) { return id != kNoValue && needs[static_cast<std::size_t>(id)]; }))
      for (const ValueId id : instr.out) needs[static_cast<std::size_t>(id)] = true;
  return needs;
}

}  // namespace

Result<Program> derive_backward(Program program, std::string_view loss) {
  const ValueId seed = program.find(loss);
  if (seed == kNoValue) return Status::error(Code::invalid, str("the program has no output named ", loss));
  if (!add_param_grads(program))
    return Status::error(Code::invalid, "the program has no trainable parameter");
  const std::vector<bool> needs = values_that_need_grads(program);
  std::vector<ValueId> grads(program.values.size(), kNoValue);
  const std::size_t forward_size = program.code.size();
  for (std::size_t i = forward_size; i-- > 0;) {
    const Instr forward = program.code[i];
    const bool is_seed = std::find(forward.out.begin(), forward.out.end(), seed) != forward.out.end();
    const bool reached = is_seed || std::any_of(forward.out.begin(), forward.out.end(), [&](ValueId id) {
                           return grads[static_cast<std::size_t>(id)] != kNoValue;
                         });
    const bool wanted = std::any_of(forward.in.begin(), forward.in.end(), [&](ValueId id) {
      return id != kNoValue && needs[static_cast<std::size_t>(id)];
    });
    if (!reached || !wanted) continue;
    if (op_def(forward.op).vjp == nullptr)
      return Status::error(Code::invalid, str("op ", op_name(forward.op), " has no derivative"));
    VjpContext context(program, forward, grads, needs);
    op_def(forward.op).vjp(context);
    if (context.is_forward_replaced())
      program.code.erase(program.code.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (const ParamInfo& param : program.params)
    if (param.trainable && grads[static_cast<std::size_t>(param.value)] != param.grad)
      return Status::error(
          Code::invalid,
          str("parameter ", param.name, " is trainable and no instruction writes its gradient: ", loss,
              " does not depend on it, or reads it through an op that accepts only activations"));
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
