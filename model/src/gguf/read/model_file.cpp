#include "gguf/read/model_file.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <strata/model/hf/config.h>
#include <strata/model/hf/model_files.h>
#include <strata/text/gguf_tokenizer.h>
#include <strata/text/model_files.h>
#include <strata/runtime/str.h>

#include <strata/runtime/io/gguf/encoding.h>
#include "gguf/read/config.h"
#include "hf/folder_files.h"
#include <strata/runtime/config/strict_json.h>

namespace strata::detail {
namespace {

constexpr std::size_t kProblemsShown = 20;

/// The config.json of the file, with the tokens' ids.
Result<std::string> config_text_of(const GgufReader& file, const DecoderConfig& config) {
  std::string ids = "{}";
  if (file.metadata().contains("tokenizer.ggml.tokens")) {
    STRATA_TRY_ASSIGN(ids, generation_config_from_gguf(file));
  }
  const auto tokens = file.tensors().find("token_embd.weight");
  return hf_config_json(config, dtype_in_gguf(tokens->second.tensor.format), ids);
}

/// The row of the file that has row `row` of the parameter's part: the reverse of gather_gguf().
std::int64_t row_in_file(const GgufPart& part, std::int64_t row) {
  if (part.pairs == 0) return row;
  const std::int64_t in_head = row % (2 * part.pairs), first = row - in_head;
  return in_head < part.pairs ? first + 2 * in_head : first + 2 * (in_head - part.pairs) + 1;
}

/// Files of chatglm have queries, keys and values in one tensor; ours of the family have three.
void join_parts(const GgufReader& file, std::vector<GgufPart>& parts) {
  std::vector<GgufPart> joined;
  for (GgufPart& part : parts) {
    const std::string& name = part.tensor.name;
    const std::size_t at = name.find(".attn_q.");
    const std::string whole =
        at == std::string::npos ? std::string() : str(name.substr(0, at), ".attn_qkv.", name.substr(at + 8));
    const bool is_joined = !whole.empty() && file.tensors().find(name) == file.tensors().end() &&
                           file.tensors().find(whole) != file.tensors().end();
    const bool follows = !joined.empty() && part.first_row > 0 && joined.back().param == part.param &&
                         joined.back().tensor.name.find(".attn_qkv.") != std::string::npos;
    if (follows) {
      joined.back().tensor.shape.front() += part.tensor.shape.front();
      continue;
    }
    if (is_joined) part.tensor.name = whole;
    joined.push_back(std::move(part));
  }
  parts = std::move(joined);
}

/// Some files have gates and ups of experts in one tensor, as the parameter has them.
void join_gates_and_ups(const GgufReader& file, std::vector<GgufPart>& parts) {
  constexpr std::string_view kGates = ".ffn_gate_exps.", kUps = ".ffn_up_exps.";
  std::vector<GgufPart> joined;
  for (GgufPart& part : parts) {
    const std::string& name = part.tensor.name;
    const bool is_gate = name.find(kGates) != std::string::npos;
    const std::size_t at = is_gate ? name.find(kGates) : name.find(kUps);
    const std::string_view own = is_gate ? kGates : kUps;
    const std::string whole =
        at == std::string::npos ? std::string()
                                : str(name.substr(0, at), ".ffn_gate_up_exps.", name.substr(at + own.size()));
    if (whole.empty() || file.tensors().find(whole) == file.tensors().end()) {
      joined.push_back(std::move(part));
      continue;
    }
    if (!is_gate) continue;
    part.tensor.name = whole;
    part.tensor.shape[1] *= 2;
    part.run = part.stride = 0;
    joined.push_back(std::move(part));
  }
  parts = std::move(joined);
}

/// Whether two shapes are the same but for leading extents of 1: llama.cpp's converter writes the gate of a
/// shared expert as a matrix of one row.
bool is_same_shape(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  while (a.size() > 1 && a.front() == 1) a = a.subspan(1);
  while (b.size() > 1 && b.front() == 1) b = b.subspan(1);
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// Whether a tensor belongs to one of the layers behind the last one, which predict further tokens (GLM-4.5).
bool is_of_further_layer(const GgufReader& file, std::string_view name, std::int64_t layers) {
  std::int64_t layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  const auto* const architecture = file.find<std::string>("general.architecture");
  const auto* const n = file.find<std::int64_t>(str(*architecture, ".nextn_predict_layers"));
  return n != nullptr && layer >= layers && layer - layers < *n;
}

}  // namespace

Result<std::unique_ptr<GgufModel>> GgufModel::open(Io& io, const std::string& path) {
  std::unique_ptr<GgufModel> model(new GgufModel);
  STRATA_TRY_ASSIGN(model->file_, GgufReader::open(io, path));
  const auto fill = [&]() -> Status {
    STRATA_TRY_ASSIGN(const DecoderConfig found, config_from_gguf(*model->file_));
    STRATA_TRY_ASSIGN(model->config_text_, config_text_of(*model->file_, found));
    STRATA_TRY_ASSIGN(model->config_, decoder_from_hf_config(model->config_text_));
    return model->locate_tensors(family_of(model->config_).gguf);
  };
  STRATA_TRY(fill().annotate(path));
  return model;
}

Status GgufModel::locate_tensors(const GgufArchitecture& architecture) {
  std::vector<GgufPart> parts = gguf_parts(architecture, config_, GgufMix::f32);
  join_parts(*file_, parts);
  join_gates_and_ups(*file_, parts);
  std::vector<std::string> problems;
  std::set<std::string_view> expected = {"rope_freqs.weight"};
  if (config_.tied_head) expected.insert("output.weight");  // the same as the embedding
  for (const GgufPart& part : parts) {
    const std::string& name = part.tensor.name;
    if (part.param.empty() || (config_.tied_head && name == "output.weight")) continue;
    const auto at = file_->tensors().find(name);
    if (at == file_->tensors().end()) {
      problems.push_back(name + " is missing");
      continue;
    }
    expected.insert(at->first);
    if (!is_same_shape(at->second.tensor.shape, part.tensor.shape))
      problems.push_back(str(name, " has the shape ", shape_text(at->second.tensor.shape),
                             ", but the model needs ", shape_text(part.tensor.shape)));
    add_runs(part);
  }
  for (const auto& [name, entry] : file_->tensors())
    if (!expected.contains(name) && !is_of_further_layer(*file_, name, config_.layers))
      problems.push_back(name + " is not a tensor of this model");
  if (problems.empty()) return {};
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i)
    text += str(i == 0 ? "" : "\n", problems[i]);
  if (problems.size() > kProblemsShown) text += str("\nand ", problems.size() - kProblemsShown, " more");
  return Status::error(Code::corrupt, text);
}

// Tensors of one run keep their name; of others, run 3 is "NAME[3]", as an expert's rows are named in
// messages.
void GgufModel::add_runs(const GgufPart& part) {
  if (part.run == 0) {
    tensors_.push_back({part.tensor.name, part.tensor.shape, part.param, part.first_row});
    runs_.emplace(part.tensor.name, Run{part});
    return;
  }
  for (std::int64_t i = 0; i < part.runs(); ++i) {
    const std::string name = str(part.tensor.name, "[", i, "]");
    tensors_.push_back({name,
                        {static_cast<std::uint64_t>(part.run), static_cast<std::uint64_t>(part.columns())},
                        part.param,
                        part.first_row + i * part.stride});
    runs_.emplace(name, Run{part, i * part.run * part.columns()});
  }
}

DType GgufModel::dtype(std::string_view tensor) const {
  return dtype_in_gguf(entry_of(tensor).tensor.format);
}

const GgufEntry& GgufModel::entry_of(std::string_view tensor) const {
  return file_->tensors().find(runs_.find(tensor)->second.part.tensor.name)->second;
}

Status GgufModel::read(std::string_view tensor, std::int64_t begin, std::span<float> into) const {
  const auto& [part, first] = runs_.find(tensor)->second;
  const GgufEntry& entry = entry_of(tensor);
  if (part.pairs == 0) {
    STRATA_TRY(file_->read(entry, static_cast<std::uint64_t>(first + begin), into));
  } else {
    const std::int64_t columns = part.columns();
    for (std::int64_t at = begin, end = begin + std::ssize(into); at < end;) {
      const std::int64_t column = at % columns, n = std::min(columns - column, end - at);
      const std::int64_t from = row_in_file(part, at / columns) * columns + column;
      STRATA_TRY(
          file_->read(entry, static_cast<std::uint64_t>(from),
                      into.subspan(static_cast<std::size_t>(at - begin), static_cast<std::size_t>(n))));
      at += n;
    }
  }
  if (part.added != 0)
    for (float& value : into) value -= part.added;
  return {};
}

}  // namespace strata::detail

namespace strata {
namespace {

constexpr std::string_view kConfig = "/config.json";

/// The GGUF file whose config.json `path` is; empty if it is none.
std::string gguf_of_config(Io& io, const std::string& path) {
  return path.ends_with(kConfig) ? gguf_of(io, path) : std::string();
}

Result<std::string> config_from_file(Io& io, const std::string& path) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<GgufReader> file, GgufReader::open(io, path));
  STRATA_TRY_ASSIGN(const DecoderConfig config, detail::config_from_gguf(*file));
  return detail::config_text_of(*file, config);
}

}  // namespace

bool model_file_exists(Io& io, const std::string& path) {
  return tokenizer_file_exists(io, path) || !gguf_of_config(io, path).empty();
}

Result<std::string> read_model_file(Io& io, const std::string& path, std::uint64_t limit_bytes) {
  const std::string file = gguf_of_config(io, path);
  if (file.empty()) return read_tokenizer_file(io, path, limit_bytes);
  auto text = config_from_file(io, file);
  if (!text.has_value()) return text.status().annotate(file);
  return text;
}

}  // namespace strata
