#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/runtime/status.h>
#include <strata/runtime/str.h>
#include <strata/session/state_plan.h>

namespace strata::detail {

/// The refusal of a parameter by its name: "parameter 'w' " and what is wrong.
template <class... Why>
Status refuse_param(const StatePlan& plan, std::int32_t param, const Why&... why) {
  return Status::error(
      Code::invalid,
      str("parameter '", plan.tensors.specs[static_cast<std::size_t>(param)].name, "' ", why...));
}

}  // namespace strata::detail
