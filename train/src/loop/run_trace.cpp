#include "loop/run_trace.h"

#include <strata/runtime/str.h>
#include <strata/train/run_folder.h>
#include <strata/config/run_layout.h>

namespace strata::detail {

std::unique_ptr<Trace> create_trace(const StepRange& steps, int rank, const Clock& clock) {
  if (steps.empty()) return nullptr;
  Trace::Options options;
  options.process = str("rank ", rank);
  auto trace = std::make_unique<Trace>(clock, std::move(options));
  trace->set_enabled(false);
  return trace;
}

Status write_trace(Trace* trace, int rank, const std::string& path, Io& io) {
  if (trace == nullptr || (rank > 0 && !is_run_folder(io, path))) return {};
  return trace->write(io, str(path, "/", trace_file(rank)));
}

}  // namespace strata::detail
