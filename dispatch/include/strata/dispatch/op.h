#pragma once

#include <initializer_list>

#include <strata/dispatch/check.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/tensor_view.h>

namespace strata::dispatch {

/// The implementations of one op: the host function, and the launch on CUDA.
template <class Args>
struct OpImpl {
  const char* name;
  void (*host)(const Args&, ThreadPool&);
  Status (*cuda)(Backend&, Stream&, const Args&);
};

/// Declares the launch of an op on CUDA. In a build without CUDA there is none to declare: it returns
/// `unsupported`.
#ifdef STRATA_HAVE_CUDA
#define STRATA_CUDA_LAUNCH(name, Args) Status name(Backend& backend, Stream& stream, const Args& args)
#else
#define STRATA_CUDA_LAUNCH(name, Args)                                                           \
  inline Status name(Backend&, Stream&, const Args&) {                                           \
    return Status::error(::strata::Code::unsupported, #name ": this build has no CUDA support"); \
  }                                                                                              \
  static_assert(true)
#endif

/// Defines `NAME_op`, the OpImpl of an op, in the namespace of its module. The host function is NAME_host().
/// The launch is cuda::NAME(), which a source in the module's src/cuda/ defines; its arguments have been
/// checked.
#define STRATA_OP(name, Args)     \
  namespace cuda {                \
  STRATA_CUDA_LAUNCH(name, Args); \
  }                               \
  constexpr ::strata::dispatch::OpImpl<Args> name##_op = {#name, &name##_host, &cuda::name}

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

}  // namespace strata::dispatch
