// A folder of PEFT whose adapter_config.json is the input. If it opens, it has every parameter of its
// adapters, and add_lora() takes them.
#include <filesystem>
#include <map>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/adapter/peft_folder.h>
#include <support/memory_io.h>
#include <support/temp_dir.h>

#include "fuzz.h"

namespace {

using strata::must;

strata::DecoderConfig tiny() {
  strata::DecoderConfig config = strata::decoder_for_family("llama").value();
  config.layers = 1;
  config.hidden = 4;
  config.heads = 2;
  config.kv_heads = 1;
  config.ffn = 6;
  config.vocab = 3;
  config.seq = 2;
  return config;
}

strata::Status values_of(std::string_view param, std::span<float> into) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = static_cast<float>(param.size() * 100 + i);
  return {};
}

std::string exported_tensors(bool dora) {
  const strata::test::TempDir dir;
  const strata::LoraSettings settings{.rank = 1, .dora = dora, .targets = {strata::LoraSettings::kAllLinear}};
  must(strata::export_peft(strata::posix_io(), dir.file("a"), tiny(), settings, "", values_of));
  return must(strata::read_text(strata::posix_io(), dir.file("a/adapter_model.safetensors"), 1 << 20));
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  static const std::string tensors = exported_tensors(false), of_dora = exported_tensors(true);
  strata::MemoryIo io;
  io.put("a/adapter_config.json", input);
  const auto settings = strata::read_peft_settings(io, "a");
  io.put("a/adapter_model.safetensors", settings.has_value() && settings->dora ? of_dora : tensors);
  if (settings.has_value()) (void)strata::lora_targets(tiny(), *settings);
  const auto folder = strata::PeftFolder::open(io, "a", tiny());
  if (!folder) {
    STRATA_ASSERT(!folder.status().message().empty(), "refused without a reason");
    return;
  }
  const std::vector<strata::LoraGroup> groups = strata::lora_groups((*folder)->targets());
  auto program = must(strata::record_decoder(tiny(), 1, strata::DecoderHead::logits));
  const std::size_t n_base = program.params.size();
  program = must(strata::add_lora(std::move(program), groups));
  for (std::size_t i = n_base; i < program.params.size(); ++i) {
    const strata::ParamInfo& param = program.params[i];
    std::vector<float> got(static_cast<std::size_t>(param.shape.n_elems()));
    must((*folder)->read_part(param.name, 0, got));
    for (const float value : got) STRATA_ASSERT(value >= 100, "a value that was never exported", value);
  }
}
