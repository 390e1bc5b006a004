#pragma once

#include <string_view>

namespace strata {

/// Whether an address, or what the header Host says with or without a port, names this machine: localhost,
/// names below it, 127.0.0.0/8, ::1.
bool is_this_machine(std::string_view host) noexcept;

}  // namespace strata
