#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

namespace strata::detail {

/// Returns "opening /x: No such file or directory (ENOENT, 2)" with the Code that matches the errno value
/// `error`.
inline Status errno_status(std::string_view doing, std::string_view object, int error) {
  Code code = Code::io_error;
  switch (error) {
    case ENOENT:
      code = Code::not_found;
      break;
    case ENOSPC:
    case EDQUOT:
      code = Code::no_space;
      break;
    case ENOMEM:
      code = Code::out_of_memory;
      break;
    case EEXIST:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      code = Code::invalid;
      break;
    default:
      break;
  }
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  return Status::error(code, str(doing, " ", object, ": ", text != nullptr ? text : "unknown error", " (",
                                 name != nullptr ? name : "?", ", ", error, ")"));
}

}  // namespace strata::detail
