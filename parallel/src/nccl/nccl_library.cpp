#include "nccl/nccl_library.h"

#include <dlfcn.h>

#include <cstring>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

/// Looks up functions, and remembers the first one that is missing.
struct Symbols {
  void* library;
  const char* missing = nullptr;

  template <class Function>
  void find(const char* name, Function*& function) {
    void* const symbol = ::dlsym(library, name);
    if (symbol == nullptr && missing == nullptr) missing = name;
    std::memcpy(&function, &symbol, sizeof symbol);
  }
};

const char* find_functions(void* library, NcclApi& api) {
  Symbols symbols{library};
  symbols.find("ncclGetVersion", api.get_version);
  symbols.find("ncclGetUniqueId", api.get_unique_id);
  symbols.find("ncclCommInitRankConfig", api.init_rank);
  symbols.find("ncclCommFinalize", api.finalize);
  symbols.find("ncclCommDestroy", api.destroy);
  symbols.find("ncclCommAbort", api.abort);
  symbols.find("ncclCommGetAsyncError", api.get_async_error);
  symbols.find("ncclGetErrorString", api.error_string);
  symbols.find("ncclGetLastError", api.last_error);
  symbols.find("ncclGroupStart", api.group_start);
  symbols.find("ncclGroupEnd", api.group_end);
  symbols.find("ncclAllGather", api.all_gather);
  symbols.find("ncclBroadcast", api.broadcast);
  symbols.find("ncclSend", api.send);
  symbols.find("ncclRecv", api.receive);
  symbols.find("ncclCommSplit", api.split);
  return symbols.missing;
}

}  // namespace

std::string nccl_version_text(int version) {
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

Result<std::shared_ptr<const NcclApi>> load_nccl(const std::string& name) {
  const ThirdPartyScope scope;
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): its text is of this thread
    return Status::error(Code::unsupported, str("NCCL cannot be loaded; is it installed? ", why));
  }
  auto api = std::make_shared<NcclApi>();
  const char* const missing = find_functions(library, *api);
  // The version first: an old library lacks functions, too.
  if (api->get_version != nullptr) {
    if (const int result = api->get_version(&api->version); result != kNcclSuccess)
      return Status::error(Code::unsupported,
                           str(name, ": ncclGetVersion: ",
                               missing == nullptr ? api->error_string(result) : "failed", " (", result, ")"));
    if (api->version < kOldestNccl)
      return Status::error(Code::unsupported,
                           str(name, " is NCCL ", nccl_version_text(api->version), ", but strata needs ",
                               nccl_version_text(kOldestNccl), " or newer"));
  }
  if (missing != nullptr) return Status::error(Code::unsupported, str(name, " does not define ", missing));
  return std::shared_ptr<const NcclApi>(std::move(api));
}

}  // namespace strata::detail
