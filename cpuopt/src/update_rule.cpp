#include "update_rule.h"

namespace strata::cpuopt::detail {

Rule rule_of(const UpdateStep& step) noexcept {
  switch (step.optimizer) {
    case Optimizer::adamw:
      return Rule::adamw;
    case Optimizer::adam:
      return Rule::adam;
    case Optimizer::lion:
      return Rule::lion;
    case Optimizer::lamb:
      return Rule::lamb_moments;
    case Optimizer::adagrad:
      return Rule::adagrad;
    case Optimizer::sgd:
      break;
  }
  return !step.momentum ? Rule::sgd : step.nesterov ? Rule::nesterov : Rule::momentum;
}

}  // namespace strata::cpuopt::detail
