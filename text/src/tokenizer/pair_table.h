#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer/pair_key.h"

namespace strata::detail {

inline constexpr std::uint32_t kNoRank = 0xFFFFFFFF;

/// Maps a pair of tokens to the result and rank of its merge. A flat hash table with linear probing: each
/// merge does two lookups, so this is the hottest memory of encoding.
class PairTable {
 public:
  struct Found {
    std::uint32_t rank = kNoRank;
    std::int32_t result = -1;
  };

  PairTable() = default;
  explicit PairTable(std::size_t n_pairs)
      : slots_(std::bit_ceil(2 * n_pairs + 2)), mask_(slots_.size() - 1) {}

  /// Returns false if the pair is already in the table.
  bool insert(std::int32_t left, std::int32_t right, Found what) noexcept {
    const std::uint64_t key = pair_key(left, right);
    std::size_t at = mixed(key) & mask_;
    for (; slots_[at].found.rank != kNoRank; at = (at + 1) & mask_)
      if (slots_[at].key == key) return false;
    slots_[at] = {key, what};
    return true;
  }
  Found find(std::int32_t left, std::int32_t right) const noexcept {
    const std::uint64_t key = pair_key(left, right);
    std::size_t at = mixed(key) & mask_;
    for (; slots_[at].found.rank != kNoRank; at = (at + 1) & mask_)
      if (slots_[at].key == key) return slots_[at].found;
    return {};
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Found found;
  };
  static constexpr std::uint64_t mixed(std::uint64_t key) noexcept {
    key ^= key >> 29;
    key *= 0x9E3779B97F4A7C15;
    return key ^ key >> 32;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(1);
  std::size_t mask_ = 0;
};

}  // namespace strata::detail
