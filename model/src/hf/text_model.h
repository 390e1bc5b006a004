// The text model in a folder of a model that also reads images, or that has more parts than are computed
// here.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace strata::detail {

/// A kind of model one part of which is a text model.
struct WholeModel {
  std::string_view type;       ///< its model_type
  std::string_view text_type;  ///< the text model's, as transformers takes it without the key
  /// Names of the text model's tensors that begin with the first begin with the second in the files.
  std::string_view text_names = {}, file_names = {};
  std::array<std::string_view, 4> others = {};  ///< the beginnings of the names of all other tensors
  std::string_view inside_layers = {};          ///< or what names of others have in the middle
  /// What transformers writes in place of the names' beginning where its own rules of names take the text
  /// model's, too; "": it does not.
  std::string_view saved_names = {};
  /// The text model's config is the config itself: the other parts choose the keys of attention by an index,
  /// which chooses all of them in short sequences.
  bool is_indexed = false;

  /// The name in the files of a tensor of the text model, and the other way round.
  std::string in_files(std::string_view name) const;
  std::string in_saved_files(std::string_view name) const;
  std::string in_text_model(std::string_view name) const;
  /// Whether a tensor of the files belongs to another part.
  bool is_of_others(std::string_view name) const;
};

/// The kind of the model with this config.json; null if it is a text model.
const WholeModel* whole_model_of(const nlohmann::json& root);

/// The config of the text model alone, as its family's folders have it; `root` itself where there is nothing
/// else. Such models have it in text_config, and beside it what counts for the whole model.
nlohmann::json text_config_of(const nlohmann::json& root);

}  // namespace strata::detail
