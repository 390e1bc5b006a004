#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata {

/// The terms of MPI and NCCL. `send` and `receive` concern two ranks, all others every rank of a group.
enum class CollectiveKind : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  all_to_all,
  shift,
  send,
  receive
};
std::string_view to_string(CollectiveKind kind) noexcept;

enum class Reduction : std::uint8_t { sum, max };
std::string_view to_string(Reduction reduction) noexcept;

/// One collective as data, seen by one rank. In a group of n ranks:
///
/// | kind             | send           | receive        | result                                          |
/// | ---------------- | -------------- | -------------- | ----------------------------------------------- |
/// | `all_gather`     | b bytes        | n * b bytes    | part q of `receive` is the `send` of rank q      |
/// | `reduce_scatter` | n * b bytes    | b bytes        | the reduction of part `rank` of every `send`     |
/// | `all_reduce`     | empty          | b bytes        | the reduction of every `receive`, in place       |
/// | `broadcast`      | empty          | b bytes        | the `receive` of rank `peer`                     |
/// | `all_to_all`     | n * b bytes    | n * b bytes    | part q of `receive` is part `rank` of q's `send` |
/// | `shift`          | b bytes        | b bytes        | the `send` of rank (`rank` + `peer`) mod n       |
/// | `send`           | b bytes        | empty          | goes to rank `peer`                              |
/// | `receive`        | empty          | b bytes        | the `send` of rank `peer`                        |
///
/// `send` and `receive` do not overlap, with two exceptions: in `all_gather`, `send` may be part `rank` of
/// `receive`, and in `reduce_scatter`, `receive` may be part `rank` of `send`.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  ConstBufferView send = {};
  BufferView receive = {};
  DType dtype = DType::u8;               ///< for reductions: f64, f32, bf16, f16 or i32
  Reduction reduction = Reduction::sum;  ///< for reductions
  /// The root of a broadcast; the other rank of a send or receive; how many ranks further a shift reads.
  int peer = 0;
};

/// "all_reduce (sum) of 4096 bytes of f32", for messages.
std::string to_string(const Collective& collective);

/// Checks what one rank can know: sizes, dtype and peer. Errors: `invalid`, naming the numbers.
Status check(const Collective& collective, int rank, int size);

/// Checks a list of ranks that are to form a group of their own, with `rank` in it. Errors: `invalid`.
Status check_members(std::span<const int> members, int rank, int size);

/// Whether the calls of two ranks of a group belong together. Errors: `invalid`, naming both.
Status check_match(const Collective& a, int rank_a, const Collective& b, int rank_b);

/// Bytes that the rank sends and receives over the network, if every part goes straight to its reader once.
/// An all_reduce is a reduce_scatter followed by an all_gather (Rabenseifner 2004).
struct CollectiveBytes {
  std::uint64_t sent = 0, received = 0;
};
CollectiveBytes wire_bytes(const Collective& collective, int rank, int size) noexcept;

}  // namespace strata
