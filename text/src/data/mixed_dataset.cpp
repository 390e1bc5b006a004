#include <strata/text/dataset.h>

#include <utility>

#include <strata/runtime/str.h>

#include "data/mixture.h"

namespace strata {

struct MixedDataset::Order : detail::Mixture {};

Result<MixedDataset> MixedDataset::create(std::vector<MixedSource> sources, std::uint64_t seed) {
  std::vector<double> weights;
  for (const MixedSource& source : sources) {
    weights.push_back(source.weight);
    if (source.data->seq() != sources.front().data->seq())
      return Status::error(Code::invalid,
                           str(source.name, " has sequences of ", source.data->seq(), " tokens, ",
                               sources.front().name, " of ", sources.front().data->seq()));
    if (source.data->n_samples() != std::numeric_limits<std::uint64_t>::max())
      return Status::error(
          Code::invalid,
          str(source.name, " ends after ", source.data->n_samples(),
              " samples; the sources of a mixture must be shuffled, which makes them endless"));
  }
  STRATA_TRY_ASSIGN(detail::Mixture mixture, detail::Mixture::create(weights, seed));
  return MixedDataset(std::move(sources), std::make_shared<const Order>(Order{std::move(mixture)}));
}

bool MixedDataset::separates_documents() const noexcept {
  for (const MixedSource& source : sources_)
    if (source.data->separates_documents()) return true;
  return false;
}

MixedDataset::Pick MixedDataset::pick(std::uint64_t k) const noexcept {
  const detail::Mixture::Pick pick = order_->pick(k);
  return {pick.source, pick.index};
}

void MixedDataset::fill_row(std::uint64_t k, const Batch& row) const noexcept {
  const Pick at = pick(k);
  fill_row_of(*sources_[at.source].data, at.index, row);
}

TargetCount MixedDataset::count_row(std::uint64_t k) const noexcept {
  const Pick at = pick(k);
  return count_row_of(*sources_[at.source].data, at.index);
}

}  // namespace strata
