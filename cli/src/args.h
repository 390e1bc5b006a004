#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <strata/config/config_request.h>
#include <strata/config/checkpoint_choice.h>

namespace strata::cli {

/// The parsed command line, the environment and the output streams. Only the parser and main() access argv,
/// environ and stdout directly.
struct Args : ConfigRequest {
  std::string action;  ///< the action of a verb that has several, for example show of `config show`
  std::vector<std::string> nvme_dirs;  ///< `bench` and `doctor`
  std::string out_dir, resume;         ///< `train`; out_dir: also of `data pack`, `export` and `bench`
  bool overwrite = false;
  int ranks_per_process = 1;         ///< `train`
  std::vector<std::string> prompts;  ///< `generate`
  std::string prompts_file;
  std::optional<std::int64_t> tokens;
  double temperature = 0.8;
  int top_k = 40;
  double top_p = 1.0, min_p = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int batch = 8;
  std::vector<std::string> adapters;       ///< `generate` and `score`: NAME=DIR, or one DIR
  std::string default_adapter;             ///< `generate` and `score`: of prompts or lines that choose none
  bool stream = false, no_stream = false;  ///< neither: stream if there is one prompt and no --json
  std::int64_t seed = 1;
  std::string tokenizer = "tokenizer.json";  ///< `tokenizer` and `data`: the file, or a Hugging Face folder
  bool special = false;                      ///< `tokenizer encode`: parse special tokens in the text
  bool add_special_tokens = false;  ///< `tokenizer encode`: add BOS and other tokens that the file specifies
  std::int64_t vocab = 1024;
  std::string format = "auto", dtype = "f32", max_shard_size = "5GB";  ///< `export`
  bool ema = false;  ///< export: the moving average of the parameters
  bool check = false, states = false, text_only = false;
  std::int64_t steps = 30;        ///< `verify`
  bool offload_overhead = false;  ///< `verify`
  bool quick = false;             ///< `bench`
  std::string backend = "auto";   ///< `bench`
  std::string machine;            ///< `plan`: name or file of a profile
  int ranks = 0;                  ///< `plan`: compare layouts of so many; 0: do not
  std::string params;             ///< `plan`: plan a model of this size ("7b"); empty: the configured model
  bool sweep = false, optimize = false;         ///< `plan`
  std::string timeline;                         ///< `plan`: a file for the steps of ranks
  std::vector<std::string> data;                ///< `eval`
  std::int64_t batches = 0;                     ///< `eval`; 0: all
  std::int64_t checkpoint = kNewestCheckpoint;  ///< `eval`, `export`: see choose_checkpoint()
  std::vector<std::int64_t> checkpoints;        ///< `ckpt`: steps
  int keep = 0, last = 0;                       ///< `ckpt prune`, `ckpt average`
  std::int64_t every = 0;                       ///< `ckpt prune`; 0: none
  bool dry_run = false;                         ///< `ckpt prune`
  std::string model;                            ///< `init`: a folder or a size
  bool yes = false;                             ///< `init`: ask nothing
  std::string system;                           ///< `chat`: the first message
  std::string trace_steps;                      ///< `trace`: FIRST-LAST; empty: all
  std::string in_file = "-";                    ///< `score`; "-": standard input
  std::string out_file = "-";  ///< `score`, `report`, `trace`; "-": standard output, or the default file
  std::int64_t context = 0;    ///< `score`: tokens the model reads at once; 0: the default
  std::int64_t seq = 1024;     ///< `data`
  std::string chat_template = "auto";        ///< `data pack`
  std::string chat_arguments;                ///< `generate`, `chat`, `serve`: a JSON object; empty: none
  std::optional<bool> thinks;                ///< `generate`, `chat`, `serve`: enable_thinking
  std::int64_t sample = 0;                   ///< `data inspect`
  bool rows = false;                         ///< `config convert`
  std::string svg_dir;                       ///< `report`: folder for pictures
  bool text = false;                         ///< `report`: to the terminal
  bool once = false;                         ///< `top`: print a line for each run, and end
  double interval_s = 1;                     ///< `top`
  bool markdown = false;                     ///< `man`: all verbs, for documentation
  std::string host = "127.0.0.1";            ///< `serve`
  int port = 8000, queue = 64;               ///< `serve`; port 0: any that is free
  std::string max_body = "1MiB", name;       ///< `serve`; an empty name: that of the folder
  std::vector<std::string> allowed_hosts;    ///< `serve`
  std::vector<std::string> allowed_origins;  ///< `serve`
  int drain_seconds = 30;                    ///< `serve`
  std::string api_key_file;                  ///< `serve`; empty: no key is asked for
  int connections_per_address = 64;          ///< `serve`
  bool plain_prompts = false;                ///< `serve`
  bool quiet = false;                        ///< `serve`: no line for each request
  bool json = false;
  bool origin = false;
  std::FILE* out = stdout;
  std::FILE* err = stderr;
};

}  // namespace strata::cli
