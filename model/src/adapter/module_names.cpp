#include "adapter/module_names.h"

#include <algorithm>
#include <map>

#include <strata/model/adapter/lora.h>
#include <strata/runtime/str.h>

#include "adapter/choose_modules.h"

namespace strata::detail {

std::string_view layer_of(std::string_view module) {
  while (!module.empty()) {
    const std::string_view part = module.substr(0, module.find('.'));
    if (part.find_first_not_of("0123456789") == std::string_view::npos) return part;
    module.remove_prefix(std::min(module.size(), part.size() + 1));
  }
  return {};
}

bool is_named(std::string_view name, std::string_view module) {
  if (const std::size_t at = name.rfind(LoraSettings::kAtLayer); at != std::string_view::npos)
    return layer_of(module) == name.substr(at + 1) && is_named(name.substr(0, at), module);
  return module == name || (module.ends_with(name) && module.size() > name.size() &&
                            module[module.size() - name.size() - 1] == '.');
}

// PEFT: re.match(rf"(^|.*\.){name}($|\..*)", module).
bool is_in_saved(const std::vector<std::string>& save, std::string_view module) {
  return std::any_of(save.begin(), save.end(), [&](const std::string& name) {
    return str(".", module, ".").find(str(".", name, ".")) != std::string::npos;
  });
}

bool is_parameter_named(const std::vector<std::string>& names, std::string_view parameter) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return !name.empty() && (parameter == name || parameter.ends_with("." + name));
  });
}

bool has_saved_module(const std::string& tensor, std::string_view name) {
  for (std::size_t dot = tensor.rfind('.'); dot != std::string::npos && dot > 0;
       dot = tensor.rfind('.', dot - 1))
    if (std::string_view(tensor).substr(0, dot).ends_with(name)) return true;
  return false;
}

Result<ModuleName> ModuleName::parse(const std::string& text, Kind kind) {
  ModuleName name;
  name.text_ = text;
  if (text.find(LoraSettings::kAtLayer) != std::string::npos) return name;
  if (kind == Kind::target && !is_module_pattern(text)) return name;
  // PEFT: re.fullmatch(target, module), and re.match(rf"(.*\.)?({key})$", module). The text is parsed by
  // itself first, for messages that show it.
  STRATA_TRY_ASSIGN(name.pattern_, ModulePattern::parse(text));
  if (kind == Kind::pattern_key) {
    STRATA_TRY_ASSIGN(name.pattern_, ModulePattern::parse(str("(.*\\.)?(", text, ")$")));
  }
  return name;
}

bool ModuleName::names(std::string_view module) const {
  return pattern_ ? pattern_->matches(module) : is_named(text_, module);
}

bool ModuleName::is_all_linear() const { return text_ == LoraSettings::kAllLinear; }

}  // namespace strata::detail

namespace strata {
namespace {

class SavedTensors {
 public:
  SavedTensors(const DecoderConfig& config, const LoraSettings& settings, std::string_view section)
      : config_(config), settings_(settings), section_(section), tensors_(hf_tensors(config)) {}

  Result<std::vector<HfTensor>> run() {
    STRATA_TRY_ASSIGN(targets_, lora_targets(config_, settings_, section_));
    for (const std::string& name : settings_.save) check_name(name);
    check_overlaps();
    std::vector<HfTensor> saved;
    for (const HfTensor& tensor : tensors_) {
      if (!is_saved(tensor)) continue;
      check_parts(tensor);
      saved.push_back(tensor);
    }
    if (problems_.empty()) return saved;
    return Status::error(Code::invalid, str(section_, ":", problems_));
  }

 private:
  static constexpr const char* kKey = "modules_to_save";
  /// The modules that are trained whole, each with the name that it is given by.
  std::map<std::string, std::string> saved_modules() const {
    std::map<std::string, std::string> modules;
    for (const HfTensor& tensor : tensors_)
      for (std::size_t dot = tensor.name.rfind('.'); dot != std::string::npos && dot > 0;
           dot = tensor.name.rfind('.', dot - 1)) {
        const std::string module = tensor.name.substr(0, dot);
        for (const std::string& name : settings_.save)
          if (module.ends_with(name)) modules.emplace(module, name);
      }
    return modules;
  }
  // PEFT writes folders of such adapters that it cannot read.
  void check_overlaps() {
    const std::map<std::string, std::string> modules = saved_modules();
    const auto is_within = [](const std::string& inner, const std::string& module) {
      return inner == module || inner.starts_with(module + ".");
    };
    for (const auto& [module, name] : modules) {
      for (const LoraTarget& target : targets_)
        if (is_within(target.module, module)) {
          problems_ += str("\n  ", kKey, " has '", name, "', which names ", module, ", and ", target.module,
                           " has an adapter; name whole parts of names, or exclude it");
          break;
        }
      for (const auto& [inner, of_name] : modules)
        if (inner != module && is_within(inner, module)) {
          problems_ += str("\n  ", kKey, " has '", name, "', which names ", module, ", and '", of_name,
                           "', which names ", inner, " within it; name one of them");
          break;
        }
    }
  }
  bool is_trained_bias(const HfTensor& tensor) const {
    if (settings_.bias == LoraSettings::Bias::none || !tensor.name.ends_with(".bias")) return false;
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    return settings_.bias == LoraSettings::Bias::all ||
           std::any_of(targets_.begin(), targets_.end(),
                       [&](const LoraTarget& t) { return t.module == module; });
  }
  bool is_saved(const HfTensor& tensor) const {
    return is_trained_bias(tensor) ||
           std::any_of(settings_.save.begin(), settings_.save.end(),
                       [&](const std::string& name) { return detail::has_saved_module(tensor.name, name); });
  }
  void check_name(const std::string& name) {
    const std::string_view head = hf_head_name();
    const bool is_head = head.substr(0, head.rfind('.')).ends_with(name);
    const auto has_tied = [&](const HfTensor& t) {
      return t.param == "tokens.weight" && detail::has_saved_module(t.name, name);
    };
    if (detail::is_module_pattern(name) || name.empty())
      problems_ += str("\n  ", kKey, " has '", name, "'; it takes ends of names, not regular expressions");
    else if (config_.tied_head && (is_head || std::any_of(tensors_.begin(), tensors_.end(), has_tied)))
      problems_ +=
          str("\n  ", kKey, " has '", name, "', which the model ties to its ", is_head ? "embedding" : "head",
              "; PEFT trains a copy that is tied to nothing, for which such a model has no place");
    else if (std::none_of(tensors_.begin(), tensors_.end(),
                          [&](const HfTensor& t) { return detail::has_saved_module(t.name, name); }))
      problems_ += str("\n  ", kKey, " has '", name, "', which no module of the model ends with");
  }
  void check_parts(const HfTensor& tensor) {
    for (const HfTensor& other : tensors_)
      if (other.param == tensor.param && !is_saved(other))
        problems_ += str("\n  ", is_trained_bias(tensor) ? "bias = lora_only" : kKey, ": ", tensor.name,
                         " is stored as one parameter with ", other.name, "; name the modules of both");
  }

  const DecoderConfig& config_;
  const LoraSettings& settings_;
  const std::string_view section_;
  const std::vector<HfTensor> tensors_;
  std::vector<LoraTarget> targets_;
  std::string problems_;
};

}  // namespace

Result<std::vector<HfTensor>> saved_tensors(const DecoderConfig& config, const LoraSettings& settings,
                                            std::string_view section) {
  return SavedTensors(config, settings, section).run();
}

}  // namespace strata
