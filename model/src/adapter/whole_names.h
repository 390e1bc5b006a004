// Names of modules in the class of a whole model, which also reads images: its text model, whose modules are
// model.NAME by themselves, is model.language_model there.
#pragma once

#include <string>
#include <string_view>

#include <strata/model/adapter/lora.h>

namespace strata::detail {

/// Which names the modules of a text model have.
enum class ModuleNames : std::uint8_t {
  text,       ///< "model.layers.0.self_attn.q_proj"
  whole,      ///< "model.language_model.layers.0.self_attn.q_proj"
  old_whole,  ///< "language_model.model.layers.0.self_attn.q_proj", of transformers before 4.52
};

/// The name of a module or tensor of the text model. `name`: in the text model.
std::string in_class(std::string_view name, ModuleNames names);
/// Which of them the names of an adapter's tensors are, by one of them.
ModuleNames names_of_tensor(std::string_view tensor);
/// The same of a tensor in a folder of PEFT.
std::string peft_tensor_in_class(const std::string& tensor, ModuleNames names);

/// The settings with names and patterns as they are in a text model, from those in a whole one, also in
/// transformers before 4.52. Settings of a text model stay as they are.
LoraSettings settings_in_text_model(LoraSettings settings);

/// The settings as PEFT must have them over a whole model: what is trained whole is named in full, since ends
/// of names may be those of modules that read images.
LoraSettings settings_in_whole_model(const DecoderConfig& config, LoraSettings settings);
/// What target_modules is for modules with these last parts, in a whole model.
std::string whole_target_pattern(const std::vector<std::string>& last_parts);

}  // namespace strata::detail
