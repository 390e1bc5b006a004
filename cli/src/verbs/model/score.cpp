#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <strata/text/documents.h>
#include <strata/text/score_request.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/io/output_file.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/infer/generation_source.h>
#include <strata/infer/scorer.h>

#include "exit_code.h"
#include "terminal/line_reader.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::int64_t kMaxDefaultContext = 2048;  // the default of lm_eval for models without a limit

/// A line of the input: its tokens, or why it has none.
struct ScoreLine {
  std::uint64_t number = 0;
  std::string id;
  ScoreTokens tokens;
  Status status;
};

/// Lines, tokens and seconds so far.
struct ScoreTotals {
  std::size_t lines = 0, tokens = 0, cut = 0, errors = 0;
  double seconds = 0;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OutFile = std::unique_ptr<std::FILE, CloseFile>;

/// Null for standard output.
Result<OutFile> open_output(const Args& args) {
  if (args.out_file == "-") return OutFile();
  OutFile file(std::fopen(args.out_file.c_str(), "we"));
  if (!file) return Status::error(Code::io_error, str(args.out_file, ": ", std::strerror(errno)));
  return file;
}

std::int64_t context_of(const Args& args, std::int64_t max_positions) {
  if (args.context > 0) return args.context;
  return max_positions > 0 ? std::min(max_positions, kMaxDefaultContext) : kMaxDefaultContext;
}

/// The rules by which a line becomes sequences.
struct LineRules {
  const ScoreEncoding& encoding;
  const GenerationSource& source;
};

Result<ScoreTokens> tokens_of(const ScoreRequest& request, const LineRules& rules) {
  STRATA_TRY_ASSIGN(const std::int32_t adapter, rules.source.choose_adapter(request.adapter));
  STRATA_TRY_ASSIGN(ScoreTokens tokens, encode_score_request(request, rules.encoding));
  for (ScoreSequence& sequence : tokens.sequences) sequence.adapter = adapter;
  return tokens;
}

ScoreLine line_of(LineReader::Got got, std::uint64_t number, const std::string& text,
                  const LineRules& rules) {
  ScoreLine line{number, {}, {}, {}};
  if (got == LineReader::Got::too_long) {
    line.status = Status::error(Code::invalid, str("it is longer than ", kMaxRecordBytes, " bytes"));
    return line;
  }
  ScoreRequest request;
  line.status = parse_score_request(text, request);
  line.id = std::move(request.id);
  if (!line.status.is_ok()) return line;
  auto tokens = tokens_of(request, rules);
  if (tokens.has_value())
    line.tokens = *std::move(tokens);
  else
    line.status = tokens.status();
  return line;
}

/// Waits for a line and takes those that follow without waiting, up to `n`. Empty at the end of the input.
Result<std::vector<ScoreLine>> read_batch(LineReader& input, std::size_t n, const LineRules& rules) {
  std::vector<ScoreLine> lines;
  std::string text;
  while (lines.size() < n) {
    STRATA_TRY_ASSIGN(const LineReader::Got got, input.next(lines.empty(), text));
    if (got == LineReader::Got::end || got == LineReader::Got::nothing) break;
    if (got == LineReader::Got::line && text.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back(line_of(got, input.line_number(), text, rules));
  }
  return lines;
}

std::string json_of(const ScoreLine& line, const SequenceScore& score) {
  const std::string id = line.id.empty() ? "" : str(", \"id\": ", line.id);
  if (!line.status.is_ok())
    return str("{\"error\": ", json_string(str("line ", line.number, ": ", line.status.message())), id,
               "}\n");
  return fmt::format("{{\"logprob\": {}, \"greedy\": {}, \"tokens\": {}{}}}\n", score.logprob, score.greedy,
                     line.tokens.scored, id);
}

Status write(std::FILE* out, const std::string& text) {
  print(out, text);
  if (std::fflush(out) == 0 && std::ferror(out) == 0) return Status::ok();
  return Status::error(Code::io_error, "the output could not be written");
}

/// Scores the sequences of all lines together. The scores of a line are those of its sequences, summed.
Result<std::vector<SequenceScore>> score_lines(Scorer& scorer, const std::vector<ScoreLine>& lines) {
  std::vector<ScoreSequence> sequences;
  std::vector<std::size_t> owners;
  for (std::size_t i = 0; i < lines.size(); ++i)
    for (const ScoreSequence& sequence : lines[i].tokens.sequences) {
      sequences.push_back(sequence);
      owners.push_back(i);
    }
  std::vector<SequenceScore> scores(lines.size());
  auto parts = scorer.run(sequences);
  if (!parts.has_value())
    return parts.status().annotate(str("lines ", lines.front().number, " to ", lines.back().number));
  for (std::size_t k = 0; k < owners.size(); ++k) {
    scores[owners[k]].logprob += (*parts)[k].logprob;
    scores[owners[k]].greedy = scores[owners[k]].greedy && (*parts)[k].greedy;
  }
  return scores;
}

Status score_all(const Args& args, Scorer& scorer, LineReader& input, const LineRules& rules, std::FILE* out,
                 ScoreTotals& totals) {
  SteadyClock clock;
  while (true) {
    STRATA_TRY_ASSIGN(const std::vector<ScoreLine> lines,
                      read_batch(input, static_cast<std::size_t>(args.batch), rules));
    if (lines.empty()) return Status::ok();
    const std::int64_t begin = clock.now_ns();
    STRATA_TRY_ASSIGN(const std::vector<SequenceScore> scores, score_lines(scorer, lines));
    totals.seconds += static_cast<double>(clock.now_ns() - begin) * 1e-9;
    std::string text;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      text += json_of(lines[i], scores[i]);
      totals.tokens += lines[i].tokens.scored;
      totals.cut += lines[i].tokens.cut > 0 ? 1 : 0;
      totals.errors += lines[i].status.is_ok() ? 0 : 1;
    }
    totals.lines += lines.size();
    STRATA_TRY(write(out, text));
  }
}

void report(const Args& args, const ScoreTotals& totals, std::size_t context, DType dtype) {
  std::string text =
      fmt::format("strata score: {} with {} scored in {:.2f} s, in {}", plural(totals.lines, "line"),
                  plural(totals.tokens, "token"), totals.seconds, to_string(dtype));
  if (totals.cut > 0)
    text += str("; ", plural(totals.cut, "context"), " cut on the left to the model's ", context, " tokens");
  if (totals.errors > 0) text += str("; ", plural(totals.errors, "line"), " with an error");
  print(args.err, text + "\n");
}

Result<ScoreTotals> score(const Args& args) {
  Io& io = posix_io();
  const auto warn = [&](std::string_view text) { print(args.err, str("strata score: ", text, "\n")); };
  if (args.out_file != "-")
    STRATA_TRY(check_output({"--out",
                             args.out_file,
                             "scores of strata",
                             {args.in_file == "-" ? "/dev/stdin" : args.in_file},
                             true},
                            [](std::string_view head) {
                              return head.starts_with("{\"logprob\": ") || head.starts_with("{\"error\": ");
                            }));
  std::unique_ptr<File> in;
  if (args.in_file != "-") {
    STRATA_TRY_ASSIGN(in, io.open(args.in_file, OpenMode::read));
  }
  LineReader input(in ? in->descriptor() : STDIN_FILENO, kMaxRecordBytes);
  STRATA_TRY_ASSIGN(const std::unique_ptr<GenerationSource> source,
                    GenerationSource::open(args, {args.adapters, args.default_adapter}, io, warn));
  const std::int64_t context = context_of(args, source->max_positions());
  if (source->max_positions() > 0 && context > source->max_positions())
    return Status::error(Code::invalid, str("--context ", context, ": the model supports ",
                                            source->max_positions(), " positions"));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Job> job,
                    source->start(Scorer::shape(args.batch, context), Scorer::kRows, warn));
  STRATA_TRY_ASSIGN(const OutFile file, open_output(args));
  Scorer scorer(job->engine(), args.batch, source->virtual_tokens());
  const ScoreEncoding encoding{source->tokenizer(), source->prefix_id(), source->vocab(),
                               static_cast<std::size_t>(context)};
  ScoreTotals totals;
  STRATA_TRY(score_all(args, scorer, input, {encoding, *source}, file ? file.get() : args.out, totals));
  report(args, totals, encoding.context, source->dtype());
  return totals;
}

}  // namespace

int run_score(const Args& args) {
  const auto totals = score(args);
  if (!totals.has_value()) return print_error(args, "score", totals.status());
  return totals->errors == 0 ? kExitOk : kExitUsage;
}

}  // namespace strata::cli
