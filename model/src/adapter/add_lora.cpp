#include <strata/model/adapter/lora.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <strata/runtime/str.h>

#include "adapter/choose_modules.h"
#include "adapter/matrices.h"
#include "adapter/module_names.h"

namespace strata {
namespace {

using detail::Matrix;
using detail::module_of;
using detail::ModuleName;
using detail::RankLimit;

constexpr double kLargestAlpha = 1e6;  // as in section adapter

/// As PEFT chooses them for the families that it knows.
std::vector<std::string> default_targets(const std::vector<Matrix>& matrices) {
  std::vector<std::string> targets;
  for (const std::string_view name : {"q_proj", "v_proj", "c_attn", "query_key_value", "qkv_proj"})
    if (std::any_of(matrices.begin(), matrices.end(),
                    [&](const Matrix& m) { return detail::is_named(name, m.module); }))
      targets.emplace_back(name);
  return targets;
}

class Chooser {
 public:
  Chooser(const DecoderConfig& config, const LoraSettings& settings, std::string_view section,
          RankLimit limit)
      : settings_(settings),
        section_(section),
        n_layers_(config.layers),
        limit_(limit),
        tensors_(hf_tensors(config)),
        matrices_(detail::matrices_of(tensors_)),
        of_experts_(detail::matrices_of_mixtures(tensors_)) {
    if (limit == RankLimit::of_matrix)
      std::erase_if(matrices_, [](const Matrix& m) { return m.place != LoraPlace::linear; });
  }

  Result<std::vector<LoraTarget>> run() {
    const bool is_peft = section_ == detail::kPeftSection;
    const std::vector<ModuleName> targets =
        names_of(is_peft ? "target_modules" : "targets",
                 settings_.targets.empty() && settings_.parameters.empty() ? default_targets(matrices_)
                                                                           : settings_.targets);
    const std::vector<ModuleName> excluded =
        names_of(is_peft ? "exclude_modules" : "exclude", settings_.exclude);
    ranks_ = names_of_keys("rank_pattern", settings_.rank_pattern);
    alphas_ = names_of_keys("alpha_pattern", settings_.alpha_pattern);
    check_layers(is_peft ? "layers_to_transform" : "layers");
    if (settings_.pissa) check_pissa();
    check_parameters();
    std::vector<LoraTarget> chosen;
    const auto is_excluded = [&](const std::string& module) {
      if (detail::is_in_saved(settings_.save, module)) return true;
      return std::any_of(excluded.begin(), excluded.end(),
                         [&](const ModuleName& n) { return n.names(module); });
    };
    for (const Matrix& matrix : matrices_)
      if (is_target(targets, matrix) && !is_excluded(matrix.module)) chosen.push_back(target_of(matrix));
    for (const Matrix& matrix : of_experts_)
      if (detail::is_parameter_named(settings_.parameters, matrix.module))
        chosen.push_back(target_of(matrix));
    if (problems_.empty() && chosen.empty()) problems_ += "\n  no module is left that would have an adapter";
    return problems_.empty() ? Result<std::vector<LoraTarget>>(std::move(chosen)) : problem();
  }

 private:
  void check_parameters() {
    for (const std::string& name : settings_.parameters)
      if (std::none_of(of_experts_.begin(), of_experts_.end(),
                       [&](const Matrix& m) { return detail::is_parameter_named({name}, m.module); }))
        problems_ += str("\n  target_parameters '", name, "' names no matrix of experts or routers",
                         of_experts_.empty() ? std::string(", which the model does not have")
                                             : str("; they are experts.gate_up_proj, experts.down_proj and ",
                                                   detail::last_parts(of_experts_.front().module, 2),
                                                   ", or one layer's, such as ", of_experts_.front().module));
    if (settings_.parameters.empty()) return;
    for (const auto& [is_set, what] : {std::pair{settings_.dora, "DoRA"},
                                       {settings_.pissa.has_value(), "PiSSA"},
                                       {settings_.dropout > 0, "dropout"}})
      if (is_set)
        problems_ += str("\n  target_parameters: adapters of experts and routers cannot have ", what);
  }
  // Refuses what folder_settings() cannot state.
  void check_pissa() {
    if (settings_.dora) problems_ += "\n  PiSSA and DoRA cannot be combined";
    if (settings_.rslora && !(settings_.rank_pattern.empty() && settings_.alpha_pattern.empty()))
      problems_ += "\n  PiSSA and rsLoRA cannot be combined with rank_pattern or alpha_pattern";
  }
  Status problem() const { return Status::error(Code::invalid, str(section_, ":", problems_)); }
  /// Layers limit what is not named in full, as in PEFT.
  bool is_target(const std::vector<ModuleName>& targets, const Matrix& matrix) const {
    const auto& layers = settings_.layers;
    const bool has_layer =
        layers.empty() || std::any_of(layers.begin(), layers.end(), [&](std::int64_t layer) {
          return str(layer) == detail::layer_of(matrix.module);
        });
    return std::any_of(targets.begin(), targets.end(), [&](const ModuleName& target) {
      const bool is_named = target.is_all_linear() ? is_linear(matrix) : target.names(matrix.module);
      return is_named && (has_layer || target.text() == matrix.module);
    });
  }
  /// A gate is one for PEFT; it cannot have DoRA or PiSSA here, which leave it out. The projection behind
  /// Mamba-2 is none: kernels that transformers may use read its weight and pass its adapter by, and PEFT
  /// refuses it for two of the families.
  bool is_linear(const Matrix& matrix) const {
    if (matrix.param.ends_with(".mamba_out.weight")) return false;
    return matrix.place == LoraPlace::linear ||
           (matrix.place == LoraPlace::gate && !settings_.dora && !settings_.pissa);
  }
  void check_layers(std::string_view key) {
    for (const std::int64_t layer : settings_.layers)
      if (std::none_of(matrices_.begin(), matrices_.end(),
                       [&](const Matrix& m) { return detail::layer_of(m.module) == str(layer); }))
        problems_ += str("\n  ", key, " has ", layer, "; the model has layers 0 to ", n_layers_ - 1);
  }
  template <class T>
  std::vector<ModuleName> names_of_keys(std::string_view what,
                                        const std::vector<std::pair<std::string, T>>& patterns) {
    std::vector<std::string> keys;
    for (const auto& pattern : patterns) keys.push_back(pattern.first);
    return names_of(what, keys, ModuleName::Kind::pattern_key);
  }
  /// The names, each of which names a module.
  std::vector<ModuleName> names_of(std::string_view what, const std::vector<std::string>& texts,
                                   ModuleName::Kind kind = ModuleName::Kind::target) {
    std::vector<ModuleName> names;
    for (const std::string& text : texts) {
      auto name = ModuleName::parse(text, kind);
      if (name.has_value()) {
        check_name(what, *name);
        names.push_back(*std::move(name));
      } else {
        problems_ += str("\n  ", what, " ", name.status().message());
      }
    }
    return names;
  }
  void check_name(std::string_view what, const ModuleName& name) {
    if (name.is_all_linear() && what.starts_with("target")) return;
    const auto is_named = [&](const Matrix& m) { return name.names(m.module); };
    if (std::any_of(matrices_.begin(), matrices_.end(), is_named)) return;
    const bool is_pattern = what.ends_with("_pattern");
    if (is_pattern && std::any_of(of_experts_.begin(), of_experts_.end(), is_named)) return;
    std::set<std::string> last_parts;
    std::string known, others;
    for (const Matrix& matrix : matrices_) {
      const std::string part = matrix.module.substr(matrix.module.rfind('.') + 1);
      if (matrix.place == LoraPlace::linear)
        last_parts.insert(part);
      else
        others += ", " + part;
    }
    for (const std::string& part : last_parts) known += (known.empty() ? "" : ", ") + part;
    const bool is_other = std::any_of(tensors_.begin(), tensors_.end(),
                                      [&](const HfTensor& t) { return name.names(module_of(t)); });
    problems_ += str(
        "\n  ", what, " '", name.text(), "' ",
        is_other ? "is no linear layer: positions and norms cannot have adapters, experts and routers only "
                   "by target_parameters"
                 : "names no module of the model",
        "; the modules are ", known, ", or all of them: ", LoraSettings::kAllLinear,
        others.empty() ? "" : "; besides", others.empty() ? "" : others.substr(1));
  }
  /// The first that matches counts, as in PEFT.
  template <class T>
  static T of_pattern(const std::vector<ModuleName>& names,
                      const std::vector<std::pair<std::string, T>>& values, const std::string& module,
                      T otherwise) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i].names(module)) return values[i].second;
    return otherwise;
  }
  LoraTarget target_of(const Matrix& matrix) {
    const std::int64_t rank = of_pattern(ranks_, settings_.rank_pattern, matrix.module, settings_.rank);
    const double alpha = of_pattern(alphas_, settings_.alpha_pattern, matrix.module, settings_.alpha);
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
    if (matrix.place != LoraPlace::linear && matrix.place != LoraPlace::experts &&
        (settings_.dora || settings_.pissa))
      problems_ += str("\n  ", matrix.module, ": the embedding, the head and gates cannot have adapters of ",
                       !settings_.dora                    ? "PiSSA"
                       : section_ == detail::kPeftSection ? "DoRA (use_dora)"
                                                          : "DoRA");
    LoraModule lora{matrix.param,
                    {matrix.first_row, matrix.rows, rank},
                    static_cast<float>(problems_.empty() ? alpha / by : 1.0),
                    settings_.dora,
                    LoraTrained::both,
                    settings_.pissa,
                    matrix.place};
    if (matrix.place == LoraPlace::embedding) lora.part = {0, matrix.columns, rank};
    return {matrix.module, lora,
            matrix.layout == HfTensor::Layout::transposed ? HfTensor::Layout::rows : matrix.layout};
  }

  const LoraSettings& settings_;
  const std::string_view section_;
  const std::int64_t n_layers_;
  const RankLimit limit_;
  const std::vector<HfTensor> tensors_;
  std::vector<Matrix> matrices_, of_experts_;
  std::vector<ModuleName> ranks_, alphas_;
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

LoraSettings without_absent(const DecoderConfig& config, LoraSettings settings) {
  std::vector<std::string> modules = {"lm_head"};
  const std::vector<HfTensor> tensors = hf_tensors(config);
  for (const HfTensor& tensor : tensors) modules.push_back(module_of(tensor));
  for (const Matrix& matrix : detail::matrices_of_mixtures(tensors)) modules.push_back(matrix.module);
  const auto is_absent = [&](const std::string& text, ModuleName::Kind kind) {
    const auto name = ModuleName::parse(text, kind);
    return name.has_value() && !name->is_all_linear() &&
           std::none_of(modules.begin(), modules.end(), [&](const std::string& m) { return name->names(m); });
  };
  const auto is_absent_target = [&](const std::string& text) {
    return is_absent(text, ModuleName::Kind::target);
  };
  const auto is_absent_pattern = [&](const auto& pattern) {
    return is_absent(pattern.first, ModuleName::Kind::pattern_key);
  };
  const auto is_absent_layer = [&](std::int64_t layer) { return layer >= config.layers; };
  const auto erase_unless_all = [](auto& from, const auto& is_gone) {
    if (!std::all_of(from.begin(), from.end(), is_gone)) std::erase_if(from, is_gone);
  };
  erase_unless_all(settings.targets, is_absent_target);
  erase_unless_all(settings.parameters, [&](const std::string& name) {
    return std::none_of(modules.begin(), modules.end(), [&](const std::string& module) {
      return detail::is_parameter_named({name}, module);
    });
  });
  erase_unless_all(settings.layers, is_absent_layer);
  std::erase_if(settings.exclude, is_absent_target);
  std::erase_if(settings.save, [&](const std::string& name) {
    return std::none_of(modules.begin(), modules.end(),
                        [&](const std::string& m) { return detail::has_saved_module(m + ".weight", name); });
  });
  std::erase_if(settings.rank_pattern, is_absent_pattern);
  std::erase_if(settings.alpha_pattern, is_absent_pattern);
  return settings;
}

namespace {

/// The columns of a matrix, or of those of experts.
std::int64_t inner_extent(const HfTensor& tensor) {
  using Layout = HfTensor::Layout;
  const bool of_stack = tensor.layout == Layout::stack_transposed || tensor.layout == Layout::stack_in_turn;
  const std::size_t dim = tensor.layout == Layout::transposed ? 0 : of_stack ? 1 : tensor.shape.size() - 1;
  return static_cast<std::int64_t>(tensor.shape[dim]);
}

}  // namespace

std::map<std::string, std::int64_t> inner_extents(const DecoderConfig& config) {
  std::map<std::string, std::int64_t> inner;
  for (const HfTensor& tensor : hf_tensors(config))
    if (tensor.shape.size() > 1) inner[tensor.param] = inner_extent(tensor);
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

void merge_lora_table(const LoraGroup& group, std::int64_t columns, std::span<const float> a,
                      std::span<const float> b, std::span<float> table) {
  const auto rank = static_cast<std::size_t>(group.ranks()), n = static_cast<std::size_t>(columns);
  for (std::size_t row = 0; row < table.size() / n; ++row)
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < rank; ++i)
        sum += static_cast<double>(a[row * rank + i]) * static_cast<double>(b[j * rank + i]);
      float& value = table[row * n + j];
      value = static_cast<float>(static_cast<double>(value) + static_cast<double>(group.scale) * sum);
    }
}

std::vector<LoraGroup> lora_groups(const std::vector<LoraTarget>& targets) {
  std::vector<LoraModule> modules;
  for (const LoraTarget& target : targets) modules.push_back(target.lora);
  return group_lora_modules(modules);
}

}  // namespace strata
