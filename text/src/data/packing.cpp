#include "data/packing.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include <strata/text/permutation.h>

namespace strata::detail {
namespace {

// No epoch has this number, so the order of documents for packing differs from the order of rows in any
// epoch.
constexpr std::uint64_t kPackingEpoch = std::numeric_limits<std::uint64_t>::max();

class Packer {
 public:
  Packer(const TokenCache& cache, std::uint32_t seq, Packing& into) : cache_(cache), seq_(seq), into_(into) {}

  void add_document(std::uint64_t begin, std::uint64_t end) {
    if (end - begin - 1 > seq_) ++into_.stats.n_split;
    for (std::uint64_t at = begin; at + 1 < end; at += seq_) {
      const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(end - 1 - at, seq_));
      if (!any_loss_token(at + 1, at + length + 1)) {
        ++into_.stats.n_dropped;  // no loss token attends to it
        continue;
      }
      window_.push_back({at, length});
      if (window_.size() == kPackingWindow) flush();
    }
  }

  void flush() {
    const std::vector<std::vector<std::size_t>> rows = fill_rows();
    for (const std::vector<std::size_t>& row : rows) {
      for (const std::size_t i : row) {
        into_.spans.push_back(window_[i]);
        into_.stats.n_packed_tokens += window_[i].length;
      }
      into_.row_first.push_back(into_.spans.size());
    }
    window_.clear();
  }

 private:
  bool any_loss_token(std::uint64_t begin, std::uint64_t end) const noexcept {
    for (std::uint64_t i = begin; i < end; ++i)
      if (cache_.loss_mask(i)) return true;
    return false;
  }

  /// Best fit, longest first. The spans of a row, and the rows, are in the order of the window.
  std::vector<std::vector<std::size_t>> fill_rows() const {
    std::vector<std::size_t> longest(window_.size());
    std::iota(longest.begin(), longest.end(), 0u);
    std::stable_sort(longest.begin(), longest.end(),
                     [&](std::size_t a, std::size_t b) { return window_[a].length > window_[b].length; });
    std::vector<std::vector<std::size_t>> rows;
    std::set<std::pair<std::uint32_t, std::size_t>> room;  // (free positions of a row, row)
    for (const std::size_t i : longest) {
      const std::uint32_t length = window_[i].length;
      const auto best = room.lower_bound({length, 0});
      if (best == room.end()) {
        rows.push_back({i});
        room.insert({seq_ - length, rows.size() - 1});
        continue;
      }
      const auto [left, row] = *best;
      room.erase(best);
      rows[row].push_back(i);
      room.insert({left - length, row});
    }
    for (std::vector<std::size_t>& row : rows) std::sort(row.begin(), row.end());
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
    return rows;
  }

  const TokenCache& cache_;
  const std::uint32_t seq_;
  Packing& into_;
  std::vector<DocumentSpan> window_;
};

}  // namespace

Packing pack_documents(const TokenCache& cache, const PackOptions& options) {
  Packing packing;
  Packer packer(cache, static_cast<std::uint32_t>(options.seq), packing);
  const std::uint64_t n = cache.n_documents();
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t d =
        options.order == SampleOrder::sequential ? i : permuted(i, n, options.seed, kPackingEpoch);
    packer.add_document(cache.document_begin(d), cache.document_end(d));
  }
  packer.flush();
  packing.stats.n_rows = packing.row_first.size() - 1;
  packing.stats.n_spans = packing.spans.size();
  return packing;
}

}  // namespace strata::detail
