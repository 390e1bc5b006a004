// Tests that the transport's declarations of NCCL, whose header it does not include, agree with nccl.h.
#include <nccl.h>

#include <type_traits>

#include <gtest/gtest.h>

#include "nccl/nccl_api.h"

namespace strata {
namespace {

using detail::NcclApi;
using detail::NcclConfig;

/// The type of an NCCL function with the types that the table has instead.
template <class T>
struct Plain {
  using Type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <>
struct Plain<ncclComm_t> {
  using Type = void*;
};
template <>
struct Plain<ncclComm_t*> {
  using Type = void**;
};
template <>
struct Plain<cudaStream_t> {
  using Type = void*;
};
template <>
struct Plain<ncclUniqueId> {
  using Type = detail::NcclUniqueId;
};
template <>
struct Plain<ncclUniqueId*> {
  using Type = detail::NcclUniqueId*;
};
template <>
struct Plain<ncclConfig_t*> {
  using Type = NcclConfig*;
};
template <>
struct Plain<ncclResult_t*> {
  using Type = int*;
};
template <class R, class... As>
auto plain(R (*)(As...)) -> typename Plain<R>::Type (*)(typename Plain<As>::Type...);

#define EXPECT_SAME_TYPE(member, function) \
  EXPECT_TRUE((std::is_same_v<decltype(NcclApi::member), decltype(plain(&function))>)) << #function

TEST(NcclHeaderTest, FunctionsHaveTheTypesOfTheHeader) {
  EXPECT_SAME_TYPE(get_version, ncclGetVersion);
  EXPECT_SAME_TYPE(get_unique_id, ncclGetUniqueId);
  EXPECT_SAME_TYPE(init_rank, ncclCommInitRankConfig);
  EXPECT_SAME_TYPE(split, ncclCommSplit);
  EXPECT_SAME_TYPE(finalize, ncclCommFinalize);
  EXPECT_SAME_TYPE(destroy, ncclCommDestroy);
  EXPECT_SAME_TYPE(abort, ncclCommAbort);
  EXPECT_SAME_TYPE(get_async_error, ncclCommGetAsyncError);
  EXPECT_SAME_TYPE(error_string, ncclGetErrorString);
  EXPECT_SAME_TYPE(last_error, ncclGetLastError);
  EXPECT_SAME_TYPE(group_start, ncclGroupStart);
  EXPECT_SAME_TYPE(group_end, ncclGroupEnd);
  EXPECT_SAME_TYPE(all_gather, ncclAllGather);
  EXPECT_SAME_TYPE(broadcast, ncclBroadcast);
  EXPECT_SAME_TYPE(send, ncclSend);
  EXPECT_SAME_TYPE(receive, ncclRecv);
}

TEST(NcclHeaderTest, NumbersAreThoseOfTheHeader) {
  EXPECT_EQ(detail::kNcclSuccess, ncclSuccess);
  EXPECT_EQ(detail::kNcclInProgress, ncclInProgress);
  EXPECT_EQ(detail::kNcclInt8, ncclInt8);
  EXPECT_EQ(detail::kOldestNccl, NCCL_VERSION(2, 18, 0));
  EXPECT_EQ(sizeof(detail::NcclUniqueId), sizeof(ncclUniqueId));
}

TEST(NcclHeaderTest, TheConfigurationIsTheBeginningOfTheHeaders) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.split_share, theirs.splitShare);
  EXPECT_EQ(offsetof(NcclConfig, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(NcclConfig, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(NcclConfig, split_share), offsetof(ncclConfig_t, splitShare));
  EXPECT_LE(sizeof(NcclConfig), sizeof(ncclConfig_t));
}

}  // namespace
}  // namespace strata
