#pragma once

#include <functional>
#include <string_view>

namespace strata {

/// How ranks watch each other. All ranks of a world have the same. A rank is late before it is lost: if the
/// patience is short, a rank is late after half of it, and heartbeats are as frequent as that needs.
struct WatchOptions {
  double heartbeat_s = 0.5;  ///< a rank tells where it is this often; 0: ranks do not watch each other
  double silence_s = 5;      ///< a rank of which nothing is heard for longer is late
  double user_code_s = 8;    ///< so is one that stays in code of the caller for longer while others wait, and
                             ///< for longer than five times what it was ever seen to
  double patience_s = 30;    ///< a rank that has been silent for longer is lost; so is one that has not come
                             ///< back for longer, and for longer than ten times what it was ever seen to stay
  /// Receives "rank 2 of 4 on host a ..." when a rank is late, and when it goes on. Called by the MPI
  /// thread, which exchanges nothing meanwhile, or by a thread rank that waits; what it throws is ignored.
  /// May be empty.
  std::function<void(std::string_view)> warn = {};
};

}  // namespace strata
