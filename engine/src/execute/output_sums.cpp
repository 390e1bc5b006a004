#include "execute/output_sums.h"

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/session/pinned_layout.h>

namespace strata::detail {

OutputSums::OutputSums(const RunPlan& plan)
    : plan_(plan), of_program_(plan.programs.size()), sums_(summed_value_count(plan)) {
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    std::size_t first = 0;
    for (const StepSum& sum : plan.options.step_sums) {
      for (const LoweredProgram::Binding& binding : plan.programs[p].program.bindings) {
        if (binding.is_input || binding.name != sum.output) continue;
        STRATA_ASSERT(binding.operand.shape.n_elems() == sum.n, "elements of an output that is summed",
                      sum.output, binding.operand.shape.n_elems(), sum.n);
        of_program_[p].push_back({&binding, first});
      }
      first += static_cast<std::size_t>(sum.n);
    }
  }
}

void OutputSums::clear() noexcept { std::fill(sums_.begin(), sums_.end(), 0.0); }

void OutputSums::add(std::size_t program, std::int32_t micro_batch, const std::byte* outputs) noexcept {
  for (const Summed& summed : of_program_[program]) {
    if (summed.binding->micro_batch != micro_batch) continue;
    const Operand& operand = summed.binding->operand;
    const std::byte* const values = outputs + summed.binding->slot_offset;
    for (std::size_t i = 0; i < static_cast<std::size_t>(operand.shape.n_elems()); ++i)
      sums_[summed.first + i] += operand.dtype == DType::i32
                                     ? static_cast<double>(reinterpret_cast<const std::int32_t*>(values)[i])
                                     : static_cast<double>(reinterpret_cast<const float*>(values)[i]);
  }
}

std::span<const double> OutputSums::of(std::string_view output) const noexcept {
  std::size_t first = 0;
  for (const StepSum& sum : plan_.options.step_sums) {
    const auto n = static_cast<std::size_t>(sum.n);
    if (sum.output == output) return std::span(sums_).subspan(first, n);
    first += n;
  }
  return {};
}

}  // namespace strata::detail
