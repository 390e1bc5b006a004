#pragma once

#include <strata/graph/program.h>

namespace strata::detail {

/// The part of verify() that concerns moves. The moves of a value, four to the host and back and four more to
/// the slow tier and back, come in their order, once each; nothing else reads a value in flight or on the
/// host; and nothing reads a value after it has left. Errors: `internal`, naming the value.
Status verify_moves(const Program& program);

}  // namespace strata::detail
