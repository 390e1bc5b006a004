#include <strata/parallel/collective.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using ::testing::HasSubstr;

std::byte* const kSomewhere = reinterpret_cast<std::byte*>(4096);

Collective all_reduce_of(std::size_t bytes, DType dtype) {
  return {CollectiveKind::all_reduce, {}, {kSomewhere, bytes}, dtype, Reduction::sum, 0};
}

TEST(CollectiveTest, SizesThatDoNotFitTheGroupAreRefusedWithBoth) {
  const Collective gather{.kind = CollectiveKind::all_gather,
                          .send = BufferView{kSomewhere, 8},
                          .receive = {kSomewhere + 64, 24}};
  EXPECT_TRUE(check(gather, 0, 3).is_ok());
  const Status refused = check(gather, 0, 4);
  EXPECT_EQ(refused.code(), Code::invalid);
  EXPECT_EQ(refused.message(),
            "all_gather in a group of 4 ranks: 8 bytes to send do not match 24 bytes to receive");
  const Collective scatter{.kind = CollectiveKind::reduce_scatter,
                           .send = BufferView{kSomewhere, 26},
                           .receive = {kSomewhere + 64, 8},
                           .dtype = DType::f32};
  EXPECT_EQ(check(scatter, 0, 3).code(), Code::invalid);
  const Collective exchange{
      .kind = CollectiveKind::all_to_all, .send = BufferView{kSomewhere, 7}, .receive = {kSomewhere + 64, 7}};
  EXPECT_EQ(check(exchange, 0, 2).code(), Code::invalid) << "7 bytes have no two equal parts";
}

TEST(CollectiveTest, ReductionsNeedWholeElementsOfADTypeThatCanBeAdded) {
  EXPECT_TRUE(check(all_reduce_of(12, DType::f32), 0, 2).is_ok());
  EXPECT_TRUE(check(all_reduce_of(0, DType::f64), 0, 2).is_ok());
  EXPECT_THAT(std::string(check(all_reduce_of(13, DType::f32), 0, 2).message()),
              HasSubstr("13 bytes are not a whole number of f32"));
  EXPECT_THAT(std::string(check(all_reduce_of(12, DType::u8), 0, 2).message()),
              HasSubstr("all_reduce of u8"));
}

TEST(CollectiveTest, APeerThatDoesNotExistIsRefused) {
  Collective broadcast{.kind = CollectiveKind::broadcast, .receive = {kSomewhere, 8}, .peer = 2};
  EXPECT_TRUE(check(broadcast, 2, 3).is_ok());
  EXPECT_EQ(check(broadcast, 0, 2).message(), "broadcast: there is no rank 2 in a group of 2 ranks");
  broadcast.peer = -1;
  EXPECT_FALSE(check(broadcast, 0, 2).is_ok());
  const Collective send{.kind = CollectiveKind::send, .send = BufferView{kSomewhere, 8}, .peer = 1};
  EXPECT_EQ(check(send, 1, 2).message(), "send: rank 1 is the caller itself");
  Collective shift{.kind = CollectiveKind::shift,
                   .send = BufferView{kSomewhere, 8},
                   .receive = {kSomewhere + 8, 8},
                   .peer = 1};
  EXPECT_TRUE(check(shift, 1, 2).is_ok());
  shift.peer = 2;
  EXPECT_EQ(check(shift, 1, 2).message(), "shift by 2 ranks in a group of 2 ranks; it is 0 to 1");
}

TEST(CollectiveTest, CallsThatDoNotMatchAreNamedWithTheirRanks) {
  const Status differs = check_match(all_reduce_of(8, DType::f32), 0, all_reduce_of(8, DType::bf16), 3);
  EXPECT_THAT(
      std::string(differs.message()),
      HasSubstr("rank 0 queued all_reduce (sum) of 8 bytes of f32, but rank 3 queued all_reduce (sum) "
                "of 8 bytes of bf16"));
  EXPECT_FALSE(check_match(all_reduce_of(8, DType::f32), 0, all_reduce_of(12, DType::f32), 1).is_ok());
  Collective a{.kind = CollectiveKind::broadcast, .receive = {kSomewhere, 8}, .peer = 0}, b = a;
  EXPECT_TRUE(check_match(a, 0, b, 1).is_ok());
  b.peer = 1;
  EXPECT_FALSE(check_match(a, 0, b, 1).is_ok());
  const Collective shift{.kind = CollectiveKind::shift, .peer = 1},
      further{.kind = CollectiveKind::shift, .peer = 2};
  EXPECT_THAT(std::string(check_match(shift, 0, further, 1).message()),
              HasSubstr("rank 0 queued shift by 1 rank of 0 bytes, but rank 1 queued shift by 2 ranks"));
  const Collective send{.kind = CollectiveKind::send, .send = BufferView{kSomewhere, 8}, .peer = 1};
  Collective receive{.kind = CollectiveKind::receive, .receive = {kSomewhere, 8}, .peer = 0};
  EXPECT_TRUE(check_match(send, 0, receive, 1).is_ok());
  receive.receive.bytes = 4;
  EXPECT_FALSE(check_match(send, 0, receive, 1).is_ok());
}

TEST(CollectiveTest, WireBytesAreTheKnownFormulas) {
  const Collective gather{
      .kind = CollectiveKind::all_gather, .send = BufferView{kSomewhere, 100}, .receive = {kSomewhere, 400}};
  EXPECT_EQ(wire_bytes(gather, 1, 4).sent, 300u);
  // 2 (n - 1) / n of the bytes where the ranks divide them.
  EXPECT_EQ(wire_bytes(all_reduce_of(1200, DType::f32), 2, 4).sent, 1800u);
  EXPECT_EQ(wire_bytes(all_reduce_of(1200, DType::f32), 0, 1).sent, 0u);
  for (const int size : {1, 2, 3, 7}) {
    std::uint64_t sent = 0, received = 0;
    for (int rank = 0; rank < size; ++rank) {
      sent += wire_bytes(all_reduce_of(1004, DType::f32), rank, size).sent;
      received += wire_bytes(all_reduce_of(1004, DType::f32), rank, size).received;
    }
    EXPECT_EQ(sent, 2u * 1004 * static_cast<unsigned>(size - 1)) << size;
    EXPECT_EQ(received, sent) << size;
  }
}

}  // namespace
}  // namespace strata
