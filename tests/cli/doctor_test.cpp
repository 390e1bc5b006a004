#include "doctor.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

using ::testing::HasSubstr;

/// The facts of a healthy machine.
DoctorFacts healthy() {
  DoctorFacts facts;
  facts.cpu.sse42 = facts.cpu.avx2 = facts.cpu.f16c = true;
  facts.topology = Topology{.packages = 1,
                            .cores = 4,
                            .hardware_threads = 8,
                            .usable_threads = 8,
                            .l2_bytes = kMiB,
                            .l3_bytes = 32 * kMiB,
                            .numa = {{0, 4, kGiB}}};
  facts.share = must(partition_cores(must(synthetic_topology("numa:1 core:4 pu:2")), {}));
  facts.host.total_ram_bytes = facts.host.available_ram_bytes = 16 * kGiB;
  facts.host.huge_pages.transparent = "madvise";
  facts.nvme_dirs = {{"/data", true}, {"/more", true}};
  facts.cuda = {true, "H200", ""};
  facts.profile = CachedProfile{must(load_machine_profile("h200")), ""};
  return facts;
}

Check row(const DoctorFacts& facts, std::string_view name) {
  const auto checks = diagnose(facts);
  return *std::find_if(checks.begin(), checks.end(), [&](const Check& check) { return check.name == name; });
}

TEST(DoctorTest, AHealthyMachineNeedsNoRemedy) {
  for (const Check& check : diagnose(healthy())) {
    EXPECT_EQ(check.health, Health::ok) << check.name;
    EXPECT_EQ(check.remedy, "") << check.name;
  }
}

TEST(DoctorTest, AnArmCpuIsNotDegradedForMissingAvx2) {
  DoctorFacts facts = healthy();
  facts.cpu = {};
  facts.cpu.neon = true;
  EXPECT_EQ(row(facts, "cpu").health, Health::ok);
  EXPECT_EQ(row(facts, "cpu").detail, "neon");
}

TEST(DoctorTest, WhateverIsNotOkComesWithARemedy) {
  DoctorFacts facts;  // an empty machine
  facts.topology = Status::error(Code::unsupported, "no hwloc");
  facts.share = local_rank(std::vector<std::string>{"LOCAL_RANK=1"}).status();
  facts.host.memlock_limit_bytes = 0;
  facts.uring = Status::error(Code::unsupported, "Function not implemented");
  facts.nvme_dirs = {{"/nowhere", Status::error(Code::not_found, "/nowhere: No such file or directory")}};
  facts.cuda = cuda_probe();
  facts.environment = Status::error(Code::invalid, "one\ntwo");
  for (const Check& check : diagnose(facts)) {
    if (check.name == "collectives") continue;  // no run needs them yet
    EXPECT_NE(check.health, Health::ok) << check.name;
    EXPECT_NE(check.remedy, "") << check.name;
    EXPECT_EQ(check.detail.find('\n'), std::string::npos) << check.name;
  }
}

TEST(DoctorTest, ACgroupThatLeavesLittleMemoryDegrades) {
  DoctorFacts facts = healthy();
  facts.host.cgroup_limit_bytes = 2 * kGiB;
  facts.host.cgroup_used_bytes = 1536 * kMiB;
  facts.host.cgroup_free_bytes = 512 * kMiB;
  EXPECT_EQ(row(facts, "ram").health, Health::degraded);
  EXPECT_THAT(row(facts, "ram").detail, HasSubstr("cgroup limit 2.0 GiB, 1.5 GiB used"));
}

TEST(DoctorTest, ACpuQuotaBelowTheThreadsNamesTheSetting) {
  DoctorFacts facts = healthy();
  facts.host.cgroup_cpus = 2.5;
  EXPECT_EQ(row(facts, "cores").remedy, "cpu.threads=2");
}

TEST(DoctorTest, TheCoreShareIsShownWithItsReason) {
  EXPECT_THAT(row(healthy(), "compute").detail, HasSubstr("4 threads on NUMA node 0; all 4 cores"));
  DoctorFacts facts = healthy();
  facts.share = local_rank(std::vector<std::string>{"LOCAL_RANK=1"}).status();
  EXPECT_EQ(row(facts, "compute").health, Health::broken);
  EXPECT_THAT(row(facts, "compute").detail, HasSubstr("LOCAL_WORLD_SIZE is not set"));
}

TEST(DoctorTest, AFolderWithoutDirectIoIsDegradedAndNoneIsUnchecked) {
  DoctorFacts facts = healthy();
  facts.nvme_dirs.back().direct = false;
  std::vector<std::pair<std::string, Health>> dirs;
  for (const Check& check : diagnose(facts))
    if (check.name == "nvme dir")
      dirs.emplace_back(check.detail.substr(0, check.detail.find(' ')), check.health);
  EXPECT_THAT(dirs,
              ::testing::ElementsAre(std::pair("/data", Health::ok), std::pair("/more", Health::degraded)));
  facts.nvme_dirs.clear();
  EXPECT_EQ(row(facts, "nvme dir").health, Health::unchecked);
}

TEST(DoctorProbeTest, AWritableFolderAnswersAndAMissingOneIsNotFound) {
  EXPECT_TRUE(probe_direct("/tmp").has_value());
  EXPECT_EQ(probe_direct("/nowhere").status().code(), Code::not_found);
}

TEST(DoctorTest, TheStoredProfileIsChecked) {
  DoctorFacts facts = healthy();
  EXPECT_EQ(row(facts, "profile").health, Health::ok);
  EXPECT_THAT(row(facts, "profile").detail, HasSubstr("measured"));
  facts.profile->profile->read_bytes_per_s = 0;
  EXPECT_THAT(row(facts, "profile").detail, HasSubstr("NVMe was not measured"));
  facts.profile->warning = "it was measured on a different machine, another machine";
  EXPECT_EQ(row(facts, "profile").health, Health::degraded);
  facts.profile = CachedProfile{};
  EXPECT_EQ(row(facts, "profile").health, Health::unchecked);
  EXPECT_THAT(row(facts, "profile").remedy, HasSubstr("strata bench"));
  facts.profile = Status::error(Code::invalid, "machine.toml: cores is -3");
  EXPECT_EQ(row(facts, "profile").health, Health::broken);
}

}  // namespace
}  // namespace strata::cli
