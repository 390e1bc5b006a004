#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

// Functions that are shared by the passes that add to a program.

namespace strata::detail {

/// The values that replace others for their readers, while a pass copies a program.
class Replacements {
 public:
  void replace(ValueId old, ValueId by) { by_[old] = by; }
  ValueId current(ValueId id) const {
    const auto found = by_.find(id);
    return found == by_.end() ? id : found->second;
  }
  void apply(std::vector<ValueId>& ids) const {
    for (ValueId& id : ids) id = current(id);
  }

 private:
  std::map<ValueId, ValueId> by_;
};

/// The parameter of that name, or null.
const ParamInfo* find_param(const Program& program, std::string_view name) noexcept;
/// Whether a linear layer multiplies by the parameter, which is a matrix.
bool is_linear_weight(const Program& program, const ParamInfo& param) noexcept;
/// Why an adapter cannot be one of the program's, a line for each problem: a name that is not the matrix of a
/// linear layer, a rank that is 0 or above the matrix.
std::string problems_of_lora(const Program& program, const LoraGroup& group);
/// Adds a parameter behind all others.
ValueId add_param(Program& program, const std::string& name, const Shape& shape, DType dtype,
                  const Init& init, bool decay = true);
/// Appends an instruction of the region of `of`, and returns its first output.
ValueId append(Program& program, const Instr& of, Op op, std::vector<ValueId> in, const Attrs& attrs);
/// Appends the linear layer that makes the logits of a linear_cross_entropy, and returns it. Errors:
/// `unsupported` for logits with a soft cap; `what` is what needs them.
Result<Instr> append_logits(Program& program, const Instr& fused, std::string_view what);
/// Appends the loss of these logits, whose results `now` puts in the place of those of `fused`.
void append_loss(Program& program, const Instr& fused, ValueId logits, Replacements& now);
/// Outputs of the program are what is now in their place, and keep their names.
void replace_outputs(Program& program, const Replacements& now);
/// As torch.nn.Linear starts: uniform in +- 1 / sqrt(columns), which is Kaiming-uniform with a = sqrt(5).
Init linear_init(std::int64_t columns);

}  // namespace strata::detail
