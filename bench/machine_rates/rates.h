#pragma once

#include "machine_rates/harness.h"

namespace strata::bench {

// Each of these measures a part.
Status dram(Bench& bench, const RowSink& row);
Status link(Bench& bench, const RowSink& row);
Status peak(Bench& bench, const RowSink& row);
Status matrix(Bench& bench, const RowSink& row);
Status attention_mma(Bench& bench, const RowSink& row);
Status attention_wgmma(Bench& bench, const RowSink& row);
Status attention_cudnn(Bench& bench, const RowSink& row);

}  // namespace strata::bench
