// A Hugging Face folder of three shards with a fuzzed index or config.json; the first byte selects which. If
// it opens, every parameter must equal the exported one.
#include <filesystem>
#include <map>
#include <vector>

#include <strata/model/decoder.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>
#include <support/memory_io.h>
#include <support/temp_dir.h>

#include "fuzz.h"

namespace {

using strata::must;

constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";

strata::DecoderConfig tiny() {
  strata::DecoderConfig config;
  config.layers = 1;
  config.hidden = 2;
  config.heads = 1;
  config.ffn = 2;
  config.vocab = 3;
  config.positions = 2;
  return config;
}

strata::Status values_of(std::string_view param, std::span<float> into) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = static_cast<float>(param.size() * 100 + i);
  return {};
}

std::map<std::string, std::string> exported() {
  const strata::test::TempDir dir;
  strata::HfExport options;
  options.shard_bytes = 100;
  must(strata::export_hf(strata::posix_io(), dir.file("m"), tiny(), values_of, options));
  std::map<std::string, std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(dir.file("m")))
    files[file.path().filename().string()] =
        must(strata::read_text(strata::posix_io(), file.path().string(), 1 << 20));
  STRATA_ASSERT(files.count(kIndex) == 1, "the export has no shards");
  return files;
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  static const std::map<std::string, std::string> files = exported();
  if (input.empty()) return;
  const bool index = input[0] % 2 == 0;
  strata::MemoryIo io;
  for (const auto& [name, text] : files) io.put("m/" + name, text);
  io.put(std::string("m/") + (index ? kIndex : kConfig), input.substr(1));
  const auto folder = strata::HfFolder::open(io, "m");
  if (!folder) {
    STRATA_ASSERT(!folder.status().message().empty(), "refused without a reason");
    return;
  }
  strata::DecoderConfig config = (*folder)->config();
  config.seq = 1;
  const auto program = must(strata::record_decoder(config, 1, strata::DecoderHead::logits));
  for (const strata::ParamInfo& param : program.params) {
    std::vector<float> got(static_cast<std::size_t>(param.shape.n_elems())), want(got.size());
    must((*folder)->read(param.name, got));
    must(values_of(param.name, want));
    STRATA_ASSERT(got == want, "another value than was exported", param.name);
  }
}
