#pragma once

#include <cstdint>
#include <string_view>

namespace strata::cpuopt {

enum class Optimizer : std::uint8_t;  // strata/cpuopt/optimizer.h, whose source has the rows

/// What is true of an optimizer, in one row. Code that depends on an optimizer asks these fields, not its
/// name.
struct OptimizerFacts {
  Optimizer optimizer;
  std::string_view name;
  // The hyper-parameters that it reads, besides lr, weight_decay and ema_decay, which all read.
  bool betas = false, eps = false, momentum = false;  ///< momentum: and nesterov
  bool first = false, second = false;                 ///< moments; the first also with momentum: moments_of()
  bool tensor_norms = false;  ///< it needs the norms of whole tensors between two passes
};

const OptimizerFacts& facts_of(Optimizer optimizer) noexcept;

}  // namespace strata::cpuopt
