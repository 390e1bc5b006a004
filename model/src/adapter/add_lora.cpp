#include <strata/model/adapter/lora.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <strata/runtime/str.h>

#include "adapter/choose_modules.h"

namespace strata {
namespace {

using detail::RankLimit;

constexpr std::string_view kWeight = ".weight";
constexpr double kLargestAlpha = 1e6;  // as in section adapter

/// A matrix of a block, by its module.
struct Matrix {
  std::string module;
  const HfTensor* tensor;
  std::int64_t rows, columns;
};

/// The number of the layer, the first one in the name, as in "model.layers.3.mlp.up_proj".
std::string_view layer_of(std::string_view module) {
  while (!module.empty()) {
    const std::string_view part = module.substr(0, module.find('.'));
    if (part.find_first_not_of("0123456789") == std::string_view::npos) return part;
    module.remove_prefix(std::min(module.size(), part.size() + 1));
  }
  return {};
}

bool names(std::string_view name, std::string_view module) {
  if (name.starts_with('^')) return module == name.substr(1);
  if (const std::size_t at = name.rfind(LoraSettings::kAtLayer); at != std::string_view::npos)
    return layer_of(module) == name.substr(at + 1) && names(name.substr(0, at), module);
  return module == name || (module.ends_with(name) && module.size() > name.size() &&
                            module[module.size() - name.size() - 1] == '.');
}

std::vector<Matrix> matrices_of(const std::vector<HfTensor>& tensors) {
  std::vector<Matrix> matrices;
  for (const HfTensor& tensor : tensors) {
    if (tensor.shape.size() != 2 || !tensor.param.starts_with("layers.")) continue;
    const bool turned = tensor.layout == HfTensor::Layout::transposed;
    matrices.push_back({tensor.name.substr(0, tensor.name.size() - kWeight.size()), &tensor,
                        static_cast<std::int64_t>(tensor.shape[turned ? 1 : 0]),
                        static_cast<std::int64_t>(tensor.shape[turned ? 0 : 1])});
  }
  return matrices;
}

/// As PEFT chooses them for the families that it knows.
std::vector<std::string> default_targets(const std::vector<Matrix>& matrices) {
  std::vector<std::string> targets;
  for (const std::string_view name : {"q_proj", "v_proj", "c_attn", "query_key_value", "qkv_proj"})
    if (std::any_of(matrices.begin(), matrices.end(), [&](const Matrix& m) { return names(name, m.module); }))
      targets.emplace_back(name);
  return targets;
}

class Chooser {
 public:
  Chooser(const DecoderConfig& config, const LoraSettings& settings, std::string_view section,
          RankLimit limit)
      : settings_(settings),
        section_(section),
        limit_(limit),
        tensors_(hf_tensors(config)),
        matrices_(matrices_of(tensors_)) {}

  Result<std::vector<LoraTarget>> run() {
    const std::vector<std::string> targets =
        settings_.targets.empty() ? default_targets(matrices_) : settings_.targets;
    const char* const key = section_ == detail::kPeftSection ? "target_modules" : "target";
    for (const std::string& target : targets) check_name(key, target);
    for (const auto& [name, rank] : settings_.rank_pattern) check_name("rank_pattern", name);
    for (const auto& [name, alpha] : settings_.alpha_pattern) check_name("alpha_pattern", name);
    if (settings_.pissa) check_pissa();
    std::vector<LoraTarget> chosen;
    for (const Matrix& matrix : matrices_)
      if (std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
            return target == LoraSettings::kAllLinear || names(target, matrix.module);
          }))
        chosen.push_back(target_of(matrix));
    if (problems_.empty()) return chosen;
    return Status::error(Code::invalid, str(section_, ":", problems_));
  }

 private:
  // What folder_settings() can state.
  void check_pissa() {
    if (settings_.dora) problems_ += "\n  PiSSA and DoRA cannot be combined";
    if (settings_.rslora && !(settings_.rank_pattern.empty() && settings_.alpha_pattern.empty()))
      problems_ += "\n  PiSSA and rsLoRA cannot be combined with rank_pattern or alpha_pattern";
  }
  void check_name(std::string_view what, const std::string& name) {
    if (name == LoraSettings::kAllLinear && what.starts_with("target")) return;
    const auto is_named = [&](std::string_view module) { return names(name, module); };
    if (std::any_of(matrices_.begin(), matrices_.end(), [&](const Matrix& m) { return is_named(m.module); }))
      return;
    std::set<std::string> last_parts;
    for (const Matrix& matrix : matrices_)
      last_parts.insert(matrix.module.substr(matrix.module.rfind('.') + 1));
    std::string known;
    for (const std::string& part : last_parts) known += (known.empty() ? "" : ", ") + part;
    const bool is_other =
        is_named("lm_head") || std::any_of(tensors_.begin(), tensors_.end(), [&](const HfTensor& t) {
          return is_named(t.name.substr(0, t.name.rfind('.')));
        });
    problems_ += str("\n  ", what, " '", name, "' ",
                     is_other ? "is no matrix of a block: embeddings, heads and norms cannot have adapters"
                              : "names no module of the model",
                     "; the modules are ", known, ", or all of them: ", LoraSettings::kAllLinear);
  }
  // PEFT takes the first of a file; two that differ are an error here.
  template <class T>
  T of_pattern(const char* what, const std::map<std::string, T>& pattern, const std::string& module,
               T otherwise) {
    const std::pair<const std::string, T>* found = nullptr;
    for (const auto& entry : pattern) {
      if (!names(entry.first, module)) continue;
      if (found != nullptr && found->second != entry.second)
        problems_ += str("\n  ", what, ": '", found->first, "' = ", found->second, " and '", entry.first,
                         "' = ", entry.second, " both name ", module);
      found = &entry;
    }
    return found == nullptr ? otherwise : found->second;
  }
  LoraTarget target_of(const Matrix& matrix) {
    const std::int64_t rank =
        of_pattern("rank_pattern", settings_.rank_pattern, matrix.module, settings_.rank);
    const double alpha = of_pattern("alpha_pattern", settings_.alpha_pattern, matrix.module, settings_.alpha);
    const int halves = settings_.pissa ? 2 : 1;
    const bool is_limited = settings_.pissa || limit_ == RankLimit::of_matrix;
    const std::int64_t largest =
        is_limited ? std::min(matrix.rows, matrix.columns) / halves : LoraSettings::kLargestRank;
    if (rank < 1 || rank > largest)
      problems_ += str("\n  the rank of ", matrix.module, " is ", rank, "; its matrix [", matrix.rows, ", ",
                       matrix.columns, "] allows 1 to ", largest,
                       settings_.pissa ? " with PiSSA, whose exported adapter has twice the rank" : "");
    if (const double largest_alpha = kLargestAlpha / halves; !(alpha > 0) || alpha > largest_alpha)
      problems_ += str("\n  the alpha of ", matrix.module, " is ", alpha, "; it must be above 0 and at most ",
                       largest_alpha);
    const double by = settings_.rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank);
    const HfTensor::Layout layout = matrix.tensor->layout;
    return {matrix.module,
            {matrix.tensor->param,
             {matrix.tensor->first_row, matrix.rows, rank},
             static_cast<float>(problems_.empty() ? alpha / by : 1.0),
             settings_.dora,
             LoraTrained::both,
             settings_.pissa},
            layout == HfTensor::Layout::transposed ? HfTensor::Layout::rows : layout};
  }

  const LoraSettings& settings_;
  const std::string_view section_;
  const RankLimit limit_;
  const std::vector<HfTensor> tensors_;
  const std::vector<Matrix> matrices_;
  std::string problems_;
};

}  // namespace

Result<std::vector<LoraTarget>> detail::choose_modules(const DecoderConfig& config,
                                                       const LoraSettings& settings, std::string_view section,
                                                       RankLimit limit) {
  return Chooser(config, settings, section, limit).run();
}

Result<std::vector<LoraTarget>> lora_targets(const DecoderConfig& config, const LoraSettings& settings,
                                             std::string_view section) {
  return detail::choose_modules(config, settings, section, RankLimit::of_peft);
}

std::map<std::string, std::int64_t> inner_extents(const DecoderConfig& config) {
  std::map<std::string, std::int64_t> inner;
  for (const HfTensor& tensor : hf_tensors(config))
    if (tensor.shape.size() == 2)
      inner[tensor.param] =
          static_cast<std::int64_t>(tensor.shape[tensor.layout == HfTensor::Layout::transposed ? 0 : 1]);
  return inner;
}

namespace {

/// The factor that gives the row this norm.
double scale_to(float norm, std::span<const double> row) {
  double squares = 0;
  for (const double value : row) squares += value * value;
  return squares > 0 ? static_cast<double>(norm) / std::sqrt(squares) : 1.0;
}

}  // namespace

void merge_lora(const LoraGroup& group, std::int64_t inner, std::span<const float> a,
                std::span<const float> b, std::span<float> weight, std::span<const float> magnitude) {
  std::vector<double> row(static_cast<std::size_t>(inner));
  const float *a_of_part = a.data(), *b_of_part = b.data();
  std::size_t row_of_all = 0;
  for (const LoraPart& part : group.parts.all()) {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      std::fill(row.begin(), row.end(), 0.0);
      for (std::int64_t j = 0; j < part.rank; ++j) {
        const double factor =
            static_cast<double>(group.scale) * static_cast<double>(b_of_part[i * part.rank + j]);
        for (std::int64_t k = 0; k < inner; ++k)
          row[static_cast<std::size_t>(k)] += factor * static_cast<double>(a_of_part[j * inner + k]);
      }
      float* const into = weight.data() + (part.first_row + i) * inner;
      for (std::int64_t k = 0; k < inner; ++k)
        row[static_cast<std::size_t>(k)] += static_cast<double>(into[k]);
      const double factor = magnitude.empty() ? 1.0 : scale_to(magnitude[row_of_all++], row);
      for (std::int64_t k = 0; k < inner; ++k)
        into[k] = static_cast<float>(factor * row[static_cast<std::size_t>(k)]);
    }
    a_of_part += part.rank * inner;
    b_of_part += part.rows * part.rank;
  }
}

std::vector<LoraGroup> lora_groups(const std::vector<LoraTarget>& targets) {
  std::vector<LoraModule> modules;
  for (const LoraTarget& target : targets) modules.push_back(target.lora);
  return group_lora_modules(modules);
}

}  // namespace strata
