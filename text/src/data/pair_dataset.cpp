#include <strata/text/pair_dataset.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include <strata/runtime/str.h>

#include <strata/text/permutation.h>

namespace strata {
namespace detail {

/// The tokens of a document that are used, and where they are in a micro-batch.
struct PlacedDocument {
  std::uint64_t begin = 0, end = 0;  ///< in the cache
  std::uint32_t row = 0, at = 0;     ///< where the first token is in the micro-batch
};

}  // namespace detail

namespace {

using detail::PlacedDocument;

std::uint64_t first_in_loss(const TokenCache& cache, std::uint64_t document) {
  std::uint64_t at = cache.document_begin(document);
  // The first token has no predecessor, and is no target.
  for (++at; at < cache.document_end(document) && !cache.loss_mask(at);) ++at;
  return at;
}

std::uint64_t excess(std::uint64_t tokens, std::uint64_t room) { return tokens > room ? tokens - room : 0; }

}  // namespace

struct PairDataset::Packed {
  PairStats stats;
  std::vector<std::uint32_t> pairs;  // the pairs of all micro-batches, one after the other
  std::vector<std::array<detail::PlacedDocument, 2>> documents;  // the documents of each of these
  std::vector<std::uint64_t> first;  // the first pair of each micro-batch, and at the end the number of pairs
};

namespace {

/// Places one pair after the other, and begins a micro-batch when one does not fit.
class PairPacker {
 public:
  PairPacker(const TokenCache& cache, const PairOptions& options)
      : cache_(cache),
        options_(options),
        // Without the last token as an input, a row holds the inputs of documents of seq + 1 tokens.
        last_is_input_(options.segments == PairOptions::Segments::last_token),
        used_(static_cast<std::size_t>(options.rows)) {}

  /// The documents of a pair, cut to a row; false if one of them has no token in the loss.
  bool cut(std::uint64_t pair, std::array<PlacedDocument, 2>& documents, bool& is_cut) const {
    const auto room = static_cast<std::uint64_t>(options_.seq) + (last_is_input_ ? 0 : 1);
    std::uint64_t front = 0, prompt = ~std::uint64_t{0};
    for (std::size_t side = 0; side < 2; ++side) {
      const std::uint64_t d = 2 * pair + side, begin = cache_.document_begin(d), end = end_of(d);
      const std::uint64_t answer = first_in_loss(cache_, d);
      if (answer >= end) return false;
      documents[side] = {begin, end};
      front = std::max(front, excess(end - begin, room));
      prompt = std::min(prompt, answer - begin - 1);  // one token before the answer stays
    }
    front = std::min(front, prompt);
    for (PlacedDocument& document : documents) {
      document.begin += front;
      const std::uint64_t back = excess(document.end - document.begin, room);
      document.end -= back;
      is_cut = is_cut || front + back > 0;
    }
    return true;
  }

  /// Programs that read such models do not score an end of text, since they pad with it.
  std::uint64_t end_of(std::uint64_t document) const {
    const std::uint64_t end = cache_.document_end(document);
    return last_is_input_ && cache_.token(end - 1) == options_.end_of_text ? end - 1 : end;
  }

  /// Whether both documents fit into the present micro-batch, and where.
  bool place(std::array<PlacedDocument, 2>& documents) {
    if (n_pairs_ == options_.max_pairs) return false;
    std::vector<std::int64_t> used = used_;
    for (PlacedDocument& document : documents) {
      const auto n = static_cast<std::int64_t>(document.end - document.begin) - (last_is_input_ ? 0 : 1);
      const auto row =
          std::find_if(used.begin(), used.end(), [&](std::int64_t at) { return at + n <= options_.seq; });
      if (row == used.end()) return false;
      document.row = static_cast<std::uint32_t>(row - used.begin());
      document.at = static_cast<std::uint32_t>(*row);
      *row += n;
    }
    used_ = std::move(used);
    ++n_pairs_;
    return true;
  }
  void begin_batch() {
    std::fill(used_.begin(), used_.end(), 0);
    n_pairs_ = 0;
  }
  std::uint64_t inputs(const PlacedDocument& document) const {
    return document.end - document.begin - (last_is_input_ ? 0 : 1);
  }

 private:
  const TokenCache& cache_;
  const PairOptions& options_;
  const bool last_is_input_;
  std::vector<std::int64_t> used_;  // tokens of each row
  std::int64_t n_pairs_ = 0;
};

Status check(const TokenCache& cache, const PairOptions& options) {
  constexpr std::int64_t kMaxPairRow = std::int64_t{1} << 30;
  if (options.seq < 2 || options.seq > kMaxPairRow)
    return Status::error(Code::invalid,
                         str("rows of ", options.seq,
                             " tokens for pairs; there must be at least 2 and at most ", kMaxPairRow));
  if (options.rows < 1 || options.max_pairs < 1)
    return Status::error(Code::invalid, str("a micro-batch of ", options.rows, " rows and ",
                                            options.max_pairs, " pairs; it must have at least one of both"));
  if (cache.n_documents() % 2 == 0 && cache.n_documents() / 2 <= UINT32_MAX) return {};
  return Status::error(
      Code::invalid, str(cache.n_documents(), " documents are no pairs, of which there may be ", UINT32_MAX));
}

}  // namespace

Result<PairDataset> PairDataset::create(const TokenCache& cache, PairOptions options) try {
  STRATA_TRY(check(cache, options));
  auto packed = std::make_shared<Packed>();
  PairPacker packer(cache, options);
  const std::uint64_t n = cache.n_documents() / 2;
  packed->first.push_back(0);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t pair = options.order == SampleOrder::sequential ? i : permuted(i, n, options.seed, 0);
    std::array<PlacedDocument, 2> documents;
    bool is_cut = false;
    if (!packer.cut(pair, documents, is_cut)) {
      ++packed->stats.n_dropped;
      continue;
    }
    if (!packer.place(documents)) {
      packed->first.push_back(packed->pairs.size());
      packer.begin_batch();
      if (!packer.place(documents))  // its documents need two rows
        return Status::error(
            Code::invalid,
            str("a pair of ", packer.inputs(documents[0]), " and ", packer.inputs(documents[1]),
                " tokens does not fit into a micro-batch of ", options.rows, " x ", options.seq));
    }
    packed->stats.n_cut += is_cut ? 1 : 0;
    packed->stats.n_packed_tokens += packer.inputs(documents[0]) + packer.inputs(documents[1]);
    packed->pairs.push_back(static_cast<std::uint32_t>(pair));
    packed->documents.push_back(documents);
  }
  packed->first.push_back(packed->pairs.size());
  packed->stats.n_pairs = packed->pairs.size();
  packed->stats.n_batches = packed->first.size() - 1;
  if (packed->pairs.empty())
    return Status::error(Code::invalid,
                         str("none of ", n, " pairs has a token in the loss in both documents"));
  return PairDataset(cache, options, std::move(packed));
} catch (const std::bad_alloc&) {
  return Status::error(Code::out_of_memory,
                       str("not enough memory to pack ", cache.n_documents() / 2, " pairs"));
}

const PairStats& PairDataset::stats() const noexcept { return packed_->stats; }

std::uint64_t PairDataset::memory_bytes() const noexcept {
  return packed_->pairs.capacity() * sizeof packed_->pairs[0] +
         packed_->documents.capacity() * sizeof packed_->documents[0] +
         packed_->first.capacity() * sizeof packed_->first[0];
}

std::uint64_t PairDataset::batch_of(std::uint64_t k) const noexcept {
  const std::uint64_t n = packed_->stats.n_batches;
  return options_.order == SampleOrder::sequential ? k % n : permuted(k % n, n, options_.seed, k / n);
}

std::span<const std::uint32_t> PairDataset::pairs_of(std::uint64_t k) const noexcept {
  const std::uint64_t b = batch_of(k), first = packed_->first[b];
  return std::span(packed_->pairs).subspan(first, packed_->first[b + 1] - first);
}

Status PairDataset::fill(std::uint64_t k, const PairBatch& batch) const {
  const auto tokens = static_cast<std::size_t>(options_.rows * options_.seq);
  for (const std::span<std::int32_t> span : {batch.inputs, batch.targets, batch.doc_start, batch.segments})
    if (span.size() != tokens && (span.data() != batch.targets.data() || !span.empty()))
      return Status::error(Code::invalid,
                           str("a micro-batch of pairs has ", tokens, " tokens, not ", span.size()));
  if (!batch.weights.empty() && batch.weights.size() != static_cast<std::size_t>(options_.max_pairs))
    return Status::error(Code::invalid, str("a micro-batch has up to ", options_.max_pairs, " pairs, not ",
                                            batch.weights.size()));
  std::fill(batch.inputs.begin(), batch.inputs.end(), 0);
  std::fill(batch.targets.begin(), batch.targets.end(), kIgnoreIndex);
  std::fill(batch.segments.begin(), batch.segments.end(), -1);
  std::fill(batch.weights.begin(), batch.weights.end(), 0.0f);
  for (std::size_t t = 0; t < tokens; ++t)  // a padding token attends only to itself, and none to it
    batch.doc_start[t] = static_cast<std::int32_t>(t % static_cast<std::size_t>(options_.seq));
  const bool last_token = options_.segments == PairOptions::Segments::last_token;
  const std::uint64_t b = batch_of(k);
  for (std::uint64_t p = packed_->first[b]; p < packed_->first[b + 1]; ++p) {
    const std::size_t number = p - packed_->first[b];
    if (!batch.weights.empty()) batch.weights[number] = 1.0f;
    for (std::size_t side = 0; side < 2; ++side) {
      const PlacedDocument& document = packed_->documents[p][side];
      const auto segment = static_cast<std::int32_t>(2 * number + side);
      std::size_t t = document.row * static_cast<std::size_t>(options_.seq) + document.at;
      for (std::uint64_t i = document.begin; i < document.end; ++i, ++t) {
        const bool is_last = i + 1 == document.end;
        if (is_last && !last_token) break;
        batch.inputs[t] = cache_->token(i);
        batch.doc_start[t] = static_cast<std::int32_t>(document.at);
        const bool answers = !is_last && cache_->loss_mask(i + 1);
        if (answers && !batch.targets.empty()) batch.targets[t] = cache_->token(i + 1);
        if (last_token ? is_last : answers) batch.segments[t] = segment;
      }
    }
  }
  return detail::check_tokens(batch.inputs, batch.targets, cache_->vocab_size());
}

}  // namespace strata
