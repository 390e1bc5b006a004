#pragma once

#include <span>
#include <string>
#include <vector>

namespace strata {

/// The location of a data file: the path as written if it exists, else below the first of `data_dirs` that
/// contains it, else as written, so that the error on opening it names what the user wrote.
std::string locate_data_file(const std::string& path, std::span<const std::string> data_dirs);
/// The folders of installed data files: beside the running program, and those fixed at build time.
std::vector<std::string> default_data_dirs();

}  // namespace strata
