#include "decide_keys.h"

#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/load_config.h>
#include <strata/runtime/config/config.h>
#include <strata/simd/isa.h>
#include <strata/cpuopt/prefetch.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/kernels/fp8.h>
#include <strata/kernels/linear.h>
#include <strata/model/hf/folder.h>
#include <strata/profile/compute_device.h>
#include <strata/profile/memory_budgets.h>
#include <strata/runtime/memory/host_memory.h>
#include <strata/profile/machine_memory.h>
#include <strata/runtime/backend/cuda_device.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/runtime/threads/topology.h>
#include <strata/config/decide.h>
#include <strata/config/key_facts.h>
#include <strata/config/objective.h>
#include <strata/plan/job.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>

#include <strata/plan/gemm_choice.h>

#include "decide_attention.h"

namespace strata {
namespace {

// Resolves `auto` budgets from the memory of this machine, or from the profile of another one.
void decide_memory(LoadedConfig& loaded, const MachineProfile* machine, const ComputeDevice& device) {
  TrainConfig& c = loaded.config;
  const auto decide_tier = [&](const std::optional<std::uint64_t>& bytes, Tier tier, std::uint64_t here,
                               const std::string& why) {
    if (bytes) return;
    decide(loaded, str("memory.", to_string(tier)),
           machine == nullptr ? here : machine->memory[static_cast<std::size_t>(tier)],
           machine == nullptr ? why : str("the memory of ", machine->name));
  };
  const auto ranks = static_cast<std::uint64_t>(c.parallel.local_ranks);
  const std::uint64_t share = default_ram_budget(read_host_facts()) / ranks / kPageBytes * kPageBytes;
  const std::string of_ranks =
      ranks == 1 ? std::string() : str(", divided by ", plural(ranks, "rank"), " on this machine");
  if (device.kind == DeviceKind::cuda)
    decide_tier(c.memory.device_bytes, Tier::device, default_gpu_budget(device.free_bytes),
                str("90 % of the free memory of ", device.name));
  else
    decide_tier(c.memory.device_bytes, Tier::device, share, "40 % of the free memory" + of_ranks);
  decide_tier(
      c.memory.pinned_bytes, Tier::pinned, device.kind == DeviceKind::cuda ? 2 * share : share,
      (device.kind == DeviceKind::cuda ? "80 % of the free memory" : "40 % of the free memory") + of_ranks);
}

// Whether this backend alone computes attention: of several, those that the machine lacks are left out.
bool asks_for(const TrainConfig& c, kernels::AttentionBackend backend) {
  return c.train.attention_backend == kernels::to_string(backend);
}

// Refuses what the user asked for and the GPU or the build lacks.
Status check_gpu_kernels(const TrainConfig& c, const ComputeDevice& device) {
  if (device.kind != DeviceKind::cuda) return {};
  const auto capability = [&] {
    return str(device.compute_capability / 10, ".", device.compute_capability % 10);
  };
  if (c.train.fp8 && device.compute_capability < kernels::kMinFp8ComputeCapability)
    return Status::error(Code::unsupported, str("train.fp8 = true: ", device.name, " has compute capability ",
                                                capability(), "; FP8 GEMMs need 8.9 or later"));
  if (trained_part(c) == TrainedPart::subspaces && c.optim.galore_svd == "exact")
    return Status::error(Code::unsupported,
                         "optim.galore_svd = exact is computed on the host backend; use subspace on a GPU");
  if (asks_for(c, kernels::AttentionBackend::wgmma) && !kernels::cuda_has_wgmma())
    return Status::error(Code::unsupported,
                         str("train.attention_backend = ", c.train.attention_backend, ": ", device.name,
                             " has compute capability ", capability(),
                             "; wgmma needs 9.0 and a build with 90a in CMAKE_CUDA_ARCHITECTURES"));
  if (asks_for(c, kernels::AttentionBackend::cudnn))
    return kernels::cudnn_version().status().annotate(
        str("train.attention_backend = ", c.train.attention_backend));
  return {};
}

// The dtype that the run stores, and the reason.
std::pair<const char*, std::string> fastest_dtype(const LoadedConfig& loaded, const MachineProfile* machine,
                                                  const ComputeDevice& device) {
  if (loaded.config.train.fp8) return {"bf16", "the dtype that train.fp8 quantizes"};
  if (machine != nullptr)
    return {machine->flops_16bit.back() > machine->flops_f32.back() ? "bf16" : "f32",
            str("the fastest GEMM dtype of ", machine->name)};
  if (device.kind == DeviceKind::cuda) return {"bf16", "the fast GEMM dtype of GPUs"};
  if (kernels::bf16_gemm() != kernels::Bf16Gemm::widened)
    return {"bf16", str("this CPU has bf16 GEMMs: ", kernels::bf16_gemm_kind())};
  const ConfigEntry& gemm = loaded.tree.entry("cpu.bf16_matmul");
  return {"f32", str("bf16 would be widened to f32: ", gemm.automatic ? gemm.why : gemm.origin)};
}

void decide_dtype(LoadedConfig& loaded, const MachineProfile* machine, const ComputeDevice& device) {
  if (loaded.config.train.dtype != "auto") return;
  auto [dtype, why] = fastest_dtype(loaded, machine, device);
  decide(loaded, "train.dtype", std::string(dtype), std::move(why));
}

Status decide_isa(LoadedConfig& loaded) {
  const std::string& asked = loaded.config.cpu.isa;
  STRATA_TRY_ASSIGN(const simd::CpuIsa isa, simd::select_isa(asked == "sse4" ? "sse42" : asked));
  if (asked == "auto")
    loaded.tree.resolve("cpu.isa", std::string(isa == simd::CpuIsa::sse42 ? "sse4" : simd::to_string(isa)),
                        "the best that this CPU supports");
  STRATA_TRY(simd::use_isa(isa));
  static_cast<void>(cpuopt::active_prefetch());  // measured now instead of in the first step
  return {};
}

void resolve_gradients(ConfigTree& tree, const RunPlan& plan) {
  std::size_t on_device = 0, all = 0;
  for (const auto& homes : plan.placement.homes)
    if (const std::optional<Tier> home = homes[static_cast<std::size_t>(Payload::accum)]) {
      ++all;
      on_device += *home == Tier::device ? 1 : 0;
    }
  // A mixture of both has no name of its own.
  tree.resolve("offload.gradients",
               std::string(on_device == all ? "device"
                           : on_device == 0 ? "pinned"
                                            : "auto"),
               str("the gradients of ", on_device, " of ", plural(all, "chunk"), " are on the device"));
}

// Matrices that are trained in subspaces are frozen between two of them, and have masters.
Status decide_matrix_masters(LoadedConfig& loaded) {
  TrainConfig& c = loaded.config;
  const bool needed = c.train.dtype != "f32";
  if (needed && !c.train.frozen_masters.value_or(true))
    return Status::error(Code::invalid,
                         str(loaded.tree.entry("train.frozen_masters").origin,
                             ": train.frozen_masters = false, but ", "optim.name = galore in ", c.train.dtype,
                             " adds what it has trained to the f32 masters of its matrices"));
  if (c.train.frozen_masters) return {};
  decide(loaded, "train.frozen_masters", needed,
         needed ? "of matrices that are trained in subspaces" : "a parameter in f32 is its own master");
  return {};
}

std::string_view name_of(GradientPolicy where) {
  return where == GradientPolicy::device ? "device" : "pinned";
}

struct BackendChoice {
  std::string_view backend;
  std::string why;
};
// A GPU is used if there is one for each rank on this machine that can run the kernels. A launcher may let
// each process see one of several.
BackendChoice backend_of_this_machine(const TrainConfig& c) {
  const auto gpu = usable_gpu();
  if (!gpu.has_value()) return {"host", std::string(gpu.status().message())};
  const int n = cuda_device_count(), ranks = c.parallel.local_ranks;
  // The CUDA runtime reads this variable, too.
  const bool shown_one_each =
      n == 1 && c.parallel.transport != "threads" && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  if (ranks > n && !shown_one_each)
    return {"host", str(plural(ranks, "rank"), " on this machine, but ", plural(n, "GPU"),
                        "; memory.backend=cuda lets them share")};
  if (trained_part(c) == TrainedPart::subspaces && c.optim.galore_svd == "exact")
    return {"host", "optim.galore_svd = exact is computed there alone"};
  return {"cuda", gpu->name};
}

}  // namespace

void resolve_backend(LoadedConfig& loaded, const MachineProfile* other_machine) {
  if (loaded.config.memory.backend != "auto") return;
  const auto [backend, why] = other_machine == nullptr
                                  ? backend_of_this_machine(loaded.config)
                                  : BackendChoice{other_machine->device_is_host ? "host" : "cuda",
                                                  str("the compute device of ", other_machine->name)};
  decide(loaded, "memory.backend", std::string(backend), why);
}

Result<TierBytes> decide_machine(LoadedConfig& loaded, const MachineProfile* profile, bool is_other) {
  const TrainConfig& c = loaded.config;
  const MachineProfile* const other_machine = is_other ? profile : nullptr;
  resolve_backend(loaded, other_machine);
  // A plan for another machine's GPU must not require one here.
  ComputeDevice device;
  if (other_machine == nullptr) {
    STRATA_TRY_ASSIGN(device, compute_device(c.memory.backend));
  }
  decide_memory(loaded, other_machine, device);
  STRATA_TRY(check_gpu_kernels(c, device));
  if (other_machine == nullptr) STRATA_TRY(resolve_bf16_gemm(loaded));
  decide_dtype(loaded, other_machine, device);
  decide_attention(loaded, profile, is_other);
  STRATA_TRY(decide_isa(loaded));
  return machine_memory(other_machine, device, read_host_facts(),
                        {*c.memory.device_bytes, *c.memory.pinned_bytes, c.memory.nvme_bytes});
}

// f32 masters of frozen parameters are worth their memory only if they have bits that the compute dtype loses
// and that come from a checkpoint of the user (extra bits of randomly initialized values do not matter), and
// if checkpoints hold them.
Status decide_frozen_masters(LoadedConfig& loaded) {
  TrainConfig& c = loaded.config;
  if (trained_part(c) == TrainedPart::subspaces) return decide_matrix_masters(loaded);
  if (c.train.frozen_masters) return {};
  if (!freezes(c)) {
    // A reference and a reward model compute in train.dtype, and are never trained on from there.
    if (objective_of(c).data == RunData::prompts) c.train.frozen_masters = false;
    loaded.tree.resolve("train.frozen_masters", false,
                        objective_of(c).data == RunData::prompts
                            ? "frozen models are compared with, and compute in train.dtype"
                            : "no parameter is frozen");
    return {};
  }
  bool keeps = false;
  std::string why = c.train.dtype == "f32" ? "a parameter in f32 is its own master"
                                           : "initial values are random and stored in train.dtype";
  if (c.train.dtype != "f32" && !saves_frozen(c)) {
    why = str("they are in ", c.model.from, ", and checkpoints leave them out");
  } else if (c.train.dtype != "f32" && !c.model.from.empty()) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<HfFolder> folder, HfFolder::open(posix_io(), c.model.from));
    keeps = !folder->is_all(compute_dtype(c));
    why = str(c.model.from, keeps ? " has values that are not exact in " : " has only values of ",
              c.train.dtype);
  }
  decide(loaded, "train.frozen_masters", keeps, why);
  return {};
}

void decide_old_log_probs(LoadedConfig& loaded) {
  const TrainConfig& c = loaded.config;
  if (objective_of(c).data != RunData::prompts || c.align.old_log_probs != "auto") return;
  const auto choose = [&](const char* where, const char* why) {
    decide(loaded, "align.old_log_probs", std::string(where), why);
  };
  if (c.memory.backend == "cuda") return choose("scored", "on GPUs a row's bits depend on the program");
  if (!kernels::host_rows_are_exact()) return choose("scored", "rows are exact from AVX2 on");
  choose("sampler", "a row has the same bits in sampling and in training");
}

void record_auto_keys(ConfigTree& tree) {
  if (!tree.is_auto("offload.auto_keys")) return;
  std::vector<std::string> open;
  for (const std::string& key : planned_keys())
    if (tree.entry(key).automatic) open.push_back(key);
  tree.resolve("offload.auto_keys", std::move(open), "the keys that were auto when the run started");
}

std::string resolve_changes(LoadedConfig& loaded, const SessionOptions& asked, const FoundPlan& found,
                            const std::string& why) {
  std::vector<std::string> kept;
  const auto keep = [&](const char* key, const auto& value, const char* more = "") {
    decide(loaded, key, value, why);
    kept.push_back(str(key, "=", value, more));
  };
  const SessionOptions& now = found.options;
  if (now.policy != asked.policy) keep("offload.policy", std::string("device"));
  if (now.chunk_elems != asked.chunk_elems) keep("offload.chunk", now.chunk_elems);
  if (now.gradients != asked.gradients) keep("offload.gradients", std::string(name_of(now.gradients)));
  if (now.prefetch != asked.prefetch) keep("offload.prefetch", std::int64_t{*now.prefetch});
  if (now.step_mode != asked.step_mode)
    keep("offload.step_mode", std::string(to_string(now.step_mode)), " with an undo log");
  return fmt::format("{}", fmt::join(kept, ", "));
}

void resolve_prefetch(LoadedConfig& loaded, const RunPlan& plan) {
  if (loaded.config.offload.prefetch) return;
  loaded.tree.resolve("offload.prefetch", std::int64_t{*plan.options.prefetch},
                      "2 to 6, as many as fit in an eighth of the device budget with their gradients");
}

void resolve_plan(LoadedConfig& loaded, const RunPlan& plan) {
  const TrainConfig& c = loaded.config;
  if (!c.offload.undo_bytes)
    loaded.tree.resolve("offload.undo_log", std::uint64_t{plan.undo.bytes},
                        !plan.undo.covers_any()
                            ? str("no update is speculative in mode ", c.offload.step_mode)
                            : std::string("what the pinned budget leaves, as far as it can be used"));
  resolve_prefetch(loaded, plan);
  if (c.offload.gradients == "auto") resolve_gradients(loaded.tree, plan);
  if (loaded.tree.is_auto("offload.policy"))
    loaded.tree.resolve("offload.policy", std::string("min_traffic"), "the placement with the least traffic");
  if (loaded.tree.is_auto("offload.chunk"))
    loaded.tree.resolve("offload.chunk", plan.layout.chunk_elems(), plan.layout.explanation());
}

}  // namespace strata
