#include <strata/report/perfetto_trace.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/output_file.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

Status write_trace(const Args& args) {
  Io& io = posix_io();
  const std::string& run = args.items.front();
  STRATA_TRY_ASSIGN(const TraceSteps steps, parse_trace_steps(args.trace_steps));
  STRATA_TRY_ASSIGN(const std::vector<RankTrace> ranks, read_run_trace(io, run));
  auto trace = perfetto_trace(ranks, steps);
  if (!trace.has_value()) return trace.status().annotate(run);
  const std::string file = args.out_file != "-" ? args.out_file : str(run, "/trace-perfetto.json");
  STRATA_TRY(check_output({"--out", file, "a trace for Perfetto"}, [](std::string_view head) {
    return head.starts_with("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
  }));
  STRATA_TRY(write_text_atomically(io, file, trace->json).annotate("--out"));
  print(args.out, args.json ? perfetto_summary_json(*trace, file) : perfetto_text(*trace, file));
  return {};
}

}  // namespace

int run_trace(const Args& args) {
  const Status status = write_trace(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, "trace", status);
}

}  // namespace strata::cli
