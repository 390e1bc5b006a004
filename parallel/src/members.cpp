#include "members.h"

#include <strata/parallel/collective.h>
#include <strata/runtime/str.h>

namespace strata::detail {

Status check_lists(const std::vector<std::vector<int>>& lists) {
  const int size = static_cast<int>(lists.size());
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<int>& members = lists[static_cast<std::size_t>(rank)];
    STRATA_TRY(check_members(members, rank, size));
    for (const int member : members)
      if (lists[static_cast<std::size_t>(member)] != members)
        return Status::error(Code::invalid, str("ranks ", rank, " and ", member,
                                                " do not list the same ranks for their group"));
  }
  return {};
}

}  // namespace strata::detail
