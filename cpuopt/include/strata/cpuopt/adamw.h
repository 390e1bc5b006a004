#pragma once

#include <span>

#include <strata/cpuopt/optimizer.h>
#include <strata/runtime/float16.h>

namespace strata::cpuopt {

/// One AdamW step in place over flat spans of equal lengths and any alignment, for trainers that hold their
/// own states: p, m and v in f32, the gradient in f32, bf16 or f16. One pass over memory; elementwise, so
/// that any split gives the same bits. Not threaded. `params.optimizer` is ignored. Kingma & Ba 2015, Alg. 1;
/// decoupled decay, Loshchilov & Hutter 2019, Alg. 2. Errors: `invalid` as validate(), or if lengths differ,
/// naming them; then nothing is written.
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const float> g,
                    std::span<float> m, std::span<float> v);
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const bf16> g,
                    std::span<float> m, std::span<float> v);
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const f16> g,
                    std::span<float> m, std::span<float> v);
/// The same, and `shadow` becomes p rounded to nearest even.
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const bf16> g,
                    std::span<float> m, std::span<float> v, std::span<bf16> shadow);
Status adamw_update(const OptimizerParams& params, std::span<float> p, std::span<const f16> g,
                    std::span<float> m, std::span<float> v, std::span<f16> shadow);
/// The same on a master in two halves (math/master.h): `high` is the bf16 parameter, `low` what it lacks.
Status adamw_update(const OptimizerParams& params, std::span<bf16> high, std::span<std::uint16_t> low,
                    std::span<const bf16> g, std::span<float> m, std::span<float> v);

}  // namespace strata::cpuopt
