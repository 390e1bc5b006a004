#include "mpi/gather_texts.h"

#include <cstdint>
#include <numeric>
#include <span>

namespace strata::detail {

// Two rounds, since MPI needs to know how long a message is before it arrives.
Result<std::vector<std::string>> gather_texts(MpiThread& thread, Peers& peers, int tag,
                                              std::string_view text) {
  STRATA_TRY(thread.failure(peers));
  const auto n = static_cast<std::size_t>(peers.size()), me = static_cast<std::size_t>(peers.rank());
  std::vector<std::uint64_t> lengths(n, text.size());
  Exchange exchange;
  const auto run_round = [&](const std::byte* mine, std::size_t bytes, const auto& place) -> Status {
    exchange.start_over(peers, tag);
    for (std::size_t q = 0; q < n; ++q) {
      if (q == me) continue;
      const std::span<std::byte> from = place(q);
      exchange.send(static_cast<int>(q), mine, bytes);
      exchange.receive(static_cast<int>(q), from.data(), from.size());
    }
    thread.begin(exchange);
    return thread.wait(exchange);
  };
  const std::uint64_t length = text.size();
  STRATA_TRY(run_round(reinterpret_cast<const std::byte*>(&length), sizeof length,
                       [&](std::size_t q) { return std::as_writable_bytes(std::span(&lengths[q], 1)); }));
  std::vector<std::string> texts(n);
  for (std::size_t q = 0; q < n; ++q) texts[q].resize(lengths[q]);
  texts[me] = text;
  STRATA_TRY(run_round(reinterpret_cast<const std::byte*>(text.data()), text.size(),
                       [&](std::size_t q) { return std::as_writable_bytes(std::span(texts[q])); }));
  thread.count_control_bytes((sizeof length + text.size()) * (n - 1),
                             sizeof length * (n - 1) +
                                 std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0}) -
                                 text.size());
  return texts;
}

}  // namespace strata::detail
