#include "loop/hooks/subspace_renewal.h"

#include <strata/runtime/str.h>

namespace strata::detail {

Status SubspaceRenewal::before_step(MetricsLine& line) {
  if (!schedule_.is_due(loop_.engine->steps())) return {};
  const std::int64_t begin = loop_.clock.now_ns();
  STRATA_TRY_ASSIGN(const auto renewal, schedule_.before_step(*loop_.engine, *loop_.parts.task.batches()));
  line.renew_bases_s = loop_.seconds_since(begin);
  line.basis_energy = renewal.energy;
  if (!renewal.note.empty()) loop_.parts.observer.on_message(str("step ", line.step, ": ", renewal.note));
  return {};
}

}  // namespace strata::detail
