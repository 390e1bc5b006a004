#pragma once

#include <string_view>

namespace strata {

/// Whether an address, or what the header Host says with or without a port, names this machine: localhost,
/// names below it, 127.0.0.0/8, ::1.
bool is_this_machine(std::string_view host) noexcept;

/// Whether the header Host, with or without a port, says this name, in any case.
bool is_host(std::string_view host, std::string_view name) noexcept;

}  // namespace strata
