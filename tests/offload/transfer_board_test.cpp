#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "transfer_board.h"

namespace strata::test {
namespace {

using detail::Extent;
using detail::Piece;
using detail::TransferBoard;

constexpr std::size_t kBlock = 4096;

// Moves nothing: `data` only has addresses.
std::array<std::byte, 64 * kBlock> memory;

void push(TransferBoard& board, std::uint32_t index, bool write, std::vector<std::size_t> blocks) {
  std::vector<Extent> extents;
  for (std::uint32_t file = 0; file < blocks.size(); ++file)
    if (blocks[file] > 0) extents.push_back({file, 1000 * kBlock * index, blocks[file] * kBlock});
  board.push(index, {write, memory.data(), extents});
}

std::vector<Piece> take_all(TransferBoard& board) {
  std::vector<Piece> taken;
  while (board.has_piece()) taken.push_back(board.take());
  return taken;
}

// "0r1w": a block of read 0, then one of write 1.
std::string order_of(const std::vector<Piece>& pieces) {
  std::string order;
  for (const Piece& piece : pieces) order += std::to_string(piece.index) + (piece.part.write ? "w" : "r");
  return order;
}

TEST(TransferBoardTest, DirectionsTakeTurnsAndServeTheirOwnInOrder) {
  TransferBoard board(4, 1, kBlock, {100, 1000});
  push(board, 0, false, {2});
  push(board, 1, false, {2});
  push(board, 2, true, {1});
  push(board, 3, true, {2});
  EXPECT_EQ(order_of(take_all(board)), "0r2w0r3w1r3w1r");
}

TEST(TransferBoardTest, FullDirectionLeavesTheOtherItsShare) {
  TransferBoard board(2, 1, kBlock, {3, 1000});
  push(board, 0, false, {8});
  ASSERT_EQ(order_of(take_all(board)), "0r0r0r");
  push(board, 1, true, {8});
  EXPECT_EQ(order_of(take_all(board)), "1w1w1w");
}

TEST(TransferBoardTest, ReturnedBlockMakesRoomBeforeItsTransferIsTold) {
  TransferBoard board(1, 1, kBlock, {2, 1000});
  push(board, 0, true, {3});
  const std::vector<Piece> out = take_all(board);
  ASSERT_EQ(out.size(), 2u);
  board.returned(out[1]);
  EXPECT_EQ(order_of(take_all(board)), "0w");
  EXPECT_FALSE(board.complete(out[1], Status::ok()).has_value());
}

TEST(TransferBoardTest, FailureDropsTheBlocksThatWereNotTaken) {
  TransferBoard board(2, 1, kBlock, {1, 1000});
  push(board, 0, true, {9});
  push(board, 1, true, {1});
  const Piece first = board.take();
  board.returned(first);
  const std::optional<Status> outcome = board.complete(first, Status::error(Code::io_error, "gone"));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), Code::io_error);
  EXPECT_EQ(order_of(take_all(board)), "1w");
}

// "1:2@3": file 1, block 2 of the file's extent, block 3 of the transfer.
std::string places_of(const std::vector<Piece>& pieces, std::uint32_t index) {
  std::string places;
  for (const Piece& piece : pieces)
    places += std::to_string(piece.part.file) + ":" +
              std::to_string(piece.part.offset / kBlock - 1000 * index) + "@" +
              std::to_string(piece.at / kBlock) + " ";
  return places;
}

TEST(TransferBoardTest, ExtentsHoldTheTransferOneAfterTheOtherAndTheirFilesTakeTurns) {
  TransferBoard board(4, 2, kBlock, {100, 100});
  push(board, 3, true, {3, 1});
  const std::vector<Piece> pieces = take_all(board);
  EXPECT_EQ(places_of(pieces, 3), "0:0@0 1:0@3 0:1@1 0:2@2 ");
  for (const Piece& piece : pieces) EXPECT_EQ(piece.part.data, memory.data() + piece.at);
}

TEST(TransferBoardTest, FileThatReturnsNothingLeavesTheOthersTheirShare) {
  TransferBoard board(3, 2, kBlock, {2, 100});
  push(board, 0, false, {4, 4});
  push(board, 1, false, {4, 4});
  std::vector<Piece> out = take_all(board);
  ASSERT_EQ(out.size(), 4u);
  for (int i = 0; i < 6; ++i) {
    const auto fast = std::find_if(out.begin(), out.end(), [](const Piece& p) { return p.part.file == 0; });
    board.returned(*fast);
    EXPECT_FALSE(board.complete(*fast, Status::ok()).has_value());
    *fast = board.take();
    EXPECT_EQ(fast->part.file, 0u);
  }
  EXPECT_FALSE(board.has_piece());
}

TEST(TransferBoardTest, FilesShareHoldsForBothDirectionsTogether) {
  TransferBoard board(2, 1, kBlock, {2, 3});
  push(board, 0, false, {4});
  push(board, 1, true, {4});
  EXPECT_EQ(order_of(take_all(board)), "0r1w0r");
}

TEST(TransferBoardTest, TransferIsOverWhenItsLastExtentIs) {
  TransferBoard board(1, 3, kBlock, {1, 1});
  push(board, 0, true, {1, 0, 1});
  const std::vector<Piece> out = take_all(board);
  ASSERT_EQ(out.size(), 2u);
  board.returned(out[1]);
  EXPECT_FALSE(board.complete(out[1], Status::ok()).has_value());
  board.returned(out[0]);
  EXPECT_TRUE(board.complete(out[0], Status::ok()).has_value());
}

// The failing one is at the head of one file's queue and behind another in the other's.
TEST(TransferBoardTest, FailureInOneFileDropsTheBlocksThatWaitInTheOthers) {
  TransferBoard board(3, 2, kBlock, {1, 1});
  push(board, 0, true, {0, 2});
  push(board, 1, true, {2, 2});
  push(board, 2, true, {0, 1});
  const std::vector<Piece> out = take_all(board);
  ASSERT_EQ(order_of(out), "1w0w");
  board.returned(out[0]);
  const std::optional<Status> outcome = board.complete(out[0], Status::error(Code::io_error, "gone"));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), Code::io_error);
  push(board, 1, true, {1, 0});
  EXPECT_EQ(order_of({board.take()}), "1w");
  board.returned(out[1]);
  EXPECT_FALSE(board.complete(out[1], Status::ok()).has_value());
  const Piece rest = board.take();
  board.returned(rest);
  EXPECT_EQ(order_of({rest, board.take()}), "0w2w");
}

}  // namespace
}  // namespace strata::test
