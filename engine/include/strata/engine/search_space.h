#pragma once

namespace strata {

/// Options that the search may change; they only affect how a step is executed.
struct SearchSpace {
  bool step_mode = true;  ///< auto, with an undo log
  bool chunk = true, gradients = true, prefetch = true;
  /// Fill the device with whole chunks, even if another placement moves fewer bytes.
  bool device_first = true;
};

}  // namespace strata
