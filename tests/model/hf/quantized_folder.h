#pragma once

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <strata/kernels/weight_quant.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::test {

struct StoredBytes {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string bytes;
  bool operator==(const StoredBytes&) const = default;
};

template <class T>
std::string bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// A folder with random values, in full, or whose matrices bitsandbytes has quantized, or compressed-tensors
/// has, or which are in tiles of FP8 or in MXFP4: written from strata's own quantization.
class QuantizedFolder {
 public:
  QuantizedFolder(const DecoderConfig& config, kernels::WeightFormat format) : config_(config) {
    for (const HfTensor& tensor : hf_tensors(config)) {
      std::vector<float> values(static_cast<std::size_t>(tensor.n_elems()));
      const Rng rng(tensors.size(), 1);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1f * rng.normal(i);
      if (format == kernels::WeightFormat::mxfp4 && tensor.of_experts)
        quantize_stack(tensor, values);
      else if (format != kernels::WeightFormat::full && format != kernels::WeightFormat::mxfp4 &&
               tensor.shape.size() == 2 && tensor.param.starts_with("layers.") &&
               ((tensor.is_linear && !config.experts.only_quantized) || tensor.of_experts))
        quantize(tensor, values, format);
      else
        tensors[tensor.name] = {"F32", tensor.shape, bytes_of(std::span<const float>(values))};
    }
    if (format == kernels::WeightFormat::full) quantization.clear();
  }

  /// Writes config.json and model.safetensors into a new folder.
  void write(const std::string& path) const {
    must(posix_io().make_dirs(path));
    must(write_text_atomically(posix_io(), path + "/config.json", config_json()));
    std::vector<TensorSpec> specs;
    for (const auto& [name, stored] : tensors) specs.push_back({name, stored.dtype, stored.shape});
    const auto writer = must(SafetensorsWriter::create(posix_io(), path + "/model.safetensors", specs));
    for (const auto& [name, stored] : tensors) must(writer->append(std::as_bytes(std::span(stored.bytes))));
    must(writer->finish());
  }

  std::string config_json() const {
    std::string config = hf_config_json(config_, DType::f32);
    if (!quantization.empty())
      config.insert(config.find('{') + 1, str("\"quantization_config\": ", quantization, ","));
    return config;
  }

  std::map<std::string, StoredBytes> tensors;
  std::string quantization =
      R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})";

 private:
  /// Rows are outputs, where the tensor has inputs.
  void quantize_stack(const HfTensor& tensor, const std::vector<float>& values) {
    const std::uint64_t experts = tensor.shape[0], columns = tensor.shape[1], rows = tensor.shape[2];
    const kernels::QuantizedMatrix matrix = {kernels::WeightFormat::mxfp4,
                                             static_cast<std::int64_t>(columns),
                                             {static_cast<std::int64_t>(experts * rows)}};
    const kernels::QuantizedPart part = matrix.part(0);
    std::string bytes(static_cast<std::size_t>(matrix.bytes()), '\0');
    kernels::quantize_matrix(matrix, values, std::as_writable_bytes(std::span(bytes)),
                             *must(ThreadPool::create(1)));
    tensors[tensor.name + "_blocks"] = {
        "U8", {experts, rows, columns / 32, 16}, bytes.substr(0, static_cast<std::size_t>(part.value_bytes))};
    tensors[tensor.name + "_scales"] = {
        "U8",
        {experts, rows, columns / 32},
        bytes.substr(static_cast<std::size_t>(part.scales), static_cast<std::size_t>(part.blocks))};
    quantization = R"({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})";
  }
  std::string int4_config() const {
    return str(
        R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", )",
        R"("kv_cache_scheme": null, "ignore": ["lm_head")",
        config_.experts.only_quantized ? R"(, "re:.*self_attn.*")" : "",
        R"(], "config_groups": {"group_0": {"input_activations": null, "output_activations": null, )",
        R"("targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, )",
        R"("symmetric": true, "dynamic": false, "actorder": null, "observer": "minmax"}}}})");
  }
  void quantize(const HfTensor& tensor, const std::vector<float>& values, kernels::WeightFormat format) {
    const bool transposed = tensor.layout == HfTensor::Layout::transposed;  // stored as [out, in]
    const auto rows = static_cast<std::int64_t>(tensor.shape[transposed ? 1 : 0]),
               columns = static_cast<std::int64_t>(tensor.shape[transposed ? 0 : 1]);
    const kernels::QuantizedMatrix matrix = {format, columns, {rows}};
    const kernels::QuantizedPart part = matrix.part(0);
    std::string bytes(static_cast<std::size_t>(matrix.bytes()), '\0');
    kernels::quantize_matrix(matrix, values, std::as_writable_bytes(std::span(bytes)),
                             *must(ThreadPool::create(1)));
    const auto section = [&](std::int64_t at, std::int64_t n) {
      return bytes.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
    };
    const std::string& name = tensor.name;
    const auto u64 = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    if (format == kernels::WeightFormat::fp8_block) {
      tensors[name] = {"F8_E4M3", {u64(rows), u64(columns)}, section(part.values, part.elems)};
      tensors[name + "_scale_inv"] = {"F32",
                                      {u64(part.blocks / part.line_blocks), u64(part.line_blocks)},
                                      section(part.scales, part.blocks * 4)};
      quantization =
          R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})";
      return;
    }
    if (format == kernels::WeightFormat::int4) {
      const std::array<std::int64_t, 2> shape = {rows, columns};
      tensors[name + "_packed"] = {
          "I32", {u64(rows), u64(part.line_codes / 8)}, section(part.values, part.value_bytes)};
      tensors[name + "_scale"] = {
          "BF16", {u64(rows), u64(part.line_blocks)}, section(part.scales, part.blocks * 2)};
      tensors[name + "_shape"] = {"I64", {2}, bytes_of(std::span<const std::int64_t>(shape))};
      quantization = int4_config();
      return;
    }
    if (format == kernels::WeightFormat::int8) {  // a row's scale is 127 of its largest part, so that all its
                                                  // blocks have one
      std::vector<float> scales(static_cast<std::size_t>(rows));
      for (std::size_t r = 0; r < scales.size(); ++r) scales[r] = 0.3f + 0.01f * static_cast<float>(r);
      tensors[name] = {"I8", {u64(rows), u64(columns)}, section(part.values, part.elems)};
      const std::string base = name.substr(0, name.rfind(".weight"));
      tensors[base + ".SCB"] = {"F32", {u64(rows)}, bytes_of(std::span<const float>(scales))};
      tensors[base + ".weight_format"] = {"U8", {}, std::string(1, '\0')};
      quantization = R"({"quant_method": "bitsandbytes", "load_in_8bit": true})";
      return;
    }
    const bool nested = format == kernels::WeightFormat::nf4_dq;
    tensors[name] = {"U8", {u64(part.elems / 2), 1}, section(part.values, part.elems / 2)};
    tensors[name + ".absmax"] = {
        nested ? "U8" : "F32", {u64(part.blocks)}, section(part.scales, part.blocks * (nested ? 1 : 4))};
    tensors[name + ".quant_map"] = {"F32", {16}, bytes_of(kernels::nf4_levels())};
    float mean = 0;
    if (nested) {
      tensors[name + ".nested_absmax"] = {
          "F32", {u64(part.groups)}, section(part.group_scales, part.groups * 4)};
      tensors[name + ".nested_quant_map"] = {"F32", {256}, bytes_of(kernels::scale_map())};
      std::string& map = tensors[name + ".nested_quant_map"].bytes;
      map[4 * 200] = static_cast<char>(map[4 * 200] ^ 1);  // the last bit of what code 200 stands for
      std::memcpy(&mean, bytes.data() + part.mean, 4);
      quantization =
          R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true})";
    }
    state(name, rows, columns,
          nested ? str(R"(, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": )",
                       fmt::format("{:.17g}", static_cast<double>(mean)))
                 : "");
  }

 public:
  void state(const std::string& name, std::int64_t rows, std::int64_t columns, const std::string& more,
             std::int64_t block = 64) {
    const std::string text = str(R"({"quant_type": "nf4", "blocksize": )", block,
                                 R"(, "dtype": "float32", "shape": [)", rows, ", ", columns, "]", more, "}");
    tensors[name + ".quant_state.bitsandbytes__nf4"] = {"U8", {text.size()}, text};
  }

 private:
  const DecoderConfig config_;
};

}  // namespace strata::test
