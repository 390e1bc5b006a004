#include "cuda/attention/cudnn_attention.h"

// cuDNN and CUDA are loaded by dlopen, as cuBLASLt is. cudnn-frontend is compiled into a namespace of our
// own, because a program that links strata may use cudnn-frontend itself with other options.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define cudnn_frontend strata_cudnn_frontend
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <cmath>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include <strata/dispatch/rows.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>

#include "attention/head_dim.h"
#include "cuda/attention/attention_plans.h"
#include "backend/cuda/cuda_error.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace strata::kernels::detail {
namespace {

namespace fe = cudnn_frontend;

// The first version with a deterministic backward on compute capability 10.0, too.
constexpr std::size_t kMinVersion = 91800;

std::string version_text(std::size_t v) { return str(v / 10000, ".", v / 100 % 100, ".", v % 100); }

Status load() {
  static const Status loaded = [] {
    fe::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);  // for the life of the process
    if (fe::cudnn_dlhandle == nullptr)
      return Status::error(Code::unsupported, str("attention by cuDNN needs libcudnn.so.9: ", ::dlerror()));
    const std::size_t version = fe::detail::get_backend_version();
    if (version < kMinVersion)
      return Status::error(Code::unsupported,
                           str("attention by cuDNN needs cuDNN ", version_text(kMinVersion),
                               " or later; found cuDNN ", version_text(version)));
    return Status::ok();
  }();
  return loaded;
}

std::string title(const CudnnAttention& a) {
  return str("attention ", a.backward ? "backward" : "forward", " of ", a.batch, " x ", a.seq, " tokens, ",
             a.heads, " heads over ", a.kv_heads, " key heads of dimension ", a.d, " in ", to_string(a.dtype),
             a.row_heads > 0 ? str(", a part of rows of ", a.row_heads, " heads") : std::string());
}
Status failure(const CudnnAttention& a, std::string_view what, std::string_view why) {
  return Status::error(Code::unsupported,
                       str("cuDNN: ", what, " failed for ", title(a), ": ", why.substr(0, why.find('\n'))));
}
#define STRATA_FE_TRY(call, what)                                                                          \
  do {                                                                                                     \
    if (fe::error_t fe_error = (call); fe_error.is_bad()) return failure(a, what, fe_error.get_message()); \
  } while (false)

/// The UIDs by which execute() finds a tensor's address.
enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

using Graph = std::shared_ptr<fe::graph::Graph>;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Describes a tensor [batch, heads, seq, d] inside rows of `parts` heads.
void shape(fe::graph::Tensor_attributes& t, Uid uid, const CudnnAttention& a, std::int64_t heads,
           std::int64_t parts) {
  const std::int64_t row = parts * a.d;
  t.set_uid(uid).set_dim({a.batch, heads, a.seq, a.d}).set_stride({a.seq * row, a.d, row, 1});
}
// cuDNN wants it packed. That of some heads is, too, since they are of one sequence (cudnn_parts).
void shape_lse(fe::graph::Tensor_attributes& t, const CudnnAttention& a) {
  t.set_uid(kLse)
      .set_dim({a.batch, a.heads, a.seq, 1})
      .set_stride({a.heads * a.seq, a.seq, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

template <class Options>
Options options(const CudnnAttention& a) {
  Options of;
  of.set_name("attention").set_attn_scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.d))));
  if (a.causal) of.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  return of;
}

Graph describe(const CudnnAttention& a, int compute_capability) {
  auto graph = std::make_shared<fe::graph::Graph>();
  // Nothing here is captured into CUDA graphs, and querying the capture status would need a shared libcudart.
  graph->set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE)
      .set_sm_version(compute_capability)
      .set_io_data_type(a.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const std::int64_t of_out = a.heads_of_row(), parts = of_out + 2 * a.kv_heads_of_row();
  const auto given = [&](Uid uid, std::int64_t heads, std::int64_t of) {
    fe::graph::Tensor_attributes t;
    shape(t, uid, a, heads, of);
    return graph->tensor(t);
  };
  const auto made = [&](const Tensor& t, Uid uid, std::int64_t heads, std::int64_t of) {
    shape(t->set_output(true), uid, a, heads, of);
  };
  const Tensor q = given(kQ, a.heads, parts), k = given(kK, a.kv_heads, parts),
               v = given(kV, a.kv_heads, parts);
  if (!a.backward) {
    const auto [out, lse] =
        graph->sdpa(q, k, v, options<fe::graph::SDPA_attributes>(a).set_generate_stats(true));
    made(out, kOut, a.heads, of_out);
    shape_lse(lse->set_output(true), a);
    return graph;
  }
  const Tensor out = given(kOut, a.heads, of_out), dout = given(kDout, a.heads, of_out);
  fe::graph::Tensor_attributes of_lse;
  shape_lse(of_lse, a);
  const auto [dq, dk, dv] =
      graph->sdpa_backward(q, k, v, out, dout, graph->tensor(of_lse),
                           options<fe::graph::SDPA_backward_attributes>(a).set_deterministic_algorithm(true));
  made(dq, kDq, a.heads, parts);
  made(dk, kDk, a.kv_heads, parts);
  made(dv, kDv, a.kv_heads, parts);
  return graph;
}

template <class View>
void* element(const View& view, std::int64_t i) {
  return view.data + i * static_cast<std::int64_t>(size_of(view.dtype));
}

/// Per device: a cuDNN handle, and the graphs with their chosen plans. Built once; there are few.
class CudnnGraphCache {
 public:
  Status run(const CudnnAttention& a, std::unordered_map<std::int64_t, void*>& at, BufferView workspace,
             cudaStream_t queue) STRATA_EXCLUDES(mutex_) {
    STRATA_TRY(load());
    int device = 0;
    STRATA_CUDA_TRY(cudaGetDevice(&device));
    const MutexLock lock(mutex_);  // a handle has one stream at a time
    try {
      cudnnHandle_t& handle = handles_[device];
      if (handle == nullptr) STRATA_TRY(check(a, "creating a handle", fe::detail::create_handle(&handle)));
      STRATA_TRY(check(a, "setting the stream", fe::detail::set_stream(handle, queue)));
      auto found = made_.find({device, a});
      if (found == made_.end()) {
        STRATA_TRY_ASSIGN(Graph graph, build(a, handle, device));
        found = made_.emplace(std::pair{device, a}, std::move(graph)).first;
      }
      STRATA_FE_TRY(found->second->execute(handle, at, workspace.data), "execution");
    } catch (const std::exception& e) {  // thrown by cudnn-frontend if a library lacks a function
      return failure(a, "execution", e.what());
    }
    return Status::ok();
  }

  std::vector<AttentionPlan> choices() STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::vector<AttentionPlan> all;
    std::map<CudnnAttention, std::string> plans = recorded_;
    for (const auto& [where, plan] : names_) plans[where.second] = plan;
    for (const auto& [of, plan] : plans) all.push_back({of, plan});
    return all;
  }
  void use(const std::vector<AttentionPlan>& choices) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (const AttentionPlan& choice : choices) recorded_[choice.attention] = choice.plan;
  }

  static CudnnGraphCache& instance() {
    static CudnnGraphCache& graphs =
        *new CudnnGraphCache;  // never destroyed: cuDNN's own libraries may be torn down first
    return graphs;
  }

 private:
  static Status check(const CudnnAttention& a, const char* what, cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS ? Status::ok()
                                          : failure(a, what, fe::detail::get_error_string(status));
  }

  // Builds the first of cuDNN's plans that fits into the workspace, or only the recorded one if another run
  // recorded it.
  Result<Graph> build(const CudnnAttention& a, cudnnHandle_t handle, int device) STRATA_REQUIRES(mutex_) {
    const std::int64_t max_bytes = cudnn_workspace_bytes(a);
    int major = 0, minor = 0;
    STRATA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    STRATA_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    Graph graph = describe(a, 10 * major + minor);
    STRATA_FE_TRY(graph->validate(), "validating the graph");
    STRATA_FE_TRY(graph->build_operation_graph(handle), "building the graph");
    STRATA_FE_TRY(graph->create_execution_plans({fe::HeurMode_t::A}), "listing plans");
    const auto recorded = recorded_.find(a);
    std::string seen;
    for (std::int64_t i = 0; i < graph->get_execution_plan_count(); ++i) {
      std::string name;
      STRATA_FE_TRY(graph->get_plan_name_at_index(i, name), "reading a plan's name");
      if (recorded != recorded_.end() && recorded->second != name) {
        seen += str(seen.empty() ? " " : ", ", name);
        continue;
      }
      if (const fe::error_t built = graph->build_plan_at_index(i); built.is_bad()) {
        seen += str(seen.empty() ? " " : ", ", name, " (fails to build)");
        continue;
      }
      std::int64_t bytes = 0;
      STRATA_FE_TRY(graph->get_workspace_size_plan_at_index(i, bytes), "reading a plan's workspace size");
      if (bytes <= max_bytes) {
        names_[{device, a}] = name;
        return graph;  // execute() runs the plan that was built last
      }
      seen += str(seen.empty() ? " " : ", ", name, " (", bytes, " bytes)");
    }
    return failure(a, "choosing a plan",
                   recorded != recorded_.end()
                       ? str("the run recorded plan ", recorded->second, ", but this cuDNN offers:", seen)
                       : str("no plan fits into the workspace of ", max_bytes, " bytes:", seen,
                             "; set train.attention_backend = mma"));
  }

  Mutex mutex_;
  std::map<int, cudnnHandle_t> handles_ STRATA_GUARDED_BY(mutex_);
  std::map<std::pair<int, CudnnAttention>, Graph> made_ STRATA_GUARDED_BY(mutex_);
  std::map<std::pair<int, CudnnAttention>, std::string> names_ STRATA_GUARDED_BY(mutex_);
  std::map<CudnnAttention, std::string> recorded_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

Status cudnn_attention_forward(const AttentionForwardArgs& args, cudaStream_t queue) {
  const std::int64_t d = head_dim(args.qkv, args.shape);
  const CudnnAttention a =
      cudnn_attention(false, dispatch::row_count(args.qkv), args.shape, args.qkv.dtype, d);
  const CudnnPart part = cudnn_part(a, {}, 0);
  std::unordered_map<std::int64_t, void*> at = {{kQ, element(args.qkv, part.q)},
                                                {kK, element(args.qkv, part.k)},
                                                {kV, element(args.qkv, part.v)},
                                                {kOut, args.out.data},
                                                {kLse, args.lse.data}};
  return CudnnGraphCache::instance().run(a, at, args.workspace, queue);
}

Status cudnn_attention_backward(const AttentionBackwardArgs& args, cudaStream_t queue) {
  const std::int64_t d = head_dim(args.qkv, args.shape);
  const CudnnAttention a =
      cudnn_attention(true, dispatch::row_count(args.qkv), args.shape, args.qkv.dtype, d);
  const CudnnParts parts = cudnn_parts(a);
  for (std::int64_t i = 0; i < parts.count(); ++i) {
    const CudnnPart part = cudnn_part(a, parts, i);
    std::unordered_map<std::int64_t, void*> at = {
        {kQ, element(args.qkv, part.q)},     {kK, element(args.qkv, part.k)},
        {kV, element(args.qkv, part.v)},     {kOut, element(args.out, part.out)},
        {kLse, element(args.lse, part.lse)}, {kDout, element(args.dout, part.out)},
        {kDq, element(args.dqkv, part.q)},   {kDk, element(args.dqkv, part.k)},
        {kDv, element(args.dqkv, part.v)}};
    STRATA_TRY(CudnnGraphCache::instance().run(part.attention, at, args.workspace, queue));
  }
  return Status::ok();
}

Result<CudnnPlan> cudnn_plan(const CudnnAttention& a, std::string_view gpu) try {
  STRATA_TRY(load());
  auto properties = std::make_shared<fe::DeviceProperties>();
  STRATA_FE_TRY(properties->deserialize({gpu.begin(), gpu.end()}), "reading the GPU's properties");
  // "deviceVer": 900 means compute capability 9.0.
  const std::size_t version = gpu.find("\"deviceVer\":");
  const int compute_capability =
      version == std::string_view::npos ? 0 : std::stoi(std::string(gpu.substr(version + 12))) / 10;
  const Graph graph = describe(a, compute_capability);
  graph->set_device_properties(properties);
  STRATA_FE_TRY(graph->validate(), "validating the graph");
  STRATA_FE_TRY(graph->build_operation_graph(), "building the graph");
  STRATA_FE_TRY(graph->create_execution_plans({fe::HeurMode_t::A}), "listing plans");
  CudnnPlan plan;
  STRATA_FE_TRY(graph->get_plan_name_at_index(0, plan.name), "reading a plan's name");
  STRATA_FE_TRY(graph->build_plan_at_index(0), "building a plan");
  STRATA_FE_TRY(graph->get_workspace_size_plan_at_index(0, plan.bytes), "reading a plan's workspace size");
  return plan;
} catch (const std::exception& e) {
  return failure(a, "planning", e.what());
}

}  // namespace strata::kernels::detail

namespace strata::kernels {

Result<std::string> cudnn_version() {
  STRATA_TRY(detail::load());
  return str("cuDNN ", detail::version_text(detail::fe::detail::get_backend_version()));
}
std::string cuda_attention_plans() { return detail::to_text(detail::CudnnGraphCache::instance().choices()); }
Status use_cuda_attention_plans(std::string_view text) {
  STRATA_TRY_ASSIGN(const std::vector<detail::AttentionPlan> choices, detail::parse_attention_plans(text));
  detail::CudnnGraphCache::instance().use(choices);
  return Status::ok();
}

}  // namespace strata::kernels
