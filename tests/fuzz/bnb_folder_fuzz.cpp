// A folder whose matrices bitsandbytes has quantized, or which are in tiles of FP8: in one of the formats,
// and with one of its tensors, or its config.json, replaced by the input. The first byte selects the format,
// the second what is replaced. If it opens, every parameter can be read, as values and as bytes, or is
// refused with a reason.
#include <array>
#include <vector>

#include <strata/model/adapter/weight_parts.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/folder.h>

#include "fuzz.h"
#include "model/hf/quantized_folder.h"
#include "support/memory_io.h"
#include "support/temp_dir.h"

namespace {

using strata::must;
using strata::kernels::WeightFormat;

constexpr std::array kFormats = {WeightFormat::int8, WeightFormat::nf4, WeightFormat::nf4_dq,
                                 WeightFormat::fp8_block};
constexpr const char* kTensors = "m/model.safetensors";

strata::DecoderConfig tiny() {
  strata::DecoderConfig config = strata::decoder_for_family("llama").value();
  config.layers = 1;
  config.hidden = 64;
  config.heads = 2;
  config.kv_heads = 1;
  config.ffn = 64;
  config.vocab = 3;
  config.seq = 1;
  return config;
}

/// config.json and the tensors of a folder in the format, as text.
struct Written {
  std::string config, tensors;
};
Written written(const strata::test::QuantizedFolder& folder) {
  const strata::test::TempDir dir;
  folder.write(dir.file("m"));
  const auto text = [&](const char* name) {
    return must(strata::read_text(strata::posix_io(), dir.file("m") + "/" + name, 1 << 20));
  };
  return {text("config.json"), text("model.safetensors")};
}

void read_all(const strata::HfFolder& folder) {
  const strata::DecoderConfig config = tiny();
  const auto program = must(strata::record_decoder(config, 1, strata::DecoderHead::logits));
  for (const strata::ParamInfo& param : program.params) {
    std::vector<float> values(static_cast<std::size_t>(param.shape.n_elems()));
    const strata::Status status = folder.read(param.name, values);
    STRATA_ASSERT(status.is_ok() || !status.message().empty(), "refused without a reason");
  }
  for (const strata::WeightParts& parts : weight_parts(config)) {
    const strata::kernels::QuantizedMatrix matrix = {folder.quantized_to(), config.hidden, parts.rows};
    if (matrix.format == WeightFormat::full) return;
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
    const auto is_kept = folder.read_quantized(parts.weight, matrix, 0, bytes);
    STRATA_ASSERT(is_kept.has_value() || !is_kept.status().message().empty(), "refused without a reason");
  }
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  static const std::array folders = {
      strata::test::QuantizedFolder(tiny(), kFormats[0]), strata::test::QuantizedFolder(tiny(), kFormats[1]),
      strata::test::QuantizedFolder(tiny(), kFormats[2]), strata::test::QuantizedFolder(tiny(), kFormats[3])};
  static const std::array texts = {written(folders[0]), written(folders[1]), written(folders[2]),
                                   written(folders[3])};
  if (input.size() < 2) return;
  const std::size_t format = static_cast<std::uint8_t>(input[0]) % kFormats.size();
  const std::string_view rest = input.substr(2);
  Written now = texts[format];
  const auto& tensors = folders[format].tensors;
  // Config, then each tensor: a text that has another length replaces it and its shape.
  if (const std::size_t which = static_cast<std::uint8_t>(input[1]) % (tensors.size() + 1); which == 0) {
    now.config = rest;
  } else {
    auto changed = folders[format];
    auto at = changed.tensors.begin();
    std::advance(at, which - 1);
    const bool is_f32 = at->second.dtype == "F32";
    const std::size_t n = is_f32 ? rest.size() / 4 * 4 : rest.size();
    at->second = {at->second.dtype, {is_f32 ? n / 4 : n}, std::string(rest.substr(0, n))};
    // Tensors of FP8 keep their shape where the length is theirs.
    if (const auto& was = folders[format].tensors.at(at->first); was.bytes.size() == n)
      at->second.shape = was.shape;
    now = written(changed);
  }
  strata::MemoryIo io;
  io.put("m/config.json", now.config);
  io.put(kTensors, now.tensors);
  const auto folder = strata::HfFolder::open(io, "m");
  if (folder.has_value())
    read_all(**folder);
  else
    STRATA_ASSERT(!folder.status().message().empty(), "refused without a reason");
}
