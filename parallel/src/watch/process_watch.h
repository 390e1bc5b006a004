#pragma once

#include <optional>
#include <string>
#include <vector>

#include "watch/process_identity.h"

namespace strata::detail {

/// Notices at once when the process of another rank on this machine ends, however it ends. Of one thread.
class ProcessWatch {
 public:
  /// `identities` of all ranks, of which `me` is this one. Ranks on other machines, or that the kernel does
  /// not let us watch, are left out.
  ProcessWatch(const std::vector<ProcessIdentity>& identities, int me);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  /// Whether its process has ended; a system call.
  bool has_ended(int rank) const;
  /// Describes how the process with this number has ended, as far as that is known.
  std::string how_ended(int rank) const;

 private:
  const std::vector<ProcessIdentity>& identities_;
  std::vector<int> files_;  // indexed by rank; -1: not watched
  const long kills_before_;
};

}  // namespace strata::detail
