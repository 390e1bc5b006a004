#include <strata/model/tokenizer.h>

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

#include "byte_alphabet.h"
#include "pair_key.h"
#include "pretokenizer.h"

namespace strata {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr std::size_t kMaxCachedPieces = std::size_t{1} << 16;
constexpr std::size_t kMaxCachedPieceBytes = 64;

std::string shown(const std::string& token) {
  return str("'", detail::bytes_to_alphabet(token.substr(0, 60)), "'");
}

Status check_tokens(const std::vector<std::string>& tokens, const std::vector<std::int32_t>& special) {
  if (tokens.size() > static_cast<std::size_t>(Tokenizer::kMaxVocab))
    return Status::error(Code::invalid, str(tokens.size(), " tokens, at most ", Tokenizer::kMaxVocab));
  for (const std::int32_t id : special)
    if (id < 0 || static_cast<std::size_t>(id) >= tokens.size())
      return Status::error(Code::invalid, str("special id ", id, " in a vocabulary of ", tokens.size()));
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (tokens[id].empty() || tokens[id].size() > Tokenizer::kMaxTokenBytes)
      return Status::error(Code::invalid, str("token ", id, " has ", tokens[id].size(),
                                              " bytes, allowed are 1 to ", Tokenizer::kMaxTokenBytes));
  return {};
}

}  // namespace

/// The merging of one piece: a linked list of symbols and a heap of candidate merges. Entries go stale when a
/// neighbour changes; a popped one counts only if its pair still has its rank.
class Tokenizer::Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) noexcept : t_(tokenizer) {}

  void encode(std::string_view text, std::vector<std::int32_t>& out) {
    detail::PieceSplitter splitter(text);
    for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
      if (piece.size() > kMaxCachedPieceBytes) {
        merge(piece, out);
        continue;
      }
      if (const auto known = cache_.find(piece); known != cache_.end()) {
        out.insert(out.end(), known->second.begin(), known->second.end());
        continue;
      }
      const std::size_t begin = out.size();
      merge(piece, out);
      if (cache_.size() < kMaxCachedPieces)
        cache_.emplace(
            piece, std::vector<std::int32_t>(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end()));
    }
  }

 private:
  struct Symbol {
    std::int32_t id;
    std::uint32_t prev;
    std::uint32_t next;
  };
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t at;
    bool operator>(const Candidate& other) const noexcept {
      return std::pair(rank, at) > std::pair(other.rank, other.at);  // equal ranks from the left
    }
  };

  std::uint32_t rank_at(std::uint32_t at) const noexcept {
    const Symbol& s = symbols_[at];
    if (s.id < 0 || s.next == kNone) return kNone;
    const auto found = t_.ranks_.find(detail::pair_key(s.id, symbols_[s.next].id));
    return found == t_.ranks_.end() ? kNone : found->second;
  }
  void push(std::uint32_t at) {
    const std::uint32_t rank = rank_at(at);
    if (rank == kNone) return;
    heap_.push_back({rank, at});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  void apply(std::uint32_t at, std::int32_t result) {
    Symbol& left = symbols_[at];
    Symbol& right = symbols_[left.next];
    left.id = result;
    left.next = right.next;
    right.id = -1;
    if (left.next != kNone) symbols_[left.next].prev = at;
    if (left.prev != kNone) push(left.prev);
    push(at);
  }
  void merge(std::string_view piece, std::vector<std::int32_t>& out) {
    symbols_.clear();
    heap_.clear();
    const auto n = static_cast<std::uint32_t>(piece.size());  // kMaxPieceBytes + 1 at most
    for (std::uint32_t i = 0; i < n; ++i)
      symbols_.push_back({t_.byte_ids_[static_cast<unsigned char>(piece[i])], i == 0 ? kNone : i - 1,
                          i + 1 == n ? kNone : i + 1});
    for (std::uint32_t i = 0; i < n; ++i)
      if (const std::uint32_t rank = rank_at(i); rank != kNone) heap_.push_back({rank, i});
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Candidate best = heap_.back();
      heap_.pop_back();
      if (rank_at(best.at) == best.rank) apply(best.at, t_.merges_[best.rank].result);
    }
    for (std::uint32_t i = 0; i != kNone; i = symbols_[i].next) out.push_back(symbols_[i].id);
  }

  const Tokenizer& t_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  std::unordered_map<std::string_view, std::vector<std::int32_t>> cache_;  // keys view the text being encoded
};

Result<Tokenizer> Tokenizer::create(std::vector<std::string> tokens, std::vector<Merge> merges,
                                    std::vector<std::int32_t> special) {
  std::sort(special.begin(), special.end());
  STRATA_TRY(check_tokens(tokens, special));
  Tokenizer self;
  self.tokens_ = std::move(tokens);
  self.merges_ = std::move(merges);
  self.special_ = std::move(special);
  std::unordered_map<std::string_view, std::int32_t> id_of;
  for (std::int32_t id = 0; id < self.vocab_size(); ++id)
    if (!id_of.emplace(self.token(id), id).second)
      return Status::error(Code::corrupt, str("token ", shown(self.token(id)), " is both ",
                                              id_of[self.token(id)], " and ", id));
  for (std::size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const auto found = id_of.find(std::string_view(&byte, 1));
    if (found == id_of.end()) return Status::error(Code::invalid, str("no token for byte ", b));
    self.byte_ids_[b] = found->second;
  }
  const auto ordinary = [&](std::int32_t id) {
    return id >= 0 && id < self.vocab_size() && !self.is_special(id);
  };
  for (std::size_t rank = 0; rank < self.merges_.size(); ++rank) {
    Merge& merge = self.merges_[rank];
    if (!ordinary(merge.left) || !ordinary(merge.right))
      return Status::error(Code::corrupt, str("merge ", rank, " is of ", merge.left, " and ", merge.right,
                                              ", not two ordinary tokens of ", self.vocab_size()));
    const std::string joined = self.token(merge.left) + self.token(merge.right);
    const auto found = id_of.find(joined);
    if (found == id_of.end() || self.is_special(found->second))
      return Status::error(Code::corrupt,
                           str("merge ", rank, " makes ", shown(joined), ", which is no ordinary token"));
    merge.result = found->second;
    if (!self.ranks_.emplace(detail::pair_key(merge.left, merge.right), static_cast<std::uint32_t>(rank))
             .second)
      return Status::error(Code::corrupt, str("merge ", rank, " of ", shown(joined), " is there twice"));
  }
  if (const auto end = id_of.find(kEndOfText); end != id_of.end() && self.is_special(end->second))
    self.end_of_text_ = end->second;
  const std::string json = self.to_json();
  self.digest_ = digest_of(std::as_bytes(std::span(json)));
  return self;
}

bool Tokenizer::is_special(std::int32_t id) const noexcept {
  return std::binary_search(special_.begin(), special_.end(), id);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> out;
  Encoder encoder(*this);
  std::size_t begin = 0;
  if (special == SpecialTokens::recognised) {
    std::array<bool, 256> begins_one{};
    for (const std::int32_t id : special_) begins_one[static_cast<unsigned char>(token(id).front())] = true;
    for (std::size_t at = 0; at < text.size();) {
      std::int32_t match = -1;  // the longest
      if (begins_one[static_cast<unsigned char>(text[at])])
        for (const std::int32_t id : special_)
          if (text.substr(at).starts_with(token(id)) && (match < 0 || token(id).size() > token(match).size()))
            match = id;
      if (match < 0) {
        ++at;
        continue;
      }
      encoder.encode(text.substr(begin, at - begin), out);
      out.push_back(match);
      begin = at += token(match).size();
    }
  }
  encoder.encode(text.substr(begin), out);
  return out;
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size())
      return Status::error(Code::invalid, str("token id ", id, " in a vocabulary of ", vocab_size()));
    out += token(id);
  }
  return out;
}

}  // namespace strata
