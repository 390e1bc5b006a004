#pragma once

#include <functional>
#include <string_view>

namespace strata {

/// How ranks watch each other. All ranks of a world have the same.
struct WatchOptions {
  double heartbeat_s = 0.5;  ///< a rank tells where it is this often; 0: ranks do not watch each other
  double silence_s = 5;      ///< a rank of which nothing is heard for longer is late
  double user_code_s = 8;    ///< so is one that stays in code of the caller for longer while others wait, and
                             ///< for longer than ten times what it ever has
  double patience_s = 30;    ///< a rank that has been silent, or has not come back, for so long is lost
  /// Receives "rank 2 of 4 on host a ..." when a rank is late, and when it goes on. Called by a thread of the
  /// transport; may be empty.
  std::function<void(std::string_view)> warn = {};
};

}  // namespace strata
