#include <strata/config/optimizer_choice.h>

#include <strata/config/train_config.h>
#include <strata/cpuopt/optimizer.h>
#include <strata/runtime/assert.h>

namespace strata {

const cpuopt::OptimizerFacts& chosen_optimizer(const TrainConfig& config) noexcept {
  const auto optimizer =
      config.optim.name == "galore" ? cpuopt::Optimizer::adamw : cpuopt::optimizer_named(config.optim.name);
  STRATA_ASSERT(optimizer.has_value(), "optim.name = ", config.optim.name, " is no optimizer");
  return cpuopt::facts_of(*optimizer);
}

}  // namespace strata
