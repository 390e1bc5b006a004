#include <strata/config/run_layout.h>

#include <strata/runtime/str.h>

namespace strata {

std::string trace_file(int rank) {
  return rank == 0 ? std::string(kTraceFile) : str(kRankTracePrefix, rank, kRankTraceSuffix);
}

// Metrics without a configuration are left where removing a run was interrupted.
bool is_run_folder(Io& io, const std::string& path) {
  return io.exists(path + "/" + kResolvedConfig) ||
         (io.exists(path + "/" + kMetricsFile) && has_begun(io, path));
}

Status check_is_run(Io& io, const std::string& path) {
  if (io.exists(path + "/" + kResolvedConfig)) return {};
  return Status::error(Code::not_found,
                       io.exists(path)
                           ? str(path, " contains no run: there is no ", path, "/", kResolvedConfig,
                                 "; start one with strata train --out ", path)
                           : str(path, " does not exist; strata train --out ", path, " starts a run there"));
}

bool has_begun(Io& io, const std::string& path) {
  const auto text = read_text(io, str(path, "/", kLockFile), 4096);
  return text.has_value() && *text == kBegunMark;
}

}  // namespace strata
