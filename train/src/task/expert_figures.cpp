#include <strata/train/expert_figures.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <strata/engine/engine.h>
#include <strata/model/decoder.h>
#include <strata/plan/expert_rows.h>

namespace strata {

std::array<NamedFigure, kExpertFigures> named_figures(const ExpertFigures& experts) noexcept {
  const auto loss = [](const char* name, const std::optional<double>& value) {
    return value ? NamedFigure{name, *value} : NamedFigure{};
  };
  return {{{"expert_load", experts.load},
           {"expert_load_mean", experts.mean_load},
           {"expert_entropy", experts.entropy},
           {"experts_empty", experts.empty},
           loss("router_aux", experts.router_aux),
           loss("router_z", experts.router_z)}};
}

ExpertLoad::ExpertLoad(const DecoderConfig& decoder, const RouterLosses& losses)
    : losses_(losses), n_experts_(decoder.experts.n) {
  if (n_experts_ == 0) return;
  const std::vector<bool> layers = with_derived_sizes(decoder).experts.layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i]) continue;
    outputs_.push_back(expert_rows_output(outputs_.size()));
    loads_.push_back({static_cast<std::int64_t>(i), 0});
  }
  rows_.resize(static_cast<std::size_t>(n_experts_));
}

namespace {

/// The entropy of shares by that of equal ones.
double even_entropy(const std::vector<double>& rows, double all) {
  double sum = 0;
  for (const double n : rows)
    if (n > 0) sum -= n / all * std::log(n / all);
  return rows.size() > 1 ? sum / std::log(static_cast<double>(rows.size())) : 1;
}

}  // namespace

ExpertFigures ExpertLoad::of_step(const Engine& engine, std::int32_t micro_batches) {
  ExpertFigures figures;
  for (const std::string& name : outputs_) {
    const std::span<const double> offsets = engine.step_sum(name);
    if (offsets.size() != rows_.size() + 1) return {};
    for (std::size_t e = 0; e < rows_.size(); ++e) rows_[e] = offsets[e + 1] - offsets[e];
    const double all = std::accumulate(rows_.begin(), rows_.end(), 0.0);
    if (all <= 0) return {};
    const double largest = *std::max_element(rows_.begin(), rows_.end());
    const double load = largest * static_cast<double>(rows_.size()) / all;
    loads_[static_cast<std::size_t>(figures.n++)].load = load;
    figures.load = std::max(figures.load, load);
    figures.mean_load += load;
    figures.entropy += even_entropy(rows_, all);
    figures.empty += static_cast<double>(std::count(rows_.begin(), rows_.end(), 0));
  }
  if (figures.n == 0) return figures;
  figures.entropy /= static_cast<double>(figures.n);
  figures.mean_load /= static_cast<double>(figures.n);
  figures.layers = loads_;
  add_losses(engine, micro_batches, figures);
  return figures;
}

void ExpertLoad::add_losses(const Engine& engine, std::int32_t micro_batches, ExpertFigures& figures) const {
  if (!losses_.any()) return;
  const std::span<const double> sums = engine.step_sum(kRouterLossesOutput);
  if (sums.size() != 2) return;
  if (losses_.aux_coef != 0) figures.router_aux = sums[0] / micro_batches;
  if (losses_.z_coef != 0) figures.router_z = sums[1] / micro_batches;
}

}  // namespace strata
