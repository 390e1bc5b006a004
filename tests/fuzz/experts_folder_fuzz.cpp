// A folder of a mixture of experts, in one of the forms in which files have them, with its config.json or its
// header replaced by the input, or with some of its tensors changed: missing, of another shape or dtype,
// shorter, under another name, or with other bytes. The first byte selects the form, the second what is
// changed. If it opens, every parameter can be read or is refused by name, and bytes that are read stand for
// finite values.
#include <array>
#include <cmath>
#include <vector>

#include <strata/kernels/weight_quant.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/hf/folder.h>
#include <strata/model/hf/tensors.h>

#include "fuzz.h"
#include "model/hf/quantized_folder.h"
#include "support/experts/tiny_experts.h"
#include "support/memory_io.h"
#include "support/temp_dir.h"

namespace {

using strata::must;
using strata::kernels::WeightFormat;
using strata::test::QuantizedFolder;
using strata::test::StoredBytes;

struct Form {
  const char* family;
  WeightFormat format;
  bool stacked = false, only_experts = false;
};
constexpr std::array kForms = {
    Form{"qwen3_moe", WeightFormat::full}, Form{"qwen3_moe", WeightFormat::full, true},
    Form{"mixtral", WeightFormat::full},   Form{"gpt_oss", WeightFormat::full},
    Form{"gpt_oss", WeightFormat::mxfp4},  Form{"qwen3_moe", WeightFormat::fp8_block},
    Form{"qwen3_moe", WeightFormat::int4}, Form{"olmoe", WeightFormat::int4, false, true}};
constexpr const char* kFile = "m/shard.safetensors";

strata::DecoderConfig config_of(const Form& form) {
  strata::DecoderConfig config = strata::decoder_for_family(form.family).value();
  config.layers = 1;
  config.hidden = config.ffn = 32;
  config.heads = 2;
  config.head_dim = 16;
  config.kv_heads = form.family == std::string_view("olmoe") ? 2 : 1;
  config.vocab = 2;
  config.positions = config.seq = 4;
  strata::test::set_tiny_experts(config);
  config.experts.n = 2;
  config.experts.layers.clear();
  config.experts.ffn = 32;
  config.experts.stacked_files = form.stacked;
  config.experts.only_quantized |= form.only_experts;
  return config;
}

/// A file whose header says what the tensors are, whether a writer would agree or not.
std::string file_of(const std::map<std::string, StoredBytes>& tensors) {
  std::string text = "{", data;
  for (const auto& [name, stored] : tensors) {
    text += strata::str(text.size() > 1 ? "," : "", "\"", name, "\":{\"dtype\":\"", stored.dtype,
                        "\",\"shape\":[");
    for (std::size_t i = 0; i < stored.shape.size(); ++i)
      text += strata::str(i > 0 ? "," : "", stored.shape[i]);
    text += strata::str("],\"data_offsets\":[", data.size(), ",", data.size() + stored.bytes.size(), "]}");
    data += stored.bytes;
  }
  text += "}";
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data;
}

/// The bytes that the shape and the dtype want.
void fit(StoredBytes& tensor) {
  static const std::map<std::string, std::size_t> sizes = {
      {"F32", 4}, {"I32", 4}, {"BF16", 2}, {"F16", 2}, {"I64", 8}};
  std::size_t bytes = sizes.count(tensor.dtype) != 0 ? sizes.at(tensor.dtype) : 1;
  for (const std::uint64_t extent : tensor.shape) bytes *= extent;
  tensor.bytes.resize(std::min<std::size_t>(bytes, 1 << 20), 'x');
}

/// One change of one tensor, by four bytes.
void change(std::map<std::string, StoredBytes>& tensors, std::string_view how) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<std::uint8_t>(how[i]));
  };
  if (tensors.empty()) return;
  const auto at = std::next(tensors.begin(), static_cast<std::ptrdiff_t>(byte(1) % tensors.size()));
  StoredBytes& tensor = at->second;
  constexpr std::array kTypes = {"F32", "BF16", "F16", "U8", "I8", "F8_E4M3", "I32", "I64", "BOOL", "F64"};
  switch (byte(0) % 9) {
    case 0:
      tensors.erase(at);
      return;
    case 1:
      if (tensor.shape.empty()) return;
      tensor.shape[byte(2) % tensor.shape.size()] = byte(3) % 97;
      return fit(tensor);
    case 2:
      tensor.dtype = kTypes[byte(2) % kTypes.size()];
      return fit(tensor);
    case 3:
      if (!tensor.bytes.empty()) tensor.bytes[(byte(2) * 256 + byte(3)) % tensor.bytes.size()] ^= how[3] | 1;
      return;
    case 4: {  // an expert or a layer of another number
      std::string name = at->first;
      std::vector<std::size_t> digits;
      for (std::size_t i = 0; i < name.size(); ++i)
        if (std::isdigit(static_cast<unsigned char>(name[i])) != 0) digits.push_back(i);
      if (digits.empty()) return;
      name[digits[byte(2) % digits.size()]] = static_cast<char>('0' + byte(3) % 10);
      tensors[name] = tensor;
      return;
    }
    case 5:
      if (tensor.shape.size() > 1) std::swap(tensor.shape.front(), tensor.shape.back());
      return;
    case 6:
      tensor.shape.insert(
          tensor.shape.begin() + static_cast<std::ptrdiff_t>(byte(2) % (tensor.shape.size() + 1)), 1);
      return;
    case 7: {  // all bytes of a tensor: scales that are NaN, zero, or the largest
      tensor.bytes.assign(tensor.bytes.size(), how[3]);
      return;
    }
    default: {  // a tensor of this kind beside it
      constexpr std::array kEnds = {"_scale_inv",  "_scale", "_scales", "_blocks", "_packed",   "_shape",
                                    "_zero_point", "_bias",  ".absmax", ".weight", ".quant_map"};
      tensors[at->first + kEnds[byte(2) % kEnds.size()]] = tensor;
    }
  }
}

void read_all(const strata::HfFolder& folder) {
  const strata::DecoderConfig config = folder.config();
  std::map<std::string, std::int64_t> params;
  for (const strata::HfTensor& tensor : strata::hf_tensors(config)) params[tensor.param] += tensor.n_elems();
  for (const auto& [param, n] : params) {
    std::vector<float> values(static_cast<std::size_t>(n));
    const strata::Status status = folder.read(param, values);
    STRATA_ASSERT(status.is_ok() || !status.message().empty(), "refused without a reason");
    const bool is_finite =
        std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    STRATA_ASSERT(!status.is_ok() || is_finite, "a value that is not finite", param);
  }
  const WeightFormat format = folder.quantized_to();
  if (format == WeightFormat::full) return;
  for (const auto& [param, matrix] : quantized_matrices(config, format)) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
    const auto is_kept = folder.read_quantized(param, matrix, 0, bytes);
    if (!is_kept.has_value() || !*is_kept) continue;
    std::vector<float> values(static_cast<std::size_t>(matrix.n_elems()));
    strata::kernels::dequantize_matrix(matrix, bytes, 0, values);
    STRATA_ASSERT(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }),
                  "bytes that stand for a value that is not finite", param);
  }
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  struct Written {
    std::map<std::string, StoredBytes> tensors;
    std::string config, file;
  };
  static const std::vector<Written> written = [] {
    std::vector<Written> all;
    for (const Form& form : kForms) {
      const strata::DecoderConfig config = config_of(form);
      const QuantizedFolder folder(config, form.format);
      all.push_back({folder.tensors, folder.config_json(), file_of(folder.tensors)});
    }
    return all;
  }();
  if (input.size() < 2) return;
  const Written& form = written[static_cast<std::uint8_t>(input[0]) % written.size()];
  const std::string_view rest = input.substr(2);
  std::map<std::string, StoredBytes> tensors = form.tensors;
  std::string config = form.config, file = form.file;
  switch (static_cast<std::uint8_t>(input[1]) % 3) {
    case 0:
      config = rest;
      break;
    case 1: {
      const std::uint64_t length = rest.size();
      std::uint64_t was = 0;
      std::memcpy(&was, form.file.data(), sizeof was);
      file = std::string(reinterpret_cast<const char*>(&length), sizeof length) + std::string(rest) +
             form.file.substr(8 + was);
      break;
    }
    default:
      for (std::size_t i = 0; i + 4 <= rest.size() && i < 32; i += 4) change(tensors, rest.substr(i, 4));
      file = file_of(tensors);
  }
  strata::MemoryIo io;
  io.put("m/config.json", config);
  io.put(kFile, file);
  io.put("m/model.safetensors.index.json", R"({"weight_map": {"a": "shard.safetensors"}})");
  const auto folder = strata::HfFolder::open(io, "m");
  if (folder.has_value())
    read_all(**folder);
  else
    STRATA_ASSERT(!folder.status().message().empty(), "refused without a reason");
  const bool is_changed = config != form.config || file != form.file;
  STRATA_ASSERT(is_changed || folder.has_value(), "refused unchanged", folder.status().message());
}
