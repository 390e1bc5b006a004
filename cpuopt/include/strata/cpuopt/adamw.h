#pragma once

#include <span>

#include <strata/cpuopt/optimizer.h>
#include <strata/runtime/float16.h>

namespace strata::cpuopt {

/// One AdamW step in place over flat spans of equal length and any alignment, for trainers that own their
/// optimizer states: p, m and v in f32, the gradient in f32, bf16 or f16. The step is one pass over memory
/// and elementwise, so any split into ranges gives the same bits. Not threaded. `params.optimizer` is
/// ignored. Kingma & Ba 2015, Alg. 1; decoupled decay, Loshchilov & Hutter 2019, Alg. 2. Errors: `invalid`
/// as in validate(), or if lengths differ (the message names them); nothing is written on an error.
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const float> g,
                    std::span<float> m, std::span<float> v);
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const bf16> g,
                    std::span<float> m, std::span<float> v);
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const f16> g,
                    std::span<float> m, std::span<float> v);
/// The same step, which also writes p rounded to nearest even to `shadow`.
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const bf16> g,
                    std::span<float> m, std::span<float> v, std::span<bf16> shadow);
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const f16> g,
                    std::span<float> m, std::span<float> v, std::span<f16> shadow);
/// The same step on a split master (math/master.h): `high` is the bf16 parameter, `low` the remaining 16
/// bits of the f32 master.
Status adamw_update(const OptimizerParams& params, std::span<bf16> high, std::span<std::uint16_t> low,
                    std::span<const bf16> g, std::span<float> m, std::span<float> v);

}  // namespace strata::cpuopt
