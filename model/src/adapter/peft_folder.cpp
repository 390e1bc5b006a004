#include <strata/model/adapter/peft_folder.h>

#include <algorithm>

#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>
#include <strata/text/model_files.h>

#include "adapter/choose_modules.h"
#include "adapter/peft_config.h"
#include "adapter/peft_tensors.h"
#include "adapter/whole_names.h"
#include "hf/folder_files.h"

namespace strata {
namespace {

constexpr std::uint64_t kConfigLimit = 16 << 20;

Result<detail::PeftConfig> read_config(Io& io, const std::string& path) {
  const std::string file = path + "/adapter_config.json";
  if (!io.exists(file))
    return Status::error(Code::not_found,
                         str(path, " has no adapter_config.json: it is no folder of an adapter"));
  STRATA_TRY_ASSIGN(const std::string text,
                    detail::read_in_hf_folder(io, path, "adapter_config.json", kConfigLimit));
  auto parsed = detail::parse_peft_config(text);
  if (!parsed.has_value()) return parsed.status().annotate(file);
  if (auto* const lora = std::get_if<LoraSettings>(&parsed->settings))
    *lora = detail::settings_in_text_model(std::move(*lora));
  return parsed;
}

}  // namespace

Result<AdapterSettings> read_peft_settings(Io& io, const std::string& path) {
  STRATA_TRY_ASSIGN(detail::PeftConfig config, read_config(io, path));
  return std::move(config.settings);
}

namespace {

// Pickles are programs: they are not read.
Status check_format(Io& io, const std::string& path) {
  if (io.exists(path + "/adapter_model.safetensors") || !io.exists(path + "/adapter_model.bin")) return {};
  return Status::error(Code::unsupported,
                       path +
                           " has adapter_model.bin, a pickle, which strata does not read, and no "
                           "adapter_model.safetensors; save the adapter with safe_serialization=True");
}

}  // namespace

PeftFolder::PeftFolder() = default;
PeftFolder::~PeftFolder() = default;

Result<std::unique_ptr<PeftFolder>> PeftFolder::open(Io& io, const std::string& path,
                                                     const DecoderConfig& config) {
  std::unique_ptr<PeftFolder> folder(new PeftFolder);
  folder->path_ = path;
  folder->config_ = with_derived_sizes(config);
  STRATA_TRY_ASSIGN(detail::PeftConfig parsed, read_config(io, path));
  folder->settings_ = std::move(parsed.settings);
  folder->base_ = std::move(parsed.base);
  if (auto* lora = std::get_if<LoraSettings>(&folder->settings_)) {
    *lora = without_absent(config, std::move(*lora));
    auto targets = lora_targets(config, *lora, detail::kPeftSection);
    if (!targets.has_value()) return targets.status().annotate(path);
    folder->targets_ = *std::move(targets);
    STRATA_TRY(saved_tensors(config, *lora, detail::kPeftSection).status().annotate(path));
    STRATA_TRY(token_targets(config, *lora, detail::kPeftSection).status().annotate(path));
  }
  STRATA_TRY_ASSIGN(folder->tensors_, detail::adapter_tensors(folder->config_, folder->settings_));
  STRATA_TRY(check_format(io, path));
  STRATA_TRY_ASSIGN(const std::string where, file_in_hf_folder(path, "adapter_model.safetensors"));
  STRATA_TRY_ASSIGN(folder->file_, SafetensorsFile::open(io, where));
  folder->take_names_of_file();
  std::erase_if(folder->tensors_, [&](const detail::PeftTensor& tensor) {
    return tensor.optional && folder->file_->find(tensor.name) == nullptr;
  });
  STRATA_TRY(folder->check_tensors().annotate(path + "/adapter_model.safetensors"));
  return folder;
}

// An adapter of a whole model's class has other names.
void PeftFolder::take_names_of_file() {
  for (const SafetensorsEntry& entry : file_->entries()) {
    const detail::ModuleNames names = detail::names_of_tensor(entry.name);
    if (names == detail::ModuleNames::text) continue;
    for (detail::PeftTensor& tensor : tensors_)
      tensor.name = detail::peft_tensor_in_class(tensor.name, names);
    return;
  }
}

Status PeftFolder::check_tensors() const {
  std::string problems;
  const std::string* last = nullptr;
  for (const detail::PeftTensor& tensor : tensors_) {
    if (last != nullptr && *last == tensor.name) continue;
    last = &tensor.name;
    const SafetensorsEntry* const entry = file_->find(tensor.name);
    if (entry == nullptr) {
      problems += str("\n  ", tensor.name, " is missing");
      continue;
    }
    const auto dtype = dtype_from_safetensors(entry->dtype);
    if (!dtype || !is_stored_dtype(*dtype))
      problems += str("\n  ", tensor.name, " is ", entry->dtype, "; F32, BF16 and F16 can be read");
    if (entry->shape != tensor.shape())
      problems += str("\n  ", tensor.name, " has the shape ", detail::shape_text(entry->shape),
                      ", but the model needs ", detail::shape_text(tensor.shape()));
  }
  for (const SafetensorsEntry& entry : file_->entries())
    if (std::none_of(tensors_.begin(), tensors_.end(),
                     [&](const detail::PeftTensor& tensor) { return tensor.name == entry.name; }))
      problems += str("\n  ", entry.name, " is not a tensor of an adapter that strata has");
  if (problems.empty()) return {};
  return Status::error(Code::invalid, str("the adapter does not fit the model:", problems));
}

std::map<std::string, std::string> PeftFolder::base_params() const {
  std::map<std::string, std::string> names;
  for (const detail::PeftTensor& tensor : tensors_)
    if (tensor.optional) names.emplace(tensor.param, tensor.name);
  return names;
}

bool PeftFolder::has(std::string_view param) const noexcept {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const detail::PeftTensor& tensor) { return tensor.param == param; });
}

std::map<std::string, std::int64_t> PeftFolder::params() const {
  std::map<std::string, std::int64_t> elems;
  for (const detail::PeftTensor& tensor : tensors_)
    elems[tensor.param] = std::max(elems[tensor.param], tensor.first + tensor.n_elems());
  return elems;
}

Status PeftFolder::load(std::string_view param) const {
  if (loaded_name_ == param) return {};
  loaded_name_.clear();
  loaded_.clear();
  for (const detail::PeftTensor& tensor : tensors_) {
    if (tensor.param != param) continue;
    const SafetensorsEntry& entry = *file_->find(tensor.name);
    const DType dtype = *dtype_from_safetensors(entry.dtype);
    std::vector<float> values(static_cast<std::size_t>(tensor.file_elems()));
    std::vector<std::byte> raw(values.size() * size_of(dtype));
    STRATA_TRY(file_->read_range(entry, 0, raw));
    STRATA_TRY(widen_to_f32(dtype, raw, values));
    if (const std::size_t bad = first_non_finite(values); bad < values.size())
      return Status::error(Code::corrupt,
                           str(path_, ": element ", bad, " of ", tensor.name, " is ", values[bad]));
    const auto end = static_cast<std::size_t>(tensor.first + tensor.n_elems());
    loaded_.resize(std::max(loaded_.size(), end));
    detail::scatter_peft(tensor, config_, values, loaded_);
  }
  if (loaded_.empty()) return Status::error(Code::not_found, str(path_, " has no ", param));
  loaded_name_ = param;
  return {};
}

Status PeftFolder::read_part(std::string_view param, std::int64_t offset, std::span<float> into) const {
  STRATA_TRY(load(param));
  if (offset < 0 || offset + std::ssize(into) > std::ssize(loaded_))
    return Status::error(Code::invalid, str(path_, ": ", param, " has ", loaded_.size(), " elements, ",
                                            into.size(), " from ", offset, " were requested"));
  std::copy_n(loaded_.begin() + offset, into.size(), into.begin());
  return {};
}

}  // namespace strata
