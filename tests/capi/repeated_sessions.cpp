// Creates a session, takes a step and closes it, many times: descriptors, threads and memory of the process
// do not grow, and no files are left.
//   repeated_sessions ROUNDS [FOLDER]: states in RAM or, with a folder, on NVMe
#include <strata.h>

#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

constexpr int kWarmUp = 50;  // pools, caches of malloc and stacks of threads have their size by then
constexpr std::int64_t kElems = 50'000;

void must(strata_status status, const char* call) {
  if (status == STRATA_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", call, strata_status_name(status), strata_last_error());
  std::exit(1);
}

void run_training(const char* folder, std::vector<float>& values, const std::vector<float>& gradient) {
  strata_session_options options{};
  options.struct_size = sizeof options;
  options.threads = 2;
  options.pinned_bytes = std::uint64_t{16} << 20;
  options.placement = folder == nullptr ? STRATA_PLACE_PINNED : STRATA_PLACE_NVME;
  options.nvme_dirs = folder == nullptr ? nullptr : &folder;
  options.n_nvme_dirs = folder == nullptr ? 0 : 1;
  strata_session session = 0;
  must(strata_session_create(&options, &session), "create");
  const strata_param param{sizeof param, "weight", STRATA_F32, 1, &kElems, 0, 0};
  must(strata_session_add(session, &param), "add");
  void* const addresses[1] = {values.data()};
  must(strata_session_seal(session, addresses, 1), "seal");
  const strata_settings settings{sizeof settings, 0.01, 0.9, 0.999, 1e-8, 0, 0, 0, 0, 1};
  const strata_update update{sizeof update, 0, values.data(), gradient.data(), STRATA_F32, 0, &settings};
  must(strata_session_step(session, &update, 1), "step");
  must(strata_session_close(session), "close");
}

std::int64_t entries_of(const char* folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

/// A line of /proc/self/status, in KiB.
std::int64_t status_kib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1));
  return -1;
}

struct Resource {
  const char* name;
  std::int64_t before, after, allowance;  // allowance: the allocator's own rounding may add so much
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::string folder;
  if (argc > 2) {
    folder = std::string(argv[2]) + "/strata-sessions-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) return 2;
  }
  std::vector<float> values(kElems, 1.0f);
  const std::vector<float> gradient(kElems, 0.01f);
  const auto measure = [] {
    (void)::malloc_trim(0);
    return std::vector<std::int64_t>{entries_of("/proc/self/fd"), entries_of("/proc/self/task"),
                                     status_kib("VmSize"), status_kib("RssAnon")};
  };
  std::vector<std::int64_t> before;
  for (int round = 0; round < rounds + kWarmUp; ++round) {
    if (round == kWarmUp) before = measure();
    run_training(folder.empty() ? nullptr : folder.c_str(), values, gradient);
  }
  const std::vector<std::int64_t> after = measure();
  // A leak of 100 bytes in each of 1,000 rounds would be found, and one of two pages of mapped memory. The C
  // library keeps the stack of a thread for the next one, or not, by when it has ended.
  constexpr std::int64_t kStackKib = 8196;
  const Resource resources[] = {{"descriptors", before[0], after[0], 0},
                                {"threads", before[1], after[1], 0},
                                {"VmSize (KiB)", before[2], after[2], 64 + kStackKib},
                                {"RssAnon (KiB)", before[3], after[3], 64}};
  int failures = 0;
  for (const Resource& resource : resources) {
    const bool grew = resource.after > resource.before + resource.allowance;
    failures += grew ? 1 : 0;
    std::printf("%s: %ld after %d rounds, %ld after %d%s\n", resource.name,
                static_cast<long>(resource.before), kWarmUp, static_cast<long>(resource.after),
                rounds + kWarmUp, grew ? ": GREW" : "");
  }
  if (!folder.empty()) {
    const std::int64_t files = entries_of(folder.c_str());
    std::printf("files: %ld\n", static_cast<long>(files));
    failures += files == 0 ? 0 : 1;
    fs::remove_all(folder);
  }
  return failures == 0 ? 0 : 1;
}
