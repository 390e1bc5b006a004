// A folder of PEFT whose adapter_config.json is the input. If it opens, it has every parameter of its
// adapter, and add_adapter() takes them.
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/model/decoder.h>
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

std::string exported_tensors(const strata::AdapterSettings& settings) {
  const strata::test::TempDir dir;
  must(strata::export_peft(strata::posix_io(), dir.file("a"), tiny(), settings, "", values_of));
  return must(strata::read_text(strata::posix_io(), dir.file("a/adapter_model.safetensors"), 1 << 20));
}

/// The tensors of an adapter of the method that the settings name.
const std::string& tensors_for(const strata::Result<strata::AdapterSettings>& settings) {
  static const std::string tensors[] = {
      exported_tensors(strata::LoraSettings{.rank = 1, .targets = {strata::LoraSettings::kAllLinear}}),
      exported_tensors(strata::BottleneckSettings{.width = 2}), exported_tensors(strata::PromptSettings{2}),
      exported_tensors(strata::PrefixSettings{2}),
      exported_tensors(
          strata::LoraSettings{.rank = 1, .dora = true, .targets = {strata::LoraSettings::kAllLinear}})};
  if (!settings.has_value()) return tensors[0];
  if (const auto* lora = std::get_if<strata::LoraSettings>(&*settings)) return tensors[lora->dora ? 4 : 0];
  if (std::holds_alternative<strata::BottleneckSettings>(*settings)) return tensors[1];
  return tensors[std::holds_alternative<strata::PrefixSettings>(*settings) ? 3 : 2];
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  strata::MemoryIo io;
  io.put("a/adapter_config.json", input);
  const auto settings = strata::read_peft_settings(io, "a");
  io.put("a/adapter_model.safetensors", tensors_for(settings));
  if (settings.has_value() && std::holds_alternative<strata::LoraSettings>(*settings))
    (void)strata::lora_targets(tiny(), std::get<strata::LoraSettings>(*settings));
  const auto folder = strata::PeftFolder::open(io, "a", tiny());
  if (!folder) {
    STRATA_ASSERT(!folder.status().message().empty(), "refused without a reason");
    return;
  }
  auto program = must(strata::record_decoder(tiny(), 1, strata::DecoderHead::logits));
  const std::size_t n_base = program.params.size();
  program = must(strata::add_adapter(std::move(program), tiny(), (*folder)->settings()));
  for (std::size_t i = n_base; i < program.params.size(); ++i) {
    const strata::ParamInfo& param = program.params[i];
    std::vector<float> got(static_cast<std::size_t>(param.shape.n_elems()));
    must((*folder)->read_part(param.name, 0, got));
    for (const float value : got) STRATA_ASSERT(value >= 100, "a value that was never exported", value);
  }
}
