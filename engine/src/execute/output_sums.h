#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <strata/engine/run_plan.h>

namespace strata::detail {

/// The sums of outputs that SessionOptions::step_sums names. Allocates nothing after construction.
class OutputSums {
 public:
  /// `plan` outlives the object.
  explicit OutputSums(const RunPlan& plan);

  /// Whether a program of the plan (an index into RunPlan::programs) has an output that is summed.
  bool sums(std::size_t program) const noexcept { return !of_program_[program].empty(); }
  void clear() noexcept;
  /// Adds those of a micro-batch, by its number in a pass of the program, whose outputs begin at `outputs`.
  void add(std::size_t program, std::int32_t micro_batch, const std::byte* outputs) noexcept;
  /// All of them, in their order; and those of one output, or nothing if there is none of that name.
  std::span<double> all() noexcept { return sums_; }
  std::span<const double> of(std::string_view output) const noexcept;

 private:
  struct Summed {
    const LoweredProgram::Binding* binding;
    std::size_t first;  // index into sums_
  };
  const RunPlan& plan_;
  std::vector<std::vector<Summed>> of_program_;
  std::vector<double> sums_;
};

}  // namespace strata::detail
