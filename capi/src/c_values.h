#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <strata.h>
#include <strata/chunk/layout.h>
#include <strata/cpuopt/optimizer.h>
#include <strata/offload/placement_request.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/state_format.h>
#include <strata/session/state_planning.h>

namespace strata::capi {

// The values of the interface, which never change, and ours. Nothing for a value that the interface lacks.
std::optional<DType> dtype_of(int value) noexcept;
std::optional<cpuopt::Optimizer> optimizer_of(int value) noexcept;
std::optional<StateFormat> states_of(int value) noexcept;
std::optional<PlacementPolicy> placement_of(int value) noexcept;
std::optional<Payload> payload_of(int value) noexcept;
std::optional<TrainerHolds> holds_of(int value) noexcept;
strata_status status_of(Code code) noexcept;

/// The problems of folders on NVMe and their budget, a line each.
std::string problems_of_dirs(const char* const* dirs, std::size_t n_dirs, std::uint64_t bytes);

/// Errors: `invalid`, naming what is not finite or not zero.
Result<cpuopt::OptimizerParams> settings_of(const strata_settings* settings, cpuopt::Optimizer optimizer);

}  // namespace strata::capi
