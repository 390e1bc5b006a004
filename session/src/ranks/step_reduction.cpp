#include "ranks/step_reduction.h"

#include <algorithm>

#include <strata/simd/norm.h>

#include "plan/chunk_tables.h"

namespace strata::detail {

StepReduction::StepReduction(StateContext& context) : context_(context) {
  if (context.groups() == nullptr) return;
  const ChunkTables& tables = context.tables();
  std::vector<std::pair<std::int64_t, std::int64_t>> own;
  for (ChunkId chunk = 0; chunk < context.plan().layout.n_chunks(); ++chunk)
    for (const TensorBlock& block : tables.summed(chunk))
      own.emplace_back(block.first_partial, block.first_partial + simd::norm_partial_count(block.n));
  std::sort(own.begin(), own.end());
  std::int64_t at = 0;
  for (const auto& [begin, end] : own) {
    if (begin > at) others_.emplace_back(at, begin);
    at = end;
  }
  if (at < tables.n_partials) others_.emplace_back(at, tables.n_partials);
}

// They are between the losses and the flags.
std::span<double> StepReduction::shared_sums() const noexcept {
  const StatePlan& plan = context_.plan();
  return context_.step_values().subspan(static_cast<std::size_t>(plan.options.grad_accum),
                                        summed_value_count(plan));
}

// A micro-batch belongs to the rank that computes it, and a flag is set by any number of ranks.
void StepReduction::write(std::span<const float> losses, std::span<const double> sums, std::uint32_t flags) {
  const std::span<double> values = context_.step_values();
  const DataParallel& ranks = context_.plan().options.ranks;
  for (std::size_t k = 0; k < losses.size(); ++k)
    values[k] = static_cast<std::int32_t>(k) % ranks.ranks == ranks.rank ? losses[k] : 0.0;
  const std::span<double> shared = shared_sums();
  for (std::size_t i = 0; i < shared.size(); ++i) shared[i] = sums.empty() ? 0 : sums[i];
  for (std::size_t bit = 0; bit < kStepFlags; ++bit)
    values[values.size() - 1 - bit] = (flags >> bit & 1) != 0 ? 1.0 : 0.0;
}

void StepReduction::read(std::span<float> losses, std::span<double> sums, std::uint32_t& flags) const {
  const std::span<const double> values = context_.step_values();
  for (std::size_t k = 0; k < losses.size(); ++k) losses[k] = static_cast<float>(values[k]);
  if (!sums.empty()) std::copy_n(shared_sums().begin(), sums.size(), sums.begin());
  flags = 0;
  for (std::size_t bit = 0; bit < kStepFlags; ++bit)
    if (values[values.size() - 1 - bit] != 0) flags |= std::uint32_t{1} << bit;
}

// From `begin` to the end of the step's values.
Status StepReduction::all_reduce(double* begin) {
  Backend& backend = context_.backend();
  Stream& collective = context_.streams().collective;
  const std::span<double> values = context_.step_values();
  const auto n = static_cast<std::size_t>(values.data() + values.size() - begin);
  const BufferView all{reinterpret_cast<std::byte*>(begin), n * sizeof(double)};
  STRATA_TRY(context_.groups()->world().all_reduce(all, DType::f64, Reduction::sum, collective));
  STRATA_TRY(backend.synchronize(collective));
  return backend.host_access({all.data, all.bytes, false});
}

Status StepReduction::run(std::span<float> losses, std::span<double> sums, std::uint32_t& flags) {
  if (context_.groups() == nullptr) return {};
  double* const partials = context_.norm_partials();
  const std::size_t n =
      static_cast<std::size_t>(context_.tables().n_partials) + context_.step_values().size();
  STRATA_TRY(
      context_.backend().host_access({reinterpret_cast<std::byte*>(partials), n * sizeof(double), true}));
  if (context_.has_data()) {
    for (const auto& [begin, end] : others_) std::fill(partials + begin, partials + end, 0.0);
    write(losses, sums, flags);
  }
  STRATA_TRY(all_reduce(partials));
  if (context_.has_data()) read(losses, sums, flags);
  return {};
}

Status StepReduction::share(std::span<float> losses) {
  if (context_.groups() == nullptr) return {};
  std::uint32_t flags = 0;
  if (context_.has_data()) write(losses, {}, flags);
  STRATA_TRY(all_reduce(context_.step_values().data()));
  if (context_.has_data()) read(losses, {}, flags);
  return {};
}

}  // namespace strata::detail
