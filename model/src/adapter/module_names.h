#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

#include "adapter/module_pattern.h"

namespace strata::detail {

/// The number of the layer, the first one in the name, as in "model.layers.3.mlp.up_proj"; empty if none.
std::string_view layer_of(std::string_view module);
/// Whether `name` is the module's, or its last parts. "NAME@3" is one of layer 3.
bool is_named(std::string_view name, std::string_view module);

/// Whether the module is one that is trained whole, or in one: these have no adapters.
bool is_in_saved(const std::vector<std::string>& save, std::string_view module);

/// Whether one of PEFT's target_parameters names the parameter: it is its name, or the end behind a dot.
bool is_parameter_named(const std::vector<std::string>& names, std::string_view parameter);
/// Whether a module that has the tensor, or one around it, ends in the name, as in PEFT.
bool has_saved_module(const std::string& tensor, std::string_view name);

/// A name or pattern of modules in the settings of an adapter.
class ModuleName {
 public:
  enum class Kind : std::uint8_t {
    target,      ///< a name, or a regular expression of whole names
    pattern_key  ///< a regular expression of whole names or of last parts, of rank_pattern and alpha_pattern
  };
  /// Errors: those of ModulePattern, with the text.
  static Result<ModuleName> parse(const std::string& text, Kind kind);
  bool names(std::string_view module) const;
  bool is_all_linear() const;
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::optional<ModulePattern> pattern_;
};

}  // namespace strata::detail
