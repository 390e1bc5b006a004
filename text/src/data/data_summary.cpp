#include <strata/text/data_summary.h>

#include <algorithm>
#include <bit>

#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::int64_t kMaxSeq = std::int64_t{1} << 20;

void add_lengths(const TokenCache& cache, DataSummary& summary) {
  std::vector<std::uint64_t> counts;  // indexed by the bit width of the length
  for (std::uint64_t d = 0; d < cache.n_documents(); ++d) {
    const std::uint64_t length = cache.document_end(d) - cache.document_begin(d);
    summary.shortest = d == 0 ? length : std::min(summary.shortest, length);
    summary.longest = std::max(summary.longest, length);
    const auto bits = static_cast<std::size_t>(std::bit_width(length));
    counts.resize(std::max(counts.size(), bits + 1));
    ++counts[bits];
  }
  for (std::size_t bits = 0; bits < counts.size(); ++bits)
    if (counts[bits] > 0 || !summary.lengths.empty()) {
      const std::uint64_t from = std::uint64_t{1} << (bits - 1);
      summary.lengths.push_back({from, 2 * from - 1, counts[bits]});
    }
}

/// Appends a token to the last run, or begins a new one.
Status say(const Tokenizer& tokenizer, std::int32_t id, bool loss_mask,
           std::vector<DecodedSample::Run>& runs) {
  STRATA_TRY_ASSIGN(const std::string text, tokenizer.decode(std::span(&id, 1)));
  if (runs.empty() || runs.back().loss_mask != loss_mask) runs.push_back({loss_mask, {}});
  runs.back().text += text;
  return {};
}

}  // namespace

double DataSummary::packing_efficiency() const noexcept {
  const double places = static_cast<double>(packing.n_rows) * static_cast<double>(seq);
  return places > 0 ? static_cast<double>(packing.n_packed_tokens) / places : 0;
}

Result<DataSummary> summarize(const TokenCache& cache, std::int64_t seq) {
  if (seq < 1 || seq > kMaxSeq)
    return Status::error(Code::invalid, str("sequences of ", seq,
                                            " tokens; the length must be at least 1 and at most ", kMaxSeq));
  DataSummary summary;
  summary.seq = seq;
  summary.n_documents = cache.n_documents();
  summary.n_tokens = cache.n_tokens();
  summary.n_loss_tokens = cache.n_loss_tokens();
  add_lengths(cache, summary);
  // Too little data for one row is no error here, but a result of the summary.
  if (const auto stream = StreamDataset::create(cache, {.seq = seq}); stream.has_value())
    summary.stream_rows = stream->n_windows();
  const auto packed = PackedDataset::create(cache, {.seq = seq});
  if (!packed.has_value() && packed.status().code() != Code::invalid) return packed.status();
  if (packed.has_value()) summary.packing = packed->stats();
  return summary;
}

Result<DecodedSample> decode_sample(const Dataset& data, const Tokenizer& tokenizer, std::uint64_t k) {
  const auto seq = static_cast<std::size_t>(data.seq());
  std::vector<std::int32_t> inputs(seq), targets(seq), doc_start(seq), positions(seq);
  STRATA_TRY(data.fill_batch(k, 1, {inputs, targets, doc_start, positions}));
  DecodedSample sample;
  for (std::size_t first = 0, end = 0; first < seq; first = end) {
    for (end = first + 1; end < seq && doc_start[end] == static_cast<std::int32_t>(first);) ++end;
    if (end == first + 1 && targets[first] == kIgnoreIndex) {  // padding, since each span has a loss token
      ++sample.padding;
      continue;
    }
    DecodedSample::Document document{
        static_cast<std::int64_t>(first), static_cast<std::int64_t>(end) - 1, {}};
    for (std::size_t t = first; t < end; ++t)
      STRATA_TRY(say(tokenizer, inputs[t], t > first && targets[t - 1] != kIgnoreIndex, document.runs));
    if (targets[end - 1] != kIgnoreIndex) STRATA_TRY(say(tokenizer, targets[end - 1], true, document.runs));
    sample.documents.push_back(std::move(document));
  }
  return sample;
}

}  // namespace strata
