#include "watch/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

namespace strata::detail {

ProcessWatch::ProcessWatch(const std::vector<ProcessIdentity>& identities, int me)
    : identities_(identities), kills_before_(out_of_memory_kills()) {
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const bool other = static_cast<int>(rank) != me && identities[rank].pid > 0 &&
                       identities[rank].place == identities[static_cast<std::size_t>(me)].place;
    files_.push_back(other ? static_cast<int>(::syscall(SYS_pidfd_open, identities[rank].pid, 0)) : -1);
  }
}

ProcessWatch::~ProcessWatch() {
  for (const int file : files_)
    if (file >= 0) ::close(file);
}

bool ProcessWatch::has_ended(int rank) const {
  pollfd one{files_[static_cast<std::size_t>(rank)], POLLIN, 0};
  return one.fd >= 0 && ::poll(&one, 1, 0) == 1;
}

std::string ProcessWatch::how_ended(int rank) const {
  std::string text = str("its process ", identities_[static_cast<std::size_t>(rank)].pid,
                         " has ended without a word, by a signal or an exit in the middle");
  if (const long killed = out_of_memory_kills() - kills_before_; killed > 0)
    text += str("; the kernel has killed ", plural(killed, "process"),
                " of this machine since the start because memory ran out");
  return text;
}

}  // namespace strata::detail
