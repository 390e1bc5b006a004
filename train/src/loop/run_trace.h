#pragma once

#include <memory>
#include <string>

#include <strata/runtime/clock.h>
#include <strata/runtime/config/config_schema.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/trace/trace.h>

namespace strata::detail {

/// The trace of a rank for the steps of log.trace, disabled until the first of them; null if there are none.
std::unique_ptr<Trace> create_trace(const StepRange& steps, int rank, const Clock& clock);
/// Writes it into the run folder at `path`, which the machine of another rank than 0 may lack: then it does
/// nothing, as without a trace. Errors: those of Trace::write().
Status write_trace(Trace* trace, int rank, const std::string& path, Io& io);

}  // namespace strata::detail
