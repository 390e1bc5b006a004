#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

/// The operands of an op of experts that have a part for each of them, and the operand and the result whose
/// rows of other experts are kept; -1: the op has none.
struct ExpertOp {
  int weight = -1, bias = -1, before = -1;
};
std::optional<ExpertOp> expert_op(Op op) {
  switch (op) {
    case Op::expert_linear:
    case Op::expert_linear_quantized:
      return ExpertOp{.weight = 1, .bias = 3, .before = 4};
    case Op::expert_linear_backward_input:
    case Op::expert_linear_quantized_backward_input:
      return ExpertOp{.weight = 1, .before = 3};
    case Op::expert_linear_backward_weight:
      return ExpertOp{.weight = 3};
    default:
      return std::nullopt;
  }
}

/// The experts whose matrices a parameter has.
std::int64_t experts_in(const ParamInfo& info) {
  return info.quantized.format == kernels::WeightFormat::full ? info.shape.dim(0) : info.quantized.count;
}
/// The attributes of the op for `count` of its experts, from `first` on.
Attrs attrs_of_block(const Instr& instr, std::int64_t first, std::int64_t count) {
  const auto* const quantized = instr.attrs.get_if<ExpertLinearQuantizedAttrs>();
  if (quantized == nullptr) return ExpertBlockAttrs{first};
  ExpertLinearQuantizedAttrs some = {quantized->matrix, first};
  some.matrix.count = count;
  return some;
}

class ExpertSplit {
 public:
  ExpertSplit(Program program, const ExpertBlocks& blocks) : program_(std::move(program)), blocks_(blocks) {}

  Program run() && {
    std::vector<Instr> code = std::exchange(program_.code, {});
    const std::vector<bool> apart = are_read_apart(code);
    for (Instr& instr : code) {
      const std::optional<ExpertOp> op = expert_op(instr.op);
      const ValueId weight = op ? instr.in[static_cast<std::size_t>(op->weight)] : kNoValue;
      const std::int32_t number = weight == kNoValue ? -1 : program_.value(weight).param;
      if (number >= 0 && param(number).value == weight && apart[static_cast<std::size_t>(number)])
        split(instr, *op);
      else
        program_.code.push_back(std::move(instr));
    }
    return std::move(program_);
  }

 private:
  ParamInfo& param(std::int32_t index) { return program_.params[static_cast<std::size_t>(index)]; }

  // Which parameters are split: all that read or write them are ops of experts, and there are several blocks.
  std::vector<bool> are_read_apart(const std::vector<Instr>& code) {
    std::vector<bool> apart(program_.params.size(), false), other(program_.params.size(), false);
    for (const Instr& instr : code) {
      const std::optional<ExpertOp> op = expert_op(instr.op);
      for (std::size_t i = 0; i < instr.in.size(); ++i)
        mark(instr.in[i], op && (static_cast<int>(i) == op->weight) ? apart : other);
      for (const ValueId id : instr.out)
        mark(id, instr.op == Op::expert_linear_backward_weight ? apart : other);
    }
    for (std::size_t p = 0; p < apart.size(); ++p) {
      if (apart[p] && !other[p] && program_.params[p].block_elems == 0)
        program_.params[p].block_elems = block_elems(program_.params[p]);
      apart[p] = program_.params[p].block_elems > 0;
    }
    return apart;
  }
  void mark(ValueId id, std::vector<bool>& marks) const {
    if (id == kNoValue) return;
    const ValueInfo& value = program_.value(id);
    if (value.kind == ValueKind::param || value.kind == ValueKind::grad)
      marks[static_cast<std::size_t>(value.param)] = true;
  }

  // The largest power of two of experts whose matrices have at most that many bytes, or as many as are asked
  // for, but no fewer than end where a slice may.
  std::int64_t block_elems(const ParamInfo& info) const {
    const std::int64_t experts = experts_in(info), each = info.shape.n_elems() / experts;
    const auto bytes = static_cast<std::int64_t>(size_of(program_.value(info.value).dtype)) * each;
    std::int64_t n = blocks_.experts;
    if (n == 0)
      for (n = 1; 2 * n * bytes <= blocks_.bytes;) n *= 2;
    while (n < experts && n * each % blocks_.align_elems != 0) ++n;
    return n < experts ? n * each : 0;
  }

  void split(const Instr& instr, const ExpertOp& op) {
    const ValueId weight = instr.in[static_cast<std::size_t>(op.weight)];
    const std::int32_t number = program_.value(weight).param;
    const std::int64_t experts = experts_in(param(number)), each = param(number).shape.n_elems() / experts,
                       n = param(number).block_elems / each;
    ValueId before = kNoValue;
    for (std::int64_t first = 0; first < experts; first += n) {
      const std::int64_t count = std::min(n, experts - first);
      Instr part = instr;
      part.attrs = attrs_of_block(instr, first, count);
      for (const int i : {op.weight, op.bias})
        if (i >= 0) replace(part.in[static_cast<std::size_t>(i)], experts, first, count);
      if (op.before >= 0) {
        part.in[static_cast<std::size_t>(op.before)] = before;
        // The last one has the instruction's own result, which others read.
        if (first + count < experts)
          part.out[0] = copy_of(instr.out[0], str(" up to expert ", first + count));
        before = part.out[0];
        if (part.out.size() > 1) {
          if (first > 0) part.out[1] = copy_of(instr.out[1], {});
          program_.values[static_cast<std::size_t>(part.out[1])].shape =
              must(infer_outputs(program_, part)).back().shape;
        }
      } else {
        replace(part.out[0], experts, first, count);
      }
      program_.code.push_back(std::move(part));
    }
  }
  ValueId copy_of(ValueId id, std::string_view suffix) {
    ValueInfo info = program_.value(id);
    info.name += suffix;
    return program_.add_value(std::move(info));
  }
  // Replaces what has a part for each of the experts by that of `count` of them from `first` on.
  void replace(ValueId& id, std::int64_t experts, std::int64_t first, std::int64_t count) {
    if (id == kNoValue) return;
    const auto [found, is_new] = block_of_.try_emplace({id, first}, kNoValue);
    if (is_new) {
      ValueInfo info = program_.value(id);
      STRATA_ASSERT(info.param >= 0, info.name, " is no parameter");
      info.first = first * (info.shape.n_elems() / experts);
      info.shape.dims[0] = count * (info.shape.dim(0) / experts);
      info.name += str("[", first, ":", first + count, "]");
      found->second = program_.add_value(std::move(info));
    }
    id = found->second;
  }

  Program program_;
  const ExpertBlocks blocks_;
  std::map<std::pair<ValueId, std::int64_t>, ValueId> block_of_;  // keyed by value and first expert
};

}  // namespace

Program split_experts(Program program, const ExpertBlocks& blocks) {
  STRATA_ASSERT(blocks.experts >= 0 && blocks.bytes > 0 && blocks.align_elems > 0);
  return ExpertSplit(std::move(program), blocks).run();
}

}  // namespace strata
