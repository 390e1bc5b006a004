#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/adapter/lora.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/status.h>

namespace strata {

namespace detail {
struct PeftTensor;
}  // namespace detail

/// A folder that PEFT wrote, or reads: adapter_config.json and adapter_model.safetensors. Bottleneck
/// adapters, which PEFT does not have, have the same files (model/README.md). open() guarantees that the file
/// has every tensor of the adapter that the settings describe, with their shapes and a readable dtype, and no
/// other tensor. Names may be those of the text model or of the class of a whole model (Hugging Face folders
/// of models that also read images). Immutable; read_part() from one thread at a time.
class PeftFolder {
 public:
  /// Opens the adapter of a model. Errors: `not_found`, `corrupt`; `unsupported` for what strata does not
  /// implement, by the name of its key; `invalid` for an adapter of another model; all problems of tensors at
  /// once.
  static Result<std::unique_ptr<PeftFolder>> open(Io& io, const std::string& path,
                                                  const DecoderConfig& config);

  ~PeftFolder();
  /// The encoder of a prompt is no part of a folder, which has its results: they are a prompt without one.
  const AdapterSettings& settings() const noexcept { return settings_; }
  /// The modules of a LoRA adapter; empty for other methods.
  const std::vector<LoraTarget>& targets() const noexcept { return targets_; }
  /// The parameters of the adapter, with their numbers of elements.
  std::map<std::string, std::int64_t> params() const;
  /// base_model_name_or_path; empty if there is none.
  const std::string& base() const noexcept { return base_; }
  /// Parameters of the base that the folder has beside the adapter's own, with their tensors' names: the
  /// table that PEFT writes where the embedding or the head has an adapter. They are read instead of the
  /// base's.
  std::map<std::string, std::string> base_params() const;
  /// Whether `param` is a parameter of the adapter, or one of these.
  bool has(std::string_view param) const noexcept;
  /// Reads elements [offset, offset + into.size()) of a parameter of add_adapter() as f32. Errors:
  /// `not_found`, `io_error`, and `corrupt` for a NaN or an infinity, with its tensor.
  Status read_part(std::string_view param, std::int64_t offset, std::span<float> into) const;

 private:
  PeftFolder();
  void take_names_of_file();
  Status check_tensors() const;
  Status load(std::string_view param) const;

  std::string path_, base_;
  DecoderConfig config_;
  AdapterSettings settings_;
  std::vector<LoraTarget> targets_;
  std::vector<detail::PeftTensor> tensors_;
  std::unique_ptr<SafetensorsFile> file_;
  mutable std::string loaded_name_;  // the parameter that read_part() holds
  mutable std::vector<float> loaded_;
};

/// The settings in the folder's adapter_config.json. Errors: `not_found`, `corrupt`, `unsupported`.
Result<AdapterSettings> read_peft_settings(Io& io, const std::string& path);

/// Writes a folder that PEFT can load, in f32. `base`: base_model_name_or_path. `source`: see
/// folder_values(). `base_config`: config.json of the base; if that is a whole model, names are those of its
/// class, over which PEFT loads the folder, else those of the text model. `path` must not exist.
/// Errors: `invalid`, `no_space`, `io_error`, those of `source`; `diverged` for a NaN or an infinity, with
/// its tensor.
Status export_peft(Io& io, const std::string& path, const DecoderConfig& config,
                   const AdapterSettings& settings, const std::string& base, const ParamSource& source,
                   const std::string& base_config = {});

/// The parameters of a whole model from those of the base and of its adapters: see merge_lora().
ParamSource merged_source(ParamSource source, std::vector<LoraGroup> groups, const DecoderConfig& decoder);
/// The same of trained rows of tokens: see replace_token_rows().
ParamSource with_token_rows(ParamSource source, std::vector<TokenTarget> targets);
/// Reads the folder back and compares every element with `source`. Errors: `corrupt` with the parameter.
Status check_peft_export(Io& io, const std::string& path, const DecoderConfig& config,
                         const ParamSource& source);

}  // namespace strata
