#pragma once

#include <cstdint>

namespace strata {

/// The purpose for which a folder's files are read. Their names say what they were made for, as in `datasets`
/// of Hugging Face: test, testing, eval and evaluation; val, valid, validation and dev; each between
/// separators.
enum class DataSplit : std::uint8_t {
  train,       ///< files that were made for neither of the others, unless there are only those
  validation,  ///< files for validation, or else for tests, or else all
};

}  // namespace strata
