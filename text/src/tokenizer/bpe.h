#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <strata/text/tokenizer_spec.h>

#include "tokenizer/pair_table.h"

namespace strata::detail {

/// The characters of a tokenizer whose tokens consist of characters, and where its text may be split: no
/// merge crosses the border of two bytes that are adjacent in no token.
class CharacterTable {
 public:
  void take(std::string_view token, std::int32_t id);
  /// The token of one character, or -1.
  std::int32_t find(std::string_view character) const noexcept;
  bool may_join(char left, char right) const noexcept { return joined_[index(left, right)]; }
  std::size_t last_cut(std::string_view text) const noexcept;

 private:
  static std::size_t index(char left, char right) noexcept {
    return static_cast<std::size_t>(static_cast<unsigned char>(left)) << 8 |
           static_cast<unsigned char>(right);
  }
  std::vector<bool> joined_ = std::vector<bool>(std::size_t{1} << 16);
  std::unordered_map<char32_t, std::int32_t> ids_;
};

/// The tables for merging a pre-token; const calls from any thread.
struct BpeTable {
  std::array<std::int32_t, 256> byte_ids{};
  std::optional<CharacterTable> characters;  // for SplitRule::none; byte_ids are the fallback
  PairTable pairs;
  std::unordered_map<std::string, std::int32_t> whole;  // pre-tokens that become a token without merges
};

/// Pre-tokenizes text and merges each pre-token (Sennrich et al. 2016, Alg. 1). Caches results, since words
/// recur. One thread at a time. `text_bytes` is the approximate amount of text to encode, which sets the
/// cache size.
class BpeEncoder {
 public:
  BpeEncoder(const BpeTable& table, SplitRule rule, std::size_t text_bytes);
  void encode(std::string_view text, std::vector<std::int32_t>& out);

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t key_at = 0;
    std::uint32_t ids_at = 0;  // index of the ids; the id itself if there is only one
    std::uint16_t key_bytes = 0;
    std::uint16_t n_ids = 0;
  };
  struct Symbol {
    std::int32_t id;
    std::uint32_t prev;
    std::uint32_t next;
  };
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t at;
    bool operator>(const Candidate& other) const noexcept {
      return rank != other.rank ? rank > other.rank : at > other.at;  // equal ranks: leftmost first
    }
  };

  void encode_characters(std::string_view text, std::vector<std::int32_t>& out);
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& out);
  void remember(Slot& slot, std::uint64_t hash, std::string_view piece, const std::int32_t* ids,
                std::size_t n_ids);
  /// Writes the initial ids before any merge, at most piece.size(), and returns their number.
  std::size_t begin_from(std::string_view piece, std::int32_t* ids) const noexcept;
  void merge(std::string_view piece, std::vector<std::int32_t>& out);
  void merge_short(std::string_view piece, std::vector<std::int32_t>& out) const;
  void merge_long(std::string_view piece, std::vector<std::int32_t>& out);
  PairTable::Found found_at(std::uint32_t at) const noexcept;
  void push(std::uint32_t at);
  void apply(std::uint32_t at, std::int32_t result);

  const BpeTable& table_;
  SplitRule rule_;
  std::vector<Slot> slots_;
  std::string keys_;
  std::vector<std::int32_t> ids_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace strata::detail
