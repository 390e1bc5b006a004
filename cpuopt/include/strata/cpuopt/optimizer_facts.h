#pragma once

#include <cstdint>
#include <string_view>

namespace strata::cpuopt {

enum class Optimizer : std::uint8_t;  // strata/cpuopt/math/rules.h, whose rules state the facts

/// The moments that are stored between steps.
struct MomentSet {
  bool first = false, second = false;
  friend bool operator==(const MomentSet&, const MomentSet&) = default;
};

/// What is true of an optimizer. Code that depends on an optimizer asks these fields, not its name.
struct OptimizerFacts {
  Optimizer optimizer;
  std::string_view name;
  // The hyper-parameters that it reads, besides lr, weight_decay and ema_decay, which all read.
  bool betas = false, eps = false, momentum = false;  ///< momentum: and nesterov
  MomentSet moments{};                                ///< the first also with momentum: moments_of()
  bool tensor_norms = false;  ///< it needs the norms of whole tensors between two passes
};

const OptimizerFacts& facts_of(Optimizer optimizer) noexcept;

}  // namespace strata::cpuopt
