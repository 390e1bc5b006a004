#pragma once

#include <strata/engine/batch_source.h>

namespace strata::detail {

/// The batch source of dry runs and simulations, which compute nothing.
class EmptyBatchSource final : public BatchSource {
 public:
  Status fill(std::int64_t, const BatchView&) override { return Status::ok(); }
  std::int64_t n_counted(std::int64_t, std::int64_t) override { return 0; }
};

}  // namespace strata::detail
