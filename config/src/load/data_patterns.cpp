#include "load/data_patterns.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/config/data_files.h>
#include <strata/text/documents.h>
#include <strata/runtime/str.h>
#include <strata/config/train_config.h>

namespace strata::detail {
namespace {

bool is_pattern(Io& io, const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos && !io.exists(path);
}

std::vector<std::string> files_matching(const std::string& pattern) {
  std::vector<std::string> files;
  glob_t found{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      std::error_code ignored;
      if (std::filesystem::is_regular_file(found.gl_pathv[i], ignored)) files.emplace_back(found.gl_pathv[i]);
    }
  ::globfree(&found);
  std::sort(files.begin(), files.end());  // not by locale, on which the order of the data would depend
  return files;
}

// In the working directory, else in the first folder of installed data with a match.
std::vector<std::string> find_files(const std::string& pattern) {
  std::vector<std::string> files = files_matching(pattern);
  if (!files.empty() || pattern.starts_with('/')) return files;
  for (const std::string& dir : default_data_dirs())
    if (files = files_matching(str(dir, "/", pattern)); !files.empty()) break;
  return files;
}

/// The folder that a path names, in the working directory or in installed data; empty if it names none.
std::string folder_of(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return path;
  const std::string installed = locate_data_file(path, default_data_dirs());
  return std::filesystem::is_directory(installed, ignored) ? installed : std::string();
}

}  // namespace

Status expand_data_patterns(Io& io, ConfigTree& tree, std::vector<std::string>& notes) {
  std::vector<std::string> problems;
  for (const std::string_view key : {"data.train", "data.val", "data.mixture"}) {
    std::vector<std::string> files;
    for (const std::string& path : tree.texts(key)) {
      if (const std::string folder = folder_of(path); !folder.empty()) {
        const auto found =
            data_files_of(io, folder, key == "data.val" ? DataSplit::validation : DataSplit::train,
                          [&](std::string note) { notes.push_back(std::move(note)); });
        if (found.has_value())
          files.insert(files.end(), found->begin(), found->end());
        else
          problems.push_back(str(tree.entry(key).origin, ": ", key, ": ", found.status().message()));
        continue;
      }
      if (!is_pattern(io, path)) {
        files.push_back(path);
        continue;
      }
      const std::vector<std::string> found = find_files(path);
      if (found.empty())
        problems.push_back(str(tree.entry(key).origin, ": ", key, ": no file matches ", path));
      files.insert(files.end(), found.begin(), found.end());
    }
    tree.replace_texts(key, std::move(files));
  }
  return config_problems(problems);
}

}  // namespace strata::detail
