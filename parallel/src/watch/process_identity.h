#pragma once

#include <string>
#include <string_view>

namespace strata::detail {

/// Which process a rank is.
struct ProcessIdentity {
  std::string host;
  int pid = 0;
  int local_rank = -1;  ///< among the ranks of its machine, as the launcher counts; -1: unknown
  std::string place;    ///< equal for processes that can see each other by their numbers
};

ProcessIdentity this_process(std::string_view host);
/// As a text, and back.
std::string to_text(const ProcessIdentity& identity);
ProcessIdentity identity_from(std::string_view text);

/// How many processes of this machine the kernel has killed because memory ran out; 0 if it does not say.
long out_of_memory_kills();

}  // namespace strata::detail
