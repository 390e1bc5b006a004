#include <strata/text/dataset.h>

#include <algorithm>
#include <new>

#include <strata/runtime/str.h>

#include "data/packing.h"
#include <strata/text/permutation.h>
#include "data/target_count.h"

namespace strata {
namespace {

constexpr std::int64_t kMaxRow = std::int64_t{1} << 30;

}  // namespace

struct PackedDataset::Rows : detail::Packing {};

Result<PackedDataset> PackedDataset::create(const TokenCache& cache, PackOptions options) try {
  if (options.seq < 1 || options.seq > kMaxRow)
    return Status::error(Code::invalid, str("sequences of ", options.seq,
                                            " tokens; the length must be at least 1 and at most ", kMaxRow));
  auto rows = std::make_shared<const Rows>(Rows{detail::pack_documents(cache, options)});
  if (rows->stats.n_rows == 0)
    return Status::error(
        Code::invalid,
        str("no targets in ", cache.n_documents(), " documents of ", cache.n_tokens(), " tokens, ",
            cache.n_loss_tokens(),
            " of them in the loss: a document needs a token in the loss after its first token"));
  return PackedDataset(cache, options, std::move(rows));
} catch (const std::bad_alloc&) {
  return Status::error(Code::out_of_memory, str("not enough memory to pack ", cache.n_documents(),
                                                " documents into rows of ", options.seq));
}

const PackingStats& PackedDataset::stats() const noexcept { return rows_->stats; }

std::uint64_t PackedDataset::memory_bytes() const noexcept {
  return rows_->spans.capacity() * sizeof(detail::DocumentSpan) +
         rows_->row_first.capacity() * sizeof(std::uint64_t);
}

std::uint64_t PackedDataset::n_samples() const noexcept {
  return options_.order == SampleOrder::sequential ? stats().n_rows
                                                   : std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t PackedDataset::row_of(std::uint64_t k) const noexcept {
  if (options_.order == SampleOrder::sequential) return k;
  return permuted(k % stats().n_rows, stats().n_rows, options_.seed, k / stats().n_rows);
}

void PackedDataset::fill_row(std::uint64_t k, const Batch& row) const noexcept {
  const auto put = [](std::span<std::int32_t> span, std::size_t t, std::size_t value) {
    if (!span.empty()) span[t] = static_cast<std::int32_t>(value);
  };
  const std::uint64_t r = row_of(k);
  std::size_t t = 0;
  for (std::uint64_t p = rows_->row_first[r]; p < rows_->row_first[r + 1]; ++p) {
    const detail::DocumentSpan document_span = rows_->spans[p];
    const std::size_t start = t;
    for (std::uint64_t i = document_span.begin; i < document_span.begin + document_span.length; ++i, ++t) {
      row.inputs[t] = cache_->token(i);
      row.targets[t] = cache_->loss_mask(i + 1) ? cache_->token(i + 1) : kIgnoreIndex;
      put(row.doc_start, t, start);
      put(row.positions, t, t - start);
    }
  }
  pad_row(row, t);
}

TargetCount PackedDataset::count_row(std::uint64_t k) const noexcept {
  const std::uint64_t r = row_of(k);
  TargetCount all;
  for (std::uint64_t p = rows_->row_first[r]; p < rows_->row_first[r + 1]; ++p) {
    const detail::DocumentSpan document_span = rows_->spans[p];
    const TargetCount count = detail::count_loss_tokens(*cache_, document_span.begin + 1,
                                                        document_span.begin + document_span.length + 1);
    all.tokens += count.tokens;
    all.bytes += count.bytes;
  }
  return all;
}

}  // namespace strata
