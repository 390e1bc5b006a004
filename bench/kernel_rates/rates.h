#pragma once

#include "machine_rates/harness.h"

namespace strata::bench {

/// The shapes of a model's layers, and the tokens of a micro-batch.
struct Layer {
  const char* name;
  std::int64_t tokens, hidden, heads, ffn;
};
/// The layers of a 1.2 B and a 6.5 B LLaMA on a GPU; on the host a small one.
std::span<const Layer> layers_of(const Bench& bench);

// Each of these measures a part.
Status elementwise(Bench& bench, const RowSink& row);
Status gemms(Bench& bench, const RowSink& row);
Status attention(Bench& bench, const RowSink& row);
Status heads(Bench& bench, const RowSink& row);
Status updates(Bench& bench, const RowSink& row);

}  // namespace strata::bench
