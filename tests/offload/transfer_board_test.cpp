#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine.h"

namespace strata::test {
namespace {

using detail::Piece;
using detail::TransferBoard;

constexpr std::size_t kBlock = 4096;

detail::Transfer transfer(bool write, std::size_t blocks) { return {write, 0, 0, nullptr, blocks * kBlock}; }

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
  TransferBoard board(4, kBlock, 100);
  board.push(0, transfer(false, 2));
  board.push(1, transfer(false, 2));
  board.push(2, transfer(true, 1));
  board.push(3, transfer(true, 2));
  EXPECT_EQ(order_of(take_all(board)), "0r2w0r3w1r3w1r");
}

TEST(TransferBoardTest, FullDirectionLeavesTheOtherItsShare) {
  TransferBoard board(2, kBlock, 3);
  board.push(0, transfer(false, 8));
  ASSERT_EQ(order_of(take_all(board)), "0r0r0r");
  board.push(1, transfer(true, 8));
  EXPECT_EQ(order_of(take_all(board)), "1w1w1w");
}

TEST(TransferBoardTest, ReturnedBlockMakesRoomBeforeItsTransferIsTold) {
  TransferBoard board(1, kBlock, 2);
  board.push(0, transfer(true, 3));
  const std::vector<Piece> out = take_all(board);
  ASSERT_EQ(out.size(), 2u);
  board.returned(out[1]);
  EXPECT_EQ(order_of(take_all(board)), "0w");
  EXPECT_FALSE(board.complete(out[1], Status::ok()).has_value());
}

TEST(TransferBoardTest, FailureDropsTheBlocksThatWereNotTaken) {
  TransferBoard board(2, kBlock, 1);
  board.push(0, transfer(true, 9));
  board.push(1, transfer(true, 1));
  const Piece first = board.take();
  board.returned(first);
  const std::optional<Status> outcome = board.complete(first, Status::error(Code::io_error, "gone"));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), Code::io_error);
  EXPECT_EQ(order_of(take_all(board)), "1w");
}

}  // namespace
}  // namespace strata::test
