#include <algorithm>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include <strata/model/adapter/peft_folder.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "adapter/peft_config.h"
#include "adapter/peft_tensors.h"
#include "adapter/whole_names.h"
#include "hf/config/text.h"
#include "hf/folder_files.h"
#include "hf/text_model.h"

namespace strata {
namespace {

/// The base of an adapter, and the names that its modules have there.
struct NamedBase {
  detail::PeftBase base;
  detail::ModuleNames names = detail::ModuleNames::text;
};

Result<NamedBase> named_base(const std::string& base, const std::string& base_config) {
  NamedBase named{{base}};
  if (base_config.empty()) return named;
  STRATA_TRY_ASSIGN(const nlohmann::json root, detail::parse_config_json(base_config));
  const detail::WholeModel* const whole = detail::whole_model_of(root);
  if (whole == nullptr || whole->is_indexed) return named;
  named.names = detail::ModuleNames::whole;
  named.base.whole_type = whole->type;
  if (const auto classes = root.find("architectures");
      classes != root.end() && classes->is_array() && !classes->empty() && classes->front().is_string())
    named.base.whole_class = classes->front().get<std::string>();
  return named;
}

// The last parts of the targets' names if they name no other module, else the whole names.
nlohmann::json target_modules(const DecoderConfig& config, const std::vector<LoraTarget>& targets,
                              const std::vector<std::string>& save, detail::ModuleNames names) {
  std::set<std::string> last_parts, all;
  const auto is_module = [](const LoraTarget& target) { return !target.is_parameter(); };
  const auto n_modules = std::count_if(targets.begin(), targets.end(), is_module);
  if (n_modules == 0) return nlohmann::json::array();
  for (const LoraTarget& target : targets)
    if (is_module(target)) last_parts.insert(target.module.substr(target.module.rfind('.') + 1));
  LoraSettings by_parts;
  by_parts.targets.assign(last_parts.begin(), last_parts.end());
  by_parts.save = save;
  const auto named = lora_targets(config, by_parts);
  const bool is_by_parts = named.has_value() && std::ssize(*named) == n_modules;
  // Parts that read images may have modules of the same last names.
  if (is_by_parts && names != detail::ModuleNames::text)
    return detail::whole_target_pattern(by_parts.targets);
  if (is_by_parts) return by_parts.targets;
  for (const LoraTarget& target : targets)
    if (is_module(target)) all.insert(detail::in_class(target.module, names));
  return all;
}

/// Writes the tensors one after the other; each parameter is read once.
class TensorWriter {
 public:
  TensorWriter(const DecoderConfig& config, const std::vector<detail::PeftTensor>& tensors,
               const ParamSource& source)
      : config_(config), tensors_(tensors), source_(source) {
    for (const detail::PeftTensor& part : tensors)
      elems_[part.param] = std::max(elems_[part.param], part.first + part.n_elems());
  }

  Status write(Io& io, const std::string& path) {
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < tensors_.size(); i = end_of(i))
      specs.push_back({tensors_[i].name, std::string(safetensors_dtype(DType::f32)), tensors_[i].shape()});
    STRATA_TRY_ASSIGN(const auto writer,
                      SafetensorsWriter::create(io, path, std::move(specs), {{"format", "pt"}}));
    for (std::size_t i = 0; i < tensors_.size(); i = end_of(i)) {
      STRATA_TRY_ASSIGN(const std::vector<float> values, gather(i, end_of(i)));
      STRATA_TRY(writer->append(std::as_bytes(std::span<const float>(values))));
    }
    return writer->finish();
  }

 private:
  // The parts of a tensor follow each other.
  std::size_t end_of(std::size_t first) const {
    std::size_t end = first;
    while (end < tensors_.size() && tensors_[end].name == tensors_[first].name) ++end;
    return end;
  }
  Result<std::vector<float>> gather(std::size_t first, std::size_t end) {
    std::vector<float> values(static_cast<std::size_t>(tensors_[first].file_elems()));
    for (std::size_t i = first; i < end; ++i) {
      const detail::PeftTensor& part = tensors_[i];
      std::vector<float>& param = params_[part.param];
      if (param.empty()) {
        param.resize(static_cast<std::size_t>(elems_[part.param]));
        STRATA_TRY(source_(part.param, param));
      }
      detail::gather_peft(part, config_, param, values);
      if (part.first + part.n_elems() == elems_[part.param]) params_.erase(part.param);
    }
    if (const std::size_t bad = first_non_finite(values); bad < values.size())
      return Status::error(Code::diverged,
                           str("element ", bad, " of ", tensors_[first].name, " is ", values[bad],
                               ": the run diverged; export an earlier checkpoint"));
    return values;
  }

  const DecoderConfig& config_;
  const std::vector<detail::PeftTensor>& tensors_;
  const ParamSource& source_;
  std::map<std::string, std::int64_t> elems_;  // elements of each parameter
  std::map<std::string, std::vector<float>> params_;
};

Result<std::string> adapter_config_text(const DecoderConfig& config, const AdapterSettings& settings,
                                        const NamedBase& base) {
  const auto* lora = std::get_if<LoraSettings>(&settings);
  if (lora == nullptr) return detail::adapter_config_json(config, settings, base.base.path);
  STRATA_TRY_ASSIGN(const std::vector<LoraTarget> targets, lora_targets(config, *lora));
  const std::vector<HfTensor> all = hf_tensors(config);
  const bool transposed = std::any_of(
      all.begin(), all.end(), [](const HfTensor& t) { return t.layout == HfTensor::Layout::transposed; });
  LoraSettings written = *lora;
  if (written.tokens.size() > 1) {  // an object, which has names
    STRATA_TRY_ASSIGN(const std::vector<TokenTarget> tokens, token_targets(config, *lora));
    for (TrainedTokens& each : written.tokens)
      if (each.module.empty()) each.module = tokens.front().module;
  }
  const nlohmann::json modules = target_modules(config, targets, lora->save, base.names);
  if (base.names != detail::ModuleNames::text)
    written = detail::settings_in_whole_model(config, std::move(written));
  return detail::peft_config_json(written, modules, base.base, transposed);
}

Status write_folder(Io& io, const std::string& path, const DecoderConfig& config,
                    const AdapterSettings& settings, const NamedBase& base, const ParamSource& source) {
  STRATA_TRY(io.make_dirs(path));
  STRATA_TRY_ASSIGN(std::vector<detail::PeftTensor> tensors, detail::adapter_tensors(config, settings));
  std::erase_if(tensors, [](const detail::PeftTensor& tensor) { return tensor.optional; });
  for (detail::PeftTensor& tensor : tensors)
    tensor.name = detail::peft_tensor_in_class(tensor.name, base.names);
  STRATA_TRY_ASSIGN(const std::string text, adapter_config_text(config, settings, base));
  STRATA_TRY(TensorWriter(config, tensors, source).write(io, path + "/adapter_model.safetensors"));
  return write_text_atomically(io, path + "/adapter_config.json", text);
}

}  // namespace

Status export_peft(Io& io, const std::string& path, const DecoderConfig& config,
                   const AdapterSettings& settings, const std::string& base, const ParamSource& source,
                   const std::string& base_config) {
  STRATA_TRY_ASSIGN(const NamedBase named, named_base(base, base_config));
  return detail::write_whole(io, path, [&](const std::string& draft) {
    return write_folder(io, draft, with_derived_sizes(config), settings, named, source);
  });
}

ParamSource merged_source(ParamSource source, std::vector<LoraGroup> groups, const DecoderConfig& decoder) {
  return [source = std::move(source), groups = std::move(groups), inner = inner_extents(decoder)](
             std::string_view name, std::span<float> into) -> Status {
    STRATA_TRY(source(name, into));
    for (const LoraGroup& group : groups) {
      if (group.weight != name) continue;
      const bool of_table = group.place == LoraPlace::embedding;
      const std::int64_t columns = inner.at(group.weight),
                         extent = of_table ? std::ssize(into) / columns : columns;
      const std::int64_t matrices =
          group.place == LoraPlace::experts ? std::ssize(into) / (group.rows() * columns) : 1;
      std::vector<float> a(static_cast<std::size_t>(matrices * group.ranks() * extent)),
          b(static_cast<std::size_t>(matrices * group.elems())), magnitude;
      STRATA_TRY(source(group.a, a));
      STRATA_TRY(source(group.b, b));
      if (of_table) {
        merge_lora_table(group, columns, a, b, into);
        continue;
      }
      if (!group.magnitude.empty()) {
        magnitude.resize(static_cast<std::size_t>(group.rows()));
        STRATA_TRY(source(group.magnitude, magnitude));
      }
      const auto of_matrix = [&](auto& values, std::int64_t index) {
        const std::size_t n = values.size() / static_cast<std::size_t>(matrices);
        return std::span(values).subspan(static_cast<std::size_t>(index) * n, n);
      };
      for (std::int64_t i = 0; i < matrices; ++i)
        merge_lora(group, columns, of_matrix(a, i), of_matrix(b, i), of_matrix(into, i), magnitude);
    }
    return {};
  };
}

ParamSource with_token_rows(ParamSource source, std::vector<TokenTarget> targets) {
  return [source = std::move(source), targets = std::move(targets)](std::string_view name,
                                                                    std::span<float> into) -> Status {
    STRATA_TRY(source(name, into));
    for (const TokenTarget& target : targets) {
      if (target.rows.weight != name) continue;
      std::vector<float> rows(target.rows.tokens.size() * static_cast<std::size_t>(target.columns));
      STRATA_TRY(source(target.rows.rows(), rows));
      replace_token_rows(target.rows, target.columns, rows, into);
    }
    return {};
  };
}

Status check_peft_export(Io& io, const std::string& path, const DecoderConfig& config,
                         const ParamSource& source) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<PeftFolder> folder, PeftFolder::open(io, path, config));
  for (const auto& [name, n] : folder->params()) {
    std::vector<float> want(static_cast<std::size_t>(n)), found(want.size());
    STRATA_TRY(source(name, want));
    STRATA_TRY(folder->read_part(name, 0, found));
    if (std::memcmp(want.data(), found.data(), want.size() * sizeof(float)) != 0)
      return Status::error(Code::corrupt, str(path, ": ", name, " has other values when it is read back"));
  }
  return {};
}

}  // namespace strata
