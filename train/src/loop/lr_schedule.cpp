#include <strata/train/lr_schedule.h>

#include <algorithm>
#include <cmath>

#include <strata/config/train_config.h>

namespace strata {

cpuopt::LrSchedule lr_schedule(const TrainConfig& config, double lr) {
  const TrainConfig::Optim& c = config.optim;
  const auto kind = c.schedule == "cosine"   ? cpuopt::ScheduleKind::cosine
                    : c.schedule == "linear" ? cpuopt::ScheduleKind::linear
                    : c.schedule == "wsd"    ? cpuopt::ScheduleKind::wsd
                                             : cpuopt::ScheduleKind::constant;
  const std::int64_t total = std::max<std::int64_t>(config.train.steps, 1),
                     warmup = std::min(c.warmup, total);
  const auto decay = static_cast<std::int64_t>(std::llround(c.decay_ratio * static_cast<double>(total)));
  return {kind, lr, lr * c.min_lr_ratio, warmup, total, std::min(decay, total - warmup)};
}

}  // namespace strata
