#pragma once

#include <strata/model/decoder_config.h>
#include <strata/runtime/dtype.h>

namespace strata {

struct TrainConfig;

/// The model that a configuration describes.
DecoderConfig decoder_config(const TrainConfig& config);
/// The losses of its routers in training.
RouterLosses router_losses(const TrainConfig& config) noexcept;
/// The dtype that train.dtype names. It must not be `auto` any more.
DType compute_dtype(const TrainConfig& config);

}  // namespace strata
