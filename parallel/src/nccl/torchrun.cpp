#include "nccl/torchrun.h"

#include <charconv>
#include <string_view>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr int kMaxPort = 65535;

Result<std::string_view> variable(std::span<const std::string> environment, std::string_view name) {
  for (const std::string_view word : environment)
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
      return word.substr(name.size() + 1);
  return Status::error(Code::invalid, str(name, " is not set, which torchrun does"));
}

Result<int> number(std::span<const std::string> environment, std::string_view name, int least, int most) {
  STRATA_TRY_ASSIGN(const std::string_view text, variable(environment, name));
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return Status::error(Code::invalid,
                         str(name, " is \"", text, "\", which is not a number from ", least, " to ", most));
  return value;
}

}  // namespace

Result<TorchrunRank> read_torchrun(std::span<const std::string> environment) {
  constexpr int kMany = 1 << 20;
  TorchrunRank found;
  STRATA_TRY_ASSIGN(found.size, number(environment, "WORLD_SIZE", 1, kMany));
  STRATA_TRY_ASSIGN(found.rank, number(environment, "RANK", 0, found.size - 1));
  STRATA_TRY_ASSIGN(found.local_rank, number(environment, "LOCAL_RANK", 0, found.size - 1));
  if (const auto chosen = variable(environment, "NCCL_COMM_ID"); chosen.has_value()) {
    found.comm_id = *chosen;
    return found;
  }
  STRATA_TRY_ASSIGN(const std::string_view host, variable(environment, "MASTER_ADDR"));
  STRATA_TRY_ASSIGN(const int port, number(environment, "MASTER_PORT", 1, kMaxPort - 1));
  const bool is_ipv6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  found.comm_id = str(is_ipv6 ? "[" : "", host, is_ipv6 ? "]:" : ":", port + 1);
  return found;
}

}  // namespace strata::detail
