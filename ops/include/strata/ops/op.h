#pragma once

#include <initializer_list>

#include <strata/ops/check.h>
#include <strata/ops/rows.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/tensor_view.h>

namespace strata::ops {

/// The implementations of one op: the host function, and the launch on CUDA.
template <class Args>
struct OpImpl {
  const char* name;
  void (*host)(const Args&, ThreadPool&);
  Status (*cuda)(Backend&, Stream&, const Args&);
};

/// Queues an op whose arguments were checked, and declares the memory that it reads and writes.
template <class Args>
Status enqueue(Backend& backend, Stream& stream, const OpImpl<Args>& op, const Args& args,
               std::initializer_list<TensorView> reads, std::initializer_list<TensorView> writes,
               BufferView workspace = {}) {
  if (backend.info().kind == DeviceKind::cuda) return op.cuda(backend, stream, args);
  HostCall call(op.name, op.host, args);
  for (const TensorView& view : reads)
    if (is_present(view) && view.bytes() > 0) call.reads(view.data, view.bytes());
  for (const TensorView& view : writes)
    if (is_present(view) && view.bytes() > 0) call.writes(view.data, view.bytes());
  if (workspace.bytes > 0) call.writes(workspace.data, workspace.bytes);
  return backend.host_call_async(call, stream);
}

}  // namespace strata::ops
