#pragma once

#include <string>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Whether a server could listen at the address now; binds it for a moment. Errors: `io_error` with the
/// address, the reason of the system, and what else can be chosen.
Status check_listen_address(const std::string& host, int port);

}  // namespace strata::detail
