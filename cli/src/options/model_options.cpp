// Options of the verbs that use a model.
#include "options/options.h"

#include <cstdint>
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>

#include "args.h"
#include "options/shared_options.h"

namespace strata::cli {

void add_generate_options(CLI::App& app, Args& args) {
  app.add_option("run", args.items,
                 "Run folder, Hugging Face folder or GGUF file; texts to continue, in quotes, or - for "
                 "standard input, "
                 "which is read, too, if there is no prompt; section.key=value")
      ->option_text("RUN [TEXT ...] [key=value ...]")
      ->required();
  add_chat_arguments(app, args);
  add_named_adapters(app, args);
  CLI::Option* prompt = app.add_option("-p,--prompt", args.prompts, "Text to continue; can be repeated")
                            ->allow_extra_args(false);  // key=value may follow
  app.add_option("--prompts", args.prompts_file,
                 "File with one prompt per line, or .jsonl with \"prompt\" or \"messages\"")
      ->option_text("FILE")
      ->excludes(prompt);
  add_sampling(app, args);
  app.add_option("--batch", args.batch, "Number of prompts continued at the same time")
      ->check(CLI::Range(1, 4096));
  CLI::Option* stream =
      app.add_flag("--stream", args.stream, "Print the text while it is generated (default for one prompt)");
  app.add_flag("--no-stream", args.no_stream, "Print the text when it is complete")->excludes(stream);
  app.add_flag("--json", args.json, "Print one JSON object per prompt");
}

void add_chat_options(CLI::App& app, Args& args) {
  app.add_option("model", args.items, "Run folder, Hugging Face folder or GGUF file, and section.key=value")
      ->option_text("RUN|FOLDER [key=value ...]")
      ->required();
  add_chat_arguments(app, args);
  add_named_adapters(app, args);
  app.add_option("--system", args.system, "The first message, of role system")->option_text("TEXT");
  app.add_option("--context", args.context,
                 "Tokens of a conversation (default: 4096, if the model supports them)")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{16}, std::int64_t{1} << 20));
  add_sampling(app, args);
}

void add_serve_options(CLI::App& app, Args& args) {
  app.add_option("model", args.items, "Run folder, Hugging Face folder or GGUF file, and section.key=value")
      ->option_text("RUN|FOLDER [key=value ...]")
      ->required();
  add_chat_arguments(app, args);
  add_named_adapters(app, args);
  app.get_option("--adapter")
      ->description(
          "PEFT adapter of the model; can be repeated with names, which requests give as their model");
  app.add_option("--name", args.name, "Name of the model for clients (default: that of its folder)")
      ->option_text("NAME");
  app.add_option("--host", args.host, "Address to listen on (default: 127.0.0.1)")->option_text("ADDRESS");
  app.add_option("--port", args.port, "Port to listen on; 0 = any that is free (default: 8000)")
      ->option_text("N")
      ->check(CLI::Range(0, 65535));
  app.add_option("--batch", args.batch, "Number of texts continued at the same time")
      ->check(CLI::Range(1, 4096));
  app.add_option("--context", args.context,
                 "Tokens of a text, prompt included (default: 4096, if the model supports them)")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  app.add_option("--queue", args.queue,
                 "Texts that may wait besides; more are refused with 429 (default: 64)")
      ->option_text("N")
      ->check(CLI::Range(0, 4096));
  app.add_option("--max-body", args.max_body, "Largest body of a request (default: 1MiB)")
      ->option_text("BYTES");
  app.add_option("--allowed-host", args.allowed_hosts,
                 "Name of this server in requests' header Host, besides this machine's own; can be repeated "
                 "(default: with --host for other machines, any)")
      ->option_text("NAME");
  app.add_option("--allow-origin", args.allowed_origins,
                 "Origin whose web pages may use the server, as https://chat.example, or * for any; can be "
                 "repeated (default: none)")
      ->option_text("ORIGIN")
      ->allow_extra_args(false);  // key=value may follow
  app.add_option("--drain-seconds", args.drain_seconds,
                 "How long answers that have begun may take to end after SIGTERM or Ctrl-C (default: 30)")
      ->option_text("N")
      ->check(CLI::Range(0, 86400));
  app.add_option("--api-key-file", args.api_key_file,
                 "File of keys, one a line: requests need one of them, but /health (default: no key)")
      ->option_text("FILE");
  app.add_flag("--quiet", args.quiet, "Do not print a line for each request");
  app.add_flag("--plain-prompts", args.plain_prompts,
               "Special tokens in the prompts of /v1/completions are plain text (default: they are tokens)");
  app.add_option("--connections-per-address", args.connections_per_address,
                 "Connections of another machine at the same time (default: 64)")
      ->option_text("N")
      ->check(CLI::Range(1, 65536));
}

void add_eval_options(CLI::App& app, Args& args) {
  app.add_option("items", args.items, "Run folder, Hugging Face folder or GGUF file, and section.key=value")
      ->option_text("RUN|FOLDER [key=value ...]");
  add_adapter(app, args);
  app.add_option("--data", args.data, "Text, .jsonl or packed files (default: the run's validation data)")
      ->option_text("FILE ...");
  app.add_option("--batches", args.batches, "Evaluate only the first N micro-batches")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_checkpoint(app, args, "Step of the run's checkpoint to evaluate");
  app.add_flag("--json", args.json, "Print JSON");
}

void add_score_options(CLI::App& app, Args& args) {
  app.add_option("model", args.items, "Run folder, Hugging Face folder or GGUF file, and section.key=value")
      ->option_text("RUN|FOLDER [key=value ...]")
      ->required();
  add_named_adapters(app, args);
  app.add_option("--in", args.in_file,
                 "Lines of JSON with \"context\" and \"continuation\", \"context_ids\" and "
                 "\"continuation_ids\", or \"text\" (default: -, standard input)")
      ->option_text("FILE|-");
  app.add_option("--out", args.out_file, "File for one line of JSON per line (default: -, standard output)")
      ->option_text("FILE|-");
  app.add_option("--batch", args.batch, "Number of lines scored at the same time")
      ->check(CLI::Range(1, 4096));
  app.add_option(
         "--context", args.context,
         "Tokens that the model reads at once; a longer context is cut on the left (default: what the "
         "model supports, at most 2048)")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
}

void add_export_options(CLI::App& app, Args& args) {
  app.add_option("model", args.items, "Run folder, Hugging Face folder or GGUF file, and section.key=value")
      ->option_text("RUN|FOLDER [key=value ...]")
      ->required();
  add_adapter(app, args);
  app.add_option("--out", args.out_dir, "Folder to create, or file for --format gguf; must not exist")
      ->required();
  app.add_option("--format", args.format,
                 "auto = peft if a run trained adapters, else hf; hf, merged = Hugging Face folder; peft = "
                 "folder of PEFT; gguf = file for llama.cpp")
      ->check(CLI::IsMember({"auto", "hf", "peft", "merged", "gguf"}));
  app.add_option(
      "--dtype", args.dtype,
      "Dtype of the weights: f32, bf16 or f16; of gguf also q8_0, q6_k, q5_k_m, q4_k_m, q4_0 or mxfp4_moe");
  add_checkpoint(app, args, "Step of the run's checkpoint");
  app.add_option("--max-shard-size", args.max_shard_size, "Maximum bytes of tensors per file");
  app.add_flag("--ema", args.ema,
               "The moving average of the parameters instead of the newest (optim.ema_decay)");
  app.add_flag("--check", args.check, "Read the folder or file back and compare every tensor");
  app.add_flag("--text-only", args.text_only,
               "The text model alone, without what reads images or predicts further tokens, or an adapter "
               "over it");
  app.add_flag(
      "--states", args.states,
      "Also write step-N, the f32 masters and the optimizer's states, for strata.load_checkpoint in Python");
}

}  // namespace strata::cli
