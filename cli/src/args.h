#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace strata::cli {

/// A parsed command line and what surrounds it. Nothing below the parser reads argv, environ or stdout
/// itself.
struct Args {
  std::string action;              ///< of `config`: show, check; of `tokenizer`: train, encode, decode, info;
                                   ///< of `data`: pack, inspect
  std::vector<std::string> items;  ///< what follows the verb, in the order given: FILE and key=value for most
  std::string preset;
  std::vector<std::string> nvme_dirs;  ///< of `bench` and `doctor`
  std::string out_dir, resume;         ///< of `train`; of `data pack` and `export`: what is written
  bool overwrite = false;
  std::vector<std::string> prompts;  ///< of `generate`
  std::string prompts_file;
  std::int64_t tokens = 128;
  double temperature = 0.8;
  int top_k = 40;
  double top_p = 1.0;
  int batch = 8;
  bool stream = false, no_stream = false;  ///< neither: where one text is printed
  std::int64_t seed = 1;
  std::string tokenizer =
      "tokenizer.json";             ///< of `tokenizer` and `data`: the file, or a Hugging Face folder
  bool special = false;             ///< of `tokenizer encode`: special tokens in the text count
  bool add_special_tokens = false;  ///< of `tokenizer encode`: BOS and what else the file puts around
  std::int64_t vocab = 1024;
  std::string format = "hf", dtype = "f32", max_shard_size = "5GB";  ///< of `export`
  bool check = false;
  std::string init;               ///< of `train`: short for model.from
  std::int64_t steps = 30;        ///< of `verify`
  bool offload_overhead = false;  ///< of `verify`
  bool quick = false;             ///< of `bench`
  bool optional_kernels = false;  ///< of `bench`
  std::string backend = "host";   ///< of `bench`
  std::string machine;            ///< of `plan`: a profile's name or file
  std::string params;             ///< of `plan`: of a model of that size, "7b"; empty: the configured one
  bool sweep = false, optimize = false;  ///< of `plan`
  std::vector<std::string> data;         ///< of `eval`
  std::int64_t batches = 0;              ///< of `eval`; 0: all
  std::int64_t checkpoint = -1;          ///< of `eval`: its step; below 0: the newest
  std::int64_t seq = 1024;               ///< of `data`
  std::string chat_template = "auto";    ///< of `data pack`: how messages are written
  std::int64_t sample = 0;               ///< of `data inspect`
  bool json = false;
  bool origin = false;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::FILE* out = stdout;
  std::FILE* err = stderr;
};

}  // namespace strata::cli
