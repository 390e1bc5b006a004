#pragma once

#include <cstdint>

#include <strata/offload/access_trace.h>

namespace strata::detail {

/// Slots for parameters with which nearly all uses of a parameter soon after another find it on the device:
/// as many chunks as are used between them. In breadth-first order all micro-batches use a layer before the
/// next one is used, so that these are the layer's chunks; with fewer slots each micro-batch loads all of
/// them. 0: no window that is a small part of the model saves half of the loads.
std::uint32_t reuse_window(const AccessTrace& trace);

}  // namespace strata::detail
