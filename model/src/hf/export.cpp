#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "hf/folder_files.h"
#include "hf/text_model.h"
#include "hf/whole/whole_config.h"
#include "hf/whole/written_parts.h"
#include "hf/written_values.h"

namespace strata {
namespace {

DType stored_dtype(const HfTensor& tensor, DType dtype) { return tensor.is_f32 ? DType::f32 : dtype; }

/// Splits the tensors into files of at most `limit` bytes. They have the names of the files of `whole`, if it
/// is not null.
std::vector<std::vector<HfTensor>> shards(const DecoderConfig& config, DType dtype, std::uint64_t limit,
                                          const detail::WholeModel* whole) {
  std::vector<std::vector<HfTensor>> out(1);
  std::uint64_t bytes = 0;
  for (HfTensor& tensor : hf_tensors(config)) {
    const std::uint64_t size =
        static_cast<std::uint64_t>(tensor.n_elems()) * size_of(stored_dtype(tensor, dtype));
    if (!out.back().empty() && bytes + size > limit) {
      out.emplace_back();
      bytes = 0;
    }
    bytes += size;
    if (whole != nullptr) tensor.name = whole->in_files(tensor.name);
    out.back().push_back(std::move(tensor));
  }
  return out;
}

Status write_shard(Io& io, const std::string& path, const std::vector<HfTensor>& tensors,
                   const DecoderConfig& config, detail::ParamCache& params, DType dtype) {
  std::vector<TensorSpec> specs;
  for (const HfTensor& tensor : tensors)
    specs.push_back({tensor.name, std::string(safetensors_dtype(stored_dtype(tensor, dtype))), tensor.shape});
  STRATA_TRY_ASSIGN(const auto writer,
                    SafetensorsWriter::create(io, path, std::move(specs), {{"format", "pt"}}));
  const auto append = [&](std::span<const std::byte> bytes) { return writer->append(bytes); };
  for (const HfTensor& tensor : tensors) {
    STRATA_TRY_ASSIGN(const std::span<const float> param, params.get(tensor.param));
    const auto elements = [&](std::int64_t at, std::span<float> into) {
      gather_hf(tensor, config, at, param, into);
      return Status::ok();
    };
    STRATA_TRY(
        detail::write_rounded(tensor.name, tensor.n_elems(), stored_dtype(tensor, dtype), elements, append));
  }
  return writer->finish();
}

std::string shard_name(std::size_t i, std::size_t n) {
  return n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
}

std::string index_json(const std::vector<std::vector<HfTensor>>& all, const detail::WrittenParts& others,
                       DType dtype) {
  nlohmann::json map = nlohmann::json::object();
  const std::size_t n = all.size() + others.shards().size();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const HfTensor& tensor : all[i]) {
      map[tensor.name] = shard_name(i, n);
      total += static_cast<std::uint64_t>(tensor.n_elems()) * size_of(stored_dtype(tensor, dtype));
    }
  for (std::size_t i = all.size(); i < n; ++i)
    for (const detail::WrittenTensor& tensor : others.shards()[i - all.size()]) {
      map[tensor.name] = shard_name(i, n);
      total += tensor.bytes;
    }
  return nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n";
}

std::string config_text(const DecoderConfig& config, const HfExport& options,
                        const detail::WrittenParts& others) {
  const bool is_whole = others.kind() != nullptr;
  nlohmann::json root =
      nlohmann::json::parse(is_whole ? detail::whole_config_json(config, options.dtype, options.source_config)
                                     : hf_config_json(config, options.dtype, options.source_config));
  const HfTokenIds& ids = options.token_ids;
  nlohmann::json said = nlohmann::json::object();
  if (ids.bos >= 0) said["bos_token_id"] = ids.bos;
  if (ids.pad >= 0) said["pad_token_id"] = ids.pad;
  if (ids.eos.size() == 1)
    said["eos_token_id"] = ids.eos.front();
  else if (!ids.eos.empty())
    said["eos_token_id"] = ids.eos;
  const auto text = is_whole ? root.find("text_config") : root.end();  // not every whole model has one
  for (const auto& [key, id] : said.items())
    if (text == root.end() || root.contains(key)) root[key] = id;
  if (text != root.end()) text->update(said);
  others.name_extra_layers(text == root.end() ? root : *text);
  return root.dump(2) + "\n";
}

Status write_folder(Io& io, const std::string& path, const DecoderConfig& config, const ParamSource& source,
                    const HfExport& options) {
  STRATA_TRY_ASSIGN(const detail::WrittenParts others, detail::WrittenParts::open(io, options));
  STRATA_TRY(io.make_dirs(path));
  detail::ParamCache params(config, source);
  const auto all = shards(config, options.dtype, options.shard_bytes, others.kind());
  const std::size_t n = all.size() + others.shards().size();
  // What the source may no longer have comes first: it fails before hours of writing.
  for (std::size_t i = all.size(); i < n; ++i)
    STRATA_TRY(others.write_shard(io, path + "/" + shard_name(i, n), i - all.size()));
  STRATA_TRY(others.write_files(io, path));
  for (std::size_t i = 0; i < all.size(); ++i)
    STRATA_TRY(write_shard(io, path + "/" + shard_name(i, n), all[i], config, params, options.dtype));
  if (n > 1)
    STRATA_TRY(write_text_atomically(io, path + "/model.safetensors.index.json",
                                     index_json(all, others, options.dtype)));
  for (const auto& [name, text] : options.files)
    STRATA_TRY(write_text_atomically(io, path + "/" + name, text));
  return write_text_atomically(io, path + "/config.json", config_text(config, options, others));
}

}  // namespace

Status export_hf(Io& io, const std::string& folder, const DecoderConfig& config, const ParamSource& source,
                 const HfExport& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::bf16 && options.dtype != DType::f16)
    return Status::error(Code::unsupported, str("an export as ", to_string(options.dtype),
                                                "; the formats are f32, bf16 and f16"));
  return detail::write_whole(
      io, folder, [&](const std::string& draft) { return write_folder(io, draft, config, source, options); });
}

Status export_hf_tensors(Io& io, const std::string& file, const DecoderConfig& config,
                         const std::function<bool(std::string_view param)>& wanted,
                         const ParamSource& source) {
  std::vector<HfTensor> tensors = hf_tensors(config);
  std::erase_if(tensors, [&](const HfTensor& tensor) { return !wanted(tensor.param); });
  detail::ParamCache params(config, source);
  return write_shard(io, file, tensors, config, params, DType::f32);
}

Status check_hf_export(Io& io, const std::string& path, const ParamSource& source, DType dtype,
                       const std::optional<OtherParts>& others) {
  STRATA_TRY_ASSIGN(const auto folder, HfFolder::open(io, path));
  detail::ParamCache params(folder->config(), source);
  std::vector<float> found;
  std::vector<std::byte> raw;
  std::string last;
  for (const HfTensor& tensor : hf_tensors(folder->config())) {
    if (tensor.param == last) continue;
    last = tensor.param;
    STRATA_TRY_ASSIGN(const std::span<const float> param, params.get(tensor.param));
    std::vector<float> want(param.begin(), param.end());
    const DType stored = stored_dtype(tensor, dtype);
    raw.resize(want.size() * size_of(stored));
    STRATA_TRY(narrow_from_f32(want, stored, raw));
    STRATA_TRY(widen_to_f32(stored, raw, want));
    found.resize(want.size());
    STRATA_TRY(folder->read(tensor.param, found));
    if (std::memcmp(found.data(), want.data(), want.size() * sizeof(float)) != 0)
      return Status::error(Code::corrupt,
                           str(path, ": ", tensor.param, " has other values when it is read back"));
  }
  return others ? detail::check_written_parts(io, path, *others, dtype) : Status::ok();
}

}  // namespace strata
