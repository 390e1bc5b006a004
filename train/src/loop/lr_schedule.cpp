#include "loop/lr_schedule.h"

#include <algorithm>
#include <cmath>

namespace strata {

cpuopt::LrSchedule lr_schedule(const TrainConfig& c) {
  const auto kind = c.optim.schedule == "cosine"   ? cpuopt::ScheduleKind::cosine
                    : c.optim.schedule == "linear" ? cpuopt::ScheduleKind::linear
                    : c.optim.schedule == "wsd"    ? cpuopt::ScheduleKind::wsd
                                                   : cpuopt::ScheduleKind::constant;
  const std::int64_t total = std::max<std::int64_t>(c.train.steps, 1),
                     warmup = std::min(c.optim.warmup, total);
  const auto decay =
      static_cast<std::int64_t>(std::llround(c.optim.decay_ratio * static_cast<double>(total)));
  return {kind,   c.optim.lr, c.optim.lr * c.optim.min_lr_ratio,
          warmup, total,      std::min(decay, total - warmup)};
}

}  // namespace strata
