#include "data/file_splits.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include <strata/runtime/str.h>

#include "data/records/byte_source.h"

namespace strata::detail {
namespace {

enum class Purpose : std::uint8_t { training, validation, test };

struct Keyword {
  std::string_view word;
  Purpose purpose;
};
// SPLIT_KEYWORDS and NON_WORDS_CHARS in data_files.py of datasets 5.2.0. A file for training may say so, too.
constexpr std::array<Keyword, 10> kKeywords = {{{"train", Purpose::training},
                                                {"training", Purpose::training},
                                                {"validation", Purpose::validation},
                                                {"valid", Purpose::validation},
                                                {"dev", Purpose::validation},
                                                {"val", Purpose::validation},
                                                {"test", Purpose::test},
                                                {"testing", Purpose::test},
                                                {"eval", Purpose::test},
                                                {"evaluation", Purpose::test}}};
constexpr std::string_view kSeparators = "-._ 0123456789";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// The purpose that the first keyword of a name states.
Purpose purpose_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), lower);
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find_first_of(kSeparators, at), name.size());
    const std::string_view word = std::string_view(name).substr(at, end - at);
    const auto* const found = std::find_if(kKeywords.begin(), kKeywords.end(),
                                           [&](const Keyword& one) { return one.word == word; });
    if (found != kKeywords.end() && end < name.size()) return found->purpose;
    at = end + 1;
  }
  return Purpose::training;
}

FolderSplit parted(const std::vector<std::string>& names, Purpose purpose) {
  FolderSplit out;
  std::partition_copy(names.begin(), names.end(), std::back_inserter(out.read),
                      std::back_inserter(out.left_out),
                      [&](const std::string& name) { return purpose_of(name) == purpose; });
  return out;
}

}  // namespace

FolderSplit split_by_name(std::vector<std::string> names, DataSplit split) {
  if (split == DataSplit::train) {
    FolderSplit out = parted(names, Purpose::training);
    return out.read.empty() ? FolderSplit{std::move(names), {}} : out;
  }
  for (const Purpose purpose : {Purpose::validation, Purpose::test})
    if (FolderSplit out = parted(names, purpose); !out.read.empty()) return out;
  return {std::move(names), {}};
}

Status check_no_file_twice(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (is_gzip(name))
      if (const std::string plain(without_gz(name));
          std::find(names.begin(), names.end(), plain) != names.end())
        return Status::error(Code::invalid, str(folder, ": ", plain, " and ", name,
                                                " are the same data twice: remove one, or name the files"));
  return {};
}

}  // namespace strata::detail
