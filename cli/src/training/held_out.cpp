#include "training/held_out.h"

#include <bit>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "training/workload.h"

namespace strata::cli {

double HeldOutLoss::perplexity() const { return std::exp(nats); }

std::optional<double> HeldOutLoss::bits_per_byte() const {
  if (counted.bytes == 0) return std::nullopt;
  return nats * static_cast<double>(counted.tokens) / std::numbers::ln2 / static_cast<double>(counted.bytes);
}

std::string double_bits(double value) { return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value)); }

std::int64_t n_micro_batches(const Dataset& data, std::int64_t sequences) {
  return static_cast<std::int64_t>(data.n_samples()) / sequences;
}

Result<HeldOutLoss> held_out_loss(Engine& engine, const Dataset& data, std::int64_t sequences,
                                  std::int64_t n) {
  DatasetBatches batches(data, sequences);
  HeldOutLoss loss;
  STRATA_TRY_ASSIGN(loss.nats, engine.evaluate(batches, n));
  loss.counted = data.count_targets(0, n * sequences);
  loss.micro_batches = n;
  return loss;
}

}  // namespace strata::cli
