#pragma once

#include <strata/graph/program.h>

namespace strata::detail {

/// The part of verify() that concerns moves: those of a value, four to the host and four more to the slow
/// tier, come in their order, once each; nothing else reads what is in flight or on the host; and nothing
/// reads what has left. Errors: `internal`, naming the value.
Status verify_moves(const Program& program);

}  // namespace strata::detail
