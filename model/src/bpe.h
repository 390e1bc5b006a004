#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <strata/model/tokenizer_spec.h>

#include "pair_table.h"

namespace strata::detail {

/// The characters of a tokenizer whose tokens are of characters, and where its text may be cut: between two
/// bytes that stand side by side in no token no merge ever crosses.
class CharacterTable {
 public:
  void take(std::string_view token, std::int32_t id);
  /// The token of one character, -1 where it has none.
  std::int32_t find(std::string_view character) const noexcept;
  bool may_join(char left, char right) const noexcept { return joined_[index(left, right)]; }
  std::size_t last_cut_before_a_space(std::string_view text) const noexcept;

 private:
  static std::size_t index(char left, char right) noexcept {
    return static_cast<std::size_t>(static_cast<unsigned char>(left)) << 8 |
           static_cast<unsigned char>(right);
  }
  std::vector<bool> joined_ = std::vector<bool>(std::size_t{1} << 16);
  std::unordered_map<char32_t, std::int32_t> ids_;
};

/// What merging a piece needs to know; const from any thread.
struct BpeTable {
  std::array<std::int32_t, 256> byte_ids{};
  std::optional<CharacterTable> characters;  // of SplitRule::none; byte_ids are of what it does not have
  PairTable pairs;
  std::unordered_map<std::string, std::int32_t> whole;  // pieces that are tokens without asking the merges
};

/// Cuts text into pieces and merges each (Sennrich et al. 2016, Alg. 1). Remembers what pieces became, as
/// words come again; one thread at a time. `text_bytes` is about what will be encoded: it sizes the memory.
class BpeEncoder {
 public:
  BpeEncoder(const BpeTable& table, SplitRule rule, std::size_t text_bytes);
  void encode(std::string_view text, std::vector<std::int32_t>& out);

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t key_at = 0;
    std::uint32_t ids_at = 0;  // the id itself where there is one
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
      return rank != other.rank ? rank > other.rank : at > other.at;  // equal ranks from the left
    }
  };

  void encode_characters(std::string_view text, std::vector<std::int32_t>& out);
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& out);
  void remember(Slot& slot, std::uint64_t hash, std::string_view piece, const std::int32_t* ids,
                std::size_t n_ids);
  /// Writes what merging begins from, at most piece.size() ids, and returns how many.
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
