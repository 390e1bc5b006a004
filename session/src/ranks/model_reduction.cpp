#include "ranks/model_reduction.h"

namespace strata::detail {

// Reduces the first `n` values.
Status ModelReduction::all_reduce(std::size_t n, Reduction reduction) {
  Backend& backend = context_.backend();
  Stream& collective = context_.streams().collective;
  const BufferView all{reinterpret_cast<std::byte*>(context_.model_values().data()), n * sizeof(double)};
  STRATA_TRY(context_.model_groups()->all().all_reduce(all, DType::f64, reduction, collective));
  STRATA_TRY(backend.synchronize(collective));
  return backend.host_access({all.data, all.bytes, false});
}

Status ModelReduction::add_stages(std::size_t n) {
  if (context_.plan().options.model.pp == 1) return {};
  Backend& backend = context_.backend();
  Stream& collective = context_.streams().collective;
  const BufferView all{reinterpret_cast<std::byte*>(context_.norm_partials()), n * sizeof(double)};
  STRATA_TRY(backend.host_access({all.data, all.bytes, true}));
  STRATA_TRY(
      context_.model_groups()->along(MeshAxis::pp).all_reduce(all, DType::f64, Reduction::sum, collective));
  STRATA_TRY(backend.synchronize(collective));
  return backend.host_access({all.data, all.bytes, false});
}

Status ModelReduction::run(double& square_sum, std::uint32_t& flags) {
  if (context_.model_groups() == nullptr) return {};
  const std::span<double> values = context_.model_values();
  STRATA_TRY(context_.backend().host_access(
      {reinterpret_cast<std::byte*>(values.data()), values.size_bytes(), true}));
  if (context_.has_data()) {
    // Every stage has the sum of all.
    values[0] = context_.plan().options.model.place(MeshAxis::pp) == 0 ? square_sum : 0.0;
    for (std::size_t bit = 0; bit < kStepFlags; ++bit) values[1 + bit] = (flags >> bit & 1) != 0 ? 1.0 : 0.0;
  }
  STRATA_TRY(all_reduce(values.size(), Reduction::sum));
  if (!context_.has_data()) return {};
  square_sum = values[0];
  flags = 0;
  for (std::size_t bit = 0; bit < kStepFlags; ++bit)
    if (values[1 + bit] != 0) flags |= std::uint32_t{1} << bit;
  return {};
}

Status ModelReduction::least(double& value) {
  if (context_.model_groups() == nullptr || !context_.has_data()) return {};
  const std::span<double> values = context_.model_values();
  STRATA_TRY(
      context_.backend().host_access({reinterpret_cast<std::byte*>(values.data()), sizeof(double), true}));
  values[0] = -value;
  STRATA_TRY(all_reduce(1, Reduction::max));
  value = -values[0];
  return {};
}

}  // namespace strata::detail
