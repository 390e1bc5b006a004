#include <strata/text/tokenizer.h>

#include <deque>
#include <queue>
#include <unordered_set>
#include <utility>

#include <strata/runtime/str.h>

#include "text/nfc.h"
#include "tokenizer/pair_key.h"
#include "tokenizer/pretokenizer.h"

namespace strata {
namespace {

struct Word {
  std::vector<std::int32_t> ids;
  std::int64_t count = 0;
};

/// Counts of adjacent pairs over the distinct pre-tokens of the texts, updated as pairs are merged. The cost
/// of a merge is proportional to the words that contain the pair, not to the corpus.
class PairCounts {
 public:
  explicit PairCounts(std::vector<Word> words) : words_(std::move(words)) {
    for (std::uint32_t w = 0; w < words_.size(); ++w)
      for (std::size_t i = 0; i + 1 < words_[w].ids.size(); ++i)
        add(detail::pair_key(words_[w].ids[i], words_[w].ids[i + 1]), words_[w].count, w);
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  /// Removes and returns the most frequent pair, on a tie the one with the lower ids; count 0 if none is
  /// left.
  std::pair<std::int64_t, std::uint64_t> take_best() {
    while (!queue_.empty()) {
      const Entry best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.key);
      const std::int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count == best.count && count > 0) return {count, best.key};
      if (count > 0 && count < best.count)
        queue_.push({count, best.key});  // an increased count was pushed when it grew
    }
    return {0, 0};
  }

  void merge(std::uint64_t key, std::int32_t result) {
    const std::vector<std::uint32_t> where = std::move(pairs_[key].words);
    grown_.clear();
    for (const std::uint32_t w : where) merge_in(w, key, result);
    pairs_.erase(key);
    for (const std::uint64_t k : grown_)
      if (const auto found = pairs_.find(k); found != pairs_.end()) queue_.push({found->second.count, k});
  }

 private:
  struct Pair {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // words that contained it when it was counted; may repeat or be stale
  };
  struct Entry {
    std::int64_t count;
    std::uint64_t key;
    bool operator<(const Entry& other) const noexcept {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  void add(std::uint64_t key, std::int64_t count, std::uint32_t word) {
    Pair& pair = pairs_[key];
    pair.count += count;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  }
  void merge_in(std::uint32_t w, std::uint64_t key, std::int32_t result) {
    Word& word = words_[w];
    const auto become = [&](std::uint64_t was, std::uint64_t now) {
      pairs_[was].count -= word.count;
      add(now, word.count, w);
      grown_.push_back(now);
    };
    std::vector<std::int32_t>& ids = word.ids;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + 1 == ids.size() || detail::pair_key(ids[i], ids[i + 1]) != key) {
        ids[kept++] = ids[i];
        continue;
      }
      if (kept > 0) become(detail::pair_key(ids[kept - 1], ids[i]), detail::pair_key(ids[kept - 1], result));
      if (i + 2 < ids.size())
        become(detail::pair_key(ids[i + 1], ids[i + 2]), detail::pair_key(result, ids[i + 2]));
      ids[kept++] = result;
      ++i;
    }
    ids.resize(kept);
  }

  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::priority_queue<Entry> queue_;
  std::vector<std::uint64_t> grown_;
};

std::vector<Word> distinct_pieces(std::span<const std::string_view> texts, const TokenizerSpec& spec) {
  std::vector<Word> words;
  std::deque<std::string> normalized;  // owns the texts that the index points to
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::string_view text : texts) {
    if (auto nfc = spec.nfc ? detail::to_nfc(text) : std::nullopt; nfc.has_value())
      text = normalized.emplace_back(*std::move(nfc));
    detail::PreTokenizer splitter(text, spec.split);
    for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
      const auto [at, is_new] = index.emplace(piece, words.size());
      if (is_new) {
        Word& word = words.emplace_back();
        for (const char c : piece) word.ids.push_back(static_cast<unsigned char>(c));
      }
      ++words[at->second].count;
    }
  }
  return words;
}

}  // namespace

Result<Tokenizer> Tokenizer::train(std::span<const std::string_view> texts, std::int32_t vocab_size,
                                   SplitRule split) {
  constexpr std::int32_t kMinVocab = 256 + 1;
  if (vocab_size < kMinVocab || vocab_size > TokenizerSpec::kMaxVocab)
    return Status::error(Code::invalid, str("a vocabulary of ", vocab_size, " tokens; allowed are ",
                                            kMinVocab, " to ", TokenizerSpec::kMaxVocab));
  if (split == SplitRule::none)
    return Status::error(Code::unsupported, "tokenizers of SentencePiece are read, and not trained");
  TokenizerSpec spec;
  spec.split = split;
  spec.nfc = split == SplitRule::qwen2;
  std::vector<std::string>& tokens = spec.tokens;
  tokens.reserve(static_cast<std::size_t>(vocab_size));
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  std::unordered_map<std::string, std::int32_t>
      made;  // two merges can spell the same token: ab + c and a + bc
  std::vector<Merge>& merges = spec.merges;
  std::unordered_set<std::uint64_t> merged;
  PairCounts counts(distinct_pieces(texts, spec));
  while (static_cast<std::int32_t>(tokens.size()) + 1 < vocab_size) {
    const auto [count, key] = counts.take_best();
    if (count < 2) break;
    const auto left = static_cast<std::int32_t>(key >> 32);
    const auto right = static_cast<std::int32_t>(key & 0xFFFFFFFF);
    std::string joined = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
    if (joined.size() > kMaxTokenBytes || joined == kEndOfText) continue;
    const auto [at, is_new] = made.emplace(joined, static_cast<std::int32_t>(tokens.size()));
    if (is_new) tokens.push_back(std::move(joined));
    // A pair returns if a later merge spells one of its halves again; its merge is in the list already.
    if (merged.insert(key).second) merges.push_back({left, right, at->second});
    counts.merge(key, at->second);
  }
  tokens.emplace_back(kEndOfText);
  const auto end_of_text = static_cast<std::int32_t>(tokens.size()) - 1;
  spec.added.push_back({.id = end_of_text, .content = std::string(kEndOfText), .in_vocab = true});
  return create(std::move(spec));
}

}  // namespace strata
