#include <algorithm>

#include <strata/text/data_summary.h>
#include <strata/text/documents.h>
#include <strata/text/token_cache.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/config/chat_choice.h>
#include <strata/batches/token_data.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/data/data_inspect.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::uint64_t kBarWidth = 40;

/// Text quoted for a terminal: one line, without control characters.
std::string in_quotes(std::string_view text) {
  constexpr std::string_view kLineFeed = "\\u000a";
  std::string out = json_string(text);
  for (std::size_t at = 0; (at = out.find(kLineFeed, at)) != std::string::npos;)
    out.replace(at, kLineFeed.size(), "\\n");
  return out;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string counts_text(const DataSummary& s) {
  const double loss_share =
      s.n_tokens > 0 ? static_cast<double>(s.n_loss_tokens) / static_cast<double>(s.n_tokens) : 0;
  std::string text = fmt::format("documents  {}, of {} to {} tokens\n", s.n_documents, s.shortest, s.longest);
  text += fmt::format("tokens     {}, of which {} ({}) are in the loss\n", s.n_tokens, s.n_loss_tokens,
                      percent(loss_share));
  text += fmt::format("stream     {} sequences of {}\n", s.stream_rows, s.seq);
  text += fmt::format("pack       {} sequences of {}, {} full; {} documents split", s.packing.n_rows, s.seq,
                      percent(s.packing_efficiency()), s.packing.n_split);
  if (s.packing.n_dropped > 0)
    text += fmt::format("; dropped {} parts without loss tokens", s.packing.n_dropped);
  return text + "\n";
}

std::string lengths_text(const DataSummary& s) {
  std::uint64_t most = 1;
  for (const DataSummary::Bin& bin : s.lengths) most = std::max(most, bin.n);
  std::string text = "\n      tokens   documents\n";
  for (const DataSummary::Bin& bin : s.lengths) {
    // At least one mark if there is a document.
    const std::uint64_t width = (bin.n * kBarWidth + most - 1) / most;
    text += fmt::format("  {:>10}   {:<9} {}\n", str("to ", bin.to), bin.n,
                        std::string(static_cast<std::size_t>(width), '#'));
  }
  return text;
}

std::string sample_text(const DecodedSample& sample, std::int64_t k, bool packed) {
  std::string text = fmt::format("\nsample {} ({}): {} documents, {} padding tokens\n", k,
                                 packed ? "pack" : "stream", sample.documents.size(), sample.padding);
  for (const DecodedSample::Document& document : sample.documents) {
    text += fmt::format("  tokens {}-{}\n", document.first, document.last);
    for (const DecodedSample::Run& run : document.runs)
      text += fmt::format("    {:<8} {}\n", run.loss_mask ? "loss" : "context", in_quotes(run.text));
  }
  return text;
}

std::string sample_json(const DecodedSample& sample, std::int64_t k, bool packed) {
  std::string documents;
  for (const DecodedSample::Document& document : sample.documents) {
    std::string runs;
    for (const DecodedSample::Run& run : document.runs)
      runs += fmt::format("{}{{\"loss_mask\": {}, \"text\": {}}}", runs.empty() ? "" : ", ", run.loss_mask,
                          in_quotes(run.text));
    documents += fmt::format("{}\n      {{\"first\": {}, \"last\": {}, \"runs\": [{}]}}",
                             documents.empty() ? "" : ",", document.first, document.last, runs);
  }
  return fmt::format(
      "{{\n    \"index\": {}, \"packing\": \"{}\", \"padding\": {},\n    \"documents\": [{}\n    ]\n  }}", k,
      packed ? "pack" : "stream", sample.padding, documents);
}

std::string summary_json(const DataSummary& s, const std::string& sample) {
  std::string lengths;
  for (const DataSummary::Bin& bin : s.lengths)
    lengths += fmt::format("{}{{\"from\": {}, \"to\": {}, \"documents\": {}}}", lengths.empty() ? "" : ", ",
                           bin.from, bin.to, bin.n);
  return fmt::format(
      "{{\n  \"documents\": {},\n  \"tokens\": {},\n  \"loss_tokens\": {},\n  \"shortest\": {},\n  "
      "\"longest\": {},\n  \"seq\": {},\n  \"stream\": {{\"sequences\": {}}},\n"
      "  \"pack\": {{\"sequences\": {}, \"efficiency\": {:.6f}, \"spans\": {}, \"split\": {}, \"dropped\": "
      "{}}},\n"
      "  \"lengths\": [{}],\n  \"sample\": {}\n}}\n",
      s.n_documents, s.n_tokens, s.n_loss_tokens, s.shortest, s.longest, s.seq, s.stream_rows,
      s.packing.n_rows, s.packing_efficiency(), s.packing.n_spans, s.packing.n_split, s.packing.n_dropped,
      lengths, sample);
}

Result<std::string> pack(const Args& args, Io& io) {
  if (args.items.empty())
    return Status::error(Code::invalid, "no input: name at least one text or .jsonl file");
  if (args.out_dir.empty()) return Status::error(Code::invalid, "name the file to write: --out FILE");
  if (io.exists(args.out_dir)) {
    STRATA_TRY_ASSIGN(const bool replaceable, TokenCache::is_cache(io, args.out_dir));
    if (!replaceable)
      return Status::error(
          Code::invalid, str("--out ", args.out_dir, " exists and is not a packed file; it is not replaced"));
  }
  STRATA_TRY_ASSIGN(const std::vector<std::string> files, locate_data_files(args.items, "data pack"));
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, args.tokenizer));
  STRATA_TRY_ASSIGN(const ChatChoice choice, choose_chat(io, args.chat_template, args.tokenizer));
  STRATA_TRY_ASSIGN(const auto cache,
                    TokenCache::open_or_build(io, tokenizer, files, args.out_dir, choice.chat));
  STRATA_TRY_ASSIGN(const DataSummary summary, summarize(*cache, args.seq));
  std::string text;
  for (const std::string& note : cache->notes()) text += note + "\n";
  text += str(args.out_dir, cache->rebuild_reason().empty() ? " is up to date" : " written", ", ",
              format_bytes(cache->mapped_bytes()), "\n");
  return text + counts_text(summary);
}

Result<std::string> inspect_packed(const Args& args, Io& io) {
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, args.tokenizer));
  STRATA_TRY_ASSIGN(const auto cache, TokenCache::open(io, tokenizer, args.items[0]));
  STRATA_TRY_ASSIGN(const DataSummary summary, summarize(*cache, args.seq));
  // The packing that data.packing=auto would choose.
  const bool packs = cache->n_loss_tokens() < cache->n_tokens();
  std::unique_ptr<Dataset> data;
  if (packs) {
    STRATA_TRY_ASSIGN(PackedDataset packed, PackedDataset::create(*cache, {.seq = args.seq}));
    data = std::make_unique<PackedDataset>(std::move(packed));
  } else if (summary.stream_rows > 0 || args.sample > 0) {
    STRATA_TRY_ASSIGN(StreamDataset stream, StreamDataset::create(*cache, {.seq = args.seq}));
    data = std::make_unique<StreamDataset>(std::move(stream));
  }
  if (data == nullptr)
    return args.json ? summary_json(summary, "null") : counts_text(summary) + lengths_text(summary);
  auto sample = decode_sample(*data, tokenizer, static_cast<std::uint64_t>(args.sample));
  if (!sample.has_value()) return sample.status().annotate("--sample");
  if (args.json) return summary_json(summary, sample_json(*sample, args.sample, packs));
  return counts_text(summary) + lengths_text(summary) + sample_text(*sample, args.sample, packs);
}

/// Prints what it finds: the marks of a record are the program's own.
Result<std::string> inspect(const Args& args, Io& io) {
  if (args.items.empty())
    return Status::error(Code::invalid, "no input: name data files, a packed file or a configuration");
  if (args.items.size() == 1 && TokenCache::is_cache(io, args.items[0]).value_or(false))
    return inspect_packed(args, io);
  STRATA_TRY_ASSIGN(const std::string text, inspect_records(args, io));
  print_exact(args.out, text);
  return std::string();
}

}  // namespace

int run_data(const Args& args) {
  Io& io = posix_io();
  const auto done = args.action == "pack" ? pack(args, io) : inspect(args, io);
  if (!done.has_value()) return print_error(args, str("data ", args.action), done.status());
  print(args.out, *done);
  return kExitOk;
}

}  // namespace strata::cli
