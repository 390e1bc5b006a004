#include <algorithm>
#include <cstring>
#include <set>

#include <strata/model/adapter/peft_folder.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "adapter/peft_config.h"
#include "adapter/peft_tensors.h"
#include "hf/folder_files.h"

namespace strata {
namespace {

// The last parts of the targets' names if they name no other module, else the whole names.
std::vector<std::string> target_modules(const DecoderConfig& config, const std::vector<LoraTarget>& targets) {
  std::set<std::string> last_parts, all;
  for (const LoraTarget& target : targets)
    last_parts.insert(target.module.substr(target.module.rfind('.') + 1));
  LoraSettings by_parts;
  by_parts.targets.assign(last_parts.begin(), last_parts.end());
  const auto named = lora_targets(config, by_parts);
  if (named.has_value() && named->size() == targets.size()) return by_parts.targets;
  for (const LoraTarget& target : targets) all.insert(target.module);
  return {all.begin(), all.end()};
}

Status write_folder(Io& io, const std::string& path, const DecoderConfig& config,
                    const LoraSettings& settings, const std::string& base, const ParamSource& source) {
  STRATA_TRY(io.make_dirs(path));
  STRATA_TRY_ASSIGN(const std::vector<LoraTarget> targets, lora_targets(config, settings));
  const std::vector<detail::PeftTensor> tensors = detail::peft_tensors(config, targets);
  std::vector<TensorSpec> specs;
  std::map<std::string, std::int64_t> elems;
  for (const detail::PeftTensor& tensor : tensors) {
    specs.push_back({tensor.name, std::string(safetensors_dtype(DType::f32)), tensor.shape()});
    elems[tensor.param] = std::max(elems[tensor.param], tensor.first + tensor.n_elems());
  }
  STRATA_TRY_ASSIGN(const auto writer, SafetensorsWriter::create(io, path + "/adapter_model.safetensors",
                                                                 std::move(specs), {{"format", "pt"}}));
  std::map<std::string, std::vector<float>> params;
  for (const detail::PeftTensor& tensor : tensors) {
    std::vector<float>& param = params[tensor.param];
    if (param.empty()) {
      param.resize(static_cast<std::size_t>(elems[tensor.param]));
      STRATA_TRY(source(tensor.param, param));
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.n_elems()));
    detail::gather_peft(tensor, config, param, values);
    if (const std::size_t bad = first_non_finite(values); bad < values.size())
      return Status::error(Code::diverged, str("element ", bad, " of ", tensor.name, " is ", values[bad],
                                               ": the run diverged; export an earlier checkpoint"));
    STRATA_TRY(writer->append(std::as_bytes(std::span<const float>(values))));
    if (tensor.first + tensor.n_elems() == elems[tensor.param]) params.erase(tensor.param);
  }
  STRATA_TRY(writer->finish());
  const std::vector<HfTensor> all = hf_tensors(config);
  const bool turned = std::any_of(all.begin(), all.end(),
                                  [](const HfTensor& t) { return t.layout == HfTensor::Layout::transposed; });
  return write_text_atomically(
      io, path + "/adapter_config.json",
      detail::peft_config_json(settings, target_modules(config, targets), base, turned));
}

}  // namespace

Status export_peft(Io& io, const std::string& path, const DecoderConfig& config, const LoraSettings& settings,
                   const std::string& base, const ParamSource& source) {
  return detail::write_whole_folder(io, path, [&](const std::string& draft) {
    return write_folder(io, draft, with_derived_sizes(config), settings, base, source);
  });
}

ParamSource merged_source(ParamSource source, std::vector<LoraGroup> groups, const DecoderConfig& decoder) {
  return [source = std::move(source), groups = std::move(groups), inner = inner_extents(decoder)](
             std::string_view name, std::span<float> into) -> Status {
    STRATA_TRY(source(name, into));
    for (const LoraGroup& group : groups) {
      if (group.weight != name) continue;
      std::vector<float> a(static_cast<std::size_t>(group.ranks() * inner.at(group.weight))),
          b(static_cast<std::size_t>(group.elems())), magnitude;
      STRATA_TRY(source(group.a, a));
      STRATA_TRY(source(group.b, b));
      if (!group.magnitude.empty()) {
        magnitude.resize(static_cast<std::size_t>(group.rows()));
        STRATA_TRY(source(group.magnitude, magnitude));
      }
      merge_lora(group, inner.at(group.weight), a, b, into, magnitude);
    }
    return {};
  };
}

Status check_peft_export(Io& io, const std::string& path, const DecoderConfig& config,
                         const ParamSource& source) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<PeftFolder> folder, PeftFolder::open(io, path, config));
  const std::map<std::string, std::int64_t> inner = inner_extents(config);
  for (const LoraGroup& group : lora_groups(folder->targets()))
    for (const auto& [name, n] : {std::pair{group.a, group.ranks() * inner.at(group.weight)},
                                  {group.b, group.elems()},
                                  {group.magnitude, group.rows()}}) {
      if (name.empty()) continue;  // not DoRA
      std::vector<float> want(static_cast<std::size_t>(n)), found(want.size());
      STRATA_TRY(source(name, want));
      STRATA_TRY(folder->read_part(name, 0, found));
      if (std::memcmp(want.data(), found.data(), want.size() * sizeof(float)) != 0)
        return Status::error(Code::corrupt, str(path, ": ", name, " has other values when it is read back"));
    }
  return {};
}

}  // namespace strata
