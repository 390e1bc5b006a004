#include <strata/serve/local_host.h>

#include <algorithm>
#include <cctype>

namespace strata {
namespace {

bool equal_text(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view without_port(std::string_view host) noexcept {
  if (host.starts_with('[')) return host.substr(1, std::min(host.find(']'), host.size()) - 1);
  const std::size_t colon = host.find(':');
  return colon == host.rfind(':') ? host.substr(0, colon) : host;  // IPv6 has more of them
}

}  // namespace

bool is_this_machine(std::string_view host) noexcept {
  constexpr std::string_view kLocal = ".localhost";
  const std::string_view name = without_port(host);
  if (equal_text(name, "localhost") || name == "::1") return true;
  if (name.size() > kLocal.size() && equal_text(name.substr(name.size() - kLocal.size()), kLocal))
    return true;
  // Only digits: 127.example.org may be any machine.
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool is_host(std::string_view host, std::string_view name) noexcept {
  return equal_text(without_port(host), without_port(name));
}

}  // namespace strata
