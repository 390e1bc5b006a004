#include "loop/hooks/gradient_norms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace strata::detail {
namespace {

// The number in "layers.12.attention.q"; -1 if the tensor is in no layer.
int layer_of_name(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = name.find(kLayers);
  int layer = -1;
  if (at != std::string_view::npos)
    std::from_chars(name.data() + at + kLayers.size(), name.data() + name.size(), layer);
  return layer;
}

}  // namespace

GradientNorms::GradientNorms(RunLoop& loop) : loop_(loop) {
  const TensorTable& tensors = loop.engine->state_plan().tensors;
  layer_of_.resize(tensors.tensor_of_param.size());
  norms_.resize(tensors.tensor_of_param.size());
  int last = -1;
  const auto spec_of = [&](std::size_t param) -> const LayoutTensor& {
    return tensors.specs[static_cast<std::size_t>(tensors.tensor_of_param[param])];
  };
  for (std::size_t param = 0; param < layer_of_.size(); ++param)
    last = std::max(last, layer_of_name(spec_of(param).name));
  bool behind = false;
  for (std::size_t param = 0; param < layer_of_.size(); ++param) {
    const int layer = layer_of_name(spec_of(param).name);
    behind = behind || layer >= 0;
    layer_of_[param] = static_cast<std::size_t>(layer >= 0 ? layer + 1 : behind ? last + 2 : 0);
    if (spec_of(param).group.trainable) trained_.push_back(param);
  }
  of_tensors_.resize(trained_.size());
  of_layers_.resize(static_cast<std::size_t>(last) + 3);
}

Status GradientNorms::after_step(MetricsLine& line) {
  STRATA_TRY(loop_.engine->gradient_norms(norms_));
  std::fill(of_layers_.begin(), of_layers_.end(), 0.0);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const double norm = norms_[trained_[i]];
    of_tensors_[i] = norm;
    of_layers_[layer_of_[trained_[i]]] += norm * norm;
  }
  for (double& square_sum : of_layers_) square_sum = std::sqrt(square_sum);
  line.tensor_norms = of_tensors_;
  line.layer_norms = of_layers_;
  return {};
}

}  // namespace strata::detail
