#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include <strata/graph/op_list.h>
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
  info.dtype =
      program_.value(grad).dtype;  // which may be another one: that of an f32 result of 16-bit operands
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
  if (!needs_input_grad(i) || sum_of(in(i)) != kNoValue) return kNoValue;
  return std::exchange(grads_[static_cast<std::size_t>(in(i))], kNoValue);
}

std::size_t VjpContext::emit(Op op, std::vector<ValueId> in, std::vector<int> grad_for, Attrs attrs) {
  Instr instr{op, std::move(in), {}, attrs, 0, forward_.region, true};
  const auto specs = infer_outputs(program_, instr);
  STRATA_ASSERT(specs.has_value() && specs->size() == grad_for.size(), "derivative of ",
                op_name(forward_.op));
  std::vector<std::pair<ValueId, ValueId>> activations;  // (forward value, its gradient)
  std::vector<std::pair<ValueId, ValueId>> addends;      // (what is added, to which sum)
  for (std::size_t k = 0; k < specs->size(); ++k) {
    const OutputSpec& spec = (*specs)[k];
    const ValueId target = grad_for[k] < 0 ? kNoValue : this->in(grad_for[k]);
    if (const ValueId sum = target == kNoValue ? kNoValue : sum_of(target); sum != kNoValue) {
      const bool adds = std::exchange(grads_[static_cast<std::size_t>(target)], sum) != kNoValue;
      if (adds && !op_def(op).adds_to_gradients) {
        instr.out.push_back(add_output(program_, op_name(op), spec));
        program_.values.back().kind = ValueKind::micro_batch_grad;
        addends.emplace_back(instr.out.back(), sum);
        continue;
      }
      if (adds) instr.accumulate |= 1u << k;
      instr.out.push_back(sum);
      continue;
    }
    const ValueId out = add_output(program_, op_name(op), spec);
    instr.out.push_back(out);
    if (target != kNoValue && needs_input_grad(grad_for[k])) activations.emplace_back(target, out);
  }
  grads_.resize(program_.values.size(), kNoValue);
  const std::size_t index = program_.code.size();
  program_.code.push_back(std::move(instr));
  for (const auto& [addend, sum] : addends)
    program_.code.push_back({Op::accumulate, {addend}, {sum}, {}, 1, forward_.region, true});
  for (const auto& [value, grad] : activations) accumulate_grad(value, grad);
  return index;
}

ValueId VjpContext::made_from(ValueId value) const {
  const auto found = std::find_if(program_.code.rbegin(), program_.code.rend(), [value](const Instr& instr) {
    return std::find(instr.out.begin(), instr.out.end(), value) != instr.out.end();
  });
  STRATA_ASSERT(found != program_.code.rend(), "no instruction writes ", program_.value(value).name);
  return found->in.front();
}

// Moves the instructions with which ranks process a loss behind the instruction that now writes it, which is
// the last one.
void VjpContext::move_readers_behind(std::size_t by, std::vector<ValueId> written) {
  std::vector<Instr> moved;
  for (std::size_t i = 0; i < by;) {
    Instr& instr = program_.code[i];
    const bool reads = std::any_of(instr.in.begin(), instr.in.end(), [&](ValueId id) {
      return std::find(written.begin(), written.end(), id) != written.end();
    });
    if (!reads) {
      ++i;
      continue;
    }
    written.insert(written.end(), instr.out.begin(), instr.out.end());
    moved.push_back(std::move(instr));
    program_.code.erase(program_.code.begin() + static_cast<std::ptrdiff_t>(i));
    --by;
  }
  std::move(moved.begin(), moved.end(), std::back_inserter(program_.code));
}

void VjpContext::replace_forward(std::size_t by, std::size_t first, std::size_t n) {
  std::vector<ValueId>& out = program_.code[by].out;
  for (std::size_t k = 0; k < n; ++k) out[first + k] = forward_.out[k];
  move_readers_behind(by, {forward_.out.begin(), forward_.out.begin() + static_cast<std::ptrdiff_t>(n)});
  is_forward_replaced_ = true;
}

namespace {

/// The values that are a parameter: itself, and what ops make of it that change nothing.
std::vector<ValueId> same_values(const Program& program, ValueId param) {
  std::vector<ValueId> same{param};
  for (const Instr& instr : program.code)
    if (op_def(instr.op).is_identity && std::find(same.begin(), same.end(), instr.in[0]) != same.end())
      same.push_back(instr.out[0]);
  return same;
}

/// A gradient is rounded once to its dtype (contract C2). One with several contributions, of instructions or
/// of ranks, is summed in f32, and so is one that the derivative of an op sums in f32.
DType grad_dtype(const Program& program, const ParamInfo& param) {
  std::int64_t uses = 0;
  for (const Instr& instr : program.code)
    if (op_def(instr.op).vjp != nullptr)  // any other result is a constant in backward
      uses += std::count(instr.in.begin(), instr.in.end(), param.value);
  const bool is_sum = std::any_of(program.code.begin(), program.code.end(), [&](const Instr& instr) {
    const int operand = op_def(instr.op).is_identity ? 0 : op_def(instr.op).f32_grad_in;
    return operand >= 0 && instr.in[static_cast<std::size_t>(operand)] == param.value;
  });
  return uses > 1 || is_sum ? DType::f32 : program.value(param.value).dtype;
}

/// Gives every trainable parameter a value for its gradient, and returns for every value the one in which its
/// gradient is summed: that of the parameter, or for what is the same as the parameter one of its own.
std::vector<ValueId> add_param_grads(Program& program) {
  std::vector<ValueId> sums(program.values.size(), kNoValue);
  for (ParamInfo& param : program.params) {
    if (!param.trainable) continue;
    param.grad =
        program.add_value({"d(" + param.name + ")", param.shape, grad_dtype(program, param), ValueKind::grad,
                           static_cast<std::int32_t>(&param - program.params.data())});
    for (const ValueId same : same_values(program, param.value))
      sums[static_cast<std::size_t>(same)] =
          same == param.value ? param.grad
                              : program.add_value({"d(" + param.name + ")", param.shape, DType::f32,
                                                   ValueKind::micro_batch_grad});
  }
  return sums;
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

bool contains(const std::vector<ValueId>& ids, ValueId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Refuses a loss that depends on an output that the derivative of its op does not differentiate.
Status check_reached_outputs(const Program& program, const Instr& forward, const std::vector<ValueId>& grads,
                             const std::vector<ValueId>& seeds) {
  if (!op_def(forward.op).only_first_out) return {};
  for (std::size_t k = 1; k < forward.out.size(); ++k)
    if (const ValueId id = forward.out[k];
        contains(seeds, id) || grads[static_cast<std::size_t>(id)] != kNoValue)
      return Status::error(Code::invalid, str("op ", op_name(forward.op), " has no derivative of its output ",
                                              program.value(id).name));
  return {};
}

/// The values of which `loss` is the sum, by additions and over ranks: their gradients are 1, too.
std::vector<ValueId> summands_of(const Program& program, ValueId loss) {
  std::vector<ValueId> seeds = {loss};
  for (std::size_t i = program.code.size(); i-- > 0;) {
    const Instr& instr = program.code[i];
    if ((instr.op != Op::all_reduce && instr.op != Op::add) || !contains(seeds, instr.out[0])) continue;
    seeds.erase(std::find(seeds.begin(), seeds.end(), instr.out[0]));
    seeds.insert(seeds.end(), instr.in.begin(), instr.in.end());
  }
  return seeds;
}
/// Whether one value is a summand twice.
bool has_twice(std::vector<ValueId> ids) {
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
}

}  // namespace

Result<Program> derive_backward(Program program, std::string_view loss) {
  if (program.find(loss) == kNoValue)
    return Status::error(Code::invalid, str("the program has no output named ", loss));
  const std::vector<ValueId> seeds = summands_of(program, program.find(loss));
  if (has_twice(seeds)) return Status::error(Code::invalid, str(loss, " adds a value to itself"));
  const std::vector<ValueId> sums = add_param_grads(program);
  if (std::none_of(program.params.begin(), program.params.end(),
                   [](const ParamInfo& param) { return param.trainable; }))
    return Status::error(Code::invalid, "the program has no trainable parameter");
  const std::vector<bool> needs = values_that_need_grads(program);
  std::vector<ValueId> grads(program.values.size(), kNoValue);
  const std::size_t forward_size = program.code.size();
  for (std::size_t i = forward_size; i-- > 0;) {
    const Instr forward = program.code[i];
    const bool is_seed =
        std::any_of(forward.out.begin(), forward.out.end(), [&](ValueId id) { return contains(seeds, id); });
    const bool reached = is_seed || std::any_of(forward.out.begin(), forward.out.end(), [&](ValueId id) {
                           return grads[static_cast<std::size_t>(id)] != kNoValue;
                         });
    const bool wanted = std::any_of(forward.in.begin(), forward.in.end(), [&](ValueId id) {
      return id != kNoValue && needs[static_cast<std::size_t>(id)];
    });
    if (!reached || !wanted) continue;
    if (op_def(forward.op).vjp == nullptr)
      return Status::error(Code::invalid, str("op ", op_name(forward.op), " has no derivative"));
    STRATA_TRY(check_reached_outputs(program, forward, grads, seeds));
    VjpContext context(program, forward, grads, sums, needs);
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
