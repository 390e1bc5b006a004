#include "run/rank_memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace strata {

std::uint64_t peak_resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  char line[256];
  unsigned long long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::strncmp(line, "VmHWM:", 6) == 0) {
      kib = std::strtoull(line + 6, nullptr, 10);
      break;
    }
  std::fclose(file);
  return kib * 1024;
}

Result<std::vector<RankMemory>> gather_rank_memory(World* world, std::uint64_t planned_bytes,
                                                   std::uint64_t data_bytes) {
  RankMemory mine;
  mine.planned_bytes = planned_bytes;
  mine.data_bytes = data_bytes;
  mine.peak_rss_bytes = peak_resident_bytes();
  if (world == nullptr) return std::vector<RankMemory>{mine};
  mine.rank = world->rank();
  mine.transport_bytes = world->transport_bytes();
  std::string text(sizeof mine, '\0');
  std::memcpy(text.data(), &mine, sizeof mine);
  STRATA_TRY_ASSIGN(const std::vector<std::string> texts, world->all_gather(text));
  std::vector<RankMemory> ranks;
  for (const std::string& other : texts) {
    RankMemory memory;
    std::memcpy(&memory, other.data(), sizeof memory);
    if (memory.rank % world->ranks_here() == 0) {
      ranks.push_back(memory);
      continue;
    }
    ranks.back().planned_bytes += memory.planned_bytes;
    ranks.back().data_bytes += memory.data_bytes;  // each of its ranks maps the dataset
    ranks.back().transport_bytes += memory.transport_bytes;
  }
  return ranks;
}

std::string rank_memory_json(const std::vector<RankMemory>& ranks) {
  std::string text = "[";
  for (const RankMemory& memory : ranks)
    text += fmt::format(
        "{}\n    {{\"rank\": {}, \"planned_bytes\": {}, \"data_bytes\": {}, \"transport_bytes\": {}, "
        "\"peak_rss_bytes\": {}, \"rss_limit_bytes\": {}}}",
        text.size() > 1 ? "," : "", memory.rank, memory.planned_bytes, memory.data_bytes,
        memory.transport_bytes, memory.peak_rss_bytes, memory.limit_bytes());
  return text + "\n  ]";
}

}  // namespace strata
