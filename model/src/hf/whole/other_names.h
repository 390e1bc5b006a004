// Which tensors of a folder are no part of its text model.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/model/decoder_config.h>

namespace strata::detail {

struct WholeModel;

/// Whether files of the model may have tensors that predict further tokens.
bool may_have_extra_layers(const DecoderConfig& text);
/// Whether a tensor predicts further tokens, which strata neither runs nor trains: files of GLM-4.5 and
/// DeepSeek-V3 have layers behind the last one for it, those of Qwen3-Next tensors of another name. `name`
/// is the one in a folder of the text model.
bool is_of_extra_layer(std::string_view name, const DecoderConfig& text);

/// Whether a tensor with this name in the files is no part of the text model. `whole` is null for a folder of
/// a text model.
bool is_of_others(std::string_view name, const WholeModel* whole, const DecoderConfig& text);

/// Makes the text model's config say how many layers predict further tokens: what `source`, the config of the
/// folder they are from, says; or none if it is null, since the defaults of transformers are not none.
void set_extra_layers(nlohmann::json& config, const nlohmann::json* source);

}  // namespace strata::detail
