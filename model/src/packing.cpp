#include "packing.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "permutation.h"

namespace strata::detail {
namespace {

// No epoch has this number, so the order of packing is not that of an epoch's rows.
constexpr std::uint64_t kPackingEpoch = std::numeric_limits<std::uint64_t>::max();

class Packer {
 public:
  Packer(const TokenCache& cache, std::uint32_t seq, Packing& into) : cache_(cache), seq_(seq), into_(into) {}

  void add_document(std::uint64_t begin, std::uint64_t end) {
    if (end - begin - 1 > seq_) ++into_.facts.n_split;
    for (std::uint64_t at = begin; at + 1 < end; at += seq_) {
      const auto places = static_cast<std::uint32_t>(std::min<std::uint64_t>(end - 1 - at, seq_));
      if (!any_learnt(at + 1, at + places + 1)) {
        ++into_.facts.n_left_out;  // attention would not see it from where something is learnt
        continue;
      }
      window_.push_back({at, places});
      if (window_.size() == kPackingWindow) flush();
    }
  }

  void flush() {
    const std::vector<std::vector<std::size_t>> rows = fill_rows();
    for (const std::vector<std::size_t>& row : rows) {
      for (const std::size_t i : row) {
        into_.pieces.push_back(window_[i]);
        into_.facts.n_places += window_[i].places;
      }
      into_.row_first.push_back(into_.pieces.size());
    }
    window_.clear();
  }

 private:
  bool any_learnt(std::uint64_t begin, std::uint64_t end) const noexcept {
    for (std::uint64_t i = begin; i < end; ++i)
      if (cache_.learnt(i)) return true;
    return false;
  }

  /// Best fit, longest first. The pieces of a row, and the rows, in the window's order.
  std::vector<std::vector<std::size_t>> fill_rows() const {
    std::vector<std::size_t> longest(window_.size());
    std::iota(longest.begin(), longest.end(), 0u);
    std::stable_sort(longest.begin(), longest.end(),
                     [&](std::size_t a, std::size_t b) { return window_[a].places > window_[b].places; });
    std::vector<std::vector<std::size_t>> rows;
    std::set<std::pair<std::uint32_t, std::size_t>> room;  // left in a row, and which
    for (const std::size_t i : longest) {
      const std::uint32_t places = window_[i].places;
      const auto best = room.lower_bound({places, 0});
      if (best == room.end()) {
        rows.push_back({i});
        room.insert({seq_ - places, rows.size() - 1});
        continue;
      }
      const auto [left, row] = *best;
      room.erase(best);
      rows[row].push_back(i);
      room.insert({left - places, row});
    }
    for (std::vector<std::size_t>& row : rows) std::sort(row.begin(), row.end());
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
    return rows;
  }

  const TokenCache& cache_;
  const std::uint32_t seq_;
  Packing& into_;
  std::vector<Piece> window_;
};

}  // namespace

Packing pack_documents(const TokenCache& cache, const PackOptions& options) {
  Packing packing;
  Packer packer(cache, static_cast<std::uint32_t>(options.seq), packing);
  const std::uint64_t n = cache.n_documents();
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t d =
        options.order == SampleOrder::in_order ? i : permuted(i, n, options.seed, kPackingEpoch);
    packer.add_document(cache.document_begin(d), cache.document_end(d));
  }
  packer.flush();
  packing.facts.n_rows = packing.row_first.size() - 1;
  packing.facts.n_pieces = packing.pieces.size();
  return packing;
}

}  // namespace strata::detail
