#include "c_values.h"

#include <algorithm>
#include <array>

#include <strata/runtime/str.h>

#include "c_struct.h"

namespace strata::capi {
namespace {

template <class T, std::size_t N>
std::optional<T> value_at(const std::array<T, N>& table, int value) noexcept {
  if (value < 0 || value >= static_cast<int>(N)) return std::nullopt;
  return table[static_cast<std::size_t>(value)];
}

}  // namespace

std::optional<DType> dtype_of(int value) noexcept {
  return value_at(std::array{DType::f32, DType::bf16, DType::f16}, value);
}

std::optional<cpuopt::Optimizer> optimizer_of(int value) noexcept {
  using cpuopt::Optimizer;
  return value_at(std::array{Optimizer::adamw, Optimizer::adam, Optimizer::lion, Optimizer::lamb,
                             Optimizer::adagrad, Optimizer::sgd},
                  value);
}

std::optional<StateFormat> states_of(int value) noexcept {
  return value_at(std::array{StateFormat::fp32, StateFormat::bf16, StateFormat::int8}, value);
}

std::optional<PlacementPolicy> placement_of(int value) noexcept {
  return value_at(std::array{PlacementPolicy::automatic, PlacementPolicy::pinned, PlacementPolicy::nvme},
                  value);
}

std::optional<Payload> payload_of(int value) noexcept {
  return value_at(std::array{Payload::param, Payload::m, Payload::v}, value);
}

std::optional<TrainerHolds> holds_of(int value) noexcept {
  return value_at(std::array{TrainerHolds::states, TrainerHolds::params}, value);
}

strata_status status_of(Code code) noexcept {
  switch (code) {
    case Code::ok:
      return STRATA_OK;
    case Code::invalid:
      return STRATA_INVALID;
    case Code::not_found:
      return STRATA_NOT_FOUND;
    case Code::does_not_fit:
      return STRATA_DOES_NOT_FIT;
    case Code::out_of_memory:
      return STRATA_OUT_OF_MEMORY;
    case Code::io_error:
      return STRATA_IO_ERROR;
    case Code::no_space:
      return STRATA_NO_SPACE;
    case Code::corrupt:
      return STRATA_CORRUPT;
    case Code::unsupported:
      return STRATA_UNSUPPORTED;
    case Code::cancelled:
      return STRATA_CANCELLED;
    case Code::timeout:
      return STRATA_TIMEOUT;
    case Code::diverged:
      return STRATA_DIVERGED;
    case Code::lost_peer:
      return STRATA_LOST_PEER;
    case Code::internal:
      return STRATA_INTERNAL;
  }
  return STRATA_INTERNAL;
}

std::string problems_of_dirs(const char* const* dirs, std::size_t n_dirs, std::uint64_t bytes) {
  constexpr std::size_t kMax = 64;
  std::string problems;
  const auto problem = [&](const auto&... what) { problems += str(problems.empty() ? "" : "\n", what...); };
  if (dirs == nullptr && n_dirs > 0) problem("nvme_dirs is null, and n_nvme_dirs is ", n_dirs);
  if (dirs == nullptr && bytes > 0 && bytes != STRATA_UNLIMITED)
    problem("nvme_bytes is ", bytes, ", but there is no folder in nvme_dirs");
  if (n_dirs > kMax) problem("n_nvme_dirs is ", n_dirs, "; it must be at most ", kMax);
  for (std::size_t i = 0; dirs != nullptr && i < std::min(n_dirs, kMax); ++i)
    if (dirs[i] == nullptr || *dirs[i] == 0) problem("nvme_dirs[", i, "] is empty");
  return problems;
}

Result<cpuopt::OptimizerParams> settings_of(const strata_settings* settings, cpuopt::Optimizer optimizer) {
  STRATA_TRY_ASSIGN(const strata_settings given, read_struct(settings, "strata_settings"));
  if (given.reserved != 0)
    return Status::error(Code::invalid,
                         str("strata_settings.reserved is ", given.reserved, "; it must be 0"));
  cpuopt::OptimizerParams params;
  params.optimizer = optimizer;
  params.lr = given.lr;
  params.beta1 = given.beta1;
  params.beta2 = given.beta2;
  params.eps = given.eps;
  params.weight_decay = given.weight_decay;
  params.momentum = given.momentum;
  params.nesterov = given.nesterov != 0;
  params.grad_factor = given.grad_factor;
  return params;
}

}  // namespace strata::capi
