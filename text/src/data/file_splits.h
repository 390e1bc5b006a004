#pragma once

#include <string>
#include <vector>

#include <strata/text/data_split.h>
#include <strata/runtime/status.h>

namespace strata::detail {

struct FolderSplit {
  std::vector<std::string> read, left_out;
};
/// The names of files that a split reads.
FolderSplit split_by_name(std::vector<std::string> names, DataSplit split);

/// Refuses FILE beside FILE.gz: they are the same data twice.
Status check_no_file_twice(const std::string& folder, const std::vector<std::string>& names);

}  // namespace strata::detail
