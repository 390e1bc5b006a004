#pragma once

#include <span>
#include <string>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// Writes `<dir>/step-N`, whose parameters are the means of those of `checkpoints` (Izmailov et al. 2018,
/// arXiv 1803.05407): each is a sum in f64, divided and rounded to f32 once, so that one checkpoint alone
/// keeps its bits. N, the states of the optimizer and all settings are those of the last of them. One tensor
/// at a time is in memory, and every digest is checked. Returns its path. The folder must not exist; if it
/// fails, it is removed. Errors: `invalid` if there are none, or two that have other tensors or other frozen
/// ones, naming the first; `corrupt`, `io_error`, `no_space`.
Result<std::string> average_checkpoints(Io& io, std::span<const std::string> checkpoints,
                                        const std::string& dir);

}  // namespace strata
