#include <strata/graph/launch.h>

#include <utility>

#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

namespace strata {

Status launch(const OpCall& call, Backend& backend, Stream& stream) {
  Status status = op_def(call.op).launch(call, backend, stream);
  return status.is_ok() ? status : std::move(status).annotate(op_name(call.op));
}

}  // namespace strata
