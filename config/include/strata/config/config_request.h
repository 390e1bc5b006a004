#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What a command asks to be loaded; load_config.h loads it.

namespace strata {

/// The purpose for which a configuration is loaded.
enum class ModelUse : std::uint8_t {
  training,
  saved,             ///< a saved run is read, so models beside its own may be gone
  inference,         ///< nothing is trained, so the model may be quantized
  base_of_adapters,  ///< the same; `auto` keeps the format of a folder that is quantized
};

/// The sources of a configuration. Later ones take precedence: the preset, one file, the environment,
/// assignments.
struct ConfigRequest {
  std::vector<std::string> items;  ///< at most one file or Hugging Face folder, and assignments (key=value)
  std::optional<std::string> file_text = {};  ///< the contents of that file, which is then not read
  bool replans =
      false;  ///< keys that a run decided itself are decided again, since its ranks may have changed
  std::string preset = {};
  std::string task = {};     ///< one of train_tasks(); with the precedence of the preset
  std::string init = {};     ///< sets model.from
  std::string adapter = {};  ///< sets adapter.from
  ModelUse use = ModelUse::training;
  std::vector<std::string> environment = {};  ///< "NAME=value"
};

/// Whether `item` is key=value, as opposed to a file. A file whose name contains '=' is written as ./name.
bool is_assignment(const std::string& item);

/// Adds assignments (key=value) and removes others of the same keys: a key may occur only once in a request.
void apply_overrides(ConfigRequest& request, const std::vector<std::string>& overrides);
/// Adds the assignments whose keys the request does not set.
void apply_defaults(ConfigRequest& request, const std::vector<std::string>& assignments);
/// A copy of the request (ConfigRequest or a derived type) with the overrides.
template <class Request>
Request with_overrides(Request request, const std::vector<std::string>& overrides) {
  apply_overrides(request, overrides);
  return request;
}
/// A copy of the request with the defaults.
template <class Request>
Request with_defaults(Request request, const std::vector<std::string>& assignments) {
  apply_defaults(request, assignments);
  return request;
}

}  // namespace strata
