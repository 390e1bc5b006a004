#include "c_activations.h"

#include <utility>

#include <strata/offload/nvme_store.h>
#include <strata/offload/placement_request.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/memory/host_memory.h>
#include <strata/runtime/str.h>

#include "c_values.h"

namespace strata::capi {
namespace {

Status check(const strata_activation_options& options) {
  std::string problems = problems_of_dirs(options.nvme_dirs, options.n_nvme_dirs, options.nvme_bytes);
  if (options.page_bytes % 4096 != 0 || options.page_bytes > (std::uint64_t{1} << 30))
    problems += str(problems.empty() ? "" : "\n", "page_bytes is ", options.page_bytes,
                    "; it must be a multiple of 4096 up to 1 GiB");
  return problems.empty() ? Status() : Status::error(Code::invalid, problems);
}

// Parts of the NVMe tier in the same folders, whose rates are measured once.
auto opener(NvmeOptions nvme) {
  return [nvme = std::move(nvme)](const SlotClass& slot_class) mutable -> Result<StorePtr<ObjectStore>> {
    nvme.classes = {slot_class};
    STRATA_TRY_ASSIGN(StorePtr<NvmeStore> store, NvmeStore::create(posix_io(), nvme));
    if (nvme.dirs.size() > 1 && nvme.path_rates.empty())
      for (const NvmePath& path : store->paths()) nvme.path_rates.push_back(path.rate);
    return StorePtr<ObjectStore>(std::move(store));
  };
}

}  // namespace

Result<std::shared_ptr<CActivations>> CActivations::create(const strata_activation_options& options) {
  STRATA_TRY(check(options));
  std::shared_ptr<CActivations> made(new CActivations);
  const HostFacts facts = read_host_facts();
  SpillOptions spill;
  spill.pinned_bytes = options.pinned_bytes != 0 ? options.pinned_bytes : default_ram_budget(facts);
  spill.page_bytes = static_cast<std::size_t>(options.page_bytes);
  if (options.n_nvme_dirs > 0) {
    spill.nvme_bytes = options.nvme_bytes != 0 ? options.nvme_bytes : kUnlimited;
    NvmeOptions nvme;
    for (std::size_t i = 0; i < options.n_nvme_dirs; ++i) nvme.dirs.emplace_back(options.nvme_dirs[i]);
    nvme.max_requests = SpillOptions::kMaxRequests;
    spill.open_store = opener(std::move(nvme));
  }
  STRATA_TRY(check_host_memory(spill.pinned_bytes, 1, facts));
  STRATA_TRY_ASSIGN(made->pool_, ThreadPool::create(1));
  STRATA_TRY_ASSIGN(made->backend_, create_host_backend({}, *made->pool_, made->clock_));
  STRATA_TRY_ASSIGN(made->store_, SpillStore::create(*made->backend_, std::move(spill)));
  return made;
}

}  // namespace strata::capi
