#pragma once

#include <string_view>

#include <strata/model/decoder_config.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata {

struct LoadedConfig;

/// Decides memory.latent_cache if it is `auto`, and the other keys of section memory, on which it depends.
/// Returns whether latent attention keeps latent rows in a KV cache of this shape, whose CacheShape::latent
/// does not matter. `obstacle`: why it cannot; empty if it can. Errors: `invalid` for `latent` without such
/// layers, `unsupported` for it in spite of an obstacle; those of plan_programs().
Result<bool> keeps_latent_rows(LoadedConfig& loaded, const DecoderConfig& decoder, const CacheShape& shape,
                               DType compute, std::string_view obstacle);

}  // namespace strata
