// The text model in a folder of a model that also reads images.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace strata::detail {

/// The config of the text model alone, as its family's folders have it; `root` itself where there is nothing
/// else. Mistral 3 has it in text_config, and beside it what counts for the whole model.
nlohmann::json text_config_of(const nlohmann::json& root);

/// The first part of the names of the text model's tensors in such a folder; empty if there is nothing else.
std::string_view text_prefix_of(const nlohmann::json& root);

/// Whether a tensor belongs to another part of such a model, which reads images.
bool is_of_image_reader(std::string_view tensor);

}  // namespace strata::detail
