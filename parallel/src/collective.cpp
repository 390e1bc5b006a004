#include <strata/parallel/collective.h>

#include <algorithm>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

bool reduces(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_reduce;
}
bool has_peer(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::send || kind == CollectiveKind::receive;
}

bool can_reduce(DType dtype) noexcept {
  return is_stored_dtype(dtype) || dtype == DType::f64 || dtype == DType::i32;
}

/// Bytes of `send` and `receive` for a part of b bytes, as multiples of b.
struct Parts {
  int send, receive;
};
Parts parts_of(CollectiveKind kind, int size) noexcept {
  switch (kind) {
    case CollectiveKind::all_gather:
      return {1, size};
    case CollectiveKind::reduce_scatter:
      return {size, 1};
    case CollectiveKind::all_reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::receive:
      return {0, 1};
    case CollectiveKind::all_to_all:
      return {size, size};
    case CollectiveKind::shift:
      return {1, 1};
    case CollectiveKind::send:
      return {1, 0};
  }
  return {0, 0};
}

Status check_sizes(const Collective& c, int size) {
  const Parts parts = parts_of(c.kind, size);
  const std::size_t part = parts.send == 1 || parts.receive == 0
                               ? c.send.bytes
                               : c.receive.bytes / static_cast<std::size_t>(parts.receive);
  const std::size_t send = part * static_cast<std::size_t>(parts.send),
                    receive = part * static_cast<std::size_t>(parts.receive);
  if (c.send.bytes != send || c.receive.bytes != receive)
    return Status::error(Code::invalid,
                         str(to_string(c.kind), " in a group of ", plural(size, "rank"), ": ", c.send.bytes,
                             " bytes to send do not match ", c.receive.bytes, " bytes to receive"));
  return {};
}

}  // namespace

std::string_view to_string(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::shift:
      return "shift";
    case CollectiveKind::send:
      return "send";
    case CollectiveKind::receive:
      return "receive";
  }
  return "unknown";
}

std::string_view to_string(Reduction reduction) noexcept {
  return reduction == Reduction::sum ? "sum" : "max";
}

std::string to_string(const Collective& c) {
  const std::size_t bytes =
      c.kind == CollectiveKind::send || c.kind == CollectiveKind::all_gather ? c.send.bytes : c.receive.bytes;
  std::string text(to_string(c.kind));
  if (reduces(c.kind)) text += str(" (", to_string(c.reduction), ")");
  if (has_peer(c.kind)) text += str(c.kind == CollectiveKind::send ? " to rank " : " from rank ", c.peer);
  if (c.kind == CollectiveKind::shift) text += str(" by ", plural(c.peer, "rank"));
  text += str(" of ", plural(bytes, "byte"));
  if (reduces(c.kind)) text += str(" of ", to_string(c.dtype));
  return text;
}

Status check(const Collective& c, int rank, int size) {
  STRATA_TRY(check_sizes(c, size));
  if (has_peer(c.kind) && (c.peer < 0 || c.peer >= size))
    return Status::error(Code::invalid, str(to_string(c.kind), ": there is no rank ", c.peer,
                                            " in a group of ", plural(size, "rank")));
  if ((c.kind == CollectiveKind::send || c.kind == CollectiveKind::receive) && c.peer == rank)
    return Status::error(Code::invalid, str(to_string(c.kind), ": rank ", rank, " is the caller itself"));
  if (c.kind == CollectiveKind::shift && (c.peer < 0 || c.peer >= size))
    return Status::error(Code::invalid, str("shift by ", plural(c.peer, "rank"), " in a group of ",
                                            plural(size, "rank"), "; it is 0 to ", size - 1));
  if (!reduces(c.kind)) return {};
  if (!can_reduce(c.dtype))
    return Status::error(Code::invalid, str(to_string(c.kind), " of ", to_string(c.dtype),
                                            ": reductions exist for f64, f32, bf16, f16 and i32"));
  if (c.receive.bytes % size_of(c.dtype) != 0)
    return Status::error(Code::invalid, str(to_string(c.kind), ": ", c.receive.bytes,
                                            " bytes are not a whole number of ", to_string(c.dtype)));
  return {};
}

Status check_members(std::span<const int> members, int rank, int size) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] < 0 || members[i] >= size)
      return Status::error(Code::invalid, str("there is no rank ", members[i], " in a group of ",
                                              plural(size, "rank"), " to be divided"));
    if (std::find(members.begin(), members.begin() + static_cast<std::ptrdiff_t>(i), members[i]) !=
        members.begin() + static_cast<std::ptrdiff_t>(i))
      return Status::error(Code::invalid, str("rank ", members[i], " is listed twice for a group"));
  }
  if (std::find(members.begin(), members.end(), rank) == members.end())
    return Status::error(Code::invalid, str("rank ", rank, " is not listed for its own group"));
  return {};
}

Status check_match(const Collective& a, int rank_a, const Collective& b, int rank_b) {
  const bool pair = a.kind == CollectiveKind::send && b.kind == CollectiveKind::receive;
  const bool same =
      a.kind == b.kind && a.send.bytes == b.send.bytes && a.receive.bytes == b.receive.bytes &&
      (!reduces(a.kind) || (a.dtype == b.dtype && a.reduction == b.reduction)) &&
      ((a.kind != CollectiveKind::broadcast && a.kind != CollectiveKind::shift) || a.peer == b.peer);
  if (pair ? a.send.bytes == b.receive.bytes : same) return {};
  return Status::error(
      Code::invalid,
      str("rank ", rank_a, " queued ", to_string(a), ", but rank ", rank_b, " queued ", to_string(b),
          "; all ranks of a group must queue the same collectives in the same order"));
}

CollectiveBytes wire_bytes(const Collective& c, int rank, int size) noexcept {
  const auto others = static_cast<std::uint64_t>(size - 1), n = static_cast<std::uint64_t>(size),
             r = static_cast<std::uint64_t>(rank);
  switch (c.kind) {
    case CollectiveKind::all_gather:
      return {others * c.send.bytes, others * c.send.bytes};
    case CollectiveKind::reduce_scatter:
      return {others * c.receive.bytes, others * c.receive.bytes};
    case CollectiveKind::all_reduce: {
      // Parts differ by one element if the ranks do not divide them. First the parts of the others go out and
      // this rank's part comes in from each; then the other way round.
      const std::uint64_t width = size_of(c.dtype), elems = c.receive.bytes / width;
      const std::uint64_t mine = (elems * (r + 1) / n - elems * r / n) * width;
      const std::uint64_t bytes = c.receive.bytes - mine + others * mine;
      return {bytes, bytes};
    }
    case CollectiveKind::broadcast:
      return rank == c.peer ? CollectiveBytes{others * c.receive.bytes, 0}
                            : CollectiveBytes{0, c.receive.bytes};
    case CollectiveKind::all_to_all:
      return {c.send.bytes / n * others, c.send.bytes / n * others};
    case CollectiveKind::shift:
      return c.peer == 0 ? CollectiveBytes{} : CollectiveBytes{c.send.bytes, c.receive.bytes};
    case CollectiveKind::send:
      return {c.send.bytes, 0};
    case CollectiveKind::receive:
      return {0, c.receive.bytes};
  }
  return {};
}

}  // namespace strata
