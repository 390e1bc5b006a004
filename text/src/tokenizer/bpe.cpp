#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "tokenizer/pretokenizer.h"
#include <strata/runtime/utf8.h>

namespace strata::detail {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr std::size_t kMaxShortBytes = 64;  // up to here a scan for the best merge is faster than a heap
constexpr std::size_t kWays = 4;            // associativity of the cache of pre-tokens
constexpr std::size_t kMaxSlots = std::size_t{1} << 16;
constexpr std::size_t kMaxKeyBytes = std::size_t{16} << 20;

std::uint64_t hash_of(std::string_view piece) noexcept {
  std::uint64_t hash = piece.size();
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  };
  while (piece.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, piece.data(), 8);
    mix(word);
    piece.remove_prefix(8);
  }
  std::uint64_t word = 0;
  for (const char c : piece) word = word << 8 | static_cast<unsigned char>(c);
  mix(word);
  return hash;
}

}  // namespace

void CharacterTable::take(std::string_view token, std::int32_t id) {
  for (std::size_t i = 1; i < token.size(); ++i) joined_[index(token[i - 1], token[i])] = true;
  const CodePoint first = code_point_at(token, 0);
  if (first.value != kNoCodePoint && first.length == token.size()) ids_.emplace(first.value, id);
}

std::int32_t CharacterTable::find(std::string_view character) const noexcept {
  const auto found = ids_.find(code_point_at(character, 0).value);
  return found == ids_.end() ? -1 : found->second;
}

// A space and a line end are valid cuts only because no added token that is searched contains them. U+2581
// stands for a space, which may join a line end.
std::size_t CharacterTable::last_cut(std::string_view text) const noexcept {
  constexpr char kEndOfSpace = '\x81';
  for (std::size_t n = text.size(); n-- > 1;) {
    const bool may_cut = text[n] == ' ' || (text[n] == '\n' && text[n - 1] != kEndOfSpace);
    if (may_cut && !may_join(text[n - 1], text[n])) return n;
  }
  return 0;
}

BpeEncoder::BpeEncoder(const BpeTable& table, SplitRule rule, std::size_t text_bytes)
    : table_(table),
      rule_(rule),
      slots_(std::min(kMaxSlots, std::bit_ceil(std::max<std::size_t>(text_bytes / 8, 2 * kWays)))) {}

void BpeEncoder::encode(std::string_view text, std::vector<std::int32_t>& out) {
  if (table_.characters) return encode_characters(text, out);
  PreTokenizer splitter(text, rule_);
  for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next())
    encode_piece(piece, out);
}

void BpeEncoder::encode_characters(std::string_view text, std::vector<std::int32_t>& out) {
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    for (end = begin + 1; end < text.size() && end - begin < kMaxPretokenBytes; ++end)
      if (!table_.characters->may_join(text[end - 1], text[end])) break;
    encode_piece(text.substr(begin, end - begin), out);
  }
}

std::size_t BpeEncoder::begin_from(std::string_view piece, std::int32_t* ids) const noexcept {
  std::size_t n = 0;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length = table_.characters ? code_point_at(piece, at).length : 1;
    const std::int32_t id = table_.characters ? table_.characters->find(piece.substr(at, length)) : -1;
    if (id >= 0)
      ids[n++] = id;
    else
      for (std::size_t i = 0; i < length; ++i)
        ids[n++] = table_.byte_ids[static_cast<unsigned char>(piece[at + i])];
    at += length;
  }
  return n;
}

void BpeEncoder::encode_piece(std::string_view piece, std::vector<std::int32_t>& out) {
  if (piece.size() == 1 && !table_.characters) {
    out.push_back(table_.byte_ids[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > kMaxShortBytes) return merge(piece, out);
  const std::uint64_t hash = hash_of(piece);
  Slot* const ways = &slots_[(hash & (slots_.size() - 1)) & ~(kWays - 1)];
  Slot* free = nullptr;
  for (Slot* slot = ways; slot != ways + kWays; ++slot) {
    if (slot->hash == hash && slot->key_bytes == piece.size() &&
        std::memcmp(&keys_[slot->key_at], piece.data(), piece.size()) == 0) {
      if (slot->n_ids == 1)
        out.push_back(static_cast<std::int32_t>(slot->ids_at));
      else
        out.insert(out.end(), &ids_[slot->ids_at], &ids_[slot->ids_at] + slot->n_ids);
      return;
    }
    if (slot->key_bytes == 0 && free == nullptr) free = slot;
  }
  const std::size_t begin = out.size();
  merge(piece, out);
  // A full set evicts an entry chosen by the upper bits of the hash; a frequent one soon returns.
  remember(free != nullptr ? *free : ways[hash >> 62], hash, piece, &out[begin], out.size() - begin);
}

void BpeEncoder::remember(Slot& slot, std::uint64_t hash, std::string_view piece, const std::int32_t* ids,
                          std::size_t n_ids) {
  if (keys_.size() + piece.size() > kMaxKeyBytes) {  // evicted keys still occupy memory: clear the cache
    keys_.clear();
    ids_.clear();
    std::fill(slots_.begin(), slots_.end(), Slot{});
  }
  const std::size_t ids_at = n_ids == 1 ? static_cast<std::size_t>(ids[0]) : ids_.size();
  slot = {hash, static_cast<std::uint32_t>(keys_.size()), static_cast<std::uint32_t>(ids_at),
          static_cast<std::uint16_t>(piece.size()), static_cast<std::uint16_t>(n_ids)};
  keys_.append(piece);
  if (n_ids > 1) ids_.insert(ids_.end(), ids, ids + n_ids);
}

void BpeEncoder::merge(std::string_view piece, std::vector<std::int32_t>& out) {
  if (!table_.whole.empty())
    if (const auto whole = table_.whole.find(std::string(piece)); whole != table_.whole.end()) {
      out.push_back(whole->second);
      return;
    }
  piece.size() <= kMaxShortBytes ? merge_short(piece, out) : merge_long(piece, out);
}

void BpeEncoder::merge_short(std::string_view piece, std::vector<std::int32_t>& out) const {
  std::array<std::int32_t, kMaxShortBytes> ids;
  std::array<PairTable::Found, kMaxShortBytes> found;  // found[i] is the merge of ids[i] and ids[i + 1]
  std::size_t n = begin_from(piece, ids.data());
  for (std::size_t i = 0; i + 1 < n; ++i) found[i] = table_.pairs.find(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (found[i].rank < found[best].rank) best = i;
    if (found[best].rank == kNoRank) break;
    ids[best] = found[best].result;
    std::copy(ids.data() + best + 2, ids.data() + n, ids.data() + best + 1);
    if (best + 2 < n) std::copy(found.data() + best + 2, found.data() + n - 1, found.data() + best + 1);
    --n;
    if (best > 0) found[best - 1] = table_.pairs.find(ids[best - 1], ids[best]);
    if (best + 1 < n) found[best] = table_.pairs.find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
}

PairTable::Found BpeEncoder::found_at(std::uint32_t at) const noexcept {
  const Symbol& s = symbols_[at];
  if (s.id < 0 || s.next == kNone) return {};
  return table_.pairs.find(s.id, symbols_[s.next].id);
}

void BpeEncoder::push(std::uint32_t at) {
  const std::uint32_t rank = found_at(at).rank;
  if (rank == kNoRank) return;
  heap_.push_back({rank, at});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeEncoder::apply(std::uint32_t at, std::int32_t result) {
  Symbol& left = symbols_[at];
  Symbol& right = symbols_[left.next];
  left.id = result;
  left.next = right.next;
  right.id = -1;
  if (left.next != kNone) symbols_[left.next].prev = at;
  if (left.prev != kNone) push(left.prev);
  push(at);
}

/// A linked list of symbols and a heap of candidate merges. Entries become stale when a neighbour changes; a
/// popped entry is used only if its pair still has its rank.
void BpeEncoder::merge_long(std::string_view piece, std::vector<std::int32_t>& out) {
  symbols_.clear();
  heap_.clear();
  std::vector<std::int32_t> ids(piece.size());
  const auto n =
      static_cast<std::uint32_t>(begin_from(piece, ids.data()));  // at most slightly above kMaxPretokenBytes
  for (std::uint32_t i = 0; i < n; ++i)
    symbols_.push_back({ids[i], i == 0 ? kNone : i - 1, i + 1 == n ? kNone : i + 1});
  for (std::uint32_t i = 0; i < n; ++i)
    if (const std::uint32_t rank = found_at(i).rank; rank != kNoRank) heap_.push_back({rank, i});
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate best = heap_.back();
    heap_.pop_back();
    if (const PairTable::Found found = found_at(best.at); found.rank == best.rank)
      apply(best.at, found.result);
  }
  for (std::uint32_t i = 0; i != kNone; i = symbols_[i].next) out.push_back(symbols_[i].id);
}

}  // namespace strata::detail
